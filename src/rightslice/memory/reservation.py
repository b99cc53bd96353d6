"""The engine's own plan of its cache: layers grouped by block table, blocks of one pool, what a request reserves.

An engine hands out blocks of one size. Layers of one kind share a block table; kinds are cut into groups of equally
many layers, a block belongs to one group, and the pool's block is as wide as the widest group. So a request reserves
(sum over groups of its blocks) x the pool's block: more than the architecture's bytes, which `cache.py` counts.
Read in vLLM's `v1/core/kv_cache_utils.py` and `v1/kv_cache_interface.py`, and compared with their answers
(`tests/data/engine_cache`, version 0.32.0); other versions by the rows of `engine_cache.json`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rightslice.catalogue.architecture import Architecture, AttentionGroup
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.memory.cache import KV_BYTES, is_sparse, rank_share, stored_indexer_bytes, stored_token_bytes
from rightslice.memory.cache_groups import CachePlan, Keeps, LayerGroup
from rightslice.memory.cache_rules import CacheRules, cache_rules
from rightslice.memory.overheads import step_tokens
from rightslice.memory.packed import packed_groups
from rightslice.memory.speculation import drafter_of

_KEEPS: Final[dict[str, Keeps]] = {
    "full": "all", "mla": "all", "sliding": "window", "chunked": "chunk", "linear": "state", "mamba": "state",
    "cross": "encoder",
}  # fmt: skip
_KERNEL_BLOCK: Final = 16
"""Attention kernels take multiples of this many tokens; a latent cache beside states takes 128."""
_LATENT_BLOCK: Final = 128
_STORED_BYTES: Final = 2
"""Constant cross-attention bytes of an architecture are counted in 16 bit."""


def cache_plan(architecture: Architecture, settings: EngineSettings, device: Device | None = None) -> CachePlan:
    """The plan of the fullest rank of one replica. Some caches differ by `device` (see `stored_token_bytes`).

    KV heads divide by min(tensor parallel size, heads) and repeat beyond; a latent is whole on every rank. Stages of a
    pipeline hold ceil(layers of a group / stages): exact where the kinds alternate evenly.
    """
    rules = cache_rules(settings.engine, settings.version)
    stages = settings.pipeline_parallel_size
    if rules.packs_blocks and settings.kv_dtype == "fp8" and not drafter_of(architecture, settings):
        packed = packed_groups(architecture, stages)
        if packed:
            return CachePlan(packed, rules, _in_flight(settings, rules), shared=True)
    kinds = _merged((*_layers(architecture, settings, device), *_drafting(architecture, settings, device)))
    if len({(k.keeps, k.reach_tokens, k.block_tokens) for k in kinds}) <= 1 and not _states_differ(kinds):
        return CachePlan(_one_group(kinds, stages), rules, _in_flight(settings, rules), shared=bool(rules.log))
    equal = _merged(_unified(_beside_states(kinds, settings)))
    shared = rules.log != "" and rules.windows and _one_page(equal, rules) and not _compressed(architecture)
    if shared:
        groups = _levelled(equal, rules, stages)
    else:
        groups = tuple(g for kind in kinds for g in _one_group([kind], stages))
    return CachePlan(groups, rules, _in_flight(settings, rules), shared)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers with the same cache. `shape` tells caches of equal size apart; `token_bytes` of one layer, 0 for states;
    `page_bytes` of one layer's block, padding included.
    """

    keeps: Keeps
    shape: tuple[object, ...]
    layers: int
    token_bytes: int
    page_bytes: int
    block_tokens: int
    reach_tokens: int
    states: int
    padded: bool = False


