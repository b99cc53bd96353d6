"""What is simulated: servers, open-loop classes, closed-loop pipelines and a horizon."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rightslice.core.slo import Slo
from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.performance.sharing import MOST_TENANTS, Mode, Tenant, shared

if TYPE_CHECKING:
    from rightslice.traffic.arrivals import Arrivals

Admission = Literal["prompt", "answer", "estimate"]
"""What a request must find room for to start: its prompt (vLLM: it may be evicted later), prompt and whole answer
(TensorRT-LLM GUARANTEED_NO_EVICT), or these beside what is expected of the others (SGLang: expectation.py)."""


@dataclass(frozen=True, slots=True)
class LlmServer:
    """`replicas` equal LLM engines of one deployment. The KV cache of one replica is `kv_blocks` blocks.

    `prefill_first`: as long as prompts can be computed nobody decodes (SGLang, vLLM before 0.8); else steps mix both.
    `prefix_caching`: blocks of prompts stay known for later requests (prefix.py), where classes have `prefixes`.
    `link`: the deployment, of as many replicas, over which prompts leave when they are computed (disaggregation.py).
    Without `chunked_prefill` a prompt is computed in one step. Raises ValueError for a token budget beyond the cost
    table, or below the longest request without chunks, sizes below 1, or steps that take no time.
    """

    deployment: str
    model: str
    replicas: int
    costs: StepCosts
    kv_blocks: int
    block_size_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    admission: Admission = "prompt"
    prefix_caching: bool = False
    chunked_prefill: bool = True
    prefill_first: bool = False
    region: int = 0
    link: str = ""

    def __post_init__(self) -> None:
        sizes = (self.block_size_tokens, self.max_num_seqs, self.max_num_batched_tokens, self.max_model_len)
        if min(sizes) < 1 or self.kv_blocks < 0 or self.replicas < 0:
            raise ValueError(f"{self.deployment}: sizes are at least 1")
        if self.max_num_batched_tokens > self.costs.max_tokens:
            raise ValueError(f"{self.deployment}: {self.max_num_batched_tokens} tokens, costs {self.costs.max_tokens}")
        if not self.chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(f"{self.deployment}: {self.max_model_len} tokens do not fit a step without chunks")
        if self.costs.step_time_ps(0, 0, 1, 1) < 1:
            raise ValueError(f"{self.deployment}: a step takes time")
        if self.link and self.admission != "prompt":
            raise ValueError(f"{self.deployment}: who gives prompts away takes no room for answers")


@dataclass(frozen=True, slots=True)
class StageServer:
    """`replicas` equal servers of a measured stage.

    Without `batch_delay_s` n requests share the server and each takes `latency_ps[n]`. With it the server takes batches
    of at most `max_streams`, one at a time: a batch of n takes `latency_ps[n]`, and the first in line waits at most
    `batch_delay_s` for others. A link takes batches of one, `token_ps` longer for each token that it moves, and hands
    the request on to `then_model`. Raises ValueError for a latency of 0 or a negative delay.
    """

    deployment: str
    model: str
    replicas: int
    costs: StageCosts
    batch_delay_s: float | None = None
    region: int = 0
    token_ps: int = 0
    then_model: str = ""

    def __post_init__(self) -> None:
        if self.batch_delay_s is not None and not self.batch_delay_s >= 0.0:
            raise ValueError(f"{self.deployment}: a delay is not negative")
        if int(self.costs.latency_ps[1]) < 1 or self.replicas < 0:
            raise ValueError(f"{self.deployment}: a stage takes time")


Policy = Literal["least-requests", "round-robin", "two-choices", "score", "nearest"]


@dataclass(frozen=True, slots=True)
class Routing:
    """How requests of a model find a replica; policies: routing.py.

    For `score`: the weights of a waiting request, of a full KV cache and of a prompt that is not in the prefix cache,
    and how old the gateway's figures of the first two may get. `seed` is that of `two-choices`. `spill_queue`: for
    `nearest`, the waiting requests up to which a replica is not passed over. Raises ValueError for negative weights,
    ages or queues.
    """

    policy: Policy = "least-requests"
    queue_weight: float = 1.0
    kv_weight: float = 1.0
    prefix_weight: float = 0.0
    signal_age_s: float = 0.0
    seed: int = 0
    spill_queue: int = 5

    def __post_init__(self) -> None:
        weights = (self.queue_weight, self.kv_weight, self.prefix_weight)
        if min(*weights, self.signal_age_s, self.spill_queue) < 0.0:
            raise ValueError("weights, ages and queues are not negative")


@dataclass(frozen=True, slots=True)
class Gateway:
    """Thresholds of saturation (gateway.py): a replica has room up to `queue_depth` waiting requests and `kv_use` of
    its KV cache in use. While no replica has, negative priorities are refused; with `flow_control` the others wait.

    The values are those of the SaturationDetector of gateway-api-inference-extension, read 2026-12. Raises ValueError
    for a negative depth or a share outside 0 to 1.
    """

    queue_depth: int = 5
    kv_use: float = 0.8
    flow_control: bool = True

    def __post_init__(self) -> None:
        if self.queue_depth < 0 or not 0.0 <= self.kv_use <= 1.0:
            raise ValueError(f"queue depth {self.queue_depth}, KV use {self.kv_use}")


@dataclass(frozen=True, slots=True)
class Network:
    """Round trips between where clients are (`clients`, names) and the `regions` of servers, in s: [c, g].

    They are added to time to first token and end-to-end time of each request, by the replica that it came to last.
    Raises ValueError for another shape or negative times.
    """

    clients: tuple[str, ...]
    regions: tuple[str, ...]
    round_trip_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.round_trip_s.shape != (len(self.clients), len(self.regions)) or not (self.round_trip_s >= 0.0).all():
            raise ValueError("a round trip from every place to every region")


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What each prompt of a class starts with: request i with the blocks `ids[starts[i] : starts[i + 1]]`, each of
    `block_tokens` tokens. Equal ids, in any class of the model, are the same block after the same blocks.

    Raises ValueError for blocks without tokens.
    """

    block_tokens: int
    starts: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.block_tokens < 1:
            raise ValueError("a block has tokens")

    def where(self, chosen: NDArray[np.bool_]) -> Prefixes:
        """Those of the requests for which `chosen` (as many entries) is true."""
        lengths = np.diff(self.starts)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths[chosen])])
        ids = self.ids[self.starts[0] : self.starts[-1]]
        return Prefixes(self.block_tokens, starts, ids[np.repeat(chosen, lengths)])


