"""`rightslice simulate`: a plan played again, as it stands or with something changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rightslice.app.calibrated import of_models
from rightslice.app.clusters import controlled
from rightslice.app.disaggregating import Split, sizes, split_apart, split_notes, split_of, split_servers
from rightslice.app.network import near_first, network_notes, placed
from rightslice.app.planning import architectures_of, traces_of
from rightslice.app.recordings import recorded_s, repeats
from rightslice.app.replicas import Server, disaggregation_of, moved, servers_of, standing_pools
from rightslice.app.rolling import parse_rollout
from rightslice.app.scaling import as_tuned, settings_notes
from rightslice.app.scenarios import Load, Slowdown, draw_day, draw_loads, scenarios, server, share_groups
from rightslice.app.what_if import WhatIf, changes_of, check_options, lasting, workload_of
from rightslice.catalogue.disruptions import max_run_s
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Plan, Pool
from rightslice.core.replay import Replay
from rightslice.core.results import SimulationResult
from rightslice.core.timeline import Fleet, standing
from rightslice.optimization.needs import Need, needs
from rightslice.optimization.options import Option
from rightslice.simulation.cluster_spec import ClusterLog
from rightslice.simulation.run import Watched, load_kernel, simulate, watch, watch_cluster
from rightslice.simulation.scenario import LlmServer, ShareGroup, StageServer
from rightslice.spec.autoscaler import Autoscaler, parse_autoscaler
from rightslice.spec.plan_document import load_plan
from rightslice.spec.workload import Workload
from rightslice.traffic.traces import Trace


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan with its changes, ready to be played. `planned`: needs before the changes, where they differ."""

    plan: Plan
    workload: Workload
    needs: tuple[Need, ...]
    traces: Mapping[str, Trace]
    servers: Mapping[str, Server]
    autoscalers: Mapping[str, Autoscaler]
    splits: Mapping[str, Split]
    seed: int
    given_trace: bool = False
    planned: tuple[Need, ...] = ()


def _as_predicted(_option: Option) -> float:
    return 1.0


def simulate_plan(path: Path, what_if: WhatIf) -> Replay:
    """Play the plan of a `plan.json` (or of the folder that holds one).

    Raises BadInputError: an unreadable or infeasible plan, one without its workload, an option that makes no sense.
    """
    asked = read_asked(path, what_if)
    _refuse_split(asked)
    horizon_s = what_if.horizon_s or (recorded_s(asked.workload, asked.traces) if what_if.trace else None)
    if asked.autoscalers or what_if.faults or what_if.rollout or _ends(asked.plan, horizon_s):
        found = with_control(asked, as_tuned(asked.plan, asked.autoscalers), what_if, day_of(asked, horizon_s))
    else:
        found = _as_planned(asked, horizon_s)
    cost = asked.plan.monthly_usd
    if cost is None:
        return replace(found, asked=what_if.given)
    return replace(found, asked=what_if.given, price_date=cost.price_date, price_quality=cost.quality)


def day_of(asked: Asked, horizon_s: float | None = None) -> Load:
    """The traffic of a day, or of the recording where all of it is recorded."""
    horizon_s = horizon_s or recorded_s(asked.workload, asked.traces)
    return draw_day(asked.workload, asked.needs, asked.traces, asked.seed, horizon_s)


def _ends(plan: Plan, horizon_s: float | None) -> bool:
    """Whether machines reach the longest time that they may run."""
    limits = [limit for pool in plan.pools if (limit := max_run_s(pool.purchase.capacity)) is not None]
    return horizon_s is not None and any(limit <= horizon_s for limit in limits)


def read_asked(path: Path, what_if: WhatIf) -> Asked:
    """A plan's file or folder with its changes."""
    plan = _feasible(load_plan(path / "plan.json" if path.is_dir() else path), path)
    return asked_of(plan, path if path.is_dir() else path.parent, what_if)


def asked_of(plan: Plan, folder: Path, what_if: WhatIf) -> Asked:
    """A plan with its changes; names of recordings are relative to `folder`."""
    seed = plan.seed if what_if.seed is None else what_if.seed
    check_options(what_if, seed)
    own, document = changes_of(plan, what_if)
    workload = lasting(workload_of(plan, document), what_if.horizon_s)
    architectures = architectures_of(workload)
    traces = traces_of(workload, folder)
    known = of_models(plan.calibrations, architectures)
    wanted = tuple(replace(n, calibrated=known.get(n.name, ())) for n in needs(workload, architectures, traces))
    servers = servers_of(plan, wanted, own)
    scalers = _autoscalers(workload, what_if.autoscaler, own)
    splits = _splits(plan, servers, own)
    asked = Asked(plan, workload, wanted, traces, servers, scalers, splits, seed, what_if.trace is not None)
    if document == plan.workload or what_if.horizon_s or what_if.trace:
        return asked
    before = workload_of(plan, plan.workload or {})
    return replace(asked, planned=needs(before, architectures_of(before), traces_of(before, folder)))


