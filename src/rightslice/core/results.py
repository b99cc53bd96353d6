"""What a simulation returns. Times are milliseconds here because people read them; picoseconds inside the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.core.slo import Slo

PATIENCE_S = 60.0
"""End-to-end limit of a pipeline that has no objective."""
KEPT_UP_SHARE = 0.9
"""Requests answered before the horizon ends, of those that came; the rest may still be under way."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of one quantity."""

    mean: float
    p50: float
    p95: float
    p99: float


def percentile(distribution: Distribution, share: float) -> float:
    """The known percentile nearest to `share`."""
    known = ((0.5, distribution.p50), (0.95, distribution.p95), (0.99, distribution.p99))
    return min(known, key=lambda pair: abs(pair[0] - share))[1]


@dataclass(frozen=True, slots=True)
class SloOutcome:
    """One objective and the share of requests that met it, of those that could be `judged`; 1 of none."""

    slo: Slo
    achieved_share: float
    judged: int

    @property
    def met(self) -> bool:
        """Whether enough requests met it."""
        return self.achieved_share >= self.slo.share


@dataclass(frozen=True, slots=True)
class ClassResult:
    """One traffic class of one model: its requests that came within the window. Distributions cover those completed and
    are None when there are none. `answered`, and both rates: within the window, whenever they came.

    `prefix_hit_rate`: share of the prompt tokens of admitted requests found in the prefix cache; None without prefixes.
    `prefix_hit_ceiling`: what one cache without limit would have found of the same requests; None where not known.
    `prefix_block_tokens`: size of the blocks in which prompts were compared, larger in long runs; 0 without prefixes.
    `timed_out`: failed because they waited too long. `shed`: refused under saturation because of their priority; not
    part of `failed`. `transfer_ms`: from the first token until the KV cache has come to a decode replica, if any.
    """

    model: str
    traffic_class: str
    requests: int
    completed: int
    failed: int
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    e2e_ms: Distribution | None
    requests_per_s: float
    output_tokens_per_s: float
    slo_attainment: float
    outcomes: tuple[SloOutcome, ...] = ()
    prefix_hit_rate: float | None = None
    prefix_hit_ceiling: float | None = None
    prefix_block_tokens: int = 0
    timed_out: int = 0
    shed: int = 0
    transfer_ms: Distribution | None = None
    answered: int = 0

    @property
    def kept_up(self) -> bool:
        """False where a class without objectives piles up: fewer than KEPT_UP_SHARE of its requests are answered,
        those that are shed included."""
        return bool(self.outcomes) or self.completed + self.failed >= KEPT_UP_SHARE * self.requests

    @property
    def unfinished(self) -> int:
        """Requests still under way when the horizon ended."""
        return self.requests - self.completed - self.failed - self.shed


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage of a pipeline."""

    model: str
    e2e_ms: Distribution | None
    ttft_ms: Distribution | None = None


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """One closed-loop population going through one pipeline. `answered` within the window, whenever they came; the rate
    is that of answers while there are users."""

    name: str
    users: str
    requests: int
    completed: int
    requests_per_s: float
    e2e_ms: Distribution | None
    per_stage: tuple[StageResult, ...]
    slo_attainment: float
    outcomes: tuple[SloOutcome, ...] = ()
    answered: int = 0

    @property
    def kept_up(self) -> bool:
        """False where a population without objectives waits: its users spend longer waiting than PATIENCE_S."""
        return bool(self.outcomes) or self.e2e_ms is None or self.e2e_ms.p95 <= PATIENCE_S * 1e3


@dataclass(frozen=True, slots=True)
class ReplicaResult:
    """What one replica did: busy share of the horizon, KV cache use (share of blocks), preemptions, mean batch."""

    deployment: str
    replica: int
    busy_share: float
    kv_use_mean: float
    kv_use_peak: float
    preemptions: int
    batch_mean: float


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Requests that came within the window, from the end of the warm-up (`begin_s`) to the horizon.

    requests = completed + failed + shed + unfinished; `lost` is part of `failed`; `requeued` is informative.
    """

    seed: int
    horizon_s: float
    requests: int
    completed: int
    failed: int
    requeued: int
    lost: int
    per_class: tuple[ClassResult, ...]
    pipelines: tuple[PipelineResult, ...]
    replicas: tuple[ReplicaResult, ...]
    shed: int = 0
    begin_s: float = 0.0

    @property
    def answered(self) -> int:
        """Within the window, whenever they came."""
        return sum(r.answered for r in self.per_class) + sum(r.answered for r in self.pipelines)

    @property
    def requests_per_s(self) -> float:
        """Answered per second, of all classes and users."""
        return sum(r.requests_per_s for r in self.per_class) + sum(r.requests_per_s for r in self.pipelines)

    @property
    def outcomes(self) -> tuple[SloOutcome, ...]:
        """Every objective of every class and pipeline."""
        of_classes = tuple(o for result in self.per_class for o in result.outcomes)
        return of_classes + tuple(o for result in self.pipelines for o in result.outcomes)

    @property
    def slos_met(self) -> bool:
        """Whether every objective holds."""
        return all(outcome.met for outcome in self.outcomes)

    @property
    def sound(self) -> bool:
        """Whether every objective holds, no request fails, and classes without objectives are kept up with."""
        kept_up = [r.kept_up for r in self.per_class] + [r.kept_up for r in self.pipelines]
        return self.slos_met and self.failed == 0 and all(kept_up)

    @property
    def slo_attainment(self) -> float:
        """Share of all requests, pipelines' included, that meet every objective of theirs; 1.0 without requests."""
        parts = [(r.requests, r.slo_attainment) for r in self.per_class]
        parts += [(r.requests, r.slo_attainment) for r in self.pipelines]
        total = sum(n for n, _ in parts)
        return sum(n * share for n, share in parts) / total if total else 1.0


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of predictions of one metric. `macro_median_ape`: mean of the groups' medians.

    Shares of rows within 20 %, and inside the 80 % interval.
    """

    rows: int
    groups: int
    median_ape: float
    macro_median_ape: float
    within_20pct: float
    interval_coverage: float
