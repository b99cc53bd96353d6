"""The plan: the one document that manifests, reports, simulations and load tests read; mirrors `plan.json`.

Every field is data; nothing is computed here but lookups. Fields whose stage is not built yet are empty or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rightslice.core.calibrated import Calibrated
from rightslice.core.changes import Changes
from rightslice.core.engine import EngineSettings
from rightslice.core.estimate import Estimate
from rightslice.core.reasons import PartitionReason, PlatformCost, Saving
from rightslice.core.replay import Trial
from rightslice.core.slo import Slo

PLAN_SCHEMA = "rightslice.plan/v1"

Capacity = Literal["on_demand", "reservation", "future_reservation", "capacity_block", "flex_start", "spot", "owned"]
Price = Literal["list", "commitment_1y", "commitment_3y", "savings_plan", "negotiated", "spot", "flex", "owned"]


@dataclass(frozen=True, slots=True)
class MonthlyCost:
    """USD a month. `low`..`high` cover the price's quality; `price_date` is ISO 8601; parts add up to `value`."""

    value: float
    low: float
    high: float
    price_date: str
    quality: str
    compute: float
    licences: float = 0.0
    other: float = 0.0


@dataclass(frozen=True, slots=True)
class Purchase:
    """Who guarantees the machine, and what it costs."""

    capacity: Capacity
    price: Price


@dataclass(frozen=True, slots=True)
class LayoutUse:
    """GPUs of the pool with this layout: `whole` = {}, else MIG profile or way of sharing -> places on one GPU."""

    name: str
    gpus: int
    profiles: dict[str, int]


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal nodes bought the same way. `hourly_usd` is one node's."""

    name: str
    provider: str
    region: str
    platform: str
    machine_type: str
    accelerator: str
    gpus_per_node: int
    nodes: int
    nodes_max: int
    purchase: Purchase
    hourly_usd: float
    price_date: str
    price_quality: str
    sharing: Literal["none", "mig", "time-slicing", "mps"]
    layouts: tuple[LayoutUse, ...]
    host_architecture: str = "x86"
    fabric: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each accelerator (or slice) of one replica, and what is left for the KV cache."""

    device_bytes: int
    weights_bytes: int
    activation_bytes: int
    overhead_bytes: int
    kv_cache_bytes: int
    kv_tokens: int
    max_sequences: int

    @property
    def used_bytes(self) -> int:
        """Everything the engine takes."""
        return self.weights_bytes + self.activation_bytes + self.overhead_bytes + self.kv_cache_bytes


@dataclass(frozen=True, slots=True)
class Engine:
    """What is started: name, version, image, and the very arguments (flag -> value; empty value = a bare flag)."""

    name: str
    version: str
    image: str
    args: dict[str, str]
    port: int
    health_path: str
    metrics_path: str
    settings: EngineSettings | None = None


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replica counts: the floor, what runs at the planned load, the ceiling of autoscaling."""

    min: int
    steady: int
    max: int


@dataclass(frozen=True, slots=True)
class Deployment:
    """Equal replicas. `partition` is `whole`, a MIG profile, `time-slicing` or `mps`.

    `max_rate` is requests/s of one replica at its SLO, beside busy neighbours where it has some.
    """

    id: str
    role: Literal["unified", "prefill", "decode"]
    pool: str
    accelerator: str
    partition: str
    gpus_per_replica: int
    replicas: Replicas
    engine: Engine
    memory: Memory | None
    max_rate: Estimate | None = None
    provenance: str = ""


@dataclass(frozen=True, slots=True)
class SloResult:
    """One objective of a plan and what the simulation found."""

    subject: str
    slo: Slo
    predicted_ms: float
    achieved_share: float
    met: bool


@dataclass(frozen=True, slots=True)
class Expected:
    """Predicted at the planned load: p95 with its 80 % interval. None where the metric does not exist for the task."""

    ttft_ms: Estimate | None
    tpot_ms: Estimate | None
    e2e_ms: Estimate | None
    requests_per_s_at_slo: Estimate | None


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """Share of a class's prompt tokens found in the prefix caches as simulated, and in one cache without limit."""

    traffic_class: str
    realised: float
    ceiling: float


