"""Arrival times by law: constant, bursty, by the hour, in steps and ramps, switching between calm and burst.

Every generator takes the mean rate, the horizon and a numpy generator, and returns sorted times in [0, horizon). The
expected number of requests is exactly rate x horizon, or the area under the profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rightslice.catalogue.datafiles import read_json
from rightslice.traffic.renewal import renewals

HOUR_S: Final = 3600.0
DAYS: Final = 7

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Requests/s over time, linear between knots; two knots at one time are a step. It holds from 0 to the last knot.

    Raises ValueError for knots that do not begin at 0, fall back or are not finite, and for negative rates.
    """

    times_s: tuple[float, ...]
    rates_per_s: tuple[float, ...]

    def __post_init__(self) -> None:
        times, rates = np.array(self.times_s), np.array(self.rates_per_s)
        sound = len(times) == len(rates) > 1 and np.isfinite(times).all() and np.isfinite(rates).all()
        if not (sound and times[0] == 0.0 and (np.diff(times) >= 0.0).all() and (rates >= 0.0).all()):
            raise ValueError(f"rate profile of {len(times)} knots and {len(rates)} rates")

    @property
    def horizon_s(self) -> float:
        """Time of the last knot."""
        return self.times_s[-1]

    @property
    def requests(self) -> float:
        """Expected requests of the whole profile: its area."""
        return float(self._areas()[-1])

    def scaled(self, mean_per_s: float) -> RateProfile:
        """The same course with that mean rate."""
        factor = mean_per_s * self.horizon_s / self.requests
        return RateProfile(self.times_s, tuple(rate * factor for rate in self.rates_per_s))

    def times_at(self, areas: NDArray[np.float64]) -> Times:
        """When the expected number of requests reaches each of `areas` (sorted or not, at most `requests`).

        Within a piece of slope m from rate r, t solves m t² / 2 + r t = area: t = 2 a / (r + sqrt(r² + 2 m a)).
        """
        ends = self._areas()
        piece = np.clip(np.searchsorted(ends, areas, side="right") - 1, 0, len(ends) - 2)
        times, rates = np.array(self.times_s), np.array(self.rates_per_s)
        width = np.diff(times)
        slope = np.divide(np.diff(rates), width, out=np.zeros_like(width), where=width > 0.0)[piece]
        rest = np.maximum(areas - ends[piece], 0.0)
        start = rates[:-1][piece]
        root = start + np.sqrt(np.maximum(start * start + 2.0 * slope * rest, 0.0))
        within = np.divide(2.0 * rest, root, out=np.zeros_like(rest), where=root > 0.0)
        return np.asarray(times[piece] + np.minimum(within, width[piece]))

    def _areas(self) -> NDArray[np.float64]:
        times, rates = np.array(self.times_s), np.array(self.rates_per_s)
        return np.concatenate(([0.0], np.cumsum(np.diff(times) * (rates[:-1] + rates[1:]) / 2.0)))


@lru_cache(maxsize=1)
def measured_day() -> tuple[float, ...]:
    """24 hourly rates of a chat service over their mean (source in data/diurnal.json)."""
    return tuple(read_json("diurnal.json")["hourly"])


def poisson(per_s: float, horizon_s: float, rng: np.random.Generator) -> Times:
    """Independent arrivals: gaps of coefficient of variation 1, uncorrelated."""
    return np.sort(rng.uniform(0.0, horizon_s, rng.poisson(per_s * horizon_s)))


def gamma_bursts(per_s: float, horizon_s: float, rng: np.random.Generator, *, gap_cv: float) -> Times:
    """Independent gamma gaps of that coefficient of variation: above 1 in bursts, below 1 more even than Poisson."""
    return renewals("gamma", gap_cv**-2, per_s, horizon_s, rng)[1]


