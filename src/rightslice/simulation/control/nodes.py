"""Nodes of one pool: pods wait Pending until one has room; a provisioner adds nodes and takes unneeded ones away.

Resources are counted as Kubernetes does: `nvidia.com/gpu: 8`, or `nvidia.com/mig-3g.40gb: 2` of a layout.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from rightslice.catalogue.disruptions import Provisioner
from rightslice.core.spread import Spread

NEVER: Final = math.inf


@dataclass(frozen=True, slots=True)
class NodePool:
    """Equal nodes. `provision_s`: request to usable accelerators. `out_of_stock`: share of requests never served."""

    name: str
    capacity: Mapping[str, int]
    provision_s: Spread
    max_nodes: int
    min_nodes: int = 0
    zones: tuple[str, ...] = ("",)
    out_of_stock: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_nodes <= self.max_nodes or not self.zones or not 0.0 <= self.out_of_stock <= 1.0:
            raise ValueError(f"{self.name}: nodes {self.min_nodes} to {self.max_nodes}, zones, stock")


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `ready_s`: from when pods start on it; NEVER where the request is not served. `lost`: resources of its
    failed GPUs."""

    name: str
    zone: str
    requested_s: float
    ready_s: float
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of one resource. `node` is empty while it is Pending."""

    name: str
    resource: str
    count: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class Nodes:
    """What a pool has, and what its provisioner remembers. `unneeded`: node, and since when."""

    nodes: tuple[Node, ...] = ()
    made: int = 0
    last_added_s: float = -NEVER
    unneeded: tuple[tuple[str, float], ...] = ()
    backoff_until_s: float = -NEVER
    next_backoff_s: float = 0.0

    def without(self, names: Collection[str]) -> Nodes:
        """The same after nodes were lost."""
        if not names:
            return self
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.name not in names),
            unneeded=tuple(entry for entry in self.unneeded if entry[0] not in names),
        )


@dataclass(frozen=True, slots=True)
class Scan:
    """What one look of the provisioner did.

    `added` nodes become usable at their `ready_s`; `removed` are gone; `failed` never came and were given up; `evicted`
    pods must start again elsewhere; `unplaceable` pods fit on no node of the pool at all.
    """

    state: Nodes
    added: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    unplaceable: tuple[str, ...] = ()


def standing(pool: NodePool, count: int) -> Nodes:
    """`count` nodes that are ready from the beginning, zones in turn."""
    nodes = tuple(Node(f"{pool.name}-{i}", pool.zones[i % len(pool.zones)], 0.0, 0.0) for i in range(count))
    return Nodes(nodes, made=count)


def next_scan_s(provisioner: Provisioner, now_s: float, arrivals_s: Sequence[float]) -> float:
    """When the provisioner looks next, at or after `now_s`, given when the Pending pods came (sorted).

    At fixed intervals; or once no pod came for the idle time, at most the longest batch after the first. NEVER where
    it waits for pods and there are none.
    """
    if provisioner.scan_s > 0.0:
        return math.ceil(now_s / provisioner.scan_s) * provisioner.scan_s
    if not arrivals_s:
        return NEVER
    start_s = arrivals_s[0]
    closes_s = start_s + provisioner.batch_idle_s
    for at_s in arrivals_s[1:]:
        if at_s > closes_s:
            break
        closes_s = at_s + provisioner.batch_idle_s
    return max(now_s, min(closes_s, start_s + provisioner.batch_max_s))


def bind(now_s: float, pool: NodePool, state: Nodes, pods: Sequence[Pod]) -> tuple[tuple[str, str], ...]:
    """(pod, node) for every Pending pod that a ready node has room for; pods in order, fullest node first.

    Filling one node before the next is an assumption: it is what lets others become empty.
    """
    if all(pod.node for pod in pods):
        return ()
    free = _free(pool, [node for node in state.nodes if node.ready_s <= now_s], pods)
    bound = []
    for pod in pods:
        if not pod.node:
            name = _place(free, pod)
            if name:
                bound.append((pod.name, name))
    return tuple(bound)


def scan(
    now_s: float, pool: NodePool, by: Provisioner, state: Nodes, pods: Sequence[Pod], rng: np.random.Generator
) -> Scan:
    """One look: give up what did not come, ask for what Pending pods need, take away what is unneeded long enough."""
    state, failed = _give_up(now_s, by, state)
    state, added, unplaceable = _grow(now_s, pool, state, pods, rng)
    if added:
        return Scan(state, added, (), failed, (), unplaceable)
    placed = dict(bind(now_s, pool, state, pods))
    if placed:
        pods = [replace(pod, node=placed[pod.name]) if pod.name in placed else pod for pod in pods]
    state, removed = _shrink(now_s, pool, by, state, pods)
    evicted = tuple(pod.name for pod in pods if pod.node in removed)
    return Scan(state, (), removed, failed, evicted, unplaceable)


def _give_up(now_s: float, by: Provisioner, state: Nodes) -> tuple[Nodes, tuple[str, ...]]:
    """Nodes that did not come in time are deleted; the pool rests for a time that doubles until one comes."""
    late = tuple(node.name for node in state.nodes if node.ready_s > now_s >= node.requested_s + by.max_provision_s)
    came = any(node.ready_s <= now_s and node.requested_s >= state.backoff_until_s for node in state.nodes)
    if came and state.next_backoff_s:
        state = replace(state, next_backoff_s=0.0)
    if not late:
        return state, ()
    backoff_s = state.next_backoff_s or by.backoff_s
    lost = state.without(late)
    doubled_s = min(2.0 * backoff_s, by.backoff_max_s)
    return replace(lost, backoff_until_s=now_s + backoff_s, next_backoff_s=doubled_s), late


def _grow(
    now_s: float, pool: NodePool, state: Nodes, pods: Sequence[Pod], rng: np.random.Generator
) -> tuple[Nodes, tuple[Node, ...], tuple[str, ...]]:
    """New nodes for the Pending pods that neither ready nodes nor those under way hold; largest pods first."""
    if len(state.nodes) >= pool.min_nodes and all(pod.node for pod in pods):
        return state, (), ()
    free = _free(pool, state.nodes, pods)
    pending = sorted((pod for pod in pods if not pod.node), key=lambda pod: -pod.count)
    unplaceable = tuple(pod.name for pod in pending if pod.count > pool.capacity.get(pod.resource, 0))
    wanted = [pod for pod in pending if pod.name not in set(unplaceable) and not _place(free, pod)]
    if now_s < state.backoff_until_s:
        return state, (), unplaceable
    missing = max(0, pool.min_nodes - len(state.nodes))
    room = pool.max_nodes - len(state.nodes)
    count = min(room, max(missing, _nodes_for(pool, wanted)))
    added = tuple(_request(now_s, pool, state.made + i, rng) for i in range(count))
    if not added:
        return state, (), unplaceable
    nodes = (*state.nodes, *added)
    return replace(state, nodes=nodes, made=state.made + count, last_added_s=now_s), added, unplaceable


def _nodes_for(pool: NodePool, pods: Sequence[Pod]) -> int:
    """First fit of the pods on new nodes."""
    fresh: dict[str, dict[str, int]] = {}
    for pod in pods:
        if not _place(fresh, pod):
            fresh[str(len(fresh))] = dict(pool.capacity)
            _place(fresh, pod)
    return len(fresh)


def _request(now_s: float, pool: NodePool, index: int, rng: np.random.Generator) -> Node:
    """One request; always takes two numbers from the generator."""
    served = float(rng.random()) >= pool.out_of_stock
    takes_s = pool.provision_s.draw(rng)
    zone = pool.zones[index % len(pool.zones)]
    return Node(f"{pool.name}-{index}", zone, now_s, now_s + takes_s if served else NEVER)


def _shrink(
    now_s: float, pool: NodePool, by: Provisioner, state: Nodes, pods: Sequence[Pod]
) -> tuple[Nodes, tuple[str, ...]]:
    """Takes away nodes unneeded for the whole time, within the limits per look."""
    since = dict(state.unneeded)
    unneeded = _unneeded(now_s, pool, by, state, pods)
    marked = tuple((name, since.get(name, now_s)) for name in unneeded)
    if marked != state.unneeded:
        state = replace(state, unneeded=marked)
    if now_s < state.last_added_s + by.delay_after_add_s:
        return state, ()
    held = {pod.node for pod in pods}
    room = len(state.nodes) - pool.min_nodes
    due = [name for name, at_s in marked if now_s - at_s >= by.unneeded_s]
    empty = [name for name in due if name not in held]
    drained = [name for name in due if name in held][: by.drains_at_once]
    gone = tuple((empty + drained)[: max(0, min(room, by.removals_at_once))])
    return state.without(gone), gone


def _unneeded(now_s: float, pool: NodePool, by: Provisioner, state: Nodes, pods: Sequence[Pod]) -> list[str]:
    """Empty nodes, then underused ones whose pods fit on those that stay; least used first."""
    ready = [node for node in state.nodes if node.ready_s <= now_s]
    on: dict[str, list[Pod]] = {node.name: [] for node in ready}
    for pod in pods:
        if pod.node in on:
            on[pod.node].append(pod)
    share = {name: _share(pool, held) for name, held in on.items()}
    little = [name for name, used in share.items() if used <= 0.0 or used < by.underused_share]
    if not little:
        return []
    free = _free(pool, ready, pods)
    found: list[str] = []
    for name in sorted(little, key=lambda n: share[n]):
        others = {other: dict(left) for other, left in free.items() if other != name}
        if all(_place(others, pod) for pod in on[name]):
            found.append(name)
            free = others
    return found


def _share(pool: NodePool, pods: Sequence[Pod]) -> float:
    """The largest used share of a resource of one node."""
    used = dict.fromkeys(pool.capacity, 0)
    for pod in pods:
        used[pod.resource] = used.get(pod.resource, 0) + pod.count
    return max((used[resource] / total for resource, total in pool.capacity.items() if total), default=0.0)


def _free(pool: NodePool, nodes: Sequence[Node], pods: Sequence[Pod]) -> dict[str, dict[str, int]]:
    free = {
        node.name: {name: total - node.lost.get(name, 0) for name, total in pool.capacity.items()} for node in nodes
    }
    for pod in pods:
        if pod.node in free:
            free[pod.node][pod.resource] -= pod.count
    return free


def _place(free: dict[str, dict[str, int]], pod: Pod) -> str:
    """Takes the room on the fullest node that holds the pod, and names it; empty where none does."""
    fits = [(left[pod.resource], name) for name, left in free.items() if left.get(pod.resource, 0) >= pod.count]
    if not fits:
        return ""
    name = min(fits, key=lambda pair: pair[0])[1]
    free[name][pod.resource] -= pod.count
    return name