def _as_planned(asked: Asked, horizon_s: float | None) -> Replay:
    """All replicas all the time; models that share no pipeline are played apart."""
    loads = draw_loads(asked.workload, asked.needs, asked.traces, asked.seed, horizon_s, asked.planned)
    fleet = _standing(asked)
    watched: list[Watched] = []
    notes: list[str] = []
    together: list[SimulationResult] = []
    load_kernel()
    started_s = time.process_time()
    for load in loads:
        built = tuple(
            server(found.option, key, found.replicas, 1.0)
            for key, found in asked.servers.items()
            if found.option.model in load.models and found.option.costs is not None
        )
        load, built = _served(asked, load, built)  # noqa: PLW2901
        notes += network_notes(asked.workload, load.network)
        counts = {found.deployment: asked.servers[found.deployment].replicas for found in built}
        sharing = _sharing(asked.servers, counts)
        drawn = scenarios(load, split_servers(built, asked.splits), sharing)
        if asked.given_trace:  # every recorded request counts, from an empty fleet on
            drawn = tuple(replace(played, warmup_s=0.0) for played in drawn)
        watched += [watch(played, fleet) for played in drawn]
        if asked.splits:
            together += [simulate(played) for played in scenarios(load, built, sharing)]
    notes += split_notes(asked.splits, [found.result for found in watched], together)
    found = replace(_replay(asked, watched, notes), cpu_s=time.process_time() - started_s)
    repeated = repeats(asked.workload, asked.traces, found.horizon_s) if asked.given_trace else ()
    return replace(found, notes=(*repeated, *found.notes))


def _replay(asked: Asked, watched: Sequence[Watched], notes: Sequence[str]) -> Replay:
    """What every simulation answers."""
    pools = {pool.name: pool for pool in asked.plan.pools}
    gpu_hours, usd = max((_bill(pools, found) for found in watched), key=lambda bill: (bill[1] or 0.0, bill[0]))
    return Replay(
        plan=asked.plan.name,
        seed=asked.seed,
        results=tuple(found.result for found in watched),
        cpu_s=0.0,
        gpu_hours=gpu_hours,
        usd=usd,
        timelines=tuple(found.timeline for found in watched),
        confidence=tuple(interval for found in watched for interval in found.confidence),
        notes=tuple(dict.fromkeys(notes)),
    )


def _bill(pools: Mapping[str, Pool], found: Watched) -> tuple[float, float | None]:
    """GPU-hours and USD of all nodes over one run, whether anybody moves them or not."""
    hours = found.fleet.node_hours(found.result.horizon_s)
    gpu_hours = sum(hours[name] * pool.gpus_per_node for name, pool in pools.items())
    if found.fleet.usd_per_hour is None:
        return gpu_hours, None
    return gpu_hours, sum(hours[name] * pool.hourly_usd for name, pool in pools.items())


def _served(
    asked: Asked, load: Load, built: tuple[LlmServer | StageServer, ...]
) -> tuple[Load, tuple[LlmServer | StageServer, ...]]:
    """The load and its servers, each in the region of its pool."""
    pools = {pool.name: pool for pool in asked.plan.pools}
    network, where = placed(asked.workload, built, {key: pools[s.deployment.pool] for key, s in asked.servers.items()})
    return replace(load, network=network, routing=near_first(where, load.routing)), where


def _standing(asked: Asked) -> Fleet:
    """What stands as long as nobody changes it."""
    pools = standing_pools(asked.plan, asked.servers)
    prices = None if moved(asked.plan, asked.servers) else {pool.name: pool.hourly_usd for pool in pools}
    replicas = {key: found.replicas for key, found in asked.servers.items()}
    return standing(sizes(replicas, asked.splits), {pool.name: pool.nodes for pool in pools}, prices)


