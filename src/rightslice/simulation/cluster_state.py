"""Nodes, replicas and what is done to them, at one instant of a run with a control plane."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rightslice.core.rng import generator
from rightslice.simulation.cluster_spec import Cluster, Pool, Scaled
from rightslice.simulation.control.cold_start import ON_NODE, PULL, Breakdown
from rightslice.simulation.control.faults import NodeRef, Placement
from rightslice.simulation.control.nodes import Node, Nodes, Pod, standing
from rightslice.simulation.control.replicas import PodState
from rightslice.simulation.play import Observation, SteppedRun
from rightslice.simulation.scenario import LlmServer

Phase = Literal["pending", "starting", "ready", "draining"]


@dataclass(slots=True)
class Replica:
    """One pod of a deployment. `slots`: servers of the scenario; `gpus`: of its node. `stops_s`: its server is told to
    stop; `ends_s`: it is killed."""

    name: str
    slots: tuple[int, ...]
    born_s: float
    revision: int = 0
    node: str = ""
    gpus: tuple[int, ...] = ()
    phase: Phase = "pending"
    running_s: float = math.inf
    ready_s: float = math.inf
    stops_s: float = -math.inf
    ends_s: float = math.inf
    restarts: int = 0


@dataclass(slots=True)
class Workload:
    """A deployment at work. `free`: groups of slots that nobody uses. `revision`: the version that new pods get."""

    spec: Scaled
    model: int
    blocks: int
    free: list[tuple[int, ...]]
    replicas: list[Replica] = field(default_factory=list)
    wanted: int = 0
    made: int = 0
    arrived: int = 0
    revision: int = 0

    def standing(self) -> list[Replica]:
        """Replicas that count for the size: all but those that drain."""
        return [replica for replica in self.replicas if replica.phase != "draining"]

    def ready(self) -> list[Replica]:
        """Replicas that take requests."""
        return [replica for replica in self.replicas if replica.phase == "ready"]


@dataclass(slots=True)
class PoolState:
    """A pool at work. `leaving`: nodes that go once their pods have ended; `doomed`: node -> when it is lost; `broken`:
    GPUs that have failed; `to_cut`: nodes that wait to be cut anew, the one at work first."""

    spec: Pool
    state: Nodes
    images: set[tuple[str, str]] = field(default_factory=set)
    hours: float = 0.0
    leaving: dict[str, Node] = field(default_factory=dict)
    doomed: dict[str, float] = field(default_factory=dict)
    returns: dict[str, Node] = field(default_factory=dict)
    broken: set[tuple[str, int]] = field(default_factory=set)
    to_cut: list[Node] = field(default_factory=list)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, those that are about to go included."""
        return (*self.state.nodes, *self.leaving.values())

    def seen(self, nodes: Iterable[Node]) -> list[NodeRef]:
        """Nodes as faults see them."""
        spec = self.spec
        return [NodeRef(n.name, spec.nodes.name, n.zone, spec.gpus_per_node, spec.capacity, n.ready_s) for n in nodes]


