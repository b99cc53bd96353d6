"""A plan's deployments and pools -> the cluster of a simulation: autoscalers, nodes, cold starts, faults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rightslice.app.faults import ZONES, faulty
from rightslice.app.horizons import least_horizon_s
from rightslice.app.replicas import Server, gpus_of, standing_pools
from rightslice.app.rolling import AskedRollout, rollout_of
from rightslice.app.scenarios import Load, rating_scenario, server
from rightslice.catalogue.disruptions import Provisioner, provisioners
from rightslice.catalogue.engines import engines
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
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
from rightslice.simulation.run import simulate
from rightslice.simulation.scenario import OpenClass
from rightslice.spec.autoscaler import Autoscaler
from rightslice.traffic.traces import Trace

GPU: Final = "nvidia.com/gpu"
RATED_REQUESTS: Final = 2000
SPARE_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class Controlled:
    """A cluster, the most replicas that each of its deployments may have at one time, and what bounds their hours.

    `apart`: pools whose nodes and replicas all stay, whatever happens.
    """

    cluster: cluster.Cluster
    slots: Mapping[str, int]
    bounds: tuple[GpuHourBounds, ...]
    apart: tuple[str, ...]


def controlled(
    plan: Plan,
    servers: Mapping[str, Server],
    autoscalers: Mapping[str, Autoscaler],
    faults: Sequence[str],
    load: Load,
    traces: Mapping[str, Trace],
    rollout: AskedRollout | None = None,
) -> Controlled:
    """The cluster in which the deployments of `autoscalers` (by model) follow their load, the others stay as planned.

    A pool stays apart with all that runs on it where a deployment spans several of its nodes or gets no requests, its
    nodes are cut differently, or its GPUs are shared. Raises BadInputError RS0501 or RS0502.
    """
    standing = standing_pools(plan, servers)
    devices = {pool.name: _devices(plan, pool) for pool in standing}
    resources = {name: None if found is None else _total(found) for name, found in devices.items()}
    apart = {found.deployment.pool for found in servers.values() if not _movable(found, resources)}
    policies: dict[str, Policy] = {}
    found_bounds = []
    for key, found in servers.items():
        wanted = autoscalers.get(found.option.model, Autoscaler(kind="fixed"))
        if found.deployment.pool in apart:
            if wanted.kind != "fixed":
                message = (
                    f"{key} is not scaled here: its nodes share GPUs, are cut differently, or a replica spans several"
                )
                raise BadInputError(Diagnostic("RS0502", message))
            continue
        policies[key] = Fixed(_within(wanted, found))
        if wanted.kind != "fixed":
            rate, offered = _rated_per_s(found), _offered(found, servers, load)
            policies[key] = _policy(wanted, found, rate, offered, traces)
            if not found.need.model.traffic:
                continue  # what users of pipelines ask for depends on how fast they are answered
            limit = bounds(offered, rate, gpus_of(found.option))
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
    return Controlled(made, slots, tuple(found_bounds), tuple(pool.name for pool in standing if pool.name in apart))


def _slots(replicas: int) -> int:
    """Replicas that drain stand beside those that take their place."""
    return replicas + max(SPARE_SLOTS, math.ceil(replicas / 2))


def _movable(found: Server, resources: Mapping[str, Mapping[str, int] | None]) -> bool:
    capacity = resources[found.deployment.pool]
    resource, count = _asks(found.option)
    return found.option.costs is not None and capacity is not None and capacity.get(resource, 0) >= count


def _offered(found: Server, servers: Mapping[str, Server], load: Load) -> Demand:
    """The deployment's share of what comes for its model, by replicas."""
    offered = demand(_arrivals_s(load.classes, found.option.model), load.horizon_s)
    share = found.replicas / max(1, sum(s.replicas for s in servers.values() if s.need is found.need))
    return Demand(offered.width_s, np.ceil(offered.requests * share).astype(np.int64))


def _within(wanted: Autoscaler, found: Server) -> int:
    """The planned replicas, as far as `min` and `max` of the deployment's autoscaler allow."""
    least, most = wanted.min or 0, wanted.max or max(found.replicas, wanted.min or 0)
    if least > most:
        raise BadInputError(Diagnostic("RS0501", f"{found.deployment.id}: at least {least} replicas, at most {most}"))
    return min(max(found.replicas, least), most)


