"""What the simulations said about a proposal, as data for the plan document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rightslice.core.estimate import Estimate
from rightslice.core.plan import PrefixHits, SloResult, Verification


@dataclass(frozen=True, slots=True)
class PipelineEvidence:
    """One population of one pipeline as simulated."""

    pipeline: str
    users: str
    requests_per_s: float
    e2e_ms: Estimate | None
    slos: tuple[SloResult, ...]


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """One model's own classes: p95 of each metric with its 80 % interval, objectives, chance that they hold, and what
    is found in its prefix caches at expected times."""

    ttft_ms: Estimate | None
    tpot_ms: Estimate | None
    e2e_ms: Estimate | None
    slos: tuple[SloResult, ...]
    probability: float | None
    prefix_hits: tuple[PrefixHits, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the simulations found."""

    verification: Verification
    probability: float
    models: Mapping[str, ModelEvidence]
    pipelines: tuple[PipelineEvidence, ...]
    assumptions: tuple[str, ...] = field(default=())

    @property
    def slos(self) -> tuple[SloResult, ...]:
        """Every objective."""
        own = tuple(slo for model in self.models.values() for slo in model.slos)
        return own + tuple(slo for pipeline in self.pipelines for slo in pipeline.slos)

    @property
    def binding(self) -> SloResult | None:
        """The objective with the least room between achieved and required share, then in time."""

        def room(slo: SloResult) -> tuple[float, float]:
            return (slo.achieved_share - slo.slo.share, slo.slo.at_most_s * 1e3 / max(slo.predicted_ms, 1e-9))

        return min(self.slos, key=room, default=None)