def _kinds(group: AttentionGroup, settings: EngineSettings, token_bytes: float) -> list[_Kind]:
    """The caches of one layer of `group` on one rank: its own, of `token_bytes` over all, and that of its indexer."""
    if group.kind not in _KEEPS:
        return []
    rules = cache_rules(settings.engine, settings.version)
    keeps = _KEEPS[group.kind] if rules.windows or group.kind not in ("sliding", "chunked") else "all"
    split = rank_share(group, settings.tensor_parallel_size)
    block = settings.block_size_tokens
    shape = (group.kind == "mla", group.kv_heads, group.qk_head_dim, group.v_head_dim)
    elements, reach = group.kv_elements_per_token, group.window_tokens if keeps in ("window", "chunk") else 0
    if keeps == "encoder":
        elements = elements or group.kv_heads * (group.qk_head_dim + group.v_head_dim)
        token_bytes = elements * KV_BYTES[settings.kv_dtype]
        own = group.state_bytes_per_sequence // (_STORED_BYTES * elements) if elements else 0
        reach = max(settings.max_num_batched_tokens, own)
    found = []
    if keeps == "state" and group.state_bytes_per_sequence:
        state = -(-(group.state_bytes_per_sequence - group.spare_state_bytes_per_sequence) // split)
        cached = settings.prefix_caching and rules.state_blocks > 1
        more = rules.checkpoint_blocks if group.kind == "mamba" and group.kv_heads > 1 else 0  # one head: Mamba-1
        states, span = (rules.state_blocks + more, block) if cached else (1, settings.max_model_len)
        found.append(_Kind("state", shape, group.layers, 0, state, span, 0, states))
    elif elements:
        each = math.ceil(token_bytes / split)
        found.append(_Kind(keeps, shape, group.layers, each, each * block, block, reach, 1))
    if group.indexer_elements_per_token:
        keys, each = group.indexer_elements_per_token, stored_indexer_bytes(group)
        found.append(_Kind(keeps, ("indexer", keys), group.layers, each, each * block, block, reach, 1))
    return found


def _layers(architecture: Architecture, settings: EngineSettings, device: Device | None) -> Iterator[_Kind]:
    sparse = is_sparse(architecture)
    for group in architecture.attention:
        yield from _kinds(group, settings, stored_token_bytes(group, settings, sparse=sparse, device=device))


def _drafting(architecture: Architecture, settings: EngineSettings, device: Device | None) -> Iterator[_Kind]:
    """The layers that draft tokens: all in the last stage, so that they count there as if each stage had them."""
    drafter = drafter_of(architecture, settings)
    for kind in _layers(drafter.architecture, drafter.settings, device) if drafter else ():
        yield replace(kind, layers=kind.layers * settings.pipeline_parallel_size)


def _merged(kinds: Iterable[_Kind]) -> list[_Kind]:
    """Layers of equal kinds together, in order of first appearance."""
    found: dict[_Kind, int] = {}
    for kind in kinds:
        key = replace(kind, layers=0)
        found[key] = found.get(key, 0) + kind.layers
    return [replace(kind, layers=layers) for kind, layers in found.items()]


def _states_differ(kinds: list[_Kind]) -> bool:
    return len({k.page_bytes for k in kinds if k.keeps == "state"}) > 1


def _beside_states(kinds: list[_Kind], settings: EngineSettings) -> list[_Kind]:
    """Attention beside states: its block grows until the page holds a state, and the state is padded to that page."""
    states = [k for k in kinds if k.keeps == "state"]
    attention = next((k for k in kinds if k.keeps == "all"), None)
    if not states or attention is None:
        return kinds
    least = _LATENT_BLOCK if attention.shape[0] is True else _KERNEL_BLOCK
    step = max(least, settings.block_size_tokens)
    block = step * -(-max(s.page_bytes for s in states) // (step * attention.token_bytes))
    page = block * attention.token_bytes
    found = []
    for kind in kinds:
        if kind.keeps != "state":
            found.append(replace(kind, block_tokens=block, page_bytes=block * kind.token_bytes))
        else:
            span = block if kind.states > 1 else kind.block_tokens  # a cached state belongs to a block of attention
            found.append(replace(kind, block_tokens=span, page_bytes=page))
    return found


def _unified(kinds: list[_Kind]) -> list[_Kind]:
    """Pages of one size: smaller ones hold more tokens where they divide the largest, and are padded otherwise."""
    largest = max((k.page_bytes for k in kinds), default=0)
    found = []
    for kind in kinds:
        times, rest = divmod(largest, max(1, kind.page_bytes))
        if kind.keeps == "state" or times <= 1 or rest:
            found.append(replace(kind, page_bytes=largest, padded=kind.keeps != "state" and largest > kind.page_bytes))
        else:
            found.append(replace(kind, page_bytes=largest, block_tokens=kind.block_tokens * times))
    return found


def _one_page(kinds: list[_Kind], rules: CacheRules) -> bool:
    return rules.pads_pages or not any(k.padded for k in kinds)


def _compressed(architecture: Architecture) -> bool:
    """Compressed latents beside windows lie side by side in a block: see `packed.py`, elsewhere counted apart."""
    return any(g.compress_ratio for g in architecture.attention)


def _one_group(kinds: list[_Kind], stages: int) -> tuple[LayerGroup, ...]:
    """One block table for kinds that keep the same tokens."""
    if not kinds:
        return ()
    first = kinds[0]
    return (
        LayerGroup(
            keeps=first.keeps,
            layers=sum(k.layers for k in kinds),
            block_tokens=first.block_tokens,
            page_bytes=max(k.page_bytes for k in kinds),
            block_bytes=sum(-(-k.layers // stages) * k.page_bytes for k in kinds),
            reach_tokens=first.reach_tokens,
            states=first.states,
        ),
    )


def _levelled(kinds: list[_Kind], rules: CacheRules, stages: int) -> tuple[LayerGroup, ...]:
    """Groups of equally many layers; the last ones of a kind may be short and are padded."""
    fewest, most = min(k.layers for k in kinds), max(k.layers for k in kinds)
    size = most if most < rules.level_below * fewest else fewest
    found = []
    for kind in kinds:
        count = -(-kind.layers // size)
        for i in range(count):
            layers = (kind.layers - i + count - 1) // count
            held = -(-layers // stages) * kind.page_bytes
            found.append(
                LayerGroup(kind.keeps, layers, kind.block_tokens, kind.page_bytes, held, kind.reach_tokens, kind.states)
            )
    return tuple(found)


def _in_flight(settings: EngineSettings, rules: CacheRules) -> int | None:
    """Tokens that may be scheduled and not yet settled: steps in flight x the most tokens of one step.

    Steps: the stages of the pipeline, and one more where scheduling is asynchronous.
    """
    if rules.steps_in_flight == "none":
        return None
    step = step_tokens(settings)
    if rules.steps_in_flight == "one":
        return step
    return step * (settings.pipeline_parallel_size + int(rules.asynchronous))
