"""A run with a control plane: replicas start, drain and vanish as autoscalers, nodes and faults have it.

The event loop stops at every instant at which something may change: a policy's period, a look of a provisioner, a
replica that becomes ready, a node that comes or is lost, and every DRAIN_POLL_S while replicas drain. At each stop, in
this order: nodes are lost, replicas that are due become ready, drained ones end, autoscalers decide, pods find nodes,
provisioners look. What happens between two stops is the event loop's alone (`play.SteppedRun`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from rightslice.catalogue.disruptions import Provisioner
from rightslice.core.plan import Capacity
from rightslice.core.replay import Moment, Preemption, ScaleEvent
from rightslice.core.rng import generator
from rightslice.core.timeline import NodeCount, ReplicaCount
from rightslice.simulation.control.cold_start import ON_NODE, PULL, ColdStart
from rightslice.simulation.control.faults import (
    NO_NOTICE,
    FailureRates,
    Fault,
    NodeRef,
    Notice,
    merged,
    node_faults,
    struck,
)
from rightslice.simulation.control.nodes import Node, NodePool, Nodes, Pod, bind, next_scan_s, scan, standing
from rightslice.simulation.control.policies import ModelView, Policy
from rightslice.simulation.control.replicas import PodState, victims
from rightslice.simulation.play import Played, SteppedRun
from rightslice.simulation.scenario import LlmServer, Scenario

DRAIN_POLL_S: Final = 5.0
"""How often it is looked whether draining replicas have finished: their GPUs are freed that much late at most."""
GRACE_S: Final = 30.0
"""Kubernetes' default time for a pod to end."""

NO_FAILURES: Final = FailureRates(0.0, 0.0)

