"""Faults as they strike a cluster: nodes, single GPUs, engines. What was computed there is computed again elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rightslice.core.replay import Preemption
from rightslice.core.rng import generator
from rightslice.simulation.cluster_spec import Cluster
from rightslice.simulation.cluster_state import ClusterState, PoolState, Replica, Workload
from rightslice.simulation.control.cold_start import NOTHING
from rightslice.simulation.control.faults import Fault, affected, engine_crashes, merged, node_faults, struck
from rightslice.simulation.control.nodes import Node, NodePool


class Disruptions:
    """The schedule of faults, and what they have done."""

    def __init__(self, state: ClusterState, cluster: Cluster) -> None:
        self.state = state
        self.faults = list(cluster.faults)
        self.lost_zones: dict[str, float] = {}
        self.events: list[Preemption] = []
        self.cordoned: set[str] = set()
        for pool in state.pools.values():
            self.expect(pool, pool.state.nodes)

    def expect(self, pool: PoolState, born: Sequence[Node]) -> None:
        """What will happen to these nodes in their life."""
        for node in born:
            if node.ready_s < self.state.horizon_s:
                rng = generator(self.state.seed, "faults", node.name)
                (seen,) = pool.seen([node])
                own = node_faults(seen, pool.spec.failures, self.state.horizon_s, rng, pool.spec.notice)
                self.faults = list(merged(self.faults, own))

    def expect_crashes(self, pool: PoolState, replica: Replica) -> None:
        """When the engine of this replica will crash."""
        rates = pool.spec.failures
        if rates.engine_per_hour > 0.0:
            rng = generator(self.state.seed, "crashes", replica.name)
            own = engine_crashes(replica.name, rates, replica.ready_s, self.state.horizon_s, rng)
            self.faults = list(merged(self.faults, own))

    def strike(self) -> None:
        """Carry out what is due. Nodes that will be lost after a notice let their replicas drain."""
        while self.faults and self.faults[0].at_s <= self.state.now_s:
            fault = self.faults.pop(0)
            if fault.kind == "gpu-failure":
                self._fail_gpus(fault)
            elif fault.kind == "engine-crash":
                self._crash(fault)
            elif fault.kind == "repartition":
                for pool in self._meant(fault):
                    if pool.spec.repartition_s:
                        pool.to_cut = list(pool.state.nodes)
                        self._drain_first(pool)
            else:
                self._announce(fault)

    def lose_nodes(self) -> None:
        """Nodes whose time is up are gone, with all that ran on them."""
        now_s = self.state.now_s
        for pool in self.state.pools.values():
            for name in [name for name, at_s in pool.doomed.items() if at_s <= now_s]:
                del pool.doomed[name]
                self._end(pool, name, [r.name for _, r in self.state.replicas() if r.node == name], "node")
                pool.leaving.pop(name, None)
                self.cordoned.discard(name)
                pool.state = pool.state.without([name])
                if name in pool.returns:
                    pool.state = replace(pool.state, nodes=(*pool.state.nodes, pool.returns.pop(name)))
                pool.images = {entry for entry in pool.images if entry[0] != name}
                pool.broken = {entry for entry in pool.broken if entry[0] != name}

    def cut(self) -> None:
        """Nodes are cut anew one after the other: cordon, drain, cut (reboot where the platform needs it), return.

        The next one is drained when the pods that found a place are ready again.
        """
        now_s = self.state.now_s
        for pool in self.state.pools.values():
            if not pool.to_cut or pool.to_cut[0].name in pool.leaving:
                continue
            node = pool.to_cut[0]
            back = next((found for found in pool.state.nodes if found.name == node.name), None)
            if back is None and node.name in self.cordoned:
                self.cordoned.discard(node.name)
                takes_s = (pool.spec.repartition_s or NOTHING).draw(generator(self.state.seed, "cut", node.name))
                back = Node(node.name, node.zone, now_s, now_s + takes_s)
                pool.state = replace(pool.state, nodes=(*pool.state.nodes, back))
            elif back is None or (back.ready_s <= now_s and not self._starting(pool)):
                pool.to_cut.pop(0)
                self._drain_first(pool)

    def available(self, pool: PoolState) -> NodePool:
        """The pool without zones that are lost, with room for nodes that go; no new machines of one's own."""
        spec, standing = pool.spec.nodes, len(pool.state.nodes)
        if pool.spec.owned:
            return replace(spec, min_nodes=standing, max_nodes=standing)
        lost = {zone for zone, back_s in self.lost_zones.items() if back_s > self.state.now_s}
        if not lost and not pool.leaving:
            return spec
        zones = tuple(zone for zone in spec.zones if zone not in lost)
        if not zones:
            return replace(spec, min_nodes=0, max_nodes=standing)
        most = max(spec.min_nodes, spec.max_nodes - len(pool.leaving))
        return replace(spec, zones=zones, max_nodes=most)

    def cut_off(self, workload: Workload, replica: Replica) -> None:
        """The grace of a replica is over before it has finished."""
        self._end(self.state.pools[workload.spec.pool], replica.node, [replica.name], "grace")

    def next_s(self) -> list[float]:
        """Instants at which something happens."""
        times = [fault.at_s for fault in self.faults[:1]]
        for pool in self.state.pools.values():
            times += pool.doomed.values()
        return times

    def _starting(self, pool: PoolState) -> bool:
        mine = (r for w, r in self.state.replicas() if w.spec.pool == pool.spec.nodes.name)
        return any(replica.phase == "starting" for replica in mine)

    def _drain_first(self, pool: PoolState) -> None:
        """The next node to be cut takes no new pods, and its own end; one that is gone by now is left out."""
        standing = {node.name: node for node in pool.state.nodes}
        pool.to_cut = [node for node in pool.to_cut if node.name in standing]
        if not pool.to_cut:
            return
        name = pool.to_cut[0].name
        pool.leaving[name] = standing[name]
        pool.state = pool.state.without([name])
        self.cordoned.add(name)
        for workload, replica in self.state.replicas():
            if replica.node == name:
                self.state.drain(workload, replica)

    def _announce(self, fault: Fault) -> None:
        if fault.back_s is not None:
            self.lost_zones[fault.zone] = fault.back_s
        for pool in self.state.pools.values():
            alive = pool.seen(node for node in pool.nodes if node.ready_s <= self.state.now_s)
            for name, at_s in struck(fault, alive):
                if at_s > self.state.now_s:
                    own = replace(fault, at_s=at_s, node=name, share=1.0, within_s=0.0)
                    self.faults = list(merged(self.faults, [own]))
                    continue
                lost_s = at_s + fault.notice.notice_s
                pool.doomed[name] = min(lost_s, pool.doomed.get(name, math.inf))
                if pool.spec.owned and fault.back_s is not None:
                    pool.returns[name] = Node(name, fault.zone, fault.back_s, fault.back_s)
                granted_s = min(lost_s - self.state.now_s, fault.notice.drain_s)
                if granted_s > 0.0:
                    for workload, replica in self.state.replicas():
                        if replica.node == name:
                            self.state.drain(workload, replica, granted_s)

    def _fail_gpus(self, fault: Fault) -> None:
        """One GPU with all its slices and shares: the device plugin does not take it back while the node lives."""
        for pool in self._meant(fault):
            node, gpu = (fault.node, fault.gpu) if fault.node else self._first_in_use(pool)
            if all(found.name != node for found in pool.nodes) or (node, gpu) in pool.broken:
                continue
            pool.broken.add((node, gpu))
            gone = pool.spec.offered()[gpu]
            nodes = tuple(
                replace(found, lost={**found.lost, **{r: found.lost.get(r, 0) + n for r, n in gone.items()}})
                if found.name == node
                else found
                for found in pool.state.nodes
            )
            pool.state = replace(pool.state, nodes=nodes)
            stopped = affected(replace(fault, node=node, gpu=gpu), self.state.placements())
            self._end(pool, node, stopped, "gpu", gpu)

    def _meant(self, fault: Fault) -> list[PoolState]:
        """The pool that it names, else all."""
        return [pool for name, pool in self.state.pools.items() if fault.pool in ("", name)]

    def _first_in_use(self, pool: PoolState) -> tuple[str, int]:
        """Node and GPU of the first ready replica of a pool; no node where there is none."""
        for workload, replica in self.state.replicas():
            if workload.spec.pool == pool.spec.nodes.name and replica.phase == "ready":
                return replica.node, replica.gpus[0]
        return "", -1

    def _crash(self, fault: Fault) -> None:
        """One engine, with it all that share its GPUs by MPS; without a name the first ready one of each deployment.

        Who has crashed with a neighbour at this instant does not crash again.
        """
        pools = {pool.spec.nodes.name for pool in self._meant(fault)}
        mine = [w for w in self.state.workloads if w.spec.pool in pools and w.ready()]
        names = [fault.replica] if fault.replica else [workload.ready()[0].name for workload in mine]
        crashed: set[str] = set()
        for name in names:
            if name in crashed or name not in self.state.by_name:
                continue
            workload, replica = self.state.find(name)
            if replica.running_s <= self.state.now_s:
                stopped = affected(replace(fault, replica=name), self.state.placements())
                crashed.update(stopped)
                self._end(self.state.pools[workload.spec.pool], replica.node, stopped, "pod")

    def _end(self, pool: PoolState, node: str, names: Sequence[str], cause: str, gpu: int | None = None) -> None:
        def end() -> None:
            for name in names:
                (self.state.restart if cause == "pod" else self.state.remove)(*self.state.find(name))

        requeued, lost = self.state.taken(end)
        event = Preemption(self.state.now_s, pool.spec.nodes.name, node, requeued, lost, cause, gpu, tuple(names))
        self.events.append(event)
