"""Recorded traffic as arrays: one entry per request, sorted by time, with the columns that a source has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

NONE: Final = -1
"""Code of a request without a label or session."""

_SPARSE: Final = 8
"""Ids that span more than this many times their number are sorted; others index a table."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A name for each request: `codes` (int32) index `names`; NONE where a request has none."""

    codes: NDArray[np.int32]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrefixBlocks:
    """Prefix block ids of all requests in one array: request i has ids[offsets[i] : offsets[i + 1]].

    Equal ids are the same `block_tokens` tokens of prompt; the first block of a prompt comes first.
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    block_tokens: int

    def of(self, request: int) -> NDArray[np.int64]:
        """The ids of one request."""
        return self.ids[self.offsets[request] : self.offsets[request + 1]]

    def take(self, order: NDArray[np.int64]) -> PrefixBlocks:
        """The blocks of the requests at these positions, in that order."""
        counts = np.diff(self.offsets)[order]
        offsets = offsets_of(counts)
        source = np.repeat(self.offsets[:-1][order] - offsets[:-1], counts) + np.arange(offsets[-1])
        return PrefixBlocks(offsets, self.ids[source], self.block_tokens)

    def seen_before(self) -> NDArray[np.int64]:
        """Blocks at the head of each prompt that an earlier request had: what a cache without limit would hold."""
        if not len(self.ids):
            return np.zeros(len(self.offsets) - 1, dtype=np.int64)
        starts, ends = self.offsets[:-1], self.offsets[1:]
        new = np.flatnonzero(first_at(self.ids) >= np.repeat(starts, ends - starts))
        next_new = np.append(new, len(self.ids))[np.searchsorted(new, starts)]
        return np.asarray(np.minimum(next_new, ends) - starts)


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests sorted by time; `arrival_s` counts from the file's zero, or from the first request.

    Optional columns are None where the source has none; `session` numbers conversations from 0, NONE outside of one.
    """

    arrival_s: NDArray[np.float64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    model: Labels | None = None
    traffic_class: Labels | None = None
    session: NDArray[np.int64] | None = None
    priority: NDArray[np.int64] | None = None
    prefix: PrefixBlocks | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def requests_per_s(self) -> float:
        """Mean rate: gaps / span; one request, or all at once, counts as one second; 0.0 without requests."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0
        return (len(self) - 1) / span_s if span_s > 0.0 else float(len(self))

    def take(self, order: NDArray[np.int64], arrival_s: NDArray[np.float64] | None = None) -> Trace:
        """The requests at these positions, in that order, at new times if given; ids and labels keep their numbers."""
        return Trace(
            self.arrival_s[order] if arrival_s is None else arrival_s,
            self.input_tokens[order],
            self.output_tokens[order],
            _taken(self.model, order),
            _taken(self.traffic_class, order),
            None if self.session is None else self.session[order],
            None if self.priority is None else self.priority[order],
            None if self.prefix is None else self.prefix.take(order),
        )

    def sorted_by_time(self) -> Trace:
        """The same by time, requests of one moment in their order."""
        if bool((np.diff(self.arrival_s) >= 0.0).all()):
            return self
        return self.take(np.argsort(self.arrival_s, kind="stable"))


def _taken(labels: Labels | None, order: NDArray[np.int64]) -> Labels | None:
    return None if labels is None else Labels(labels.codes[order], labels.names)


def offsets_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """[0, c0, c0 + c1, …]: where each request's entries begin, and the end."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)))


def first_at(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each entry the position at which its id first occurs."""
    if not len(ids):
        return ids.astype(np.int64)
    low, high = int(ids.min()), int(ids.max())
    if high - low > _SPARSE * len(ids):
        _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        return np.asarray(first[inverse])
    table = np.empty(high - low + 1, dtype=np.int64)
    table[(ids - low)[::-1]] = np.arange(len(ids) - 1, -1, -1)  # of equal ids the last to be written, the first, stays
    return np.asarray(table[ids - low])


def dense(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ids renumbered 0, 1, 2, … in the order in which they first occur."""
    first = first_at(ids)
    rank = np.cumsum(first == np.arange(len(ids))) - 1
    return np.asarray(rank[first])


def regrouped(prefix: PrefixBlocks, block_tokens: int) -> PrefixBlocks:
    """The same prefixes in larger blocks: equal ids where all tokens up to the block's end are equal.

    Raises ValueError unless `block_tokens` is a multiple of the present size.
    """
    factor, rest = divmod(block_tokens, prefix.block_tokens)
    if rest or factor < 1:
        raise ValueError(f"blocks of {prefix.block_tokens} tokens cannot be joined to blocks of {block_tokens}")
    if factor == 1:
        return prefix
    known: dict[tuple[int, bytes], int] = {}
    ids: list[int] = []
    for start, end in zip(prefix.offsets[:-1].tolist(), prefix.offsets[1:].tolist(), strict=True):
        parent = NONE
        for first in range(start, end, factor):
            key = (parent, prefix.ids[first : min(first + factor, end)].tobytes())
            parent = known.setdefault(key, len(known))
            ids.append(parent)
    counts = -(-np.diff(prefix.offsets) // factor)
    return PrefixBlocks(offsets_of(counts), np.array(ids, dtype=np.int64), block_tokens)


def coded(words: Sequence[str], known: dict[str, int]) -> list[int]:
    """A number for each word, the next free one for a new word; NONE for an empty one."""
    return [known.setdefault(word, len(known)) if word else NONE for word in words]
