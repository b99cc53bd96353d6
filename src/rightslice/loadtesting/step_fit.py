"""The time of one engine iteration, fitted to load tests: constant + tokens + context.

A point of a load test tells the mean iteration through its time per output token. With X requests/s, the tokens
computed in an iteration of that length are B = X x output x TPOT decoded and P = X x input x TPOT prefilled, and the
context read is C = B x (input + output / 2). Coefficients are not negative and minimise the relative error (Lawson and
Hanson 1974; with three unknowns every active set is tried).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rightslice.core.calibrated import StepLaw
from rightslice.loadtesting.imports import Measured

LEAST_POINTS: Final = 5
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A law with the median relative errors of the iteration time: fitted, with each point left out, worst point.

    `repeat_spread`: the largest over the smallest less one of repeated points, their median; None without repeats.
    """

    law: StepLaw
    points: int
    error: float
    leave_one_out: float
    worst: float
    repeat_spread: float | None


def features(points: Sequence[Measured]) -> tuple[Floats, Floats]:
    """Rows (1, tokens, context tokens) of the mean iteration, and its milliseconds; shapes (n, 3) and (n,)."""
    rate = np.array([p.requests_per_s for p in points]) / 1e3
    step_ms = np.array([p.tpot_ms for p in points])
    inputs, outputs = np.array([p.input_tokens for p in points]), np.array([p.output_tokens for p in points])
    decoded, prefilled = rate * outputs * step_ms, rate * inputs * step_ms
    context = decoded * (inputs + outputs / 2.0)
    return np.column_stack((np.ones(len(points)), decoded + prefilled, context)), step_ms


def non_negative(rows: Floats, values: Floats) -> Floats:
    """The coefficients >= 0 of least relative squared error."""
    scaled, ones = rows / values[:, None], np.ones(len(values))
    best, least = np.zeros(rows.shape[1]), float("inf")
    for size in range(1, rows.shape[1] + 1):
        for chosen in combinations(range(rows.shape[1]), size):
            found, *_ = np.linalg.lstsq(scaled[:, chosen], ones, rcond=None)
            if (found < 0.0).any():
                continue
            error = float(((scaled[:, chosen] @ found - ones) ** 2).sum())
            if error < least - 1e-12:
                least, best = error, np.zeros(rows.shape[1])
                best[list(chosen)] = found
    return best


def fit(points: Sequence[Measured]) -> Fit:
    """The law of the points. Raises ValueError with fewer than LEAST_POINTS."""
    if len(points) < LEAST_POINTS:
        raise ValueError(f"{len(points)} points; at least {LEAST_POINTS} are needed")
    rows, step_ms = features(points)
    found = non_negative(rows, step_ms)
    errors = np.abs(rows @ found / step_ms - 1.0)
    left_out = [
        abs(float(rows[i] @ non_negative(np.delete(rows, i, 0), np.delete(step_ms, i))) / step_ms[i] - 1.0)
        for i in range(len(points))
    ]
    return Fit(
        law=StepLaw(*(float(c) for c in found)),
        points=len(points),
        error=float(np.median(errors)),
        leave_one_out=float(np.median(left_out)),
        worst=float(errors.max()),
        repeat_spread=repeat_spread(points),
    )


def repeat_spread(points: Sequence[Measured]) -> float | None:
    """By how much the time per token of the same load differs between runs; None where nothing was repeated."""
    groups: dict[tuple[int, int, int], list[float]] = {}
    for point in points:
        groups.setdefault(point.shape, []).append(point.tpot_ms)
    spreads = [max(times) / min(times) - 1.0 for times in groups.values() if len(times) > 1]
    return float(np.median(spreads)) if spreads else None
