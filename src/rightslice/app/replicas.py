"""The replicas of a plan as they run in a simulation: the planned ones, or others that were asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rightslice.catalogue.accelerators import device, resolve_device
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.mig import share_of_gpu
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Deployment, Plan, PlannedModel, Pool
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.optimization.served import option_key, option_of
from rightslice.optimization.sharing import joined
from rightslice.performance.measured import replica_costs
from rightslice.performance.stages import stage_costs
from rightslice.spec.disaggregation import Disaggregation, parse_disaggregation

MAX_REPLICAS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Server:
    """One deployment as it is simulated."""

    deployment: Deployment
    replicas: int
    option: Option
    need: Need


def servers_of(plan: Plan, wanted: Sequence[Need], own: Mapping[str, Mapping[str, str]]) -> dict[str, Server]:
    """Deployment -> what runs; those of one model in the order in which the plan was verified.

    `own`: model -> changed keys of its deployments. Raises BadInputError.
    """
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
        asked = disaggregation_of(model.name, changes)
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
    costs = replica_costs(
        need.architecture, seen, settings, typical_tokens=need.typical_tokens, calibrated=need.calibrated
    )
    return replace(option, costs=costs)


def _told(deployment: Deployment, need: Need) -> EngineSettings | None:
    """The planned settings, with what the workload tells the engine by now."""
    settings, wanted = deployment.engine.settings, need.model.engine
    if settings is None or wanted.prefix_caching is None:
        return settings
    return replace(settings, prefix_caching=wanted.prefix_caching)


def disaggregation_of(model: str, changes: Mapping[str, str]) -> Disaggregation:
    """How its prefill and decode are to be split. Raises BadInputError."""
    return parse_disaggregation(changes["disaggregation"], f"--set models.{model}.disaggregation")


def gpus_of(option: Option) -> float:
    """GPUs of one replica; a slice, or a place on a shared GPU, is its share of one."""
    if option.share:
        return 1.0 / option.share.slots
    return option.gpus * share_of_gpu(option.accelerator, option.partition)


def moved(plan: Plan, servers: Mapping[str, Server]) -> bool:
    """Whether an accelerator changed: its machine has no price here."""
    return any(found.option.accelerator != found.deployment.accelerator for found in servers.values())


def standing_pools(plan: Plan, servers: Mapping[str, Server]) -> tuple[Pool, ...]:
    """The pools with the nodes that stand: where replicas changed, as many as hold their GPUs."""
    return tuple(replace(pool, nodes=_nodes(pool, servers)) for pool in plan.pools)


def _nodes(pool: Pool, servers: Mapping[str, Server]) -> int:
    mine = [found for found in servers.values() if found.deployment.pool == pool.name]
    if all(found.replicas == found.deployment.replicas.steady for found in mine):
        return pool.nodes
    gpus = sum(found.replicas * gpus_of(found.option) for found in mine)
    return math.ceil(gpus / pool.gpus_per_node - 1e-9)
