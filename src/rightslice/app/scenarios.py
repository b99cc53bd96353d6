"""A proposal under the workload's traffic -> scenarios for the simulator, one per population of pipeline users."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rightslice.app.horizons import MIN_HORIZON_S, verified_s
from rightslice.app.network import with_clients
from rightslice.catalogue.engines import engine
from rightslice.core.rng import generator
from rightslice.optimization.needs import Need, stage_lengths
from rightslice.optimization.options import Option
from rightslice.optimization.sharing import group_key
from rightslice.performance.costs import StepCosts
from rightslice.simulation.scenario import (
    ClosedPipeline,
    Gateway,
    LlmServer,
    Network,
    OpenClass,
    Policy,
    Prefixes,
    Routing,
    Scenario,
    ShareGroup,
    StageLengths,
    StageServer,
)
from rightslice.spec.workload import DEFAULT_PRIORITY, Pipeline, TrafficClass, Users, Workload
from rightslice.traffic.arrivals import DAY_S, Arrivals, PlannedRate, open_loop
from rightslice.traffic.recorded import regrouped
from rightslice.traffic.traces import Trace

WARMUP_SHARE = 0.1

Slowdown = Callable[[Option], float]
"""Factor on an option's times: a quantile or a draw of its prediction error."""


@dataclass(frozen=True, slots=True)
class Load:
    """The traffic of some models, drawn once, so that every round and every draw of errors meets the same requests.

    `routing` and `gateways` by model, as the workload states them. `network`: to wherever it may be served, at worst.
    """

    models: frozenset[str]
    classes: tuple[OpenClass, ...]
    populations: tuple[ClosedPipeline, ...]
    horizon_s: float
    seed: int
    routing: Mapping[str, Routing] = field(default_factory=dict)
    gateways: Mapping[str, Gateway] = field(default_factory=dict)
    network: Network | None = None

    def run_s(self, population: ClosedPipeline | None) -> float:
        """How long the run of a population lasts: its own time, and no less than that of traffic beside it."""
        if population is None:
            return self.horizon_s
        return max(population.duration_s, self.horizon_s if self.classes else 0.0)

    @property
    def users(self) -> str:
        """The populations, as `voice/heavy`; empty without."""
        return ", ".join(f"{found.name}/{found.users_name}" for found in self.populations)

    @property
    def requests(self) -> float:
        """About how many requests one simulation meets; a user sends at most one in the think time and a second."""
        of_users = (p.concurrent * p.duration_s / (p.think_time_s + 1.0) for p in self.populations)
        return sum(len(found.arrivals) for found in self.classes) + max(of_users, default=0.0)


def draw_loads(
    workload: Workload,
    needs: Sequence[Need],
    traces: Mapping[str, Trace],
    seed: int,
    horizon_s: float | None = None,
    planned: Sequence[Need] = (),
) -> tuple[Load, ...]:
    """The traffic of each group of models that pipelines tie together; groups do not touch each other.

    Arrivals are drawn at the planned rates over one horizon per group (`horizon_s` of None: long enough to verify, and
    no shorter than with the needs `planned`), and the lengths of every population.
    """
    return tuple(
        _draw(
            workload,
            [need for need in needs if need.name in group],
            traces,
            seed,
            horizon_s or verified_s(needs, planned, group),
        )
        for group in _groups(needs)
    )


def _groups(needs: Sequence[Need]) -> list[frozenset[str]]:
    """Models that share a pipeline or a GPU, directly or through others; in document order."""
    groups: list[set[str]] = []
    for need in needs:
        mine = {need.name}.union(*(share.pipeline.stages for share in need.shares))
        key = group_key(need.model)
        mine |= {other.name for other in needs if key is not None and group_key(other.model) == key}
        touching = [group for group in groups if group & mine]
        groups = [group for group in groups if not group & mine] + [mine.union(*touching)]
    return sorted((frozenset(group) for group in groups), key=lambda g: [n.name in g for n in needs], reverse=True)


def draw_day(
    workload: Workload, needs: Sequence[Need], traces: Mapping[str, Trace], seed: int, horizon_s: float | None = None
) -> Load:
    """All models' traffic as it comes over a day (or `horizon_s`): `diurnal` classes follow a measured day.

    Without traffic of its own the horizon is that of the longest population.
    """
    populations = tuple(
        _population(pipeline, name, users, needs, seed)
        for pipeline in workload.pipelines
        for name, users in pipeline.users.items()
    )
    drawn = [need for need in needs if need.model.traffic]
    if horizon_s is None:
        horizon_s = DAY_S if drawn else max((p.duration_s for p in populations), default=MIN_HORIZON_S)
    classes = tuple(found for need in drawn for found in _classes_of_day(need, horizon_s, traces, seed))
    classes = with_clients(workload, classes, seed)
    names = frozenset(need.name for need in needs)
    return Load(names, classes, populations, horizon_s, seed, _routing(needs, seed), _gateways(needs))


