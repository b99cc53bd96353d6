"""What takes capacity away, as timed events: spot reclaims, failures, the end of a limited run, the loss of a zone.

Rates are per hour of life, so gaps are exponential. Events name a scope; who is hit is asked when they happen
(`struck`, `affected`), because nodes and replicas come and go.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from rightslice.catalogue.disruptions import Together, failures_per_hour, max_run_s, reclaims_per_hour, together
from rightslice.catalogue.machines import machines
from rightslice.catalogue.platforms import platforms
from rightslice.core.plan import Capacity
from rightslice.core.rng import generator

HOUR_S: Final = 3600.0

FaultKind = Literal[
    "spot-reclaim", "node-failure", "gpu-failure", "engine-crash", "run-limit", "zone-loss", "repartition"
]


@dataclass(frozen=True, slots=True)
class Notice:
    """Seconds from the announcement to the loss, and what of it pods have to finish in."""

    notice_s: float = 0.0
    drain_s: float = 0.0


NO_NOTICE: Final = Notice()


@dataclass(frozen=True, slots=True)
class Fault:
    """One event. `at_s`: announced, or happening where there is no notice; capacity is gone at `lost_s`.

    Scope: `zone`, with `pool` the machines of one pool in it, with `node` one node, with `gpu` one of its GPUs (-1:
    all), with `replica` one engine. `share` of the nodes in scope are hit, within `within_s` of each other.
    `back_s`: when a lost zone returns.
    """

    at_s: float
    kind: FaultKind
    zone: str = ""
    pool: str = ""
    node: str = ""
    gpu: int = -1
    replica: str = ""
    notice: Notice = NO_NOTICE
    share: float = 1.0
    within_s: float = 0.0
    back_s: float | None = None
    seed: int = 0

    @property
    def lost_s(self) -> float:
        """When the capacity is gone (of the first node hit)."""
        return self.at_s + self.notice.notice_s


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node as faults see it. `born_s`: ready since then."""

    name: str
    pool: str
    zone: str
    gpus: int
    capacity: Capacity
    born_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a replica runs. `sharing`: how it shares its GPUs with others; MIG slices count as `mig`."""

    replica: str
    node: str
    gpus: tuple[int, ...]
    sharing: Literal["none", "mig", "time-slicing", "mps"] = "none"


@dataclass(frozen=True, slots=True)
class FailureRates:
    """Failures per hour: of one GPU, of one node apart from them, of one engine process (not published: 0)."""

    gpu_per_hour: float
    node_per_hour: float
    engine_per_hour: float = 0.0


def published_rates() -> FailureRates:
    """Hardware failures of H100 training nodes (catalogue)."""
    return FailureRates(failures_per_hour("gpu"), failures_per_hour("node"))


def spot_notice(platform: str) -> Notice:
    """What the platform really grants: notice, and the part of it that the kubelet leaves to user pods.

    None where nothing is announced. Raises KeyError for an unknown platform.
    """
    found = platforms()[platform]
    notice_s = found.spot_notice_s or 0.0
    return Notice(notice_s, notice_s if found.spot_grace_s is None else min(notice_s, found.spot_grace_s))


def machine_reclaims_per_hour(provider: str, region: str, machine_type: str) -> float | None:
    """Rate of one spot machine from the catalogue's interruption band; None where no band is published."""
    for machine in machines():
        if (machine.provider, machine.region, machine.machine_type) == (provider, region, machine_type):
            return reclaims_per_hour(machine.spot_interruption)
    return None


def spot_reclaims(
    pool: str,
    zones: Sequence[str],
    per_hour: float,
    notice: Notice,
    horizon_s: float,
    rng: np.random.Generator,
    linked: Together | None = None,
) -> tuple[Fault, ...]:
    """Waves of reclaims of one pool, zone by zone.

    A wave takes each machine with chance `linked.share` (catalogue's where None), so waves come at per_hour / share:
    one machine is reclaimed `per_hour` times an hour, and another of its zone goes with it with that chance.
    """
    linked = linked or together()
    faults = [
        Fault(
            at_s,
            "spot-reclaim",
            zone=zone,
            pool=pool,
            notice=notice,
            share=linked.share,
            within_s=linked.within_s,
            seed=int(rng.integers(2**31)),
        )
        for zone in zones
        for at_s in _times(per_hour / linked.share, 0.0, horizon_s, rng)
    ]
    return merged(faults)


