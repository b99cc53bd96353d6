"""A plan's deployments and pools -> the cluster of a simulation: autoscalers, nodes, cold starts, faults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rightslice.app.day import expected_demand
from rightslice.app.devices import asks, by_mps, devices_of, total
from rightslice.app.faults import ZONES, crashes_shared, faulty
from rightslice.app.replicas import Server, gpus_of, standing_pools
from rightslice.app.rolling import AskedRollout, rollout_of
from rightslice.app.scaling import knee, settled
from rightslice.app.scenarios import Load
from rightslice.catalogue.disruptions import Provisioner, provisioners
from rightslice.catalogue.engines import engines
from rightslice.catalogue.platforms import platforms
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Deployment, Plan, Pool
from rightslice.core.replay import GpuHourBounds
from rightslice.core.spread import Spread
from rightslice.manifests.timing import shutdown
from rightslice.optimization.options import Option
from rightslice.procurement.refusals import ON_PREMISES
from rightslice.simulation import cluster_spec as cluster
from rightslice.simulation.control.bounds import Demand, bounds, demand
from rightslice.simulation.control.cold_start import StartRequest, cold_start
from rightslice.simulation.control.faults import spot_notice
from rightslice.simulation.control.hpa_spec import Behavior, HpaSpec, Metric, ScalingRules
from rightslice.simulation.control.keda import ScaledObject, Trigger
from rightslice.simulation.control.nodes import NodePool
from rightslice.simulation.control.policies import Fixed, Hpa, Keda, Lagged, Perfect, Policy, Signal
from rightslice.simulation.control.rollout import Rollout
from rightslice.simulation.scenario import OpenClass
from rightslice.spec.autoscaler import Autoscaler, sleeps_for_ever
from rightslice.traffic.traces import Trace

SPARE_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class Controlled:
    """A cluster, the most replicas that each of its deployments may have at one time, and what bounds their hours.

    `apart`: pools whose nodes and replicas all stay, whatever happens. `settings` of each autoscaler, by deployment.
    """

    cluster: cluster.Cluster
    slots: Mapping[str, int]
    bounds: tuple[GpuHourBounds, ...]
    apart: tuple[str, ...]
    settings: Mapping[str, Autoscaler]


def controlled(
    plan: Plan,
    servers: Mapping[str, Server],
    autoscalers: Mapping[str, Autoscaler],
    faults: Sequence[str],
    load: Load,
    traces: Mapping[str, Trace],
    rollout: AskedRollout | None = None,
) -> Controlled:
    """The cluster in which the deployments of `autoscalers` (by their id, or by model) follow their load.

    The others stay as planned. A pool stays apart with all that runs on it where a deployment spans several of its
    nodes or gets no requests, its nodes are cut differently, or its GPUs are shared. Raises BadInputError RS0501 or
    RS0502.
    """
    standing = standing_pools(plan, servers)
    devices = {pool.name: devices_of(plan, pool) for pool in standing}
    if crashes_shared(faults):
        devices |= {pool.name: by_mps(pool, _on(servers, pool)) for pool in standing if pool.sharing == "mps"}
    resources = {name: None if found is None else total(found) for name, found in devices.items()}
    apart = {found.deployment.pool for found in servers.values() if not _movable(found, resources)}
    policies: dict[str, Policy] = {}
    settings: dict[str, Autoscaler] = {}
    found_bounds = []
    for key, found in servers.items():
        wanted = autoscalers.get(key) or autoscalers.get(found.option.model, Autoscaler(kind="fixed"))
        if wanted.kind != "fixed" and (found.deployment.pool in apart or found.option.share):
            message = f"{key} is not scaled here: its nodes share GPUs, are cut differently, or a replica spans several"
            raise BadInputError(Diagnostic("RS0502", message))
        if found.deployment.pool in apart:
            continue
        policies[key] = Fixed(_within(wanted, found))
        if wanted.kind != "fixed":
            rate, offered = _rated_per_s(found), _offered(found, servers, load)
            settings[key] = _settled(plan, wanted, found, rate, traces)
            policies[key] = _policy(settings[key], rate, offered)
            if not found.need.model.traffic or found.deployment.role != "unified":
                continue  # what users of pipelines ask for depends on how fast they are answered
            limit = bounds(_expected(found, servers, load, traces), rate, gpus_of(found.option))
            found_bounds.append(GpuHourBounds(key, limit.fluid, limit.perfect, limit.peak, limit.peak_replicas))
    deployments = tuple(_scaled(plan, servers[key], policy) for key, policy in policies.items())
    rollouts: dict[str, Rollout] = {}
    if rollout is not None:
        rollouts = {key: rollout_of(plan, servers[key].deployment, rollout, load) for key in policies}
    surge = max((found.surge for found in rollouts.values()), default=1)
    slots = {d.deployment: _slots(_most(d.policy, d.replicas) + surge) * d.engines for d in deployments}
    pools = tuple(
        _pool(pool, devices[pool.name] or (), [d for d in deployments if d.pool == pool.name], surge)
        for pool in standing
        if pool.name not in apart
    )
    pools, struck = faulty(plan, pools, faults, load)
    made = cluster.Cluster(pools, deployments, struck, load.seed, rollouts)
    stays = tuple(pool.name for pool in standing if pool.name in apart)
    return Controlled(made, slots, tuple(found_bounds), stays, settings)


def _on(servers: Mapping[str, Server], pool: Pool) -> list[Option]:
    return [found.option for found in servers.values() if found.deployment.pool == pool.name]


def _slots(replicas: int) -> int:
    """Replicas that drain stand beside those that take their place."""
    return replicas + max(SPARE_SLOTS, math.ceil(replicas / 2))


def _movable(found: Server, resources: Mapping[str, Mapping[str, int] | None]) -> bool:
    capacity = resources[found.deployment.pool]
    resource, count = asks(found.option)
    return found.option.costs is not None and capacity is not None and capacity.get(resource, 0) >= count


def _offered(found: Server, servers: Mapping[str, Server], load: Load) -> Demand:
    """The deployment's share of what comes for its model."""
    offered = demand(_arrivals_s(load.classes, found.option.model), load.horizon_s)
    return Demand(offered.width_s, np.ceil(offered.requests * _share(found, servers)).astype(np.int64))