class ClusterState:
    """The one place that changes replicas, so that the event loop and the books agree."""

    def __init__(self, run: SteppedRun, cluster: Cluster) -> None:
        self.run, scenario = run, run.scenario
        self.seed = cluster.seed
        self.horizon_s = scenario.horizon_s
        self.now_s = 0.0
        self.pools = {pool.nodes.name: PoolState(pool, standing(pool.nodes, pool.standing)) for pool in cluster.pools}
        blocks = {s.deployment: s.kv_blocks if isinstance(s, LlmServer) else 0 for s in scenario.servers}
        self.workloads = [self._workload(spec, blocks[spec.deployment]) for spec in cluster.deployments]
        self.by_name: dict[str, tuple[Workload, Replica]] = {}
        self.links = {slot: link for w in self.workloads for slot, link in self._links(w.spec)}

    def _workload(self, spec: Scaled, blocks: int) -> Workload:
        slots = [slot for slot, (name, _) in enumerate(self.run.replicas) if name == spec.deployment]
        groups = [tuple(slots[i : i + spec.engines]) for i in range(0, len(slots), spec.engines)]
        for slot in slots:
            self.run.order(slot, "absent")
        return Workload(spec, self.run.models.index(spec.model), blocks, groups, wanted=spec.replicas)

    def _links(self, spec: Scaled) -> Iterator[tuple[int, int]]:
        """(Slot, the link over which it sends)."""
        mine, links = (
            [slot for slot, (name, _) in enumerate(self.run.replicas) if name == wanted]
            for wanted in (spec.deployment, spec.link)
        )
        return zip(mine, links, strict=False)

    def replicas(self) -> Iterator[tuple[Workload, Replica]]:
        """Every replica, by deployment, in order of birth."""
        for workload in self.workloads:
            for replica in list(workload.replicas):
                yield workload, replica

    def find(self, name: str) -> tuple[Workload, Replica]:
        """The replica of that name."""
        return self.by_name[name]

    def add(self, workload: Workload, count: int) -> None:
        """New Pending pods, as far as there are slots: those of draining replicas come free later."""
        for _ in range(min(count, len(workload.free))):
            name = f"{workload.spec.deployment}-{workload.made}"
            replica = Replica(name, workload.free.pop(0), self.now_s, workload.revision)
            workload.replicas.append(replica)
            self.by_name[name] = workload, replica
            workload.made += 1

    def start(self, workload: Workload, replica: Replica, node: str) -> None:
        """A pod has found its node."""
        pool = self.pools[workload.spec.pool]
        key = (node, f"{workload.spec.deployment}@{replica.revision}")
        begun = self._begun(workload, replica, pulled=key in pool.images)
        replica.node, replica.gpus = node, self._free_gpus(workload, node)
        replica.phase = "starting"
        replica.running_s = self.now_s + begun.until_running_s
        replica.ready_s = self.now_s + begun.total_s
        pool.images.add(key)

    def stand(self, workload: Workload, replica: Replica, node: str) -> None:
        """A pod of the beginning: it is ready already."""
        self.start(workload, replica, node)
        replica.running_s = replica.ready_s = self.now_s
        self.make_ready(replica)

    def restart(self, workload: Workload, replica: Replica) -> None:
        """Its container ends and starts again where it is; a replica that was to end is gone."""
        if replica.phase == "draining":
            self.remove(workload, replica)
            return
        if replica.phase == "ready":
            self._order(replica, "gone")
        replica.restarts += 1
        replica.phase = "starting"
        replica.running_s = self.now_s
        replica.ready_s = self.now_s + self._begun(workload, replica, pulled=True).total_s

    def make_ready(self, replica: Replica) -> None:
        """From now on it takes requests."""
        replica.phase = "ready"
        self._order(replica, "ready")

    def drain(self, workload: Workload, replica: Replica, granted_s: float = math.inf) -> None:
        """It is told to end: no new requests; it finishes what it has within its grace, or what it is granted of it."""
        grace_s = min(workload.spec.grace_s, granted_s)
        if replica.phase in ("pending", "starting"):
            self.remove(workload, replica)
            return
        if replica.phase == "ready":
            self._order(replica, "draining")
            replica.phase = "draining"
            replica.stops_s = self.now_s + min(workload.spec.pre_stop_s, grace_s)
        replica.ends_s = min(replica.ends_s, self.now_s + grace_s)

    def remove(self, workload: Workload, replica: Replica) -> None:
        """The pod is gone; requests that it still had are computed again elsewhere."""
        if replica.phase in ("ready", "draining"):
            self._order(replica, "gone")
        workload.replicas.remove(replica)
        del self.by_name[replica.name]
        workload.free.append(replica.slots)

    def taken(self, action: Callable[[], None]) -> tuple[int, int]:
        """(Requests computed again, requests lost) by what is done to replicas now."""
        self.run.advance(self.now_s)  # what was ordered before is not counted here
        before = self.run.counted()
        action()
        self.run.advance(self.now_s)
        requeued, lost = (after - b for after, b in zip(self.run.counted(), before, strict=True))
        return requeued, lost

    def pods(self, pool: PoolState) -> list[Pod]:
        """Pods of the pool in order of birth, those that drain included: they hold their GPUs."""
        mine = [(w.spec, r) for w in self.workloads if w.spec.pool == pool.spec.nodes.name for r in w.replicas]
        mine.sort(key=lambda pair: pair[1].born_s)
        return [Pod(r.name, spec.resource, spec.count, r.node) for spec, r in mine]

    def as_pods(self, replicas: Sequence[Replica]) -> list[PodState]:
        """Replicas as a ReplicaSet ranks them."""
        return [
            PodState(r.name, r.born_s, r.node, r.running_s <= self.now_s, r.ready_s if r.phase == "ready" else None)
            for r in replicas
        ]

    def placements(self) -> list[Placement]:
        """Which GPUs each replica uses."""
        return [
            Placement(r.name, r.node, r.gpus, "mps" if w.spec.mps else "none") for w, r in self.replicas() if r.node
        ]

    def _begun(self, workload: Workload, replica: Replica, *, pulled: bool) -> Breakdown:
        purpose = (replica.name, *((str(replica.restarts),) if replica.restarts else ()))
        skipped = ON_NODE | (PULL if pulled else frozenset())
        return workload.spec.start.draw(generator(self.seed, "start", *purpose), skip=skipped)

    def _free_gpus(self, workload: Workload, node: str) -> tuple[int, ...]:
        """GPUs that its devices come from: fullest first, healthy ones only."""
        pool, spec = self.pools[workload.spec.pool], workload.spec
        free = {
            gpu: offered.get(spec.resource, 0)
            for gpu, offered in enumerate(pool.spec.offered())
            if (node, gpu) not in pool.broken
        }
        for other, replica in self.replicas():
            if replica.node == node and other.spec.pool == spec.pool and other.spec.resource == spec.resource:
                for gpu in replica.gpus:
                    free[gpu] = free.get(gpu, 0) - 1
        found: list[int] = []
        for gpu in sorted(free, key=lambda g: (free[g], g)):
            found += [gpu] * min(max(0, free[gpu]), spec.count - len(found))
        return tuple(found)

    def _order(self, replica: Replica, condition: Literal["ready", "draining", "gone"]) -> None:
        """A link goes on while its replica drains, which has not ended before everything is sent."""
        for slot in replica.slots:
            self.run.order(slot, condition)
            if slot in self.links and condition != "draining":
                self.run.order(self.links[slot], condition)

    def holds(self, replica: Replica, seen: Observation) -> bool:
        """Whether it has requests, or they are on their way from it."""
        slots = [*replica.slots, *(self.links[slot] for slot in replica.slots if slot in self.links)]
        return any(seen.running[slot] + seen.waiting[slot] for slot in slots)
