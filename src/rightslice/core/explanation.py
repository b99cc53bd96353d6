"""Why a plan is as it is: the reasons in it, and what would turn the choice."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.core.plan import Bound, MonthlyCost, Rejection
from rightslice.core.reasons import Flip, PartitionReason, PlatformCost, Saving


@dataclass(frozen=True, slots=True)
class Explanation:
    """`rejected`: what was asked about, or all of it, nearest first. `planned_usd`: cost when planned again, None where
    nothing is planned again."""

    plan: str
    monthly_usd: MonthlyCost | None
    bound: Bound | None
    binding_slo: str | None
    partitions: tuple[PartitionReason, ...]
    savings: tuple[Saving, ...]
    platform_costs: tuple[PlatformCost, ...]
    rejected: tuple[Rejection, ...]
    flips: tuple[Flip, ...]
    notes: tuple[str, ...]
    planned_usd: float | None = None
