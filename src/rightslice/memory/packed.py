"""vLLM's plan for compressed latents (DeepSeek-V4): caches of several widths lie side by side in one block.

Each layer keeps a window, a compressed cache with its compressor's unfinished entries, and for an indexer the same
again. Read in vLLM 0.32's `models/deepseek_v4` (attention.py, compressor.py) and `v1/attention/backends/mla`
(sparse_swa.py), whose FP8 rows are the default on NVIDIA's devices; groups as `_get_packed_kv_cache_groups` of
`v1/core/kv_cache_utils.py` makes them, which was run on these caches (`tests/oracle/ask_packed.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from rightslice.catalogue.architecture import Architecture, AttentionGroup
from rightslice.memory.cache_groups import Keeps, LayerGroup

_WIDTH: Final = 512
_ROW_BYTES: Final = 448 + 64 * 2 + 8
"""A row of that width: 448 elements in FP8 with scales in eight bytes, 64 rotated ones in 16 bit."""
_ALIGNMENT: Final = 576
_INDEX_SCALE_BYTES: Final = 4
_INDEX_GROUP: Final = 128
_STATE_BYTES: Final = 4
_BLOCK_TOKENS: Final = 256
_WINDOW_TOKENS: Final = 64
_STATE_TOKENS: Final[dict[int, int]] = {4: 4, 128: 8}
"""Ratio of a compressor -> tokens of a block of its unfinished entries; others are refused."""


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Caches that keep the same tokens: `pages` are (layers, bytes of a block of one layer)."""

    keeps: Keeps
    block_tokens: int
    reach_tokens: int
    pages: tuple[tuple[int, int], ...]

    @property
    def repeats(self) -> int:
        """Layers of the commonest page."""
        return max(self._layers.values())

    @property
    def balanced(self) -> bool:
        """Whether every page has as many layers."""
        return len(set(self._layers.values())) == 1

    @property
    def _layers(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for layers, page in self.pages:
            found[page] += layers
        return found


def packed_groups(architecture: Architecture, stages: int) -> tuple[LayerGroup, ...]:
    """The groups of one rank, whose caches repeat under tensor parallelism; empty where vLLM has no such plan."""
    far = [g for g in architecture.attention if g.compress_ratio]
    near = [g for g in architecture.attention if not g.compress_ratio]
    known = all(g.compress_ratio in _STATE_TOKENS for g in far) and all(g.kind == "sliding" for g in near)
    if not known or any(g.qk_head_dim != _WIDTH for g in architecture.attention):
        return ()
    buckets = [_compressed(far), *(_window(g) for g in near), *(_unfinished(g) for g in far)] if far else []
    least = max((b.repeats for b in buckets if b.balanced and len(b.pages) > 1), default=0)
    if not least:
        return ()
    size = _level([b.repeats for b in buckets if b.balanced], least)
    return tuple(chain.from_iterable(_divided(b, -(-b.repeats // size) if b.balanced else 1, stages) for b in buckets))


def compressed_token_bytes(group: AttentionGroup) -> float:
    """Bytes per token of one layer of a compressed cache, indexer keys and padding included."""
    return sum(page for _, page in _compressed([group]).pages) / _BLOCK_TOKENS


def _compressed(groups: Iterable[AttentionGroup]) -> _Bucket:
    pages: list[tuple[int, int]] = []
    for group in groups:
        entries = _BLOCK_TOKENS // group.compress_ratio
        pages.append((group.layers, _aligned(entries * _ROW_BYTES)))
        if keys := group.compressed_index_width:
            row = keys + keys // _INDEX_GROUP * _INDEX_SCALE_BYTES
            pages.append((group.layers, _aligned(entries * row)))
    return _Bucket("all", _BLOCK_TOKENS, 0, tuple(pages))


def _window(group: AttentionGroup) -> _Bucket:
    page = _aligned(_WINDOW_TOKENS * _ROW_BYTES)
    return _Bucket("window", _WINDOW_TOKENS, group.window_tokens, ((group.layers, page),))


def _unfinished(group: AttentionGroup) -> _Bucket:
    """Entry and gate of every token that is not compressed yet; where an indexer is, entries overlap."""
    overlap, block = 2 if group.compressed_index_width else 1, _STATE_TOKENS[group.compress_ratio]
    widths = [width for width in (group.qk_head_dim, group.compressed_index_width) if width]
    pages = ((group.layers, _aligned(block * 2 * overlap * width * _STATE_BYTES)) for width in widths)
    return _Bucket("window", block, overlap * group.compress_ratio, tuple(pages))


def _aligned(page_bytes: int) -> int:
    return -(-page_bytes // _ALIGNMENT) * _ALIGNMENT


def _level(repeats: list[int], least: int) -> int:
    """The size of groups that pads least, the larger of two that pad alike."""
    sizes = range(least, max(repeats) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in repeats), -size))


def _divided(bucket: _Bucket, parts: int, stages: int) -> Iterable[LayerGroup]:
    """The bucket in `parts` groups of equally many layers, as far as they go."""
    for i in range(parts):
        held = [(-(-(layers - i) // parts), page) for layers, page in bucket.pages]
        yield LayerGroup(
            keeps=bucket.keeps,
            layers=sum(layers for layers, _ in held),
            block_tokens=bucket.block_tokens,
            page_bytes=max(page for _, page in held),
            block_bytes=sum(-(-layers // stages) * page for layers, page in held),
            reach_tokens=bucket.reach_tokens,
        )
