"""`kind: Workload`: what should be served, how fast, where it may run and what it may cost.

Values are in base units after validation: seconds, bytes, USD, requests per second.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rightslice.core.engine import Dtype, KvDtype
from rightslice.core.plan import Capacity, Price
from rightslice.spec.fields import (
    AcceleratorName,
    Bytes,
    Count,
    EngineName,
    MachineName,
    ModelSource,
    Name,
    PartitionName,
    PlatformName,
    PositiveSeconds,
    ProviderName,
    RatePerS,
    RegionName,
    Seconds,
    Share,
    Slos,
    Usd,
    one_or_many,
    problem,
)

API_VERSION = "rightslice/v1"
Task = Literal["generate", "embed", "rerank", "transcribe", "synthesize", "custom"]


class Section(BaseModel):
    """Base of every part of a document: unknown keys are mistakes, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Metadata(Section):
    """Names the workload; used in file and object names."""

    name: Name


class Rate(Section):
    """Offered load. `peak` (default: the mean) is what the plan must carry."""

    mean: RatePerS
    peak: RatePerS | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"mean": value}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.peak is not None and self.peak < self.mean:
            raise problem("RS0204", f"peak {self.peak:g}/s is below mean {self.mean:g}/s")
        return self

    @property
    def planned_per_s(self) -> float:
        """The rate to plan for."""
        return self.peak or self.mean


class Tokens(Section):
    """Token counts of one side of a request. Without `p95` the spread is assumed and said so."""

    mean: Count
    p95: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"mean": value}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p95 is not None and self.p95 < self.mean:
            raise problem("RS0204", f"p95 {self.p95} is below the mean {self.mean}")
        return self


class Sessions(Section):
    """Conversations: `turns` requests `gap` apart; with `carries_history` each turn's input holds the turns before."""

    turns: Annotated[int, Field(ge=1, le=10_000)]
    gap: Seconds
    carries_history: bool = True


class TrafficClass(Section):
    """One class of requests to one model."""

    name: Name = Field(default="default", alias="class")
    rate: Rate | None = None
    shape: Literal["constant", "diurnal", "bursty"] = "constant"
    trace: str | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    sessions: Sessions | None = None
    prefix_hit_rate: Share = 0.0
    priority: Annotated[int, Field(ge=0, le=1000)] = 1
    slo: Slos = ()
    tokens: Count | None = None
    deadline: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [n for n, v in (("rate", self.rate), ("trace", self.trace), ("tokens", self.tokens)) if v is not None]
        if len(given) != 1:
            hint = "rate: 12/s, or trace: file.csv, or tokens: 2e9 for offline work"
            raise problem("RS0204", f"one of rate, trace, tokens is needed, got {', '.join(given) or 'none'}", hint)
        if self.deadline is not None and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", self.deadline):
            raise problem("RS0107", f'"{self.deadline[:20]}" is not a time of day (try "06:00")')
        return self


class Lora(Section):
    """Adapters served beside the base model."""

    adapters: Annotated[int, Field(ge=1, le=10_000)]
    max_rank: Annotated[int, Field(ge=1, le=512)] = 16


class Speculative(Section):
    """Speculative decoding. Without `acceptance` no speed-up is assumed."""

    method: Name
    tokens: Annotated[int, Field(ge=1, le=64)]
    acceptance: Share | None = None


class Profile(Section):
    """A measured stage: mean latency with that many streams at once on the whole of `measured_on`.

    `sm_demand` is the share of that accelerator's SMs the stage keeps busy: a slice with fewer slows it down in
    proportion, one with as many does not.
    """

    memory: Bytes
    streams: tuple[Annotated[int, Field(ge=1, le=100_000)], ...]
    latency: tuple[PositiveSeconds, ...]
    sm_demand: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    measured_on: AcceleratorName | None = None
    provenance: str | None = None

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if not self.streams or len(self.streams) != len(self.latency):
            raise problem("RS0204", f"{len(self.streams)} streams but {len(self.latency)} latencies")
        if any(b <= a for a, b in zip(self.streams, self.streams[1:], strict=False)):
            raise problem("RS0106", "streams must increase")
        if any(b < a for a, b in zip(self.latency, self.latency[1:], strict=False)):
            raise problem("RS0106", "latency must not fall as streams rise")
        return self


class CustomMemory(Section):
    """Memory of a model that we cannot read. `shardable`: it may be split over the accelerators of one machine."""

    weights: Bytes
    kv_cache: Bytes = 0
    overhead: Bytes = 0
    shardable: bool = False

    @property
    def total_bytes(self) -> int:
        """Everything it needs."""
        return self.weights + self.kv_cache + self.overhead


class Model(Section):
    """One model to serve."""

    name: Name
    source: Annotated[tuple[ModelSource, ...], BeforeValidator(one_or_many)] = ()
    task: Task = "generate"
    precision: Annotated[tuple[Dtype, ...], BeforeValidator(one_or_many)] = ()
    kv_precision: Annotated[tuple[KvDtype, ...], BeforeValidator(one_or_many)] = ()
    max_context: Count | None = None
    lora: Lora | None = None
    speculative: Speculative | None = None
    traffic: Annotated[tuple[TrafficClass, ...], BeforeValidator(one_or_many)] = ()
    isolation: Literal["required", "preferred", "none"] | None = None
    min_replicas: Annotated[int, Field(ge=0, le=100_000)] | None = None
    interruptible: bool = False
    partition: PartitionName | None = None
    gpu: Name | None = None
    profile: Profile | None = None
    memory: CustomMemory | None = None

    @model_validator(mode="after")
    def _describable(self) -> Self:
        if not (self.source or self.profile or self.memory):
            raise problem("RS0202", f'model "{self.name}" needs source, profile or memory')
        if self.memory and self.task != "custom":
            raise problem("RS0204", f'model "{self.name}": memory belongs to task: custom')
        _unique("traffic class", [c.name for c in self.traffic])
        if self.task == "generate" and not self.profile:
            for traffic in self.traffic:
                if traffic.trace is None and (traffic.input_tokens is None or traffic.output_tokens is None):
                    raise problem("RS0202", f'class "{traffic.name}" needs input_tokens and output_tokens')
        return self


