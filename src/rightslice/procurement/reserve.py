"""How many GPUs to reserve: the newsvendor's quantile of the hourly demand, in whole machines.

A reservation is paid every hour, used or not; what demand lacks beyond it is bought at the alternative price. Cost of a
year is smallest where the chance that demand exceeds the reservation equals the ratio of the two prices (Arrow, Harris
and Marschak 1951): R* = F^-1(1 - reserved / alternative). On price alone the right percentile is therefore the
discount itself; reserving the 90th or 95th buys assurance, and its premium is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
"""GPUs in use in each hour, >= 0; shape (hours,)."""

ASSURANCE: Final = (0.50, 0.90, 0.95, 1.0)
"""Percentiles whose premium is shown beside the cheapest reservation; 1.0 never lacks a GPU."""
DISCOUNT_STEP: Final = 0.10
HOURS_PER_DAY: Final = 24
"""Dated capacity is sold by the day."""


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per GPU-hour: reserved (paid always) and the alternative that would be bought otherwise. Both > 0."""

    reserved: float
    alternative: float

    @property
    def percentile(self) -> float:
        """1 - reserved / alternative, at least 0: the share of hours that the reservation should cover alone."""
        return max(1.0 - self.reserved / self.alternative, 0.0)


@dataclass(frozen=True, slots=True)
class Level:
    """One size of reservation and what the whole series costs with it.

    `used_share`: of the reserved GPU-hours. `premium_usd`: over the cheapest size. `break_even_discount`: the smallest
    discount at which this size costs no more than none; None for none.
    """

    name: str
    gpus: int
    total_usd: float
    premium_usd: float
    short_hours: int
    used_share: float | None
    break_even_discount: float | None


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The cheapest size at another discount on the alternative price."""

    discount: float
    gpus: int
    total_usd: float


@dataclass(frozen=True, slots=True)
class Peak:
    """Whole days above the reservation: `gpus` more are used in every hour of them."""

    start_hour: int
    hours: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """The cheapest reservation of one pool. Totals are of the whole series, in USD."""

    pool: str
    hours: int
    reserve_gpus: int
    percentile: float
    total_usd: float
    all_on_demand_usd: float
    all_reserved_usd: float
    mean_gpus: float
    peak_gpus: float
    levels: tuple[Level, ...]
    sensitivity: tuple[Sensitivity, ...]
    peaks: tuple[Peak, ...]


def total_usd(demand: Series, gpus: int, prices: Prices) -> float:
    """Cost of the series with `gpus` reserved: hours x gpus x reserved + sum of max(demand - gpus, 0) x alternative."""
    short = np.maximum(demand - gpus, 0.0).sum()
    return float(demand.size * gpus * prices.reserved + short * prices.alternative)


def best_gpus(demand: Series, prices: Prices, quantum: int = 1) -> int:
    """The cheapest whole number of machines of `quantum` GPUs, in GPUs; the smaller one of two that cost the same.

    The cost is convex in the size, so that the quantile's neighbours among the multiples hold the optimum.
    """
    if prices.reserved >= prices.alternative:
        return 0
    ordered = np.sort(demand)
    # The smallest value that demand exceeds in no more than the ratio's share of the hours.
    rank = max(math.ceil(demand.size * prices.percentile - 1e-9), 1)
    at = float(ordered[rank - 1])
    below = math.floor(at / quantum) * quantum
    return min((below, below + quantum), key=lambda gpus: (round(total_usd(demand, gpus, prices), 6), gpus))


def reservation(demand: Series, prices: Prices, *, pool: str = "", quantum: int = 1) -> Reservation:
    """The cheapest reservation for a series, what more assurance costs, and where dated capacity would serve.

    Raises ValueError for an empty series or a demand that is negative or not finite.
    """
    if demand.size == 0 or not np.isfinite(demand).all() or (demand < 0.0).any():
        raise ValueError("demand must be finite, not negative and not empty")
    best = best_gpus(demand, prices, quantum)
    peak = float(demand.max())
    cheapest = total_usd(demand, best, prices)
    ceiling = math.ceil(peak / quantum) * quantum
    return Reservation(
        pool=pool,
        hours=int(demand.size),
        reserve_gpus=best,
        percentile=prices.percentile,
        total_usd=cheapest,
        all_on_demand_usd=total_usd(demand, 0, prices),
        all_reserved_usd=total_usd(demand, ceiling, prices),
        mean_gpus=float(demand.mean()),
        peak_gpus=peak,
        levels=tuple(_levels(demand, prices, best, quantum)),
        sensitivity=tuple(_sensitivity(demand, prices, quantum)),
        peaks=tuple(_peaks(demand, best, quantum)),
    )


def _levels(demand: Series, prices: Prices, best: int, quantum: int) -> Iterator[Level]:
    ordered = np.sort(demand)
    sizes = [("none", 0), ("cheapest", best)]
    for share in ASSURANCE:
        value = float(ordered[max(math.ceil(demand.size * share), 1) - 1])
        name = "peak" if share == 1.0 else f"p{share * 100:g}"
        sizes.append((name, math.ceil(value / quantum) * quantum))
    cheapest = total_usd(demand, best, prices)
    for name, gpus in sizes:
        covered = float(np.minimum(demand, gpus).sum())
        used = covered / (demand.size * gpus) if gpus else None
        total = total_usd(demand, gpus, prices)
        short = int((demand > gpus).sum())
        yield Level(name, gpus, total, total - cheapest, short, used, None if used is None else 1.0 - used)


def _sensitivity(demand: Series, prices: Prices, quantum: int) -> Iterator[Sensitivity]:
    discount = 1.0 - prices.reserved / prices.alternative
    for step in (-2, -1, 0, 1, 2):
        other = discount + step * DISCOUNT_STEP
        if other < 1.0:
            asked = Prices(prices.alternative * (1.0 - other), prices.alternative)
            gpus = best_gpus(demand, asked, quantum)
            yield Sensitivity(other, gpus, total_usd(demand, gpus, asked))


def _peaks(demand: Series, gpus: int, quantum: int) -> Iterator[Peak]:
    """Runs of whole days, counted from the first hour, in every hour of which at least one machine more is used."""
    days = demand.size // HOURS_PER_DAY
    lowest = demand[: days * HOURS_PER_DAY].reshape(days, HOURS_PER_DAY).min(axis=1)
    above = np.floor((lowest - gpus) / quantum) >= 1.0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], above, [False])).astype(np.int8)))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        lacking = math.floor((float(lowest[start:end].min()) - gpus) / quantum) * quantum
        yield Peak(start * HOURS_PER_DAY, (end - start) * HOURS_PER_DAY, lacking)