def _classes_of_day(need: Need, horizon_s: float, traces: Mapping[str, Trace], seed: int) -> Iterator[OpenClass]:
    rng = generator(seed, "arrivals", need.name)
    context = need.max_model_len or None
    drawn = open_loop(need.model.traffic, horizon_s, rng, "mean", max_context=context, traces=traces, by_hour=True)
    yield from _classes(need, drawn)


def _classes(need: Need, drawn: Arrivals) -> Iterator[OpenClass]:
    for index, traffic in enumerate(need.model.traffic):
        yield _class(need.name, traffic, drawn.of_class(index))


def _class(model: str, traffic: TrafficClass, arrivals: Arrivals) -> OpenClass:
    return OpenClass(model, traffic.name, arrivals, traffic.slo, priority=traffic.priority, timeout_s=traffic.timeout)


_POLICIES: dict[str, Policy] = {
    "round_robin": "round-robin",
    "least_requests": "least-requests",
    "power_of_two": "two-choices",
    "kv_aware": "score",
    "prefix_aware": "score",
}


def _routing(needs: Sequence[Need], seed: int) -> dict[str, Routing]:
    """Model -> its router, where the workload states one."""
    found = {}
    for need in needs:
        router = need.model.router
        if router is not None:
            prefix_weight = router.prefix_weight if router.policy == "prefix_aware" else 0.0
            weights = (router.queue_weight, router.kv_weight, prefix_weight)
            found[need.name] = Routing(_POLICIES[router.policy], *weights, router.signal_age, seed)
    return found


def _gateways(needs: Sequence[Need]) -> dict[str, Gateway]:
    """Model -> its gateway, where saturation matters to one."""
    found = {need.name: need.model.gated for need in needs}
    return {name: Gateway(g.queue_depth, g.kv_use, g.flow_control) for name, g in found.items() if g is not None}


def _draw(workload: Workload, needs: Sequence[Need], traces: Mapping[str, Trace], seed: int, horizon_s: float) -> Load:
    names = frozenset(need.name for need in needs)
    populations = tuple(
        _population(pipeline, name, users, needs, seed)
        for pipeline in workload.pipelines
        if pipeline.stages[0] in names
        for name, users in pipeline.users.items()
    )
    if populations and not any(need.model.traffic for need in needs):
        horizon_s = max(p.duration_s for p in populations)
    classes = tuple(
        found for need in needs if need.model.traffic for found in open_classes(need, horizon_s, traces, seed)
    )
    classes = with_clients(workload, classes, seed)
    return Load(names, classes, populations, horizon_s, seed, _routing(needs, seed), _gateways(needs))


def open_classes(
    need: Need, horizon_s: float, traces: Mapping[str, Trace], seed: int, rate_per_s: float | None = None
) -> tuple[OpenClass, ...]:
    """Every class of one model over the horizon: at the planned rates, or the same mix at `rate_per_s` in all."""
    rng = generator(seed, "arrivals", need.name)
    rate: PlannedRate = "planned" if rate_per_s is None else rate_per_s
    drawn = open_loop(need.model.traffic, horizon_s, rng, rate, max_context=need.max_model_len or None, traces=traces)
    return tuple(_classes(need, drawn))


def rating_scenario(
    need: Need, built: LlmServer | StageServer, horizon_s: float, traces: Mapping[str, Trace], rate_per_s: float
) -> Scenario:
    """One replica set under all classes of its model at `rate_per_s`, a tenth of the horizon to warm up."""
    classes = open_classes(need, horizon_s, traces, 0, rate_per_s)
    load = Load(frozenset([need.name]), classes, (), horizon_s, 0, _routing([need], 0))
    (scenario,) = scenarios(load, (built,))
    return scenario


def _population(pipeline: Pipeline, name: str, users: Users, needs: Sequence[Need], seed: int) -> ClosedPipeline:
    by_name = {need.name: need for need in needs}
    lengths = tuple(
        StageLengths(*stage_lengths(pipeline, by_name[stage].model, by_name[stage].max_model_len, seed))
        if by_name[stage].architecture
        else None
        for stage in pipeline.stages
    )
    return ClosedPipeline(
        name=pipeline.name,
        users_name=name,
        stages=pipeline.stages,
        concurrent=users.concurrent,
        think_time_s=users.think_time,
        ramp_up_s=users.ramp_up,
        hold_s=users.hold,
        ramp_down_s=users.ramp_down,
        slos=pipeline.slo,
        lengths=lengths,
        priority=DEFAULT_PRIORITY,
    )


