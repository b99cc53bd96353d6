"""Cache bytes of one sequence: growing, windowed and constant parts, of the whole model or of one rank."""

from __future__ import annotations

from typing import Final

from rightslice.catalogue.architecture import Architecture, AttentionGroup
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.memory.cache_rules import cache_rules
from rightslice.memory.packed import compressed_token_bytes
from rightslice.memory.precision import compute_capability
from rightslice.memory.speculation import drafter_of

KV_BYTES: Final[dict[str, float]] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5 + 1.0 / 16}
"""Bytes per cached element; FP4 with a scale per 16 elements."""
_GROWING: Final = frozenset({"full", "mla"})
_WINDOWED: Final = frozenset({"sliding", "chunked"})
_PACKED_ELEMENTS: Final = 576
_PACKED_BYTES: Final = 512 + 4 * 4 + 64 * 2
"""A latent of sparse attention in one row: 512 elements in FP8, a 32-bit scale per 128, 64 rotated ones in 16 bit."""
_INDEXER_GROUP: Final = 128
_INDEXER_SCALE_BYTES: Final = 4
"""Engines keep an indexer's keys in eight bit with a 32-bit scale per 128, whatever the cache's type."""


def growing_bytes_per_token(architecture: Architecture, kv_dtype: str) -> float:
    """Bytes that each further token adds in layers that grow without bound, indexer keys apart."""
    return KV_BYTES[kv_dtype] * architecture.cache_elements_per_token()


def indexer_bytes_per_token(architecture: Architecture, kv_dtype: str) -> float:
    """Bytes per token of the keys that sparse-attention indexers keep."""
    return KV_BYTES[kv_dtype] * sum(g.layers * g.indexer_elements_per_token for g in architecture.attention)


def windowed_bytes_per_token(architecture: Architecture, kv_dtype: str) -> float:
    """Bytes per token, up to the window, of layers that keep only the last tokens."""
    elements = sum(g.layers * g.kv_elements_per_token for g in architecture.attention if g.kind in _WINDOWED)
    return KV_BYTES[kv_dtype] * elements


def window_tokens(architecture: Architecture) -> int | None:
    """The longest window, or None without one."""
    return max((g.window_tokens for g in architecture.attention if g.kind in _WINDOWED), default=None)


def state_bytes(architecture: Architecture) -> int:
    """Constant bytes per sequence: recurrent and convolution states, cross attention of a speech model."""
    return sum(g.layers * g.state_bytes_per_sequence for g in architecture.attention)


def encoder_bytes_per_token(architecture: Architecture, kv_dtype: str) -> float:
    """Bytes that cross attention keeps per token of the encoder's input, beside the figures above."""
    elements = sum(g.layers * g.kv_elements_per_token for g in architecture.attention if g.kind == "cross")
    return KV_BYTES[kv_dtype] * elements


def sequence_bytes(architecture: Architecture, tokens: int, kv_dtype: str) -> float:
    """Cache of one sequence of T tokens.

    T x (growing + indexer) + sum over windowed layers of min(T, window) x their bytes + state.
    """
    element = KV_BYTES[kv_dtype]
    return sum(
        g.layers * _kept_bytes(g, tokens, element * g.kv_elements_per_token, element * g.indexer_elements_per_token)
        for g in architecture.attention
    )


def stored_token_bytes(
    group: AttentionGroup, settings: EngineSettings, *, sparse: bool, device: Device | None
) -> float:
    """Bytes that an engine keeps per token in one layer of `group`, all KV heads together, indexer keys apart.

    As the type of the cache says, but for packed latents of `sparse` attention (`engine_cache.json`) and compressed
    ones. `device` None: not known, the wider of the two.
    """
    plain = group.kv_elements_per_token * KV_BYTES[settings.kv_dtype]
    rules = cache_rules(settings.engine, settings.version)
    packed = rules.packed_latents
    if group.compress_ratio and rules.packs_blocks and settings.kv_dtype == "fp8":
        return compressed_token_bytes(group)
    if not sparse or group.kind != "mla" or group.kv_elements_per_token != _PACKED_ELEMENTS:
        return plain
    if device is None:
        return max(plain, _PACKED_BYTES) if any(settings.kv_dtype in kinds for kinds in packed.values()) else plain
    capability = compute_capability(device)
    major = "" if capability is None else f"{int(capability)}"
    return _PACKED_BYTES if settings.kv_dtype in packed.get(major, ()) else plain


def stored_indexer_bytes(group: AttentionGroup) -> int:
    """Bytes that an engine keeps per token of the indexer keys of one layer."""
    keys = group.indexer_elements_per_token
    return keys + -(-keys // _INDEXER_GROUP) * _INDEXER_SCALE_BYTES


def is_sparse(architecture: Architecture) -> bool:
    """Whether an indexer chooses what attention reads: also in layers that share the choice of another."""
    return any(group.indexer_elements_per_token for group in architecture.attention)


def rank_sequence_bytes(
    architecture: Architecture, tokens: int, settings: EngineSettings, device: Device | None = None
) -> float:
    """Cache of one sequence on the fullest rank, as the engine stores it on `device` (`stored_token_bytes`).

    KV heads divide by min(tensor parallel size, KV heads) and repeat beyond; the latent of multi-head latent attention
    has one head and repeats on every rank; states divide by their heads, by channels without. Stages of a pipeline hold
    ceil(layers / p). What drafts tokens keeps the same tokens on top.
    """
    drafter = drafter_of(architecture, settings)
    beside = _rank_bytes(drafter.architecture, tokens, drafter.settings, device) if drafter else 0.0
    return _rank_bytes(architecture, tokens, settings, device) + beside


def _rank_bytes(architecture: Architecture, tokens: int, settings: EngineSettings, device: Device | None) -> float:
    sparse = is_sparse(architecture)
    whole = 0.0
    for group in architecture.attention:
        own = stored_token_bytes(group, settings, sparse=sparse, device=device)
        kept = _kept_bytes(group, tokens, own, stored_indexer_bytes(group))
        whole += group.layers * kept / rank_share(group, settings.tensor_parallel_size)
    stages = settings.pipeline_parallel_size
    count = max(1, architecture.layers)
    return whole * -(-count // stages) / count


def rank_share(group: AttentionGroup, tensor: int) -> int:
    """Parts into which `tensor` ranks divide the cache of one layer."""
    heads = group.kv_heads * (group.qk_head_dim if group.kind == "mamba" else 1)
    return min(tensor, max(1, heads))


def _kept_bytes(group: AttentionGroup, tokens: int, token_bytes: float, indexer_bytes: float) -> float:
    """Cache of one layer and sequence, from the bytes per token of its own and of its indexer."""
    kept = 0.0
    if group.kind in _GROWING:
        kept = tokens * (token_bytes + indexer_bytes)
    elif group.kind in _WINDOWED:
        kept = min(tokens, group.window_tokens) * token_bytes + tokens * indexer_bytes
    return kept + group.state_bytes_per_sequence