def node_faults(
    node: NodeRef, rates: FailureRates, horizon_s: float, rng: np.random.Generator, notice: Notice = NO_NOTICE
) -> tuple[Fault, ...]:
    """Failures of one node from its birth to its first loss, and the end of its run where its purchase has one.

    `notice` is what precedes the end of the run; failures come without. GPU failures take one GPU until it is reset.
    """
    limit_s = max_run_s(node.capacity)
    end_s = horizon_s if limit_s is None else min(horizon_s, node.born_s + limit_s)
    faults: list[Fault] = []
    broken = next(iter(_times(rates.node_per_hour, node.born_s, end_s, rng)), None)
    whole = Fault(broken or 0.0, "node-failure", zone=node.zone, pool=node.pool, node=node.name)
    if broken is not None:
        faults.append(whole)
    elif limit_s is not None and node.born_s + limit_s <= horizon_s:
        faults.append(replace(whole, at_s=end_s - notice.notice_s, kind="run-limit", notice=notice))
    alive_until_s = end_s if broken is None else broken
    for gpu in range(node.gpus):
        times = _times(rates.gpu_per_hour, node.born_s, alive_until_s, rng)
        faults += [replace(whole, at_s=at_s, kind="gpu-failure", gpu=gpu) for at_s in times]
    return merged(faults)


def engine_crashes(
    replica: str, rates: FailureRates, born_s: float, until_s: float, rng: np.random.Generator
) -> tuple[Fault, ...]:
    """Crashes of one engine process while it lives."""
    times = _times(rates.engine_per_hour, born_s, until_s, rng)
    return tuple(Fault(at_s, "engine-crash", replica=replica) for at_s in times)


def zone_loss(zone: str, at_s: float, lasts_s: float) -> Fault:
    """Everything in a zone gone without notice, for a time. A question to ask: no rate is published."""
    return Fault(at_s, "zone-loss", zone=zone, back_s=at_s + lasts_s)


def merged(*schedules: Iterable[Fault]) -> tuple[Fault, ...]:
    """One schedule in order of time."""
    return tuple(heapq.merge(*(sorted(schedule, key=_order) for schedule in schedules), key=_order))


def struck(fault: Fault, nodes: Iterable[NodeRef]) -> tuple[tuple[str, float], ...]:
    """(node, when it is announced to it) of the living nodes that the event hits, in order of time.

    Reclaims hit spot machines only. Each node's chance depends on the event and its name alone, not on the others.
    """
    hit = []
    for node in nodes:
        if not _in_scope(fault, node):
            continue
        draws = generator(fault.seed, "struck", node.name).random(2)
        if fault.share >= 1.0 or float(draws[0]) < fault.share:
            hit.append((node.name, fault.at_s + float(draws[1]) * fault.within_s))
    return tuple(sorted(hit, key=lambda pair: pair[1]))


def affected(fault: Fault, placements: Sequence[Placement], nodes: Collection[str] = ()) -> tuple[str, ...]:
    """Replicas that stop: on lost `nodes` (from `struck`) all; on a failed GPU all its slices and shares.

    A replica over several GPUs stops with any of them. A crash takes the engine alone, under MPS every other client of
    its GPUs too.
    """
    if fault.kind == "engine-crash":
        return _crashed(fault.replica, placements)
    if fault.kind == "gpu-failure":
        return tuple(p.replica for p in placements if p.node == fault.node and fault.gpu in p.gpus)
    return tuple(p.replica for p in placements if p.node in nodes)


def _crashed(replica: str, placements: Sequence[Placement]) -> tuple[str, ...]:
    own = [p for p in placements if p.replica == replica]
    shared = {(p.node, gpu) for p in own if p.sharing == "mps" for gpu in p.gpus}
    together_with = [
        p.replica
        for p in placements
        if p.replica == replica or (p.sharing == "mps" and any((p.node, gpu) in shared for gpu in p.gpus))
    ]
    return tuple(dict.fromkeys(together_with))


def _in_scope(fault: Fault, node: NodeRef) -> bool:
    if node.born_s > fault.at_s or (fault.kind == "spot-reclaim" and node.capacity != "spot"):
        return False
    wanted = ((fault.zone, node.zone), (fault.pool, node.pool), (fault.node, node.name))
    return all(not name or name == own for name, own in wanted)


def _times(per_hour: float, start_s: float, end_s: float, rng: np.random.Generator) -> list[float]:
    """Times of a Poisson process within [start, end)."""
    times: list[float] = []
    if per_hour <= 0.0:
        return times
    at_s = start_s + float(rng.exponential(HOUR_S / per_hour))
    while at_s < end_s:
        times.append(at_s)
        at_s += float(rng.exponential(HOUR_S / per_hour))
    return times


def _order(fault: Fault) -> tuple[float, str, str, str, int, str]:
    return fault.at_s, fault.kind, fault.zone, fault.node, fault.gpu, fault.replica
