"""Cache bytes of one sequence: growing, windowed and constant parts, of the whole model or of one rank."""

from __future__ import annotations

from typing import Final

from rightslice.catalogue.architecture import Architecture, AttentionGroup
from rightslice.core.engine import EngineSettings
from rightslice.memory.speculation import drafter_of

KV_BYTES: Final[dict[str, float]] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5 + 1.0 / 16}
"""Bytes per cached element; FP4 with a scale per 16 elements."""
_GROWING: Final = frozenset({"full", "mla"})
_WINDOWED: Final = frozenset({"sliding", "chunked"})


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
    return sum(g.layers * _group_bytes(g, tokens, KV_BYTES[kv_dtype]) for g in architecture.attention)


def rank_sequence_bytes(architecture: Architecture, tokens: int, settings: EngineSettings) -> float:
    """Cache of one sequence on the fullest rank.

    KV heads divide by min(tensor parallel size, KV heads) and repeat beyond; the latent of multi-head latent attention
    has one head and repeats on every rank; states divide by their heads, by channels without. Stages of a pipeline hold
    ceil(layers / p). What drafts tokens keeps the same tokens on top.
    """
    drafter = drafter_of(architecture, settings)
    beside = _rank_bytes(drafter.architecture, tokens, drafter.settings) if drafter else 0.0
    return _rank_bytes(architecture, tokens, settings) + beside


def _rank_bytes(architecture: Architecture, tokens: int, settings: EngineSettings) -> float:
    element = KV_BYTES[settings.kv_dtype]
    whole = sum(
        g.layers * _group_bytes(g, tokens, element) / rank_share(g, settings.tensor_parallel_size)
        for g in architecture.attention
    )
    stages = settings.pipeline_parallel_size
    count = max(1, architecture.layers)
    return whole * -(-count // stages) / count


def rank_share(group: AttentionGroup, tensor: int) -> int:
    """Parts into which `tensor` ranks divide the cache of one layer."""
    heads = group.kv_heads * (group.qk_head_dim if group.kind == "mamba" else 1)
    return min(tensor, max(1, heads))


def _group_bytes(group: AttentionGroup, tokens: int, element: float) -> float:
    kept = 0.0
    if group.kind in _GROWING:
        kept = tokens * element * (group.kv_elements_per_token + group.indexer_elements_per_token)
    elif group.kind in _WINDOWED:
        kept = min(tokens, group.window_tokens) * element * group.kv_elements_per_token
        kept += tokens * element * group.indexer_elements_per_token
    return kept + group.state_bytes_per_sequence