def with_control(
    asked: Asked,
    autoscalers: Mapping[str, Autoscaler],
    what_if: WhatIf,
    load: Load,
    slowdown: Slowdown = _as_predicted,
) -> Replay:
    """All models together, for they share nodes; one run for each population of pipeline users.

    `slowdown`: of the replicas, which their autoscalers' targets do not know.
    """
    plan, servers, faults = asked.plan, asked.servers, what_if.faults
    rollout = parse_rollout(what_if.rollout) if what_if.rollout is not None else None
    watched: list[Watched] = []
    logs: list[ClusterLog] = []
    cpu_s = 0.0
    notes = list(repeats(asked.workload, asked.traces, load.horizon_s))
    fleet = _standing(asked)
    load_kernel()
    for population in load.populations or (None,):
        one = replace(load, horizon_s=load.run_s(population), populations=(population,) if population else ())
        apart = split_apart(servers, asked.splits)
        made = controlled(plan, apart, autoscalers, faults, one, asked.traces, rollout)
        notes += settings_notes(plan, made.settings)
        built = tuple(
            _built(key, found, made.slots, slowdown(found.option))
            for key, found in servers.items()
            if found.option.costs
        )
        started_s = time.process_time()
        one, built = _served(asked, one, built)
        notes += network_notes(asked.workload, one.network)
        counts = {found.deployment: servers[found.deployment].replicas for found in built}
        sharing = _sharing(servers, counts)
        (scenario,) = scenarios(one, split_servers(built, asked.splits, made.slots), sharing)
        found, log = watch_cluster(replace(scenario, warmup_s=0.0), made.cluster, fleet)
        cpu_s += time.process_time() - started_s
        watched.append(found)
        logs.append(log)
    notes += split_notes(asked.splits, [found.result for found in watched], ())
    models = dict.fromkeys(name for log in logs for name in log.dark_s)
    return replace(
        _replay(asked, watched, notes),
        cpu_s=cpu_s,
        scale_events=tuple(event for log in logs for event in log.scale_events),
        preemptions=tuple(event for log in logs for event in log.preemptions),
        timeline=tuple(moment for log in logs for moment in log.timeline),
        bounds=made.bounds,
        unknown_phases=tuple(dict.fromkeys(name for log in logs for name in log.unknown_phases)),
        faults=faults,
        apart=made.apart,
        rollouts=tuple(found for log in logs for found in log.rollouts),
        dark_s={name: max(log.dark_s.get(name, 0.0) for log in logs) for name in models},
    )


def _sharing(servers: Mapping[str, Server], counts: Mapping[str, int]) -> tuple[ShareGroup, ...]:
    return share_groups(counts, {key: found.option for key, found in servers.items()})


def _built(key: str, found: Server, slots: Mapping[str, int], slowdown: float) -> LlmServer | StageServer:
    """With as many slots as its control plane may use at one time."""
    made = server(found.option, key, found.replicas, slowdown)
    return replace(made, replicas=slots[key]) if key in slots else made


def _splits(plan: Plan, servers: Mapping[str, Server], own: Mapping[str, Mapping[str, str]]) -> dict[str, Split]:
    """Model -> how its prefill and decode are split."""
    pools = {pool.name: pool for pool in plan.pools}
    return {
        model: split_of(model, disaggregation_of(model, changes), servers, pools)
        for model, changes in own.items()
        if "disaggregation" in changes
    }


def _refuse_split(asked: Asked) -> None:
    if asked.splits and any(
        split.model in p.stages for split in asked.splits.values() for p in asked.workload.pipelines
    ):
        message = "--set models.NAME.disaggregation: the model is a stage of a pipeline"
        raise BadInputError(Diagnostic("RS0502", message, hint="split models with traffic of their own"))


def _autoscalers(
    workload: Workload, everywhere: str | None, own: Mapping[str, Mapping[str, str]]
) -> dict[str, Autoscaler]:
    """Model -> autoscaler: the one named for it, else the one for all that have traffic of their own."""
    found = {}
    for model in workload.models:
        if "autoscaler" in own.get(model.name, {}):
            option = f"--set models.{model.name}.autoscaler"
            found[model.name] = parse_autoscaler(own[model.name]["autoscaler"], option)
        elif everywhere is not None and model.traffic:
            found[model.name] = parse_autoscaler(everywhere, "--autoscaler")
    if everywhere is not None and not found:
        hint = "pipelines keep their replicas"
        raise BadInputError(Diagnostic("RS0502", "--autoscaler: no model has traffic of its own", hint=hint))
    return found


def _feasible(plan: Plan, path: Path) -> Plan:
    if not plan.feasible:
        raise BadInputError(Diagnostic("RS0501", f"{path}: the plan says no, there is nothing to simulate"))
    if plan.workload is None:
        message = f"{path} does not hold the workload that it answers"
        raise BadInputError(Diagnostic("RS0202", message, hint="plan again with this version"))
    return plan