def _expected(found: Server, servers: Mapping[str, Server], load: Load, traces: Mapping[str, Trace]) -> Demand:
    """The same as a plan expects it of a day; recorded traffic as it was recorded."""
    if any(traffic.trace is not None for traffic in found.need.model.traffic):
        return _offered(found, servers, load)
    return expected_demand(found.need, traces, load.horizon_s, _share(found, servers))


def _share(found: Server, servers: Mapping[str, Server]) -> float:
    """The deployment's part of its model's traffic, by replicas."""
    return found.replicas / max(1, sum(s.replicas for s in servers.values() if s.need is found.need))


def _within(wanted: Autoscaler, found: Server) -> int:
    """The planned replicas, as far as `min` and `max` of the deployment's autoscaler allow."""
    least, most = wanted.min or 0, wanted.max or max(found.replicas, wanted.min or 0)
    if least > most:
        raise BadInputError(Diagnostic("RS0501", f"{found.deployment.id}: at least {least} replicas, at most {most}"))
    return min(max(found.replicas, least), most)


def _scaled(plan: Plan, found: Server, policy: Policy) -> cluster.Scaled:
    """The deployment with the start of its replicas, and the end that its manifest grants them."""
    resource, count = asks(found.option)
    name, role = found.option.model, found.deployment.role
    model = next(model for model in plan.models if model.name == name)
    pool = plan.pool(found.deployment.pool)
    granted_s = platforms()[pool.platform].spot_grace_s if pool.purchase.capacity == "spot" else None
    stop = shutdown(model.expected.e2e_ms, granted_s)
    drains_s = 0 if _aborts(found.deployment) else stop.drain_s
    return cluster.Scaled(
        deployment=found.deployment.id,
        model=f"{name}/decode" if role == "decode" else name,
        pool=found.deployment.pool,
        resource=resource,
        count=count,
        replicas=found.replicas,
        policy=policy,
        start=cold_start(_start(plan, found)),
        engines=found.option.engines,
        grace_s=float(stop.pre_stop_s + drains_s),
        pre_stop_s=float(stop.pre_stop_s),
        mps=pool.sharing == "mps",
        link=f"{found.deployment.id.removesuffix('/prefill')}/link" if role == "prefill" else "",
    )


def _aborts(deployment: Deployment) -> bool:
    """Whether its engine drops what it computes as soon as it is told to stop (vLLM before it took a drain time)."""
    facts = engines().get(deployment.engine.name)
    if facts is None or deployment.engine.name != "vllm" or not deployment.engine.args:
        return False
    try:
        return not facts.drain_flag(deployment.engine.version)
    except KeyError:
        return False


