"""What a control plane controls, and what it did: pools of nodes, deployments that scale, faults, rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rightslice.catalogue.disruptions import Provisioner
from rightslice.core.plan import Capacity
from rightslice.core.replay import Moment, Preemption, RolloutResult, ScaleEvent
from rightslice.core.spread import Spread
from rightslice.core.timeline import NodeCount, ReplicaCount
from rightslice.simulation.control.cold_start import ColdStart
from rightslice.simulation.control.faults import NO_NOTICE, FailureRates, Fault, Notice
from rightslice.simulation.control.nodes import NodePool
from rightslice.simulation.control.policies import Policy
from rightslice.simulation.control.rollout import Rollout

GRACE_S: Final = 30.0
"""Kubernetes' default time for a pod to end."""

NO_FAILURES: Final = FailureRates(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal nodes bought the same way. `standing` are there at the start. `usd_per_hour` of one node.

    `devices`: what each GPU of a node offers (`nvidia.com/gpu: 1`, `nvidia.com/mig-3g.40gb: 2`); empty: the node's
    capacity in equal parts. `failures` of its hardware. The end of a limited run (flex-start) comes with `notice` in
    any case. `owned` machines are neither bought nor given back; those of a lost zone return with it.
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
    devices: tuple[Mapping[str, int], ...] = ()
    repartition_s: Spread | None = None

    def offered(self) -> tuple[Mapping[str, int], ...]:
        """Resources by GPU of one node."""
        if self.devices:
            return self.devices
        count = self.gpus_per_node
        parts = {name: divmod(total, count) for name, total in self.nodes.capacity.items()}
        return tuple({name: each + (gpu < rest) for name, (each, rest) in parts.items()} for gpu in range(count))


@dataclass(frozen=True, slots=True)
class Scaled:
    """One deployment. A replica takes `count` of `resource` on one node and `engines` servers of the scenario, whose
    replicas are the slots that this deployment may use at one time.

    `grace_s`: how long a replica that must go computes on; then its requests are computed again elsewhere. It stays for
    `pre_stop_s` at least. `mps`: its replicas share their GPUs so, and crash together. `link`: the stage that sends
    what they have computed, one for each; it goes with its replica.
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
    pre_stop_s: float = 0.0
    mps: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What runs where. Deployments of the scenario that are not named have all their replicas all the time.

    `faults` in order of time. `rollouts`: deployment -> its new version.
    """

    pools: tuple[Pool, ...]
    deployments: tuple[Scaled, ...]
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    rollouts: Mapping[str, Rollout] | None = None


@dataclass(frozen=True, slots=True)
class ClusterLog:
    """What the control plane did. `node_hours` by pool, request to removal; `timeline` at every policy period.

    `replicas` and `nodes` of each deployment and pool whenever they change. `dark_s` by model: seconds in which its
    requests waited and no replica of any of its deployments was ready.
    """

    scale_events: tuple[ScaleEvent, ...]
    preemptions: tuple[Preemption, ...]
    timeline: tuple[Moment, ...]
    node_hours: Mapping[str, float]
    unknown_phases: tuple[str, ...]
    rollouts: tuple[RolloutResult, ...] = ()
    replicas: tuple[ReplicaCount, ...] = ()
    nodes: tuple[NodeCount, ...] = ()
    dark_s: Mapping[str, float] = field(default_factory=dict)
