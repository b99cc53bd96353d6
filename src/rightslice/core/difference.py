"""What differs between two plans: money, certainty, GPUs, replicas, and the GPUs that have to change."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.core.changes import Changes


@dataclass(frozen=True, slots=True)
class Amount:
    """One figure in both plans; None where a plan has none."""

    old: float | None
    new: float | None

    @property
    def difference(self) -> float | None:
        """New less old."""
        return None if self.old is None or self.new is None else self.new - self.old


@dataclass(frozen=True, slots=True)
class AcceleratorDifference:
    """GPUs of one accelerator that are paid for."""

    accelerator: str
    gpus_old: int
    gpus_new: int


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """One model: replicas and where they run, as `3g.40gb of A100-SXM-80GB`; empty where a plan does not have it."""

    name: str
    replicas_old: int
    replicas_new: int
    where_old: tuple[str, ...]
    where_new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """From one plan to another. `increase`: share of the old cost by which the new one is dearer, None from nothing.

    `price_dates`: of the machines of both, empty for those of one's own.
    """

    old: str
    new: str
    monthly_usd: Amount
    price_dates: tuple[str, str]
    increase: float | None
    slo_probability: Amount
    accelerators: tuple[AcceleratorDifference, ...]
    models: tuple[ModelDifference, ...]
    changes: Changes
