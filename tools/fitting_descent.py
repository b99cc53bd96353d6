"""Gauss-Newton on reweighted squares: damped errors of many rows, and a penalty on the distance from a start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from fitting_cases import Floats, damped, slope_share

ENOUGH = 2e-5
"""A round that gains less is the last."""
STEP, FARTHEST, PARTS = 0.1, 0.7, (3.0, 1.5, 0.8, 0.4, 0.1)
"""Of logarithms: for slopes, the farthest that a round moves one, and the parts of the move that are tried (the best is
taken: reweighted squares fall short of the way)."""


@dataclass(frozen=True)
class Bounds:
    """Of every logarithm."""

    low: Floats
    high: Floats


def descend(
    ratios: Callable[[Floats], Floats], start: Floats, bounds: Bounds, shares: Floats, penalty: float, rounds: int
) -> Floats:
    """The logarithms, near `start`, that make `ratios` of them small; `shares` weigh the ratios and sum to 1."""

    def cost(point: Floats, values: Floats) -> float:
        return float(shares @ damped(values) + penalty * np.sum((point - start) ** 2))

    point = start
    values = ratios(point)
    best = cost(point, values)
    for _ in range(rounds):
        slopes = np.stack([(ratios(point + STEP * unit) - values) / STEP for unit in np.eye(len(start))], axis=1)
        pull = shares * slope_share(values)
        matrix = slopes.T @ (pull[:, None] * slopes) + 2.0 * penalty * np.eye(len(start))
        toward = np.linalg.solve(matrix, -slopes.T @ (pull * values) - 2.0 * penalty * (point - start))
        tries = [np.clip(point + np.clip(p * toward, -FARTHEST, FARTHEST), bounds.low, bounds.high) for p in PARTS]
        found = [(cost(tried, there), tried, there) for tried in tries for there in [ratios(tried)]]
        now, tried, there = min(found, key=lambda one: one[0])
        if best - now < ENOUGH:
            break
        point, values, best = tried, there, now
    return point
