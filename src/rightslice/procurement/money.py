"""Hours, dates and price quality: what turns hourly prices into a monthly figure with a range."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from rightslice.core.quantities import HOURS_PER_MONTH

OFFICE_HOURS_PER_MONTH: Final = 5 * 10 * 52 / 12
"""Five days a week of ten hours, 52 weeks a year: 216.67 hours a month."""

QUALITY_BANDS: Final[dict[str, tuple[float, float]]] = {
    "exact": (1.0, 1.0),
    "exact_list": (1.0, 1.0),
    "exact_list_per_gpu": (1.0, 1.0),
    "exact_per_chip": (1.0, 1.0),
    "list_equivalent_spot_or_flex_only": (1.0, 1.0),
    "exact_composite": (0.99, 1.01),
    "exact_no_local_ssd": (1.0, 1.02),
    "derived_family_ratio": (0.95, 1.05),
    "list_may_be_stale": (0.56, 1.6),
}
"""Quality of a catalogue price -> (low, high) factors on it, from the catalogue's own cross-checks.

16 prices were compared with independent sources: 13 equal, two off by 0.8 % (hosts and accelerators added up, and local
SSD left out, which is twice as large on the 12,000 GiB machines), the worst off by 4.8 % (taken for regional prices
that are a ratio times the home region's). Stale lists: prices rose by up to 60 % within five months of 2026, and one
provider once cut a machine from 98.32 to 55.04 USD an hour.
"""
UNKNOWN_BAND: Final = QUALITY_BANDS["list_may_be_stale"]
SPOT_LOW_FACTOR: Final = 0.45
"""Lowest over median spot price of one accelerator among AWS regions in the catalogue: A10G 79 % off against 53 %."""
FLEX_BAND: Final = (0.43, 1.0)
"""Flex-start is billed below list, but its prices are not in the catalogue: an H100 was seen at 4.20 for 9.80 USD."""


def hours_per_month(hours: Literal["always", "office"]) -> float:
    """Hours a month that the fleet runs: `always` 730, `office` 5 x 10 x 52 / 12 = 216.67."""
    return OFFICE_HOURS_PER_MONTH if hours == "office" else HOURS_PER_MONTH


def monthly_usd(usd_per_hour: float, hours: Literal["always", "office"] = "always") -> float:
    """USD a month = USD per hour x hours a month."""
    return usd_per_hour * hours_per_month(hours)


def price_band(quality: str) -> tuple[float, float]:
    """(low, high) factors of a list price of that quality; an unknown quality gets the widest band.

    What stands behind `+` tells how the spot price was found and does not touch the list price.
    """
    return QUALITY_BANDS.get(quality.partition("+")[0], UNKNOWN_BAND)


def spot_band(spot_usd_per_hour: float, list_usd_per_hour: float | None) -> tuple[float, float]:
    """(low, high) factors of a spot price: up to the list price, which some zones quote as their spot price.

    Without a list price the reciprocal of the low factor bounds it.
    """
    high = list_usd_per_hour / spot_usd_per_hour if list_usd_per_hour else 1.0 / SPOT_LOW_FACTOR
    return SPOT_LOW_FACTOR, max(high, 1.0)


def oldest_date(dates: Iterable[str]) -> str:
    """The oldest of ISO 8601 dates of any precision (`2026-H1` counts from January); empty when there is none."""
    return min((date for date in dates if date), key=_start, default="")


def _start(date: str) -> str:
    year, _, rest = date.partition("-")
    half = {"H1": "01", "H2": "07"}.get(rest)
    return f"{year}-{half}" if half else date


def worst_quality(qualities: Iterable[str]) -> str:
    """The quality with the widest band; `owned` when nothing is bought."""

    def width(quality: str) -> tuple[float, str]:
        low, high = price_band(quality)
        return high - low, quality

    return max(qualities, key=width, default="owned")