@dataclass(frozen=True, slots=True)
class PlannedGateway:
    """The inference gateway before a model. `holds`: requests wait in it (flow control), without a replica too.

    `priorities`: traffic class -> what the gateway orders and sheds by.
    """

    holds: bool
    priorities: dict[str, int]


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """One model of the workload as it will run. `prefix_hits`: empty where its prompts share nothing.

    `gateway`: None where a plain Service is enough.
    """

    name: str
    source: str
    task: str
    replicas: int
    rate_per_s: float
    expected: Expected
    slos: tuple[SloResult, ...]
    slo_met: bool
    slo_probability: float | None
    deployments: tuple[Deployment, ...]
    prefix_hits: tuple[PrefixHits, ...] = ()
    gateway: PlannedGateway | None = None


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """One closed-loop population of a pipeline as simulated."""

    name: str
    users: str
    concurrent_users: int
    stages: tuple[str, ...]
    requests_per_s: float
    e2e_ms: Estimate | None
    slos: tuple[SloResult, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One tenant of one GPU. `start`: MIG memory unit or slot number; a replica over several GPUs repeats `replica`."""

    partition: str
    start: int
    model: str
    deployment: str
    replica: int
    memory_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """One GPU of one node and who lives on it. `memory_bytes` is the visible memory of the whole GPU.

    `layout`: which of its pool's layouts it has; empty where that is not stated.
    """

    pool: str
    node: int
    gpu: int
    memory_bytes: int
    slots: tuple[Slot, ...]
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """The simulation behind the plan. `draws` are repetitions with coefficients drawn from their error bands."""

    seed: int
    draws: int
    draws_met: int
    horizon_s: float
    requests: int
    completed: int
    failed: int
    slo_attainment: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan of the modelled kind costs less than `monthly_usd`; `gap` = (plan - bound) / bound.

    GPU-hours of a day of traffic that follows its hours, None where none does: of replicas that are there the instant
    they are needed, of as many as the peak needs all the time, and of all that is planned.
    """

    monthly_usd: float
    gap: float
    perfect_autoscaler_gpu_hours: float | None = None
    peak_gpu_hours: float | None = None
    planned_gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """An option that was not chosen: the constraint that binds, and the cheapest way to allow it."""

    option: str
    model: str
    code: str
    reason: str
    relaxation: str = ""
    monthly_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """A complete other choice that would work, with its cost. One per accelerator."""

    option: str
    accelerator: str
    monthly_usd: float
    difference_usd: float
    detail: str
    verified: bool


@dataclass(frozen=True, slots=True)
class Request:
    """What must be asked for before this plan can run: quota, reservation, licence."""

    kind: Literal["quota", "reservation", "licence"]
    subject: str
    amount: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something to watch out for."""

    code: str
    subject: str
    message: str


Warning = PlanWarning  # noqa: A001


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the same load would cost with one whole GPU (group) per model replica, the usual practice."""

    monthly_usd: float
    description: str


@dataclass(frozen=True, slots=True)
class Binding:
    """Why the answer is no: what binds, and single changes that would make it yes."""

    what: str
    ways_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScaledDay:
    """A day of traffic under the plan's autoscalers, at the predicted times.

    GPU-hours and USD of the nodes, of the plan's without autoscalers (`static_*`), and of replicas that are there the
    instant they are needed (`perfect_gpu_hours`; no nodes, no starts). `objective` is the one nearest to failing.
    """

    horizon_s: float
    requests: int
    gpu_hours: float
    usd: float | None
    static_gpu_hours: float
    static_usd: float | None
    perfect_gpu_hours: float
    objective: str
    achieved_share: float


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """How one deployment follows its load. `target` of `signal` per replica; `cooldown_s`, `polling_s` are KEDA's.

    `day`: all autoscalers of the plan together; `trials`: settings that were tried, the cheapest that holds first.
    """

    deployment: str
    model: str
    kind: Literal["hpa", "keda"]
    signal: str
    target: float
    min_replicas: int
    max_replicas: int
    up_window_s: float
    down_window_s: float
    polling_s: float
    cooldown_s: float
    day: ScaledDay
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole answer. `monthly_usd`, `bound` and `verification` are None when infeasible.

    `workload`: the document that it answers, as written, and `calibrations`: the measured times that it was made with,
    so that the plan can be simulated and explained by itself. `changes`: from what runs today, where that was given.
    `savings`: what one more GPU of each limit is worth; `platform_costs`: what limits of platforms cost; `partitions`:
    why models run on whole GPUs, slices or shared GPUs.
    """

    name: str
    feasible: bool
    reproducible: bool
    seed: int
    environment: str
    objective: str
    monthly_usd: MonthlyCost | None
    usd_per_million_input_tokens: float | None
    usd_per_million_output_tokens: float | None
    slo_probability: float | None
    binding_slo: str | None
    pools: tuple[Pool, ...]
    models: tuple[PlannedModel, ...]
    pipelines: tuple[PlannedPipeline, ...]
    placements: tuple[Placement, ...]
    autoscaling: tuple[Autoscaling, ...]
    verification: Verification | None
    bound: Bound | None
    baseline: Baseline | None
    rejected: tuple[Rejection, ...]
    alternatives: tuple[Alternative, ...]
    requests_to_make: tuple[Request, ...]
    warnings: tuple[PlanWarning, ...]
    assumptions: tuple[str, ...] = ()
    binding: Binding | None = None
    workload: dict[str, Any] | None = None
    changes: Changes | None = None
    partitions: tuple[PartitionReason, ...] = ()
    savings: tuple[Saving, ...] = ()
    platform_costs: tuple[PlatformCost, ...] = ()
    calibrations: tuple[Calibrated, ...] = ()
    schema: str = PLAN_SCHEMA

    def pool(self, name: str) -> Pool:
        """The pool of that name; KeyError when absent."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise KeyError(name)