def following(profile: RateProfile, rng: np.random.Generator, *, gap_cv: float = 1.0) -> Times:
    """Arrivals whose rate follows the profile: events of rate 1 in expected requests, carried to time.

    Poisson for `gap_cv` 1, else gamma gaps relative to the rate of the moment.
    """
    if gap_cv == 1.0:
        return profile.times_at(poisson(1.0, profile.requests, rng))
    return profile.times_at(gamma_bursts(1.0, profile.requests, rng, gap_cv=gap_cv))


def steps(levels: Sequence[tuple[float, float]]) -> RateProfile:
    """(duration in s, requests/s) one after the other, with sudden changes."""
    ends = np.cumsum([duration for duration, _ in levels]).tolist()
    times = [time for begin, end in zip([0.0, *ends], ends, strict=False) for time in (begin, end)]
    return RateProfile(tuple(times), tuple(rate for _, rate in levels for _ in range(2)))


def ramp(start_per_s: float, end_per_s: float, horizon_s: float) -> RateProfile:
    """A rate that grows or falls evenly."""
    return RateProfile((0.0, horizon_s), (start_per_s, end_per_s))


def daily(
    mean_per_s: float,
    days: int = 1,
    *,
    hourly: Sequence[float] | None = None,
    weekdays: Sequence[float] = (1.0,) * DAYS,
) -> RateProfile:
    """Whole days with a rate by the hour, linear between the middles of the hours, of that mean over all days.

    `hourly`: 24 relative rates, the measured ones by default. `weekdays`: relative rate of each of seven days, the
    first day first; it changes at midnight. Raises ValueError for other numbers of entries.
    """
    shape = np.array(measured_day() if hourly is None else hourly, dtype=np.float64)
    if len(shape) != 24 or len(weekdays) != DAYS or days < 1:
        raise ValueError(f"{len(shape)} hours, {len(weekdays)} weekdays, {days} days")
    midnight = (shape[0] + shape[-1]) / 2.0
    knots = np.concatenate(([0.0], np.arange(0.5, 24.0), [24.0])) * HOUR_S
    rates = np.concatenate(([midnight], shape, [midnight]))
    times = np.concatenate([knots + day * 24 * HOUR_S for day in range(days)])
    values = np.concatenate([rates * weekdays[day % DAYS] for day in range(days)])
    return RateProfile(tuple(times.tolist()), tuple(values.tolist())).scaled(mean_per_s)


@dataclass(frozen=True, slots=True)
class CalmAndBurst:
    """A service that switches between two rates; stays are exponential with these means.

    `burst_over_calm`: ratio of the rates. Correlation of the rate falls as exp(-(1/calm_s + 1/burst_s) lag).
    """

    burst_over_calm: float
    calm_s: float
    burst_s: float

    def rates_per_s(self, mean_per_s: float) -> tuple[float, float]:
        """Rates of calm and burst with that mean over time."""
        calm = mean_per_s * (self.calm_s + self.burst_s) / (self.calm_s + self.burst_over_calm * self.burst_s)
        return calm, calm * self.burst_over_calm


def modulated(law: CalmAndBurst, per_s: float, horizon_s: float, rng: np.random.Generator) -> Times:
    """A Markov-modulated Poisson process of two states, stationary from the start.

    A stationary start in state i has probability stay_i / (sum of stays), and a full exponential stay ahead of it.
    """
    stays = np.array([law.calm_s, law.burst_s])
    now = int(rng.random() * stays.sum() >= law.calm_s)
    pieces: list[NDArray[np.float64]] = []
    reached = 0.0
    while reached < horizon_s:
        pairs = int((horizon_s - reached) / stays.sum()) + 8
        drawn = rng.exponential(1.0, 2 * pairs) * np.tile(np.roll(stays, -now), pairs)
        pieces.append(drawn)
        reached += float(drawn.sum())
    ends = np.cumsum(np.concatenate(pieces))
    ends = np.append(ends[ends < horizon_s], horizon_s)
    rates = np.roll(np.array(law.rates_per_s(per_s)), -now)[np.arange(len(ends)) % 2]
    times = np.repeat(np.append(0.0, ends), 2)[1:-1]
    return following(RateProfile(tuple(times.tolist()), tuple(np.repeat(rates, 2).tolist())), rng)
