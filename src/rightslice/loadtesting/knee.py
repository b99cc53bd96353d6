"""Where more load stops to pay: the knee of the throughput curve, and which load to try next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rightslice.loadtesting.schedule import MAX_CONCURRENCY
from rightslice.loadtesting.statistics import Point

NEAR_TOP: Final = 0.9
"""The knee is the smallest load with this share of the highest throughput measured."""
FLAT: Final = 0.1
"""Relative gain of throughput per relative gain of concurrency under which the curve is flat."""
_CLOSE: Final = 1.2


@dataclass(frozen=True, slots=True)
class Knee:
    """The load beyond which waiting grows faster than throughput, and what it delivers there."""

    concurrency: int
    output_tokens_per_s: float
    ttft_ms: float | None
    reason: str


def gain(low: Point, high: Point) -> float:
    """Elasticity between two points: ln(throughput ratio) / ln(concurrency ratio); 1 is linear, 0 flat."""
    if not low.concurrency or not high.concurrency or low.concurrency == high.concurrency:
        raise ValueError("two different concurrencies are needed")
    before, after = throughput(low), throughput(high)
    if before <= 0.0 or after <= 0.0:
        return 0.0
    return math.log(after / before) / math.log(high.concurrency / low.concurrency)


def throughput(point: Point) -> float:
    """Output tokens per second; requests per second where nothing is generated."""
    return point.output_tokens_per_s or point.requests_per_s


def knee_of(points: Sequence[Point]) -> Knee | None:
    """The knee of a sweep over concurrency; None without two points that completed something."""
    measured = sorted((p for p in points if p.concurrency and throughput(p) > 0.0), key=lambda p: p.concurrency or 0)
    if len(measured) < 2:
        return None
    top = max(throughput(point) for point in measured)
    at = next(i for i, point in enumerate(measured) if throughput(point) >= NEAR_TOP * top)
    point = measured[at]
    ttft = point.ttft_ms.p50 if point.ttft_ms else None
    if at + 1 == len(measured):
        reason = "throughput still grew at the highest concurrency: the knee may lie beyond it"
    else:
        after = measured[at + 1]
        grown = throughput(after) / throughput(point) - 1.0
        reason = f"{grown:+.0%} throughput at {after.concurrency} streams"
        if ttft and after.ttft_ms:
            reason += f", {after.ttft_ms.p50 / ttft:.1f} times the time to the first token"
    return Knee(point.concurrency or 0, point.output_tokens_per_s, ttft, reason)


def next_concurrency(points: Sequence[Point], largest: int = MAX_CONCURRENCY) -> int | None:
    """The concurrency to try next: double until the curve is flat, then halve the widest gap beside the knee."""
    measured = sorted((p for p in points if p.concurrency), key=lambda p: p.concurrency or 0)
    if not measured:
        return 1
    last = measured[-1]
    flat = len(measured) >= 2 and gain(measured[-2], last) < FLAT
    broken = last.completed == 0 or last.failed > last.completed
    at_top = (last.concurrency or 0) * 2 > largest
    if not flat and not broken and not at_top:
        return (last.concurrency or 0) * 2
    knee = knee_of(measured)
    if knee is None:
        return None
    known = [p.concurrency or 0 for p in measured]
    at = known.index(knee.concurrency)
    gaps = [(known[i], known[i + 1]) for i in (at - 1, at) if 0 <= i < len(known) - 1]
    wide = [(high / low, low, high) for low, high in gaps if high - low > 1 and high / low > _CLOSE]
    if not wide:
        return None
    _, low, high = max(wide)
    middle = round(math.sqrt(low * high))
    return middle if low < middle < high else None
