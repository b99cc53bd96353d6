"""`rightslice simulate`: a plan played again, as it stands or with something changed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from rightslice.app.clusters import Server, controlled, gpus_of
from rightslice.app.disaggregating import Split, sizes, split_apart, split_notes, split_of, split_servers
from rightslice.app.knowledge import known_names
from rightslice.app.network import near_first, network_notes, placed
from rightslice.app.planning import architectures_of, traces_of
from rightslice.app.recordings import recorded_s, repeats
from rightslice.app.rolling import parse_rollout
from rightslice.app.scaling import as_tuned, settings_notes
from rightslice.app.scenarios import Load, Slowdown, draw_day, draw_loads, scenarios, server, share_groups
from rightslice.catalogue.accelerators import device, resolve_device
from rightslice.catalogue.disruptions import max_run_s
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.plan import Deployment, Plan, PlannedModel
from rightslice.core.replay import Replay
from rightslice.core.results import SimulationResult
from rightslice.core.timeline import Fleet, standing
from rightslice.optimization.candidates import option_key, option_of
from rightslice.optimization.needs import Need, needs
from rightslice.optimization.options import Option
from rightslice.optimization.sharing import joined
from rightslice.performance.laws import step_costs
from rightslice.performance.stages import stage_costs
from rightslice.simulation.run import Watched, load_kernel, simulate, watch, watch_cluster
from rightslice.simulation.scenario import LlmServer, ShareGroup, StageServer
from rightslice.spec.autoscaler import Autoscaler, parse_autoscaler
from rightslice.spec.disaggregation import Disaggregation, parse_disaggregation
from rightslice.spec.loader import parse_workload
from rightslice.spec.paths import changed, split_change
from rightslice.spec.plan_document import load_plan
from rightslice.spec.workload import Workload
from rightslice.traffic.traces import Trace

MAX_HORIZON_S: Final = 90 * 86_400.0
MAX_REPLICAS: Final = 100_000
_OF_DEPLOYMENTS: Final = ("replicas", "accelerator", "autoscaler", "disaggregation")
"""Keys under `models.NAME` that change the plan and not its workload."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What differs from the plan. `changes`: `PATH=VALUE` texts; None: as planned.

    `autoscaler`: of every model with traffic of its own; `faults`: see `faults`; `rollout`: see `rolling`. Each brings
    a control plane, and so does a purchase whose machines end within the horizon.
    """

    trace: Path | None = None
    rate: str | None = None
    users: str | None = None
    changes: tuple[str, ...] = ()
    seed: int | None = None
    horizon_s: float | None = None
    autoscaler: str | None = None
    faults: tuple[str, ...] = ()
    rollout: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given."""
        found = {option.name: getattr(self, option.name) for option in fields(self)}
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in found.items()
            if value not in (None, ())
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan with its changes, ready to be played."""

    plan: Plan
    workload: Workload
    needs: tuple[Need, ...]
    traces: Mapping[str, Trace]
    servers: Mapping[str, Server]
    autoscalers: Mapping[str, Autoscaler]
    splits: Mapping[str, Split]
    seed: int
    given_trace: bool = False


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
    return replace(found, asked=what_if.given)


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
    _check(what_if, seed)
    own, document = _changes(plan, what_if)
    workload = _workload(plan, document)
    architectures = architectures_of(workload)
    traces = traces_of(workload, folder)
    wanted = needs(workload, architectures, traces)
    servers = _servers(plan, wanted, own)
    scalers = _autoscalers(workload, what_if.autoscaler, own)
    splits = _splits(plan, servers, own)
    return Asked(plan, workload, wanted, traces, servers, scalers, splits, seed, what_if.trace is not None)


def _as_planned(asked: Asked, horizon_s: float | None) -> Replay:
    """All replicas all the time; models that share no pipeline are played apart."""
    loads = draw_loads(asked.workload, asked.needs, asked.traces, asked.seed, horizon_s)
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
    cpu_s = time.process_time() - started_s
    hours = max((load.horizon_s for load in loads), default=0.0) / 3600.0
    nodes = _nodes(asked)
    gpus = sum(nodes[pool.name] * pool.gpus_per_node for pool in asked.plan.pools)
    usd_per_hour = sum(nodes[pool.name] * pool.hourly_usd for pool in asked.plan.pools)
    usd = None if _moved(asked.plan, asked.servers) else usd_per_hour * hours
    repeated = repeats(asked.workload, asked.traces, hours * 3600.0) if asked.given_trace else ()
    return Replay(
        plan=asked.plan.name,
        seed=asked.seed,
        results=tuple(found.result for found in watched),
        cpu_s=cpu_s,
        gpu_hours=gpus * hours,
        usd=usd,
        timelines=tuple(found.timeline for found in watched),
        confidence=tuple(interval for found in watched for interval in found.confidence),
        notes=(*repeated, *dict.fromkeys(notes)),
    )


def _served(
    asked: Asked, load: Load, built: tuple[LlmServer | StageServer, ...]
) -> tuple[Load, tuple[LlmServer | StageServer, ...]]:
    """The load and its servers, each in the region of its pool."""
    pools = {pool.name: pool for pool in asked.plan.pools}
    network, where = placed(asked.workload, built, {key: pools[s.deployment.pool] for key, s in asked.servers.items()})
    return replace(load, network=network, routing=near_first(where, load.routing)), where


def _standing(asked: Asked) -> Fleet:
    """What stands as long as nobody changes it."""
    prices = None if _moved(asked.plan, asked.servers) else {pool.name: pool.hourly_usd for pool in asked.plan.pools}
    replicas = {key: found.replicas for key, found in asked.servers.items()}
    return standing(sizes(replicas, asked.splits), _nodes(asked), prices)


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
    watched, logs, cpu_s = [], [], 0.0
    notes: list[str] = []
    fleet = _standing(asked)
    load_kernel()
    for population in load.populations or (None,):
        horizon_s = max(load.horizon_s, population.duration_s if population else 0.0)
        one = replace(load, horizon_s=horizon_s, populations=(population,) if population else ())
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
        logs.append((log, made, horizon_s / 3600.0))
    notes += split_notes(asked.splits, [found.result for found in watched], ())
    gpu_hours = usd = 0.0
    for log, made, hours in logs:
        for planned in made.apart:
            gpu_hours += planned.nodes * planned.gpus_per_node * hours
            usd += planned.nodes * planned.hourly_usd * hours
        for pool in made.cluster.pools:
            gpu_hours += log.node_hours[pool.nodes.name] * pool.gpus_per_node
            usd += log.node_hours[pool.nodes.name] * pool.usd_per_hour
    return Replay(
        plan=plan.name,
        seed=load.seed,
        results=tuple(found.result for found in watched),
        cpu_s=cpu_s,
        gpu_hours=gpu_hours,
        usd=None if _moved(plan, servers) else usd,
        scale_events=tuple(event for log, *_ in logs for event in log.scale_events),
        preemptions=tuple(event for log, *_ in logs for event in log.preemptions),
        timeline=tuple(moment for log, *_ in logs for moment in log.timeline),
        bounds=logs[0][1].bounds,
        unknown_phases=tuple(dict.fromkeys(name for log, *_ in logs for name in log.unknown_phases)),
        faults=faults,
        apart=tuple(pool.name for pool in logs[0][1].apart),
        rollouts=tuple(found for log, *_ in logs for found in log.rollouts),
        notes=(*repeats(asked.workload, asked.traces, load.horizon_s), *dict.fromkeys(notes)),
        timelines=tuple(found.timeline for found in watched),
        confidence=tuple(interval for found in watched for interval in found.confidence),
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
        model: split_of(model, _disaggregation(model, changes), servers, pools)
        for model, changes in own.items()
        if "disaggregation" in changes
    }


def _disaggregation(model: str, changes: Mapping[str, str]) -> Disaggregation:
    return parse_disaggregation(changes["disaggregation"], f"--set models.{model}.disaggregation")


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


def _check(what_if: WhatIf, seed: int) -> None:
    if seed < 0:
        raise BadInputError(Diagnostic("RS0501", f"--seed {seed} is negative", hint="for example 0"))
    if what_if.horizon_s is not None and not 0.0 < what_if.horizon_s <= MAX_HORIZON_S:
        raise BadInputError(Diagnostic("RS0501", "--horizon is above zero and at most 90d", hint="for example 6h"))
    if what_if.trace is not None and what_if.rate is not None:
        raise BadInputError(Diagnostic("RS0502", "--trace and --rate exclude each other", hint="a trace has its rate"))


def _changes(plan: Plan, what_if: WhatIf) -> tuple[dict[str, dict[str, str]], dict[str, Any]]:
    """(model -> changed keys of its deployments, the workload document with the other changes)."""
    own: dict[str, dict[str, str]] = {}
    document: dict[str, Any] = dict(plan.workload or {})
    names = [model.name for model in plan.models]
    for text in what_if.changes:
        path, value = split_change(text)
        if len(path) == 3 and path[0] == "models" and path[2] in _OF_DEPLOYMENTS:
            if path[1] not in names:
                hint = did_you_mean(path[1], names) or f"models: {', '.join(names)}"
                raise BadInputError(Diagnostic("RS0501", f'--set: there is no model "{path[1][:60]}"', hint=hint))
            own.setdefault(path[1], {})[path[2]] = value
        else:
            document = changed(document, path, value)
    if what_if.users is not None:
        document = _one_population(document, what_if.users)
    if what_if.rate is not None:
        document = changed(document, ("models", _open_model(document, "--rate"), "traffic", "rate"), what_if.rate)
    if what_if.trace is not None:
        document = _replayed(document, what_if.trace)
    return own, document


def _one_population(document: Mapping[str, Any], users: str) -> dict[str, Any]:
    """Only the populations of that name, in every pipeline that has one."""
    pipelines = document.get("pipelines") or []
    names = sorted({name for pipeline in pipelines for name in pipeline["users"]})
    if users not in names:
        hint = did_you_mean(users, names) or (f"users: {', '.join(names)}" if names else "the plan has no pipeline")
        raise BadInputError(Diagnostic("RS0501", f'--users: there is no "{users[:60]}"', hint=hint))
    kept = [
        {**pipeline, "users": {users: pipeline["users"][users]}} for pipeline in pipelines if users in pipeline["users"]
    ]
    return {**document, "pipelines": kept}


def _open_model(document: Mapping[str, Any], option: str) -> str:
    """The only model with one class of traffic of its own."""
    found = [model for model in document["models"] if model.get("traffic")]
    single = [m for m in found if isinstance(m["traffic"], dict) or len(m["traffic"]) == 1]
    if len(found) != 1 or not single:
        hint = "--set models.NAME.traffic.CLASS.rate=20/s changes one class"
        classes = ", ".join(model["name"] for model in found) or "none"
        message = f"{option} needs one model with one class of traffic of its own; here: {classes}"
        raise BadInputError(Diagnostic("RS0502", message, hint=hint))
    return str(single[0]["name"])


def _replayed(document: Mapping[str, Any], trace: Path) -> dict[str, Any]:
    """The one class of traffic with the recorded requests instead of its own."""
    name = _open_model(document, "--trace")
    models = []
    for model in document["models"]:
        if model["name"] == name:
            own = model["traffic"] if isinstance(model["traffic"], dict) else model["traffic"][0]
            stays = {key: own[key] for key in ("class", "slo", "priority", "timeout") if key in own}
            model = {**model, "traffic": {**stays, "trace": str(trace.absolute())}}  # noqa: PLW2901
        models.append(model)
    return {**document, "models": models}


def _workload(plan: Plan, document: Mapping[str, Any]) -> Workload:
    """The document with the sources that the plan chose."""
    try:
        loaded = parse_workload(json.dumps(document), file="", known=known_names())
    except BadInputError as error:  # places in a text that nobody sees
        raise BadInputError([replace(found, location=None) for found in error.diagnostics]) from None
    planned = {model.name: model.source for model in plan.models}
    models = tuple(
        model.model_copy(update={"source": _chosen(model.source, planned.get(model.name, ""))})
        for model in loaded.workload.models
    )
    return loaded.workload.model_copy(update={"models": models})


def _chosen(sources: tuple[str, ...], planned: str) -> tuple[str, ...]:
    return tuple(source for source in sources if planned in (source, f"./{source}"))[:1] or sources[:1]


def _servers(plan: Plan, wanted: Sequence[Need], own: Mapping[str, Mapping[str, str]]) -> dict[str, Server]:
    """Deployment -> what runs; those of one model in the order in which the plan was verified."""
    by_name = {need.name: need for need in wanted}
    found: dict[str, Server] = {}
    for model in plan.models:
        changes = own.get(model.name, {})
        counts = _counts(model, changes)
        built = []
        for deployment in model.deployments:
            seen = _seen(deployment, changes)
            option = _option(deployment, by_name[model.name], seen)
            built.append(Server(deployment, counts[deployment.id], option, by_name[model.name]))
        found |= {one.deployment.id: one for one in sorted(built, key=_place)}
    options = joined([(server.need, server.option) for server in found.values()])
    return {key: replace(server, option=option) for (key, server), option in zip(found.items(), options, strict=True)}


def _place(found: Server) -> str:
    option = found.option
    return option_key(option.model, option.device, option.settings, option.gpus)


def _counts(model: PlannedModel, changes: Mapping[str, str]) -> dict[str, int]:
    """Deployment -> replicas: fewer are taken from the last deployments, more go to the first."""
    counts = {deployment.id: deployment.replicas.steady for deployment in model.deployments}
    if "disaggregation" in changes:
        asked = _disaggregation(model.name, changes)
        changes = {"replicas": str(asked.prefill + asked.decode)}
    if "replicas" not in changes:
        return counts
    option = f"--set models.{model.name}.replicas"
    try:
        left = int(changes["replicas"])
    except ValueError:
        raise BadInputError(Diagnostic("RS0501", f"{option}: {changes['replicas'][:40]} is no whole number")) from None
    if not 0 <= left <= MAX_REPLICAS:
        hint = f"from 0 to {MAX_REPLICAS:,}"
        raise BadInputError(Diagnostic("RS0501", f"{option}={left} is out of range", hint=hint))
    for key, planned in counts.items():
        counts[key] = min(planned, left)
        left -= counts[key]
    counts[next(iter(counts))] += left
    return counts


def _seen(deployment: Deployment, changes: Mapping[str, str]) -> Device:
    if "accelerator" not in changes:
        try:
            return device(deployment.accelerator, deployment.partition)
        except KeyError:
            message = f'{deployment.id}: unknown accelerator or slice "{deployment.accelerator} {deployment.partition}"'
            raise BadInputError(Diagnostic("RS0317", message[:160])) from None
    text = changes["accelerator"]
    found = resolve_device(text)
    if found is None:
        raise BadInputError(
            Diagnostic("RS0312", f'unknown accelerator "{text[:80]}"'), "rightslice catalog accelerators"
        )
    return device(*found)


def _option(deployment: Deployment, need: Need, seen: Device) -> Option:
    """The planned option, or the same settings on another accelerator where they fit."""
    settings, memory = _told(deployment, need), deployment.memory
    same = (seen.accelerator.name, seen.partition) == (deployment.accelerator, deployment.partition)
    if settings is not None and need.architecture is not None and not same:
        made = option_of(need, need.architecture, settings, seen, 0)
        if isinstance(made, Option):
            return replace(made, key=deployment.id)
        raise BadInputError(Diagnostic(made[0], f"{deployment.id} does not run on {seen.name}: {made[1]}"))
    if memory is None:
        raise BadInputError(Diagnostic("RS0202", f"{deployment.id}: the plan does not say what memory it uses"))
    option = Option(
        key=deployment.id,
        model=need.name,
        device=seen,
        gpus=deployment.gpus_per_replica,
        engine=deployment.engine.name,
        engine_version=deployment.engine.version,
        settings=settings,
        memory=memory,
        costs=None,
    )
    if not need.has_load or need.model.memory:
        return option
    if need.model.profile:
        return replace(option, costs=stage_costs(need.model.profile, seen))
    if need.architecture is None or settings is None:
        raise BadInputError(Diagnostic("RS0202", f"{deployment.id}: the plan does not say how its engine is started"))
    costs = step_costs(need.architecture, seen, settings, typical_tokens=need.typical_tokens)
    return replace(option, costs=costs)


def _told(deployment: Deployment, need: Need) -> EngineSettings | None:
    """The planned settings, with what the workload tells the engine by now."""
    settings, wanted = deployment.engine.settings, need.model.engine
    if settings is None or wanted.prefix_caching is None:
        return settings
    return replace(settings, prefix_caching=wanted.prefix_caching)


def _moved(plan: Plan, servers: Mapping[str, Server]) -> bool:
    """Whether an accelerator changed: its machine has no price here."""
    return any(found.option.accelerator != found.deployment.accelerator for found in servers.values())


def _nodes(asked: Asked) -> dict[str, int]:
    """Pool -> nodes. A pool whose replicas changed has as many as hold their GPUs."""
    found = {}
    for pool in asked.plan.pools:
        mine = [server for server in asked.servers.values() if server.deployment.pool == pool.name]
        found[pool.name] = pool.nodes
        if any(server.replicas != server.deployment.replicas.steady for server in mine):
            gpus = sum(server.replicas * gpus_of(server.option) for server in mine)
            found[pool.name] = math.ceil(gpus / pool.gpus_per_node - 1e-9)
    return found
