"""`rightslice simulate`: a plan played again, as it stands or with something changed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rightslice.app.knowledge import known_names
from rightslice.app.planning import architectures_of, traces_of
from rightslice.app.scenarios import draw_loads, scenarios, server
from rightslice.catalogue.accelerators import device, resolve_device
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.mig import share_of_gpu
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.plan import Deployment, Memory, Plan, PlannedModel
from rightslice.core.replay import Replay
from rightslice.memory.footprint import footprint
from rightslice.memory.legality import legal_parallelism, slice_parallelism
from rightslice.memory.precision import weight_support
from rightslice.optimization.needs import Need, needs
from rightslice.optimization.options import Option
from rightslice.performance.laws import step_costs
from rightslice.performance.stages import stage_costs
from rightslice.simulation.run import simulate
from rightslice.spec.loader import parse_workload
from rightslice.spec.paths import changed, split_change
from rightslice.spec.plan_document import load_plan
from rightslice.spec.workload import Workload

MAX_HORIZON_S: Final = 90 * 86_400.0
MAX_REPLICAS: Final = 100_000
_OF_DEPLOYMENTS: Final = ("replicas", "accelerator")
"""Keys under `models.NAME` that change the plan and not its workload."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What differs from the plan. `changes`: `PATH=VALUE` texts; None: as planned."""

    trace: Path | None = None
    rate: str | None = None
    users: str | None = None
    changes: tuple[str, ...] = ()
    seed: int | None = None
    horizon_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Server:
    """One deployment as it is simulated."""

    pool: str
    replicas: int
    option: Option


def simulate_plan(path: Path, what_if: WhatIf) -> Replay:
    """Play the plan of a `plan.json` (or of the folder that holds one).

    Raises BadInputError: an unreadable or infeasible plan, one without its workload, an option that makes no sense.
    """
    plan = _feasible(load_plan(path / "plan.json" if path.is_dir() else path), path)
    seed = plan.seed if what_if.seed is None else what_if.seed
    _check(what_if, seed)
    own, document = _changes(plan, what_if)
    workload = _workload(plan, document)
    architectures = architectures_of(workload)
    traces = traces_of(workload, path if path.is_dir() else path.parent)
    wanted = needs(workload, architectures, traces)
    servers = _servers(plan, wanted, own)
    loads = draw_loads(workload, wanted, traces, seed, what_if.horizon_s)
    results = []
    started_s = time.process_time()
    for load in loads:
        built = tuple(
            server(found.option, key, found.replicas, 1.0)
            for key, found in servers.items()
            if found.option.model in load.models and found.option.costs is not None
        )
        results += [simulate(scenario) for scenario in scenarios(load, built)]
    cpu_s = time.process_time() - started_s
    hours = max((load.horizon_s for load in loads), default=0.0) / 3600.0
    gpus, usd_per_hour = _fleet(plan, servers)
    usd = None if usd_per_hour is None else usd_per_hour * hours
    return Replay(plan.name, seed, tuple(results), cpu_s, gpus * hours, usd)


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
            stays = {key: own[key] for key in ("class", "slo", "priority") if key in own}
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


def _servers(plan: Plan, wanted: Sequence[Need], own: Mapping[str, Mapping[str, str]]) -> dict[str, _Server]:
    """Deployment -> what runs."""
    by_name = {need.name: need for need in wanted}
    found: dict[str, _Server] = {}
    for model in plan.models:
        changes = own.get(model.name, {})
        counts = _counts(model, changes)
        for deployment in model.deployments:
            seen = _seen(deployment, changes)
            option = _option(deployment, by_name[model.name], seen)
            found[deployment.id] = _Server(deployment.pool, counts[deployment.id], option)
    return found


def _counts(model: PlannedModel, changes: Mapping[str, str]) -> dict[str, int]:
    """Deployment -> replicas: fewer are taken from the last deployments, more go to the first."""
    counts = {deployment.id: deployment.replicas.steady for deployment in model.deployments}
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
        return device(deployment.accelerator, deployment.partition)
    text = changes["accelerator"]
    found = resolve_device(text)
    if found is None:
        raise BadInputError(
            Diagnostic("RS0312", f'unknown accelerator "{text[:80]}"'), "rightslice catalog accelerators"
        )
    return device(*found)


def _option(deployment: Deployment, need: Need, seen: Device) -> Option:
    """The planned option, or the same settings on another accelerator where they fit."""
    settings, memory = deployment.engine.settings, deployment.memory
    same = (seen.accelerator.name, seen.partition) == (deployment.accelerator, deployment.partition)
    if settings is not None and need.architecture is not None and not same:
        memory = _memory(deployment, need, seen)
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


def _memory(deployment: Deployment, need: Need, seen: Device) -> Memory:
    settings, architecture = deployment.engine.settings, need.architecture
    if settings is None or architecture is None:
        raise ValueError(deployment.id)
    reason = legal_parallelism(architecture, settings) or slice_parallelism(seen, settings)
    if not seen.flops:
        reason = f"the compute rate of {seen.accelerator.name} is not published"
    support = weight_support(seen, settings.weight_dtype, settings.engine, settings.version)
    if support.level == "refused":
        reason = support.reason
    held = footprint(architecture, seen, settings, typical_tokens=need.typical_tokens)
    if reason or not held.fits:
        message = f"{deployment.id} does not run on {seen.name}: {reason or held.reason}"
        raise BadInputError(Diagnostic("RS2001", message))
    return Memory(
        device_bytes=held.device_bytes,
        weights_bytes=held.weights_bytes,
        activation_bytes=held.activation_bytes,
        overhead_bytes=held.overhead_bytes,
        kv_cache_bytes=held.kv_cache_bytes,
        kv_tokens=held.kv_tokens,
        max_sequences=min(held.max_sequences, settings.max_num_seqs * settings.data_parallel_size),
    )


def _fleet(plan: Plan, servers: Mapping[str, _Server]) -> tuple[float, float | None]:
    """(GPUs, USD an hour) of the nodes. A pool whose replicas changed has as many nodes as hold their GPUs.

    None where an accelerator changed: its machine has no price here.
    """
    planned = {d.id: d for model in plan.models for d in model.deployments}
    moved = any(found.option.accelerator != planned[key].accelerator for key, found in servers.items())
    gpus, usd_per_hour = 0.0, 0.0
    for pool in plan.pools:
        mine = {key: found for key, found in servers.items() if found.pool == pool.name}
        nodes = pool.nodes
        if any(found.replicas != planned[key].replicas.steady for key, found in mine.items()):
            asked = sum(found.replicas * _gpus(found.option) for found in mine.values())
            nodes = math.ceil(asked / pool.gpus_per_node - 1e-9)
        gpus += nodes * pool.gpus_per_node
        usd_per_hour += nodes * pool.hourly_usd
    return gpus, None if moved else usd_per_hour


def _gpus(option: Option) -> float:
    """GPUs of one replica; a slice is its share of one."""
    return option.gpus * share_of_gpu(option.accelerator, option.partition)
