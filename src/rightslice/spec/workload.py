"""`kind: Workload`: what should be served, how fast, where it may run and what it may cost.

Values are in base units after validation: seconds, bytes, USD, requests per second.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from rightslice.core.engine import Dtype, KvDtype
from rightslice.core.plan import Capacity, Price
from rightslice.spec.autoscaler import Autoscaler, sleeps_for_ever
from rightslice.spec.checks import workload_problems
from rightslice.spec.fields import (
    AcceleratorName,
    Bytes,
    Count,
    EngineName,
    MachineName,
    MethodName,
    ModelSource,
    Name,
    OneOrMany,
    PartitionName,
    PlatformName,
    PositiveSeconds,
    ProviderName,
    RatePerS,
    RegionName,
    Seconds,
    Share,
    Slos,
    TimeOfDay,
    Usd,
    problem,
    problems,
)
from rightslice.spec.sections import Bare, Section
from rightslice.spec.serving import EngineChoice, Gateway, Prefix, Router

API_VERSION = "rightslice/v1"
DEFAULT_PRIORITY = 1
"""Of classes that state none, and of pipelines."""
_SHARES_MATCH = 1e-3
"""Thirds are written 0.333."""
Task = Literal["generate", "embed", "rerank", "transcribe", "synthesize", "custom"]


class Metadata(Section):
    """Names the workload; used in file and object names."""

    name: Name


class Rate(Bare):
    """Offered load. `peak` (default: the mean) is what the plan must carry."""

    mean: RatePerS
    peak: RatePerS | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.peak is not None and self.peak < self.mean:
            raise problem("RS0204", f"peak {self.peak:g}/s is below mean {self.mean:g}/s", path=("peak",))
        return self

    @property
    def planned_per_s(self) -> float:
        """The rate to plan for."""
        return self.peak or self.mean


class Tokens(Bare):
    """Token counts of one side of a request. Without `p95` the spread is assumed and said so."""

    mean: Count
    p95: Count | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p95 is not None and self.p95 < self.mean:
            raise problem("RS0204", f"p95 {self.p95} is below the mean {self.mean}", path=("p95",))
        return self


class Sessions(Section):
    """Conversations: `turns` requests `gap` apart; with `carries_history` each turn's input holds the turns before."""

    turns: Annotated[int, Field(ge=1, le=10_000)]
    gap: Seconds
    carries_history: bool = True


class TrafficClass(Section):
    """One class of requests to one model.

    `prefix_hit_rate`: share of the prompt tokens that a prefix cache without limit would hold; what is found in real
    caches is simulated. Without `prefix.tokens` or sessions, prompts begin with common text of that share. Where
    sessions carry their history it is the part of it that clients send unchanged. None: not stated.
    `from`: region -> share of the requests that come from there; the network between adds to their times.
    `priority`: higher goes first; below zero a gateway sheds the class when its model is saturated. `timeout`: a
    request that no engine has admitted for so long fails.
    """

    name: Name = Field(default="default", alias="class")
    rate: Rate | None = None
    shape: Literal["constant", "diurnal", "bursty"] = "constant"
    trace: str | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    sessions: Sessions | None = None
    prefix: Prefix | None = None
    prefix_hit_rate: Share | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = DEFAULT_PRIORITY
    timeout: PositiveSeconds | None = None
    clients: Annotated[dict[RegionName, Share], Field(default_factory=dict, alias="from", max_length=64)]
    slo: Slos = ()
    tokens: Count | None = None
    deadline: TimeOfDay | None = None

    @model_validator(mode="after")
    def _all_of_them(self) -> Self:
        total = sum(self.clients.values())
        if self.clients and abs(total - 1.0) > _SHARES_MATCH:
            raise problem("RS0204", f"the shares add up to {total:g}, not to 1", path=("from",))
        return self

    @property
    def shares_prompts(self) -> bool:
        """Whether anything is stated that a prefix cache finds again; a trace may bring block ids besides."""
        if self.prefix_hit_rate == 0.0:
            return False
        history = self.sessions is not None and self.sessions.carries_history
        return history or bool(self.prefix and self.prefix.tokens) or self.prefix_hit_rate is not None


class Lora(Section):
    """Adapters served beside the base model."""

    adapters: Annotated[int, Field(ge=1, le=10_000)]
    max_rank: Annotated[int, Field(ge=1, le=512)] = 16