class Users(Section):
    """A closed-loop population: each user sends, waits for the answer, thinks, sends again."""

    concurrent: Annotated[int, Field(ge=1, le=1_000_000)]
    think_time: Seconds = 0.0
    ramp_up: Seconds = 0.0
    hold: PositiveSeconds = 300.0
    ramp_down: Seconds = 0.0


class StageLengths(Section):
    """Token counts of one language-model stage, for each request of a pipeline."""

    input_tokens: Tokens
    output_tokens: Tokens


class Pipeline(Section):
    """Models called one after another for each user's request.

    `users` are alternative populations: each is planned for and verified on its own. `lengths` gives the token counts
    of language-model stages; without it the model's own traffic classes do.
    """

    name: Name
    stages: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]
    users: Annotated[dict[Name, Users], Field(min_length=1)]
    lengths: dict[Name, StageLengths] = {}
    slo: Slos = ()


class AcceleratorFilter(Section):
    """Empty `allow` means all."""

    allow: tuple[AcceleratorName, ...] = ()
    deny: tuple[AcceleratorName, ...] = ()


class Owned(Section):
    """Machines that are there already and cost nothing more."""

    machine_type: MachineName
    count: Annotated[int, Field(ge=1, le=100_000)]


class Reservation(Section):
    """Reserved machines with their own price."""

    provider: ProviderName
    machine_type: MachineName
    count: Annotated[int, Field(ge=1, le=100_000)]
    usd_per_hour: Annotated[float, Field(ge=0.0)] | None = None
    region: RegionName | None = None


class Quota(Section):
    """Accelerators that may be bought in one region."""

    provider: ProviderName
    region: RegionName
    accelerator: AcceleratorName
    gpus: Annotated[int, Field(ge=0, le=1_000_000)]


class Licence(Section):
    """Software licensed per physical GPU."""

    name: Name
    applies_to: EngineName
    per: Literal["physical_gpu"] = "physical_gpu"
    usd_per_gpu_hour: Annotated[float, Field(ge=0.0)]
    owned: Annotated[int, Field(ge=0)] = 0


class Fleet(Section):
    """What may be bought or used. Empty tuples mean no restriction."""

    providers: tuple[ProviderName, ...] = ()
    platform: PlatformName | dict[ProviderName, PlatformName] | None = None
    regions: tuple[RegionName, ...] = ()
    accelerators: AcceleratorFilter = AcceleratorFilter()
    architecture: Literal["x86", "arm", "any"] = "any"
    engines: Annotated[tuple[EngineName, ...], Field(min_length=1)] = ("vllm",)
    purchase: Annotated[tuple[Capacity, ...], Field(min_length=1)] = ("on_demand",)
    price: Annotated[tuple[Price, ...], Field(min_length=1)] = ("list",)
    latency_tolerance: Literal["low", "tolerant"] = "low"
    owned: tuple[Owned, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    quota: tuple[Quota, ...] = ()
    licences: tuple[Licence, ...] = ()


class Budget(Section):
    """Limits in money; each is optional."""

    monthly: Usd | None = None
    per_million_input_tokens: Usd | None = None
    per_million_output_tokens: Usd | None = None


def _unique(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise problem("RS0301", f'two of kind {kind} are called "{name}"')


def _unique_models(models: tuple[Model, ...]) -> tuple[Model, ...]:
    _unique("model", [m.name for m in models])
    return models


def _unique_pipelines(pipelines: tuple[Pipeline, ...]) -> tuple[Pipeline, ...]:
    _unique("pipeline", [p.name for p in pipelines])
    return pipelines


class Workload(Section):
    """The whole document."""

    api_version: Literal["rightslice/v1"] = Field(alias="apiVersion")
    kind: Literal["Workload"]
    metadata: Metadata
    models: Annotated[tuple[Model, ...], Field(min_length=1, max_length=1000), AfterValidator(_unique_models)]
    pipelines: Annotated[tuple[Pipeline, ...], AfterValidator(_unique_pipelines)] = ()
    fleet: Fleet = Fleet()
    budget: Budget = Budget()
    objective: Literal["cost", "latency", "throughput"] = "cost"
    environment: Literal["production", "development"] = "production"
    hours: Literal["always", "office"] = "always"

    @model_validator(mode="after")
    def _pipelines_resolve(self) -> Self:
        names = [m.name for m in self.models]
        for pipeline in self.pipelines:
            for stage in pipeline.stages:
                if stage not in names:
                    hint = f"models are {', '.join(names[:6])}"
                    raise problem("RS0302", f'pipeline "{pipeline.name}" names a missing stage "{stage[:60]}"', hint)
        return self

    def model(self, name: str) -> Model:
        """The model of that name; KeyError when absent."""
        for model in self.models:
            if model.name == name:
                return model
        raise KeyError(name)
