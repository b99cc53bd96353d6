"""Token lengths of requests: lognormal, matched to a mean and a 95th percentile.

With X = exp(mu + sigma Z), p95 / mean = exp(z sigma - sigma^2 / 2), z = 1.645: no lognormal goes beyond
exp(z^2 / 2) = 3.868. Past that the mean is kept (it decides the load) and the 95th percentile is the largest that a
lognormal of this mean has. Lengths are clipped to 1 .. maximum, and the parameters are those of the clipped law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Side = Literal["input", "output"]

Z95: Final = 1.6448536269514722
"""Standard normal quantile of 0.95."""

MAX_P95_OVER_MEAN: Final = math.exp(Z95 * Z95 / 2.0)
"""Largest p95 / mean that an unclipped lognormal reaches: 3.868."""

DEFAULT_P95_OVER_MEAN: Final[dict[Side, float]] = {"input": 3.54, "output": 2.14}
"""Spread assumed when no p95 is given: measured on the Azure LLM inference trace 2023, conversation (19,366 requests;
input mean 1,154.7, p95 4,083; output mean 211.1, p95 451). Source: Azure Public Dataset, CC-BY 4.0; Patel et al.,
Splitwise, ISCA 2024."""

_WIDEST_SIGMA: Final = 8.0  # search bound of a clipped law: exp(8) spans 1 .. 3,000 medians within one sigma


def lengths(
    mean: float,
    p95: float | None,
    rng: np.random.Generator,
    n: int,
    maximum: int | None = None,
    side: Side = "input",
) -> NDArray[np.int64]:
    """`n` whole token counts of at least 1 (at most `maximum`) with that mean and 95th percentile.

    The draw is stratified: one value in each of n equally likely slices, in random order, so that the load of a short
    run is the load asked for. Without `p95` the spread is DEFAULT_P95_OVER_MEAN of `side`.
    Raises ValueError for a mean below 1, a negative n or a maximum below 1.
    """
    if not (math.isfinite(mean) and mean >= 1.0 and n >= 0 and (maximum is None or maximum >= 1)):
        raise ValueError(f"lengths: mean {mean}, n {n}, maximum {maximum}")
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    mu, sigma = fitted(mean, p95, maximum, side)
    share = (rng.permutation(n) + rng.random(n)) / n
    drawn = np.rint(np.exp(mu + sigma * _normal_quantiles(share)))
    return np.clip(drawn, 1.0, float(maximum or 2**53)).astype(np.int64)


def fitted(mean: float, p95: float | None, maximum: int | None = None, side: Side = "input") -> tuple[float, float]:
    """(mu, sigma) of the lognormal whose value, clipped to 1 .. maximum, has that mean and 95th percentile.

    Where both cannot be met the mean is kept; a mean at or above `maximum` gives the constant `maximum`.
    """
    top = float(maximum) if maximum is not None else math.inf
    if mean >= top:
        return math.log(top), 0.0
    target = min(p95 if p95 is not None else mean * DEFAULT_P95_OVER_MEAN[side], top)
    if target <= mean:
        return math.log(mean), 0.0
    widest = Z95 if maximum is None else _WIDEST_SIGMA

    def excess(sigma: float) -> float:
        return _clipped_mean(math.log(target) - Z95 * sigma, sigma, top) - mean

    for most in (Z95, widest):  # past Z95 the mean may rise again, so the nearer solution is looked for first
        if excess(most) <= 0.0:
            sigma = _root(excess, 0.0, most)
            return math.log(target) - Z95 * sigma, sigma
    return _root(lambda mu: mean - _clipped_mean(mu, Z95, top), -20.0, math.log(mean) + 20.0), Z95


def _clipped_mean(mu: float, sigma: float, top: float) -> float:
    """E[min(max(X, 1), top)] of a lognormal X: its limited expected value, both ends."""
    if sigma == 0.0:
        return min(max(math.exp(mu), 1.0), top)
    low = -mu / sigma
    high = (math.log(top) - mu) / sigma if math.isfinite(top) else math.inf
    inside = _phi(high - sigma) - _phi(low - sigma)
    above = top * (1.0 - _phi(high)) if math.isfinite(top) else 0.0
    return _phi(low) + math.exp(mu + sigma * sigma / 2.0) * inside + above


def _phi(z: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero, by 80 halvings."""
    for _ in range(80):
        middle = (low + high) / 2.0
        if falling(middle) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


@lru_cache(maxsize=1)
def _quantile_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    z = np.linspace(-8.0, 8.0, 4097)
    return np.array([_phi(float(value)) for value in z]), z


def _normal_quantiles(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal quantiles by linear interpolation of a table in steps of 1/256; error below 2e-5."""
    probability, z = _quantile_table()
    return np.interp(share, probability, z)
