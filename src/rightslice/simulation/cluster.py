"""A run with a control plane: replicas start, drain and vanish as autoscalers, nodes, rollouts and faults have it.

The event loop stops at every instant at which something may change: a policy's period, a look of a provisioner, a
replica that becomes ready, a node that comes or is lost, and every DRAIN_POLL_S while replicas drain. At each stop, in
this order: faults strike, replicas that are due become ready, autoscalers and rollouts decide, drained replicas end,
pods find nodes, provisioners look. What happens between two stops is the event loop's alone (`play.SteppedRun`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rightslice.core.replay import Moment, ScaleEvent
from rightslice.core.rng import generator
from rightslice.core.timeline import NodeCount, ReplicaCount
from rightslice.simulation.cluster_spec import Cluster, ClusterLog
from rightslice.simulation.cluster_state import ClusterState, PoolState, Workload
from rightslice.simulation.control.nodes import bind, next_scan_s, scan
from rightslice.simulation.control.policies import ModelView
from rightslice.simulation.control.replicas import victims
from rightslice.simulation.disruption import Disruptions
from rightslice.simulation.play import Played, SteppedRun
from rightslice.simulation.rollouts import Rollouts
from rightslice.simulation.scenario import Scenario

DRAIN_POLL_S: Final = 5.0
"""How often it is looked whether draining replicas have finished: their GPUs are freed that much late at most."""


def control(scenario: Scenario, cluster: Cluster, run: SteppedRun | None = None) -> tuple[SteppedRun, ClusterLog]:
    """Play the scenario with its control plane up to its horizon; the run is to be finished. Deterministic.

    `run`: one of the scenario that has not begun.
    """
    return _Loop(run or SteppedRun(scenario), cluster).play()


def play_cluster(scenario: Scenario, cluster: Cluster) -> tuple[Played, ClusterLog]:
    """The same, with what happened to each request."""
    run, log = control(scenario, cluster)
    return run.finish(), log


class _Loop:
    def __init__(self, run: SteppedRun, cluster: Cluster) -> None:
        self.state = ClusterState(run, cluster)
        self.disruptions = Disruptions(self.state, cluster)
        self.rollouts = Rollouts(self.state, cluster.rollouts or {})
        self.rng = {name: generator(cluster.seed, "nodes", name) for name in self.state.pools}
        self.scale_events: list[ScaleEvent] = []
        self.timeline: list[Moment] = []
        self.sizes: dict[str, list[ReplicaCount]] = {w.spec.deployment: [] for w in self.state.workloads}
        self.node_counts: dict[str, list[NodeCount]] = {name: [] for name in self.state.pools}
        self.dark_s: dict[str, float] = {}
        self.always_ready = {s.model for s in run.servers if s.deployment not in self.sizes and s.replicas}

    def play(self) -> tuple[SteppedRun, ClusterLog]:
        state = self.state
        self._begin()
        while state.now_s < state.horizon_s:
            self._control()
            self._note()
            until_s = min(state.horizon_s, self._next_s())
            self._count_hours(until_s)
            state.run.advance(until_s)
            self._count_dark(until_s)
            state.now_s = until_s
        unknown = dict.fromkeys(name for w in state.workloads for name in w.spec.start.unknown)
        hours = {name: pool.hours for name, pool in state.pools.items()}
        log = ClusterLog(
            scale_events=tuple(self.scale_events),
            preemptions=tuple(self.disruptions.events),
            timeline=tuple(self.timeline),
            node_hours=hours,
            unknown_phases=tuple(unknown),
            rollouts=self.rollouts.results(),
            replicas=tuple(count for counts in self.sizes.values() for count in counts),
            nodes=tuple(count for counts in self.node_counts.values() for count in counts),
            dark_s=self.dark_s,
        )
        return state.run, log

    def _begin(self) -> None:
        """Replicas that stand at the start are ready on the nodes that stand."""
        for workload in self.state.workloads:
            self._resize(workload)
        for pool in self.state.pools.values():
            for name, node in bind(0.0, pool.spec.nodes, pool.state, self.state.pods(pool)):
                workload, replica = self.state.find(name)
                self.state.stand(workload, replica, node)
                self.disruptions.expect_crashes(pool, replica)

    # --- one stop ------------------------------------------------------------------------------------------------

    def _control(self) -> None:
        self.disruptions.strike()
        self.disruptions.lose_nodes()
        for _, replica in self.state.replicas():
            if replica.phase == "starting" and replica.ready_s <= self.state.now_s:
                self.state.make_ready(replica)
        due = [w for w in self.state.workloads if _due(self.state.now_s, w.spec.policy.period_s)]
        for workload, view in [(workload, self._view(workload)) for workload in due]:
            self._decide(workload, view)
        for workload in self.state.workloads:
            self._resize(workload)
        self._end_drained()
        self._bind()
        self.disruptions.cut()
        self._scan()

    def _end_drained(self) -> None:
        """Replicas that have finished, and what their grace cuts off; then nodes that waited for them."""
        now_s = self.state.now_s
        draining = [(workload, replica) for workload, replica in self.state.replicas() if replica.phase == "draining"]
        seen = self.state.run.look() if draining else None
        for workload, replica in draining:
            held = seen is not None and self.state.holds(replica, seen)
            if held and replica.ends_s <= now_s:
                self.disruptions.cut_off(workload, replica)
            elif not held and min(replica.stops_s, replica.ends_s) <= now_s:
                self.state.remove(workload, replica)
        for pool in self.state.pools.values():
            used = {pod.node for pod in self.state.pods(pool)} if pool.leaving else set()
            pool.leaving = {name: node for name, node in pool.leaving.items() if name in used}

    def _decide(self, workload: Workload, view: ModelView) -> None:
        now_s, spec = self.state.now_s, workload.spec
        self.timeline.append(
            Moment(
                now_s, spec.deployment, view.replicas, view.ready, view.value("in_flight"),
                view.held + view.waiting, view.kv_use, view.offered_per_s,
            )
        )  # fmt: skip
        decision = spec.policy.decide(now_s, view)
        if decision.replicas != workload.wanted:
            event = ScaleEvent(now_s, spec.deployment, workload.wanted, decision.replicas, decision.reason)
            self.scale_events.append(event)
            workload.wanted = decision.replicas

    def _view(self, workload: Workload) -> ModelView:
        """What autoscalers see. Engines are read only where they are ready or drain.

        What belongs to the model (requests that come, or wait in the gateway) is divided among its deployments by the
        replicas that they ask for, so that together they count each request once.
        """
        state, spec = self.state, workload.spec
        seen, ready = state.run.look(), workload.ready()
        slots = [slot for r in workload.replicas if r.phase in ("ready", "draining") for slot in r.slots]
        arrived = int(seen.arrived[workload.model])
        came, workload.arrived = arrived - workload.arrived, arrived
        starting = [r for r in workload.replicas if r.phase == "starting"]
        loading = sum(r.running_s <= state.now_s for r in starting)
        of_ready = [slot for r in ready for slot in r.slots]
        used = sum(int(seen.kv_blocks[slot]) for slot in of_ready)
        share = self._share(workload)
        return ModelView(
            replicas=workload.wanted,
            ready=len(ready),
            loading=loading,
            pending=len(workload.standing()) - len(ready) - loading,
            offered_per_s=came * share / spec.policy.period_s,
            held=float(seen.queued[workload.model]) * share,
            waiting=float(sum(int(seen.waiting[slot]) for slot in slots)),
            running=float(sum(int(seen.running[slot]) for slot in slots)),
            kv_use=used / (workload.blocks * len(of_ready)) if workload.blocks and of_ready else 0.0,
        )

    def _share(self, workload: Workload) -> float:
        """The deployment's part of what is its model's: by replicas asked for; in equal parts where all are at zero."""
        same = [other for other in self.state.workloads if other.model == workload.model]
        asked = sum(other.wanted for other in same)
        return workload.wanted / asked if asked else 1.0 / len(same)

    def _resize(self, workload: Workload) -> None:
        """More replicas are Pending pods; fewer drain, those first that Kubernetes would take."""
        surge = self.rollouts.advance(workload)
        standing = workload.standing()
        surplus = len(standing) - workload.wanted - surge
        if surplus > 0:
            for name in victims(self.state.now_s, self.state.as_pods(standing), surplus):
                self.state.drain(*self.state.find(name))
        if not surge:
            self.state.add(workload, workload.wanted - len(workload.standing()))

    def _bind(self) -> None:
        for pool in self.state.pools.values():
            if not self._pending_since(pool):
                continue
            usable = pool.state.without(list(pool.doomed))
            for name, node in bind(self.state.now_s, pool.spec.nodes, usable, self.state.pods(pool)):
                workload, replica = self.state.find(name)
                self.state.start(workload, replica, node)
                self.disruptions.expect_crashes(pool, replica)

    def _scan(self) -> None:
        """Provisioners look. A node that is taken away takes no new pods; it goes when its pods have ended."""
        for name, pool in self.state.pools.items():
            by, now_s = pool.spec.provisioner, self.state.now_s
            pending = self._pending_since(pool)
            consolidating = by.scan_s == 0.0 and not pending  # who waits for pods still takes unneeded nodes away
            if not consolidating and next_scan_s(by, now_s, pending) > now_s:
                continue
            nodes, pods = {node.name: node for node in pool.state.nodes}, self.state.pods(pool)
            done = scan(now_s, self.disruptions.available(pool), by, pool.state, pods, self.rng[name])
            pool.state = done.state
            self.disruptions.expect(pool, done.added)
            for evicted in done.evicted:
                workload, replica = self.state.find(evicted)
                pool.leaving[replica.node] = nodes[replica.node]
                self.state.drain(workload, replica)
            if done.evicted:
                for workload in self.state.workloads:
                    self._resize(workload)
                self._end_drained()

    # --- parts ---------------------------------------------------------------------------------------------------

    def _pending_since(self, pool: PoolState) -> list[float]:
        """When the pods without a node were born."""
        name = pool.spec.nodes.name
        mine = (w for w in self.state.workloads if w.spec.pool == name)
        return sorted(r.born_s for w in mine for r in w.replicas if not r.node)

    def _note(self) -> None:
        """Sizes and nodes, where they have changed."""
        now_s = self.state.now_s
        for (name, counts), workload in zip(self.sizes.items(), self.state.workloads, strict=True):
            phases = [replica.phase for replica in workload.replicas]
            starting = phases.count("pending") + phases.count("starting")
            now = ReplicaCount(now_s, name, workload.wanted, phases.count("ready"), starting)
            if not counts or replace(counts[-1], time_s=now_s) != now:
                counts.append(now)
        for name, pool in self.state.pools.items():
            there = sum(node.ready_s <= now_s for node in pool.nodes)
            found = NodeCount(now_s, name, _paid(pool), there)
            if not self.node_counts[name] or replace(self.node_counts[name][-1], time_s=now_s) != found:
                self.node_counts[name].append(found)

    def _count_hours(self, until_s: float) -> None:
        for pool in self.state.pools.values():
            pool.hours += _paid(pool) * (until_s - self.state.now_s) / 3600.0

    def _count_dark(self, until_s: float) -> None:
        """Deployments of a model share its gateway: requests wait in it while none of them has a ready replica."""
        models = self.state.run.models
        ready = self.always_ready.union(models[w.model] for w in self.state.workloads if w.ready())
        dark = {models[w.model]: w.model for w in self.state.workloads if models[w.model] not in ready}
        queued = self.state.run.look().queued if dark else ()
        for name, model in dark.items():
            if queued[model] > 0:
                self.dark_s[name] = self.dark_s.get(name, 0.0) + until_s - self.state.now_s

    def _next_s(self) -> float:
        """The next instant at which something may change."""
        now_s = self.state.now_s
        times = [_after(now_s, w.spec.policy.period_s) for w in self.state.workloads]
        times += _upcoming(now_s, (*self.disruptions.next_s(), *self.rollouts.next_s()))
        for _, replica in self.state.replicas():
            times += _upcoming(now_s, (replica.running_s, replica.ready_s, replica.stops_s, replica.ends_s))
            if replica.phase == "draining":
                times.append(_after(now_s, DRAIN_POLL_S))
        for pool in self.state.pools.values():
            times += _upcoming(now_s, (node.ready_s for node in pool.state.nodes))
            times.append(self._next_look(pool))
        return min(times, default=math.inf)

    def _next_look(self, pool: PoolState) -> float:
        by, now_s, pending = pool.spec.provisioner, self.state.now_s, self._pending_since(pool)
        idle = not pending and not pool.state.nodes
        if by.scan_s > 0.0:
            return math.inf if idle else _after(now_s, by.scan_s)
        soon = next_scan_s(by, now_s, pending)
        return soon if soon > now_s else _after(now_s, max(by.batch_idle_s, DRAIN_POLL_S))


def _paid(pool: PoolState) -> int:
    """Nodes are paid from the request on; those that never come are not."""
    return sum(node.ready_s < math.inf for node in pool.nodes)


def _upcoming(now_s: float, times_s: Iterable[float]) -> list[float]:
    return [at_s for at_s in times_s if now_s < at_s < math.inf]


def _after(now_s: float, period_s: float) -> float:
    """The first multiple of the period after now."""
    return (math.floor(now_s / period_s + 1e-9) + 1) * period_s


def _due(now_s: float, period_s: float) -> bool:
    return abs(now_s / period_s - round(now_s / period_s)) < 1e-9