@dataclass(frozen=True, slots=True)
class OpenClass:
    """One traffic class: its requests come whether or not earlier ones are answered. `arrivals` is sorted by time.

    Of two waiting requests the one with the higher `priority` is served first, and evicted last. A request that was not
    admitted anywhere within `timeout_s` is dropped. `clients`: where each request comes from, an index into the
    network's. Raises ValueError for `prefixes` or `clients` of another number of requests or a timeout of 0.
    """

    model: str
    name: str
    arrivals: Arrivals
    slos: tuple[Slo, ...] = ()
    priority: int = 0
    prefixes: Prefixes | None = None
    timeout_s: float | None = None
    clients: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not self.timeout_s > 0.0:
            raise ValueError(f"{self.name}: a timeout takes time")
        if self.prefixes is not None and len(self.prefixes.starts) != len(self.arrivals) + 1:
            raise ValueError(f"{self.name}: {len(self.prefixes.starts)} starts for {len(self.arrivals)} requests")
        if self.clients is not None and len(self.clients) != len(self.arrivals):
            raise ValueError(f"{self.name}: {len(self.clients)} clients for {len(self.arrivals)} requests")

    def where(self, chosen: NDArray[np.bool_]) -> OpenClass:
        """The requests for which `chosen` (as many entries) is true."""
        prefixes = self.prefixes.where(chosen) if self.prefixes else None
        clients = self.clients[chosen] if self.clients is not None else None
        return replace(self, arrivals=self.arrivals.where(chosen), prefixes=prefixes, clients=clients)


@dataclass(frozen=True, slots=True)
class StageLengths:
    """Token lengths drawn beforehand for one LLM stage; the k-th request of the pipeline uses entry k modulo size."""

    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.input_tokens) != len(self.output_tokens) or len(self.input_tokens) == 0:
            raise ValueError("as many inputs as outputs, at least one")