def servers(
    counts: Mapping[str, int], options: Mapping[str, Option], slowdown: Slowdown
) -> tuple[LlmServer | StageServer, ...]:
    """Every replica set that receives requests, by option, its times scaled by `slowdown`."""
    return tuple(
        server(options[key], key, replicas, slowdown(options[key]))
        for key, replicas in sorted(counts.items())
        if replicas > 0 and options[key].costs is not None
    )


def server(option: Option, deployment: str, replicas: int, slowdown: float) -> LlmServer | StageServer:
    """One replica set; the data-parallel ranks of a replica stand as engines of their own, with their own cache.

    Ranks that spread experts step together in truth: that one waits for another's longer step is not simulated.
    Raises ValueError for an option without costs.
    """
    costs = option.costs
    if costs is None:
        raise ValueError(f"{option.key} has no costs")
    if not isinstance(costs, StepCosts):
        return StageServer(deployment, option.model, replicas, costs.scaled(slowdown))
    if option.settings is None:
        raise ValueError(f"{option.key} has step costs but no engine settings")
    settings, facts = option.settings, engine(option.settings.engine)
    block = settings.block_size_tokens
    return LlmServer(
        deployment=deployment,
        model=option.model,
        replicas=replicas * option.engines,
        costs=costs.scaled(slowdown),
        kv_blocks=option.memory.kv_tokens // option.engines // block,
        block_size_tokens=block,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=settings.max_model_len,
        admission=facts.admission,
        prefix_caching=settings.prefix_caching,
        prefill_first=facts.prefill_first,
    )


def share_groups(counts: Mapping[str, int], options: Mapping[str, Option]) -> tuple[ShareGroup, ...]:
    """The replicas that receive requests and are together on a GPU, by the deployment's key and number.

    The i-th of every model of a group sits on GPU i; where a model shares with itself, on GPU i modulo their number.
    """
    together: dict[tuple[str, str, str], dict[str, list[tuple[str, int]]]] = {}
    for key, count in sorted(counts.items()):
        option = options[key]
        if option.share and option.costs is not None and count > 0:
            models = together.setdefault((option.share.mode, option.share.label, option.accelerator), {})
            models.setdefault(option.model, []).extend((key, number) for number in range(count))
    found = []
    for models in together.values():
        shares = {key: share for replicas in models.values() for key, _ in replicas if (share := options[key].share)}
        first = next(iter(shares.values()))
        gpus = max(math.ceil(len(replicas) / first.each) for replicas in models.values())
        for gpu in range(gpus):
            members = tuple(member for replicas in models.values() for member in replicas[gpu::gpus])
            tenants = tuple(shares[key].tenant for key, _ in members)
            found.append(ShareGroup(first.mode, members, tenants, first.thread_share))
    return tuple(found)


def scenarios(
    load: Load, built: tuple[LlmServer | StageServer, ...], sharing: tuple[ShareGroup, ...] = ()
) -> tuple[Scenario, ...]:
    """One scenario per population (with the open-loop classes beside it), or one without populations."""
    classes = tuple(_with_prefixes(found, built) for found in load.classes)
    if not load.populations:
        warmup_s = load.horizon_s * WARMUP_SHARE
        one = Scenario(built, classes, (), load.horizon_s, load.seed, warmup_s, load.routing)
        return (replace(one, sharing=sharing, gateways=load.gateways, network=load.network),)
    return tuple(
        Scenario(
            servers=built,
            classes=classes,
            pipelines=(population,),
            horizon_s=load.run_s(population),
            seed=load.seed,
            routing=load.routing,
            sharing=sharing,
            gateways=load.gateways,
            network=load.network,
        )
        for population in load.populations
    )


def _with_prefixes(found: OpenClass, built: Sequence[LlmServer | StageServer]) -> OpenClass:
    """The class with its prompts' blocks in a size that every engine of its model divides."""
    sharing = found.arrivals.sharing
    sizes = {s.block_size_tokens for s in built if isinstance(s, LlmServer) and s.model == found.model}
    if sharing is None or not sizes:
        return found
    blocks = regrouped(sharing.blocks, math.lcm(sharing.blocks.block_tokens, *sizes))
    return replace(found, prefixes=Prefixes(blocks.block_tokens, blocks.offsets, blocks.ids))
