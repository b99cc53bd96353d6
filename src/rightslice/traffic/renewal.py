"""Stationary renewal processes: independent gaps, begun long before time 0: the rate is exact from the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

GapLaw = Literal["gamma", "weibull"]

Floats = NDArray[np.float64]
_Draw = Callable[[np.random.Generator, Floats], Floats]


def _gamma(rng: np.random.Generator, shape: Floats) -> Floats:
    return np.asarray(rng.gamma(shape) / shape)


def _gamma_biased(rng: np.random.Generator, shape: Floats) -> Floats:
    return np.asarray(rng.gamma(shape + 1.0) / shape)


def _weibull(rng: np.random.Generator, shape: Floats) -> Floats:
    return np.asarray(rng.weibull(shape) / _weibull_mean(shape))


def _weibull_biased(rng: np.random.Generator, shape: Floats) -> Floats:
    return np.asarray(rng.gamma(1.0 + 1.0 / shape) ** (1.0 / shape) / _weibull_mean(shape))


def _weibull_mean(shape: Floats) -> Floats:
    return np.asarray(_gamma_function(1.0 + 1.0 / shape))


_LAWS: Final[Mapping[GapLaw, tuple[_Draw, _Draw]]] = {
    "gamma": (_gamma, _gamma_biased),
    "weibull": (_weibull, _weibull_biased),
}
"""Gaps of mean 1, and gaps drawn in proportion to their length: x f(x) of a gamma law is one of shape k + 1, of a
Weibull law x = y^(1/k) with y gamma of shape 1 + 1/k."""


def renewals(
    law: GapLaw, shape: ArrayLike, per_s: ArrayLike, length_s: ArrayLike, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Floats]:
    """(process, time) of all events of several independent processes in [0, length), by process and time.

    Process i has mean rate per_s[i] and gaps of that law and shape[i]; gamma: CV = shape^-1/2. The first event lies a
    uniform share of a length-biased gap after 0 (inspection paradox), which makes rate x length the expected count
    exactly. Processes of rate 0 have none. Raises ValueError for shapes, rates or lengths that are negative, not finite
    or, for shapes, 0.
    """
    shapes, rates, lengths = (
        np.array(values, dtype=np.float64) for values in np.broadcast_arrays(np.atleast_1d(shape), per_s, length_s)
    )
    for values, least in ((shapes, 0.0), (rates, -1.0), (lengths, -1.0)):
        if not (np.isfinite(values).all() and (values > least).all() and (values >= 0.0).all()):
            raise ValueError("renewal: shape, rate or length out of range")
    draw, draw_biased = _LAWS[law]
    gap_s = np.divide(1.0, rates, out=np.full(len(rates), np.inf), where=rates > 0.0)
    pending = np.flatnonzero(rates * lengths > 0.0)
    last = np.zeros(len(rates))
    last[pending] = rng.random(len(pending)) * draw_biased(rng, shapes[pending]) * gap_s[pending]
    which, times = [pending], [last[pending]]
    while len(pending := pending[last[pending] < lengths[pending]]):
        left = (lengths[pending] - last[pending]) * rates[pending]
        counts = np.ceil(left + 3.0 * np.sqrt(left)).astype(np.int64) + 4
        process = np.repeat(pending, counts)
        sums = np.cumsum(draw(rng, shapes[process]) * gap_s[process])
        ends = np.cumsum(counts)
        before = np.concatenate(([0.0], sums[ends[:-1] - 1]))
        found = last[process] + sums - np.repeat(before, counts)
        which.append(process)
        times.append(found)
        last[pending] = found[ends - 1]
    process, found = np.concatenate(which), np.concatenate(times)
    inside = found < lengths[process]
    process, found = process[inside], found[inside]
    order = np.lexsort((found, process))
    return process[order], found[order]


def _gamma_function(x: Floats) -> Floats:
    """Γ(x) for x >= 1: Lanczos' approximation with g = 7 (relative error below 1e-14)."""
    z = np.asarray(x) - 1.0
    total = np.full_like(z, _LANCZOS[0])
    for k, coefficient in enumerate(_LANCZOS[1:], 1):
        total = total + coefficient / (z + k)
    t = z + 7.5
    return np.asarray(np.sqrt(2.0 * np.pi) * t ** (z + 0.5) * np.exp(-t) * total)


_LANCZOS: Final = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