@dataclass(frozen=True, slots=True)
class ClosedPipeline:
    """`concurrent` users, each sending one request through `stages` (model names), thinking, and sending again.

    User i starts at i x ramp_up_s / concurrent. From ramp_up_s + hold_s on nobody sends a new request; what is under
    way goes on; nor when `requests` have been sent. `lengths[k]` belongs to stage k: None for a measured stage.
    """

    name: str
    users_name: str
    stages: tuple[str, ...]
    concurrent: int
    think_time_s: float
    ramp_up_s: float
    hold_s: float
    ramp_down_s: float
    slos: tuple[Slo, ...] = ()
    lengths: tuple[StageLengths | None, ...] = ()
    priority: int = 0
    requests: int | None = None

    def __post_init__(self) -> None:
        if not self.stages or self.concurrent < 0:
            raise ValueError(f"{self.name}: at least one stage")
        if self.lengths and len(self.lengths) != len(self.stages):
            raise ValueError(f"{self.name}: {len(self.lengths)} lengths for {len(self.stages)} stages")

    @property
    def duration_s(self) -> float:
        """Ramp-up, hold and ramp-down."""
        return self.ramp_up_s + self.hold_s + self.ramp_down_s


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """Replicas on one GPU, as (deployment, number), each with the lone profile that the law of sharing reads.

    A member is busy while it has a request. Whenever one gets its first or loses its last, the others change speed
    (sharing.py). `thread_share`: of the SMs, at most for one client under MPS. Raises ValueError for more than
    MOST_TENANTS members, the same one twice, or another number of tenants.
    """

    mode: Mode
    members: tuple[tuple[str, int], ...]
    tenants: tuple[Tenant, ...]
    thread_share: float = 1.0

    def __post_init__(self) -> None:
        if len(set(self.members)) != len(self.tenants) or len(self.members) != len(self.tenants):
            raise ValueError("every member once, with its profile")
        if len(self.members) > MOST_TENANTS or not 0.0 < self.thread_share <= 1.0:
            raise ValueError(f"{len(self.members)} tenants, at most {MOST_TENANTS}; a share of SMs up to 1")

    def slowdown(self, member: int, busy: Collection[int]) -> float:
        """Of one member, by index, while these others are busy."""
        neighbours = [tenant for index, tenant in enumerate(self.tenants) if index in busy and index != member]
        return shared(self.mode, self.tenants[member], neighbours, self.thread_share)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything of one run. Requests that start before `warmup_s` are simulated and not counted.

    `routing` by model; least requests where it has none. `retries`: how often a request may lose its replica and be
    computed again. `sharing`: replicas that are not alone on their GPU; a MIG slice is a device of its own.
    `gateways` by model; without one nobody is shed or held back. `network`: None where everybody is near.
    All randomness is in the arrays already; `seed` is the one they were drawn with. Raises ValueError for a horizon
    beyond 100 days (int64 picoseconds end at 106), a warm-up as long as the horizon, or a replica that shares GPUs with
    two groups or does not exist.
    """

    servers: tuple[LlmServer | StageServer, ...]
    classes: tuple[OpenClass, ...] = ()
    pipelines: tuple[ClosedPipeline, ...] = ()
    horizon_s: float = 3600.0
    seed: int = 0
    warmup_s: float = 0.0
    routing: Mapping[str, Routing] = field(default_factory=dict)
    retries: int = 1
    sharing: tuple[ShareGroup, ...] = ()
    gateways: Mapping[str, Gateway] = field(default_factory=dict)
    network: Network | None = None

    def __post_init__(self) -> None:
        members = [member for group in self.sharing for member in group.members]
        known = {(s.deployment, number) for s in self.servers for number in range(s.replicas)} if members else set()
        if len(set(members)) != len(members) or not known.issuperset(members):
            raise ValueError("a replica shares one GPU, and exists")
        if not 0.0 <= self.warmup_s < self.horizon_s <= 100 * 86_400.0:
            raise ValueError(f"horizon {self.horizon_s} s, warm-up {self.warmup_s} s")
