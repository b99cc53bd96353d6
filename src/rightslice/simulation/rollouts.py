"""Rolling updates of a cluster's deployments as they go, and when Kubernetes would call one stuck."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rightslice.core.replay import RolloutResult
from rightslice.simulation.cluster_state import ClusterState, Replica, Workload
from rightslice.simulation.control.replicas import victims
from rightslice.simulation.control.rollout import Pods, Rollout, step


@dataclass(slots=True)
class _Progress:
    """One rolling update under way. `seen`: pods at the last progress."""

    spec: Rollout
    workload: Workload
    seen: Pods
    since_s: float
    done_s: float | None = None
    stuck_s: float | None = None
    message: str = ""


class Rollouts:
    """The Deployment controller's part in a run."""

    def __init__(self, state: ClusterState, asked: Mapping[str, Rollout]) -> None:
        self.state = state
        self.asked = dict(asked)
        self.under_way: dict[str, _Progress] = {}

    def advance(self, workload: Workload) -> int:
        """Take the next steps of a deployment's update; the pods beyond its size that it may have for now."""
        name, now_s = workload.spec.deployment, self.state.now_s
        if name in self.asked and self.asked[name].at_s <= now_s:
            workload.revision += 1
            self.under_way[name] = _Progress(self.asked.pop(name), workload, self._pods(workload), now_s)
        found = self.under_way.get(name)
        if found is None or found.done_s is not None:
            return 0
        self._move(workload, found.spec)
        return 0 if self._done(found) else found.spec.surge

    def next_s(self) -> list[float]:
        """Instants at which an update begins, or is called stuck."""
        times = [rollout.at_s for rollout in self.asked.values()]
        return times + [p.since_s + p.spec.deadline_s for p in self.under_way.values() if p.done_s is None]

    def results(self) -> tuple[RolloutResult, ...]:
        """What became of each."""
        return tuple(
            RolloutResult(name, p.spec.at_s, p.spec.surge, p.spec.unavailable, p.done_s, p.stuck_s, p.message)
            for name, p in self.under_way.items()
        )

    def _move(self, workload: Workload, rollout: Rollout) -> None:
        todo = step(workload.wanted, rollout, self._pods(workload))
        old = [r for r in workload.standing() if r.revision < workload.revision]
        for ready, count in ((False, todo.unready), (True, todo.ready)):
            chosen = [r for r in old if (r.phase == "ready") == ready]
            for name in victims(self.state.now_s, self.state.as_pods(chosen), count):
                self.state.drain(*self.state.find(name))
        self.state.add(workload, todo.made)

    def _done(self, found: _Progress) -> bool:
        """Whether every pod is a ready one of the new version; else whether it moves."""
        pods, now_s = self._pods(found.workload), self.state.now_s
        if pods.old == 0 and pods.new_ready == pods.new == found.workload.wanted:
            found.done_s = now_s
        elif _moved(found.seen, pods):
            found.seen, found.since_s = pods, now_s
        elif found.stuck_s is None and now_s - found.since_s >= found.spec.deadline_s:
            found.stuck_s, found.message = now_s, self._why(found.workload)
        return found.done_s is not None

    def _pods(self, workload: Workload) -> Pods:
        new = [r for r in workload.standing() if r.revision == workload.revision]
        old = [r for r in workload.standing() if r.revision < workload.revision]
        return Pods(len(old), _ready(old), len(new), _ready(new))

    def _why(self, workload: Workload) -> str:
        """What the events of the new pods say."""
        spec, pool = workload.spec, self.state.pools[workload.spec.pool]
        nodes = sum(node.ready_s <= self.state.now_s < math.inf for node in pool.state.nodes)
        said = "ProgressDeadlineExceeded"
        if any(r.phase == "pending" for r in workload.standing() if r.revision == workload.revision):
            return f"{said}: 0/{nodes} nodes are available: {nodes} Insufficient {spec.resource}"
        return f"{said}: the new pods are not ready yet"


def _ready(replicas: list[Replica]) -> int:
    return sum(replica.phase == "ready" for replica in replicas)


def _moved(before: Pods, now: Pods) -> bool:
    """Progress as Kubernetes defines it: new pods made or ready, old ones gone."""
    more_ready = now.old_ready + now.new_ready > before.old_ready + before.new_ready
    return now.new > before.new or now.old < before.old or more_ready
