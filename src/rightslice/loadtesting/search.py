"""The largest rate that keeps the objectives: double until they break, then halve the gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rightslice.loadtesting.statistics import Point

CLOSE: Final = 1.1
"""The search ends when the smallest rate that breaks an objective is at most this times the largest that keeps them."""
MOST_POINTS: Final = 24


@dataclass(frozen=True, slots=True)
class Best:
    """The largest rate measured at which every objective held, in requests/s; 0 where none did.

    `broken_at`: the smallest rate above it at which one did not, None when none broke; `broken`: which.
    """

    requests_per_s: float
    broken_at: float | None
    broken: tuple[str, ...]


def keeps(point: Point) -> bool:
    """Whether a point was answered, did not fall behind, and met its objectives."""
    if not point.completed or point.oversaturated:
        return False
    return point.goodput is None or all(point.goodput.met.values())


def next_rate(points: Sequence[Point]) -> float | None:
    """The rate to try next; None when the search is over."""
    tried = [p for p in points if p.rate is not None]
    if len(tried) >= MOST_POINTS:
        return None
    good = max((p.rate for p in tried if p.rate and keeps(p)), default=0.0)
    bad = min((p.rate for p in tried if p.rate and not keeps(p)), default=math.inf)
    if math.isinf(bad):
        return good * 2.0
    if good == 0.0:
        return bad / 2.0 if bad > min(p.rate or 0.0 for p in tried) / 64.0 and len(tried) < MOST_POINTS // 3 else None
    if bad <= good * CLOSE:
        return None
    return math.sqrt(good * bad)


def best_rate(points: Sequence[Point]) -> Best:
    """What the search found."""
    tried = [p for p in points if p.rate is not None]
    good = max((p.rate for p in tried if p.rate and keeps(p)), default=0.0)
    broken = [p for p in points if not keeps(p) and (p.rate or 0.0) >= good]
    if not broken:
        return Best(good, None, ())
    first = min(broken, key=lambda p: p.rate or 0.0)
    return Best(good, first.rate, _broken(first))


def _broken(point: Point) -> tuple[str, ...]:
    if not point.completed:
        return ("no request was completed",)
    names = tuple(name for name, met in point.goodput.met.items() if not met) if point.goodput else ()
    return (*names, "first tokens came ever later") if point.oversaturated else names