def _arrivals_s(classes: Sequence[OpenClass], model: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    times = [found.arrivals.arrival_ps / 1e12 for found in classes if found.model == model]
    return np.sort(np.concatenate(times)) if times else np.zeros(0)


def _rated_per_s(found: Server) -> float:
    rate = found.deployment.max_rate
    if rate is None or rate.value <= 0.0:
        message = f"{found.deployment.id}: the plan states no rate of one replica, so nothing can follow its load"
        raise BadInputError(Diagnostic("RS0502", message, hint="scale models with traffic of their own"))
    return rate.value


def _settled(plan: Plan, wanted: Autoscaler, found: Server, rate: float, traces: Mapping[str, Trace]) -> Autoscaler:
    """Its settings as numbers. Raises BadInputError for what contradicts itself or could never wake up."""
    least = found.deployment.replicas.min if wanted.min is None else wanted.min
    most = wanted.max or max(_headroom(found.replicas), least)
    if least > most:
        raise BadInputError(Diagnostic("RS0501", f"{found.deployment.id}: at least {least} replicas, at most {most}"))
    if found.deployment.role != "unified" and (wanted.kind == "perfect" or wanted.target is None):
        message = f"{found.deployment.id}: what a replica of a split model carries is not in the plan"
        raise BadInputError(Diagnostic("RS0502", message, hint="state the target: {kind: hpa, target: 8}"))
    if wanted.kind == "perfect":
        if not found.need.model.traffic:
            hint = "kind: hpa follows what comes"
            raise BadInputError(Diagnostic("RS0502", "perfect knows only traffic of the model's own", hint=hint))
        return wanted.model_copy(update={"min": least, "max": most})
    if wanted.kind == "keda" and wanted.signal == "kv_use":
        raise BadInputError(Diagnostic("RS0502", "KEDA has External metrics only; kv_use is one per replica"))
    if least == 0:
        asleep = sleeps_for_ever(wanted.kind, wanted.signal, holds=found.need.model.holds_requests)
        if asleep is not None:
            raise BadInputError(Diagnostic("RS0502", f"{found.deployment.id}: {asleep[0]}", hint=asleep[1]))
    cold_s = cold_start(_start(plan, found)).typical().total_s
    return settled(wanted, least, most, cold_s, lambda: knee(found.need, found.option, least, rate, traces))


def _policy(settings: Autoscaler, rate: float, offered: Demand) -> Policy:
    """What decides with these settings."""
    least, most = settings.min or 0, settings.max or 1
    if settings.kind == "perfect":
        return Perfect(offered, rate, least, most)
    signal: Signal = settings.signal or "in_flight"
    metric = Metric(signal, "Pods" if signal == "kv_use" else "External", settings.target or 1.0)
    signals: dict[str, Signal] = {signal: signal}
    up, down = settings.up_window or 0.0, settings.down_window or 0.0
    behavior = Behavior(up=ScalingRules(round(up)), down=ScalingRules(round(down)))
    policy: Policy
    if settings.kind == "keda":
        scaled = ScaledObject(
            (Trigger(metric),), least, most, polling_interval_s=settings.polling, cooldown_s=settings.cooldown,
            behavior=behavior,
        )  # fmt: skip
        policy = Keda(scaled, signals)
    else:
        policy = Hpa(HpaSpec(most, (metric,), least, behavior), signals)
    return Lagged(policy, settings.lag) if settings.lag else policy


def _headroom(replicas: int) -> int:
    """Where no `max` is given: half more than planned, at least one more."""
    return max(replicas + 1, math.ceil(1.5 * replicas))


def _most(policy: Policy, planned: int) -> int:
    inner = policy.policy if isinstance(policy, Lagged) else policy
    if isinstance(inner, Hpa):
        return max(inner.spec.max_replicas, planned)
    if isinstance(inner, Keda | Perfect):
        limit = inner.spec.max_replicas if isinstance(inner, Keda) else inner.max_replicas
        return max(limit or planned, planned)
    return planned


def _start(plan: Plan, found: Server) -> StartRequest:
    pool = plan.pool(found.deployment.pool)
    memory = found.option.memory
    return StartRequest(
        platform=pool.platform,
        engine=found.option.engine if found.option.settings else "vllm",
        weights_bytes=float(memory.weights_bytes * found.option.gpus),
        mig=found.option.device.sliced,
    )


def _pool(pool: Pool, devices: Sequence[Mapping[str, int]], mine: Sequence[cluster.Scaled], surge: int) -> cluster.Pool:
    """As many nodes at most as all deployments at their largest need; no more than planned on machines of one's own."""
    capacity = total(devices)
    most = pool.nodes
    if pool.provider != ON_PREMISES:
        shares = [(_most(d.policy, d.replicas) + surge) * d.count / max(1, capacity.get(d.resource, 1)) for d in mine]
        most = max(pool.nodes, math.ceil(sum(shares)))
    start = next((d.start.node_s for d in mine), None)
    found = platforms()[pool.platform]
    nodes = NodePool(
        name=pool.name,
        capacity=capacity,
        provision_s=start if start is not None else cold_start(StartRequest(pool.platform, "vllm", 0.0)).node_s,
        max_nodes=most,
        min_nodes=0 if mine else pool.nodes,
        zones=ZONES,
    )
    return cluster.Pool(
        nodes=nodes,
        standing=pool.nodes,
        gpus_per_node=pool.gpus_per_node,
        provisioner=_provisioner(found.provider),
        usd_per_hour=pool.hourly_usd,
        capacity=pool.purchase.capacity,
        owned=pool.provider == ON_PREMISES,
        notice=spot_notice(pool.platform),
        devices=tuple(devices),
        repartition_s=_repartition_s(pool.platform) if pool.sharing == "mig" else None,
    )


def _repartition_s(platform: str) -> Spread:
    """From a drained node to one that is cut anew: MIG and a reboot, or a new node where pools are cut as a whole."""
    start = cold_start(StartRequest(platform, "vllm", 0.0, mig=True))
    if platforms()[platform].mig == "uniform-per-pool":
        return start.node_s
    total = Spread.fixed(0.0)
    for phase in start.phases:
        if phase.name in ("mig", "mig_reboot") and phase.seconds is not None:
            total = total.plus(phase.seconds)
    return total


def _provisioner(provider: str) -> Provisioner:
    return provisioners()["karpenter" if provider == "aws" else "cluster-autoscaler"]