def _scaled(plan: Plan, found: Server, policy: Policy) -> cluster.Scaled:
    """The deployment with the start of its replicas, and the end that its manifest grants them."""
    resource, count = _asks(found.option)
    model = next(model for model in plan.models if model.name == found.option.model)
    pool = plan.pool(found.deployment.pool)
    granted_s = platforms()[pool.platform].spot_grace_s if pool.purchase.capacity == "spot" else None
    stop = shutdown(model.expected.e2e_ms, granted_s)
    drains_s = 0 if _aborts(found.deployment) else stop.drain_s
    return cluster.Scaled(
        deployment=found.deployment.id,
        model=found.option.model,
        pool=found.deployment.pool,
        resource=resource,
        count=count,
        replicas=found.replicas,
        policy=policy,
        start=cold_start(_start(plan, found)),
        engines=found.option.engines,
        grace_s=float(stop.pre_stop_s + drains_s),
        pre_stop_s=float(stop.pre_stop_s),
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


def _devices(plan: Plan, pool: Pool) -> tuple[Mapping[str, int], ...] | None:
    """What each GPU of one node offers, where all nodes of the pool are cut alike and nobody shares a GPU."""
    if pool.sharing in ON_ONE_GPU:
        return None
    if not any(layout.profiles for layout in pool.layouts):
        return ({GPU: 1},) * pool.gpus_per_node
    nodes: dict[int, list[dict[str, int]]] = {}
    for placement in plan.placements:
        if placement.pool == pool.name:
            slices = [slot.partition for slot in placement.slots if slot.partition != WHOLE]
            offered = {_slice(partition): slices.count(partition) for partition in slices} or {GPU: 1}
            nodes.setdefault(placement.node, []).append(offered)
    found = list(nodes.values())
    return tuple(found[0]) if found and all(_total(node) == _total(found[0]) for node in found) else None


def _total(devices: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Resources of a node."""
    total: dict[str, int] = {}
    for offered in devices:
        for name, count in offered.items():
            total[name] = total.get(name, 0) + count
    return total


def _slice(partition: str) -> str:
    return f"nvidia.com/mig-{partition}"


def _asks(option: Option) -> tuple[str, int]:
    return (GPU, option.gpus) if option.partition == WHOLE else (_slice(option.partition), 1)


def _arrivals_s(classes: Sequence[OpenClass], model: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    times = [found.arrivals.arrival_ps / 1e12 for found in classes if found.model == model]
    return np.sort(np.concatenate(times)) if times else np.zeros(0)


def _rated_per_s(found: Server) -> float:
    rate = found.deployment.max_rate
    if rate is None or rate.value <= 0.0:
        message = f"{found.deployment.id}: the plan states no rate of one replica, so nothing can follow its load"
        raise BadInputError(Diagnostic("RS0502", message, hint="scale models with traffic of their own"))
    return rate.value


def _policy(wanted: Autoscaler, found: Server, rate: float, offered: Demand, traces: Mapping[str, Trace]) -> Policy:
    least = found.deployment.replicas.min if wanted.min is None else wanted.min
    most = wanted.max or max(_headroom(found.replicas), least)
    if least > most:
        raise BadInputError(Diagnostic("RS0501", f"{found.deployment.id}: at least {least} replicas, at most {most}"))
    if wanted.kind == "perfect" and not found.need.model.traffic:
        hint = "kind: hpa follows what comes"
        raise BadInputError(Diagnostic("RS0502", "perfect knows only traffic of the model's own", hint=hint))
    if wanted.kind == "perfect":
        return Perfect(offered, rate, least, most)
    target = wanted.target or _least_target(
        wanted.signal, wanted.share * _rated_signal(wanted.signal, found, rate, traces)
    )
    kind = "Pods" if wanted.signal == "kv_use" else "External"
    metric = Metric(wanted.signal, kind, target)  # type: ignore[arg-type]
    signals: dict[str, Signal] = {wanted.signal: wanted.signal}
    behavior = Behavior(up=ScalingRules(round(wanted.up_window)), down=ScalingRules(round(wanted.down_window)))
    policy: Policy
    if wanted.kind == "keda":
        if kind == "Pods":
            raise BadInputError(Diagnostic("RS0502", "KEDA has External metrics only; kv_use is one per replica"))
        scaled = ScaledObject(
            (Trigger(metric),), least, most, polling_interval_s=wanted.polling, cooldown_s=wanted.cooldown,
            behavior=behavior,
        )  # fmt: skip
        policy = Keda(scaled, signals)
    else:
        if least == 0:
            hint = "kind: keda goes to zero"
            raise BadInputError(Diagnostic("RS0502", "an HPA keeps at least one replica", hint=hint))
        policy = Hpa(HpaSpec(most, (metric,), least, behavior), signals)
    return Lagged(policy, wanted.lag) if wanted.lag else policy


def _headroom(replicas: int) -> int:
    """Where no `max` is given: half more than planned, at least one more."""
    return max(replicas + 1, math.ceil(1.5 * replicas))


def _rated_signal(signal: str, found: Server, rate: float, traces: Mapping[str, Trace]) -> float:
    """What one replica shows at its rated load, simulated alone; one request where nothing should wait."""
    if signal == "offered_per_s":
        return rate
    if signal in {"held", "waiting"}:
        return 1.0
    need = found.need
    horizon_s = max(RATED_REQUESTS / rate, least_horizon_s(need))
    alone = server(found.option, "one", 1, 1.0)
    result = simulate(rating_scenario(need, alone, horizon_s, traces, rate))
    if signal == "kv_use":
        return result.replicas[0].kv_use_mean
    return sum(c.requests_per_s * c.e2e_ms.mean / 1e3 for c in result.per_class if c.e2e_ms)


def _least_target(signal: str, target: float) -> float:
    """Three digits, as a manifest would have it; above zero."""
    return max(float(f"{target:.3g}"), 0.01 if signal == "kv_use" else 0.1)


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
    capacity = _total(devices)
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
        repartition_s=None if GPU in capacity else _repartition_s(pool.platform),
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
