"""A predicted number: value, 80 % interval, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Provenance = Literal["measured", "calibrated", "interpolated", "first-principles", "unvalidated"]
"""From most to least trusted."""

_TRUST: tuple[Provenance, ...] = ("measured", "calibrated", "interpolated", "first-principles", "unvalidated")


@dataclass(frozen=True, slots=True)
class Estimate:
    """`low` and `high` bound the 80 % interval; `low <= value <= high`."""

    value: float
    low: float
    high: float
    provenance: Provenance

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"estimate out of order: {self.low} <= {self.value} <= {self.high}")

    @classmethod
    def within(cls, value: float, relative: float, provenance: Provenance) -> Estimate:
        """`value` with a multiplicative band: value / (1 + relative) .. value * (1 + relative)."""
        return cls(value, value / (1.0 + relative), value * (1.0 + relative), provenance)


@dataclass(frozen=True, slots=True)
class Metric:
    """Mean and percentiles of the simulated requests; `low` and `high` bound the mean's 80 % interval.

    `high95`: the mean is below it with 95 %.
    """

    mean: float
    p50: float
    p95: float
    p99: float
    low: float
    high: float
    high95: float
    provenance: Provenance

    def at_median(self) -> Metric:
        """The median in the place of the mean, with the mean's relative interval."""
        factor = self.p50 / self.mean
        return replace(self, mean=self.p50, low=self.low * factor, high=self.high * factor, high95=self.high95 * factor)


def least_trusted(*provenances: Provenance) -> Provenance:
    """The weakest of several sources decides what a combined number may claim."""
    return max(provenances, key=_TRUST.index)
