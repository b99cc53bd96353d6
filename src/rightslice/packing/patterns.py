"""How replicas of several GPUs fill nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence


def is_chain(sizes: Iterable[int], capacity: int) -> bool:
    """Whether each size divides the next and the last divides `capacity`: then only the sum decides what fits."""
    ordered = [*sorted(set(sizes)), capacity]
    return all(larger % smaller == 0 for smaller, larger in itertools.pairwise(ordered))


def node_patterns(sizes: Sequence[int], capacity: int) -> tuple[tuple[int, ...], ...]:
    """Every maximal way to put replicas of `sizes` GPUs into one node, as counts per size."""
    found: list[tuple[int, ...]] = []

    def extend(chosen: tuple[int, ...], room: int) -> None:
        index = len(chosen)
        if index == len(sizes):
            if room < min(sizes):
                found.append(chosen)
            return
        for count in range(room // sizes[index], -1, -1):
            extend((*chosen, count), room - count * sizes[index])

    extend((), capacity)
    return tuple(found)