class Speculative(Section):
    """Speculative decoding. `model` drafts, for methods that need one. Without `acceptance` no gain is assumed."""

    method: MethodName
    model: ModelSource | None = None
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
            raise problem("RS0204", f"{len(self.streams)} streams but {len(self.latency)} latencies", path=("latency",))
        for index in range(1, len(self.streams)):
            if self.streams[index] <= self.streams[index - 1]:
                raise problem("RS0106", "streams must increase", path=("streams", index))
            if self.latency[index] < self.latency[index - 1]:
                raise problem("RS0106", "latency must not fall as streams rise", path=("latency", index))
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
    source: Annotated[tuple[ModelSource, ...], OneOrMany()] = ()
    task: Task = "generate"
    precision: Annotated[tuple[Dtype, ...], OneOrMany()] = ()
    kv_precision: Annotated[tuple[KvDtype, ...], OneOrMany()] = ()
    max_context: Count | None = None
    lora: Lora | None = None
    speculative: Speculative | None = None
    traffic: Annotated[tuple[TrafficClass, ...], OneOrMany()] = ()
    isolation: Literal["required", "preferred", "none"] | None = None
    min_replicas: Annotated[int, Field(ge=0, le=100_000)] | None = None
    autoscaling: Autoscaler | None = None
    interruptible: bool = False
    partition: PartitionName | None = None
    gpu: Name | None = None
    router: Router | None = None
    gateway: Gateway | None = None
    engine: EngineChoice = EngineChoice()
    profile: Profile | None = None
    memory: CustomMemory | None = None

    @model_validator(mode="after")
    def _scalable(self) -> Self:
        if self.autoscaling is not None:
            if not self.traffic:
                raise problem("RS0204", "autoscaling follows traffic of the model's own", path=("autoscaling",))
            self.autoscaling.check_emitted()
            self._check_wakes(self.autoscaling)
        return self

    def _check_wakes(self, scaling: Autoscaler) -> None:
        """Whether something is seen of a request that comes while there is no replica."""
        path: tuple[str, ...] = ("autoscaling", "min") if scaling.min is not None else ("min_replicas",)
        if (self.min_replicas if scaling.min is None else scaling.min) == 0:
            asleep = sleeps_for_ever(scaling.kind, scaling.signal, holds=self.holds_requests)
            if asleep is not None:
                raise problem("RS0204", asleep[0], asleep[1], path=path)

    @property
    def gated(self) -> Gateway | None:
        """The gateway that looks at saturation: as stated, or the usual one where a class may be shed."""
        sheds = any(found.priority < 0 for found in self.traffic)
        return self.gateway or (Gateway() if sheds else None)

    @property
    def holds_requests(self) -> bool:
        """Whether requests wait in a gateway while no replica has room, or there is none."""
        return self.gated is not None and self.gated.flow_control


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
    lengths: Annotated[dict[Name, StageLengths], Field(default_factory=dict)]
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


class Way(Section):
    """A measured round trip of the network between two regions, in either direction."""

    one: RegionName = Field(alias="from")
    other: str = Field(alias="to")
    round_trip: Seconds


class Licence(Section):
    """Software licensed per physical GPU."""

    name: Name
    applies_to: EngineName
    per: Literal["physical_gpu"] = "physical_gpu"
    usd_per_gpu_hour: Annotated[float, Field(ge=0.0)]
    owned: Annotated[int, Field(ge=0)] = 0


Platform = Annotated[
    Annotated[PlatformName, Tag("one")] | Annotated[dict[ProviderName, PlatformName], Tag("each")],
    Discriminator(lambda value: "each" if isinstance(value, dict) else "one"),
]
"""One for all, or one for each provider."""


class Fleet(Section):
    """What may be bought or used. Empty tuples mean no restriction."""

    providers: tuple[ProviderName, ...] = ()
    platform: Platform | None = None
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
    network: tuple[Way, ...] = ()


class Budget(Section):
    """Limits in money; each is optional."""

    monthly: Usd | None = None
    per_million_input_tokens: Usd | None = None
    per_million_output_tokens: Usd | None = None


class Workload(Section):
    """The whole document."""

    api_version: Literal["rightslice/v1"] = Field(alias="apiVersion")
    kind: Literal["Workload"]
    metadata: Metadata
    models: Annotated[tuple[Model, ...], Field(min_length=1, max_length=1000)]
    pipelines: tuple[Pipeline, ...] = ()
    fleet: Fleet = Fleet()
    budget: Budget = Budget()
    objective: Literal["cost", "latency", "throughput"] = "cost"
    environment: Literal["production", "development"] = "production"
    hours: Literal["always", "office"] = "always"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found = workload_problems(self.model_dump(by_alias=True))
        if found:
            raise problems(found)
        return self

    def model(self, name: str) -> Model:
        """The model of that name; KeyError when absent."""
        for model in self.models:
            if model.name == name:
                return model
        raise KeyError(name)