Phase = Literal["pending", "starting", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal nodes bought the same way. `standing` are there at the start. `usd_per_hour` of one node.

    `failures` of its hardware: a failed GPU takes its node, which is replaced as a whole. The end of a limited run
    (flex-start) comes with `notice` in any case. `owned` machines are neither bought nor given back; those of a lost
    zone return with it.
    """

    nodes: NodePool
    standing: int
    gpus_per_node: int
    provisioner: Provisioner
    usd_per_hour: float
    capacity: Capacity = "on_demand"
    failures: FailureRates = NO_FAILURES
    notice: Notice = NO_NOTICE
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Scaled:
    """One deployment. A replica takes `count` of `resource` on one node and `engines` servers of the scenario, whose
    replicas are the slots that this deployment may use at one time.

    `grace_s`: how long a replica that must go may finish what it has; then its requests are computed again elsewhere.
    """

    deployment: str
    model: str
    pool: str
    resource: str
    count: int
    replicas: int
    policy: Policy
    start: ColdStart
    engines: int = 1
    grace_s: float = GRACE_S


@dataclass(frozen=True, slots=True)
class Cluster:
    """What runs where. Deployments of the scenario that are not named have all their replicas all the time.

    `faults` strike nodes and zones, in order of time.
    """

    pools: tuple[Pool, ...]
    deployments: tuple[Scaled, ...]
    faults: tuple[Fault, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ClusterLog:
    """What the control plane did. `node_hours` by pool, request to removal; `timeline` at every policy period.

    `replicas` and `nodes` of each deployment and pool whenever they change.
    """

    scale_events: tuple[ScaleEvent, ...]
    preemptions: tuple[Preemption, ...]
    timeline: tuple[Moment, ...]
    node_hours: Mapping[str, float]
    unknown_phases: tuple[str, ...]
    replicas: tuple[ReplicaCount, ...] = ()
    nodes: tuple[NodeCount, ...] = ()


def control(scenario: Scenario, cluster: Cluster, run: SteppedRun | None = None) -> tuple[SteppedRun, ClusterLog]:
    """Play the scenario with its control plane up to its horizon; the run is to be finished. Deterministic.

    `run`: one of the scenario that has not begun.
    """
    return _Loop(run or SteppedRun(scenario), cluster).play()


def play_cluster(scenario: Scenario, cluster: Cluster) -> tuple[Played, ClusterLog]:
    """The same, with what happened to each request."""
    run, log = control(scenario, cluster)
    return run.finish(), log


@dataclass(slots=True)
class _Replica:
    """One pod of a deployment. `slots`: servers of the scenario."""

    name: str
    number: int
    slots: tuple[int, ...]
    born_s: float
    node: str = ""
    phase: Phase = "pending"
    running_s: float = math.inf
    ready_s: float = math.inf
    ends_s: float = math.inf


@dataclass(slots=True)
class _Deployment:
    """A deployment at work. `free`: groups of slots that nobody uses."""

    spec: Scaled
    model: int
    blocks: int
    free: list[tuple[int, ...]]
    replicas: list[_Replica] = field(default_factory=list)
    wanted: int = 0
    made: int = 0
    arrived: int = 0

    def standing(self) -> list[_Replica]:
        """Replicas that count for the size: all but those that drain."""
        return [replica for replica in self.replicas if replica.phase != "draining"]


@dataclass(slots=True)
class _PoolState:
    spec: Pool
    state: Nodes
    images: set[tuple[str, str]] = field(default_factory=set)
    hours: float = 0.0
    next_scan_s: float = 0.0
    doomed: dict[str, float] = field(default_factory=dict)
    returns: dict[str, Node] = field(default_factory=dict)


class _Loop:
    def __init__(self, run: SteppedRun, cluster: Cluster) -> None:
        self.run, scenario = run, run.scenario
        self.horizon_s = scenario.horizon_s
        self.cluster = cluster
        self.now_s = 0.0
        self.pools = {pool.nodes.name: _PoolState(pool, standing(pool.nodes, pool.standing)) for pool in cluster.pools}
        self.rng = {name: generator(cluster.seed, "nodes", name) for name in self.pools}
        blocks = {s.deployment: s.kv_blocks if isinstance(s, LlmServer) else 0 for s in scenario.servers}
        self.deployments = [self._deployment(spec, blocks[spec.deployment]) for spec in cluster.deployments]
        self.by_name: dict[str, tuple[_Deployment, _Replica]] = {}
        self.lost_zones: dict[str, float] = {}
        self.faults = list(cluster.faults)
        for pool in self.pools.values():
            self._expect_faults(pool, pool.state.nodes)
        self.scale_events: list[ScaleEvent] = []
        self.preemptions: list[Preemption] = []
        self.timeline: list[Moment] = []
        self.sizes: dict[str, list[ReplicaCount]] = {d.spec.deployment: [] for d in self.deployments}
        self.node_counts: dict[str, list[NodeCount]] = {name: [] for name in self.pools}

    def _deployment(self, spec: Scaled, blocks: int) -> _Deployment:
        slots = [slot for slot, (name, _) in enumerate(self.run.replicas) if name == spec.deployment]
        groups = [tuple(slots[i : i + spec.engines]) for i in range(0, len(slots), spec.engines)]
        found = _Deployment(spec, self.run.models.index(spec.model), blocks, groups, wanted=spec.replicas)
        for slot in slots:
            self.run.order(slot, "absent")
        return found

    def play(self) -> tuple[SteppedRun, ClusterLog]:
        self._begin()
        while self.now_s < self.horizon_s:
            self._control()
            self._note()
            until_s = min(self.horizon_s, self._next_s())
            self._count_hours(until_s)
            self.run.advance(until_s)
            self.now_s = until_s
        unknown = dict.fromkeys(name for d in self.deployments for name in d.spec.start.unknown)
        hours = {name: pool.hours for name, pool in self.pools.items()}
        log = ClusterLog(
            scale_events=tuple(self.scale_events),
            preemptions=tuple(self.preemptions),
            timeline=tuple(self.timeline),
            node_hours=hours,
            unknown_phases=tuple(unknown),
            replicas=tuple(count for counts in self.sizes.values() for count in counts),
            nodes=tuple(count for counts in self.node_counts.values() for count in counts),
        )
        return self.run, log

    def _begin(self) -> None:
        """Replicas that stand at the start are ready on the nodes that stand."""
        for deployment in self.deployments:
            self._resize(deployment)
        for pool in self.pools.values():
            for name, node in bind(0.0, pool.spec.nodes, pool.state, self._pods(pool)):
                deployment, replica = self._find(name)
                replica.node, replica.phase = node, "ready"
                replica.running_s = replica.ready_s = 0.0
                pool.images.add((node, deployment.spec.deployment))
                self._order(replica, "ready")

    # --- one stop ------------------------------------------------------------------------------------------------

    def _control(self) -> None:
        self._strike()
        self._lose_nodes()
        self._make_ready()
        self._end_drained()
        self._decide()
        self._bind()
        self._scan()

    def _strike(self) -> None:
        """Announcements: nodes that will be lost, and when; their replicas begin to drain."""
        while self.faults and self.faults[0].at_s <= self.now_s:
            fault = self.faults.pop(0)
            if fault.back_s is not None:
                self.lost_zones[fault.zone] = fault.back_s
            for pool in self.pools.values():
                alive = [_as_seen(pool.spec, node) for node in pool.state.nodes if node.ready_s <= self.now_s]
                for name, at_s in struck(fault, alive):
                    lost_s = at_s + fault.notice.notice_s
                    pool.doomed[name] = min(lost_s, pool.doomed.get(name, math.inf))
                    if pool.spec.owned and fault.back_s is not None:
                        pool.returns[name] = Node(name, fault.zone, fault.back_s, fault.back_s)
                    self._drain_node(name, lost_s, fault.notice)

    def _expect_faults(self, pool: _PoolState, born: Sequence[Node]) -> None:
        """What will happen to these nodes in their life."""
        for node in born:
            if node.ready_s < self.horizon_s:
                rng = generator(self.cluster.seed, "faults", node.name)
                own = node_faults(_as_seen(pool.spec, node), pool.spec.failures, self.horizon_s, rng, pool.spec.notice)
                self.faults = list(merged(self.faults, own))

    def _drain_node(self, node: str, lost_s: float, notice: Notice) -> None:
        for deployment in self.deployments:
            for replica in deployment.replicas:
                if replica.node == node and notice.drain_s > 0.0:
                    self._drain(replica, min(lost_s, self.now_s + notice.drain_s))

    def _lose_nodes(self) -> None:
        for pool in self.pools.values():
            lost = [name for name, at_s in pool.doomed.items() if at_s <= self.now_s]
            for name in lost:
                del pool.doomed[name]
                before = self.run.counted()
                for deployment in self.deployments:
                    for replica in [r for r in deployment.replicas if r.node == name]:
                        self._remove(deployment, replica)
                self.run.advance(self.now_s)  # the orders happen now, so that what they cost can be counted
                requeued, gone = (after - b for after, b in zip(self.run.counted(), before, strict=True))
                self.preemptions.append(Preemption(self.now_s, pool.spec.nodes.name, name, requeued, gone))
                pool.state = pool.state.without([name])
                if name in pool.returns:
                    back = pool.returns.pop(name)
                    pool.state = replace(pool.state, nodes=(*pool.state.nodes, back))
                pool.images = {entry for entry in pool.images if entry[0] != name}
        for deployment in self.deployments:
            self._fill_up(deployment)

    def _make_ready(self) -> None:
        for deployment in self.deployments:
            for replica in deployment.replicas:
                if replica.phase == "starting" and replica.ready_s <= self.now_s:
                    replica.phase = "ready"
                    self._order(replica, "ready")

    def _end_drained(self) -> None:
        seen = self.run.look()
        for deployment in self.deployments:
            for replica in [r for r in deployment.replicas if r.phase == "draining"]:
                held = sum(int(seen.running[slot] + seen.waiting[slot]) for slot in replica.slots)
                if held == 0 or replica.ends_s <= self.now_s:
                    self._remove(deployment, replica)

    def _decide(self) -> None:
        for deployment in self.deployments:
            if not _due(self.now_s, deployment.spec.policy.period_s):
                continue
            view = self._view(deployment)
            self.timeline.append(
                Moment(
                    self.now_s, deployment.spec.deployment, view.replicas, view.ready, view.value("in_flight"),
                    view.held + view.waiting, view.kv_use, view.offered_per_s,
                )
            )  # fmt: skip
            decision = deployment.spec.policy.decide(self.now_s, view)
            if decision.replicas != deployment.wanted:
                event = ScaleEvent(
                    self.now_s, deployment.spec.deployment, deployment.wanted, decision.replicas, decision.reason
                )
                self.scale_events.append(event)
                deployment.wanted = decision.replicas
            self._resize(deployment)

    def _view(self, deployment: _Deployment) -> ModelView:
        """What autoscalers see. Engines are read only where they are ready or drain."""
        seen, spec = self.run.look(), deployment.spec
        ready = [r for r in deployment.replicas if r.phase == "ready"]
        slots = [slot for r in deployment.replicas if r.phase in ("ready", "draining") for slot in r.slots]
        arrived = int(seen.arrived[deployment.model])
        came, deployment.arrived = arrived - deployment.arrived, arrived
        starting = [r for r in deployment.replicas if r.phase == "starting"]
        loading = sum(r.running_s <= self.now_s for r in starting)
        of_ready = [slot for r in ready for slot in r.slots]
        used = sum(int(seen.kv_blocks[slot]) for slot in of_ready)
        return ModelView(
            replicas=deployment.wanted,
            ready=len(ready),
            loading=loading,
            pending=len(deployment.standing()) - len(ready) - loading,
            offered_per_s=came / spec.policy.period_s,
            held=float(seen.queued[deployment.model]),
            waiting=float(sum(int(seen.waiting[slot]) for slot in slots)),
            running=float(sum(int(seen.running[slot]) for slot in slots)),
            kv_use=used / (deployment.blocks * len(of_ready)) if deployment.blocks and of_ready else 0.0,
        )

    def _resize(self, deployment: _Deployment) -> None:
        """More replicas are Pending pods; fewer drain, those first that Kubernetes would take."""
        surplus = len(deployment.standing()) - deployment.wanted
        if surplus > 0:
            pods = [
                PodState(r.name, r.born_s, r.node, r.running_s <= self.now_s, r.ready_s if r.phase == "ready" else None)
                for r in deployment.standing()
            ]
            chosen = set(victims(self.now_s, pods, surplus))
            for replica in [r for r in deployment.replicas if r.name in chosen]:
                if replica.phase == "ready" and deployment.spec.grace_s > 0.0:
                    self._drain(replica, self.now_s + deployment.spec.grace_s)
                else:
                    self._remove(deployment, replica)
        self._fill_up(deployment)

    def _fill_up(self, deployment: _Deployment) -> None:
        """New pods up to the wanted size, as far as there are slots: those of draining replicas come free later."""
        while len(deployment.standing()) < deployment.wanted and deployment.free:
            name = f"{deployment.spec.deployment}-{deployment.made}"
            replica = _Replica(name, deployment.made, deployment.free.pop(0), self.now_s)
            deployment.replicas.append(replica)
            self.by_name[name] = deployment, replica
            deployment.made += 1

    def _bind(self) -> None:
        for pool in self.pools.values():
            usable = pool.state.without(list(pool.doomed))
            for name, node in bind(self.now_s, pool.spec.nodes, usable, self._pods(pool)):
                deployment, replica = self._find(name)
                key = (node, deployment.spec.deployment)
                skipped = ON_NODE | (PULL if key in pool.images else frozenset())
                begun = deployment.spec.start.draw(generator(self.cluster.seed, "start", name), skip=skipped)
                pool.images.add(key)
                replica.node, replica.phase = node, "starting"
                replica.running_s = self.now_s + begun.until_running_s
                replica.ready_s = self.now_s + begun.total_s

    def _scan(self) -> None:
        for name, pool in self.pools.items():
            by = pool.spec.provisioner
            pods = self._pods(pool)
            pending = sorted(self._find(pod.name)[1].born_s for pod in pods if not pod.node)
            consolidating = by.scan_s == 0.0 and not pending  # who waits for pods still takes unneeded nodes away
            if not consolidating and next_scan_s(by, self.now_s, pending) > self.now_s:
                continue
            done = scan(self.now_s, self._available(pool), by, pool.state, pods, self.rng[name])
            pool.state = done.state
            self._expect_faults(pool, done.added)
            for evicted in done.evicted:
                self._evict(*self._find(evicted))

    def _available(self, pool: _PoolState) -> NodePool:
        """The pool without zones that are lost; no new node where none is left, nor of one's own machines."""
        if pool.spec.owned:
            return replace(pool.spec.nodes, min_nodes=len(pool.state.nodes), max_nodes=len(pool.state.nodes))
        lost = {zone for zone, back_s in self.lost_zones.items() if back_s > self.now_s}
        zones = tuple(zone for zone in pool.spec.nodes.zones if zone not in lost)
        if zones:
            return replace(pool.spec.nodes, zones=zones)
        return replace(pool.spec.nodes, min_nodes=0, max_nodes=len(pool.state.nodes))

    def _evict(self, deployment: _Deployment, replica: _Replica) -> None:
        """Its node is taken away: it goes, and another takes its place."""
        self._remove(deployment, replica)
        self._fill_up(deployment)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _drain(self, replica: _Replica, ends_s: float) -> None:
        if replica.phase == "ready":
            self._order(replica, "draining")
        replica.phase = "draining"
        replica.ends_s = min(ends_s, replica.ends_s)

    def _remove(self, deployment: _Deployment, replica: _Replica) -> None:
        """The pod is gone; requests that it still had are computed again elsewhere."""
        if replica.phase in ("ready", "draining"):
            self._order(replica, "gone")
        deployment.replicas.remove(replica)
        del self.by_name[replica.name]
        deployment.free.append(replica.slots)

    def _order(self, replica: _Replica, condition: Literal["ready", "draining", "gone"]) -> None:
        for slot in replica.slots:
            self.run.order(slot, condition)

    def _pods(self, pool: _PoolState) -> list[Pod]:
        """Pods of the pool in order of birth, those that drain included: they hold their GPUs."""
        found = [
            (r.born_s, Pod(r.name, d.spec.resource, d.spec.count, r.node))
            for d in self.deployments
            if d.spec.pool == pool.spec.nodes.name
            for r in d.replicas
        ]
        return [pod for _, pod in sorted(found, key=lambda pair: pair[0])]

    def _find(self, name: str) -> tuple[_Deployment, _Replica]:
        return self.by_name[name]

    def _note(self) -> None:
        """Sizes and nodes, where they have changed."""
        for name, deployment in zip(self.sizes, self.deployments, strict=True):
            phases = [replica.phase for replica in deployment.replicas]
            starting = phases.count("pending") + phases.count("starting")
            now = ReplicaCount(self.now_s, name, deployment.wanted, phases.count("ready"), starting)
            if not self.sizes[name] or replace(self.sizes[name][-1], time_s=self.now_s) != now:
                self.sizes[name].append(now)
        for name, pool in self.pools.items():
            paid = NodeCount(self.now_s, name, _paid(pool.state))
            if not self.node_counts[name] or self.node_counts[name][-1].nodes != paid.nodes:
                self.node_counts[name].append(paid)

    def _count_hours(self, until_s: float) -> None:
        for pool in self.pools.values():
            pool.hours += _paid(pool.state) * (until_s - self.now_s) / 3600.0

    def _next_s(self) -> float:
        """The next instant at which something may change."""
        times = [_after(self.now_s, d.spec.policy.period_s) for d in self.deployments]
        times += [fault.at_s for fault in self.faults[:1]]
        for deployment in self.deployments:
            for replica in deployment.replicas:
                times += _upcoming(self.now_s, (replica.running_s, replica.ready_s, replica.ends_s))
                if replica.phase == "draining":
                    times.append(_after(self.now_s, DRAIN_POLL_S))
        for pool in self.pools.values():
            times += _upcoming(self.now_s, (node.ready_s for node in pool.state.nodes))
            times += _upcoming(self.now_s, pool.doomed.values())
            times.append(self._next_look(pool))
        return min(times, default=math.inf)

    def _next_look(self, pool: _PoolState) -> float:
        by, pods = pool.spec.provisioner, self._pods(pool)
        pending = sorted(self._find(pod.name)[1].born_s for pod in pods if not pod.node)
        idle = not pending and not pool.state.nodes
        if by.scan_s > 0.0:
            return math.inf if idle else _after(self.now_s, by.scan_s)
        soon = next_scan_s(by, self.now_s, pending)
        return soon if soon > self.now_s else _after(self.now_s, max(by.batch_idle_s, DRAIN_POLL_S))


def _paid(state: Nodes) -> int:
    """Nodes are paid from the request on; those that never come are not."""
    return sum(node.ready_s < math.inf for node in state.nodes)


def _as_seen(pool: Pool, node: Node) -> NodeRef:
    return NodeRef(node.name, pool.nodes.name, node.zone, pool.gpus_per_node, pool.capacity, node.ready_s)


def _upcoming(now_s: float, times_s: Iterable[float]) -> list[float]:
    return [at_s for at_s in times_s if now_s < at_s < math.inf]


def _after(now_s: float, period_s: float) -> float:
    """The first multiple of the period after now."""
    return (math.floor(now_s / period_s + 1e-9) + 1) * period_s


def _due(now_s: float, period_s: float) -> bool:
    return abs(now_s / period_s - round(now_s / period_s)) < 1e-9
