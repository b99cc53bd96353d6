"""First fit, largest first: the packing that a person can follow, and the one that no answer may be dearer than.

Every model takes the option that serves it alone at the lowest price. Replicas are placed by falling size, each into
the first GPU where it fits beside what is there, else into a new GPU of the first node with a free one, else into a
node of the cheapest pool that has any left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from rightslice.catalogue.hardware import WHOLE
from rightslice.packing.model_groups import replicas_alone
from rightslice.packing.packing import NodeGroup, Packing
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, PoolSpec, Problem

State = tuple[tuple[str, int], ...]
"""Slices taken on one cut GPU: (partition, count), sorted."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was done with the replicas of one model: how many, as which option, and the nodes bought for them."""

    model: str
    option: str
    replicas: int
    bought: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The packing and the steps that led to it, in order."""

    packing: Packing
    steps: tuple[Step, ...]


@dataclass(slots=True)
class _Node:
    pool: PoolSpec
    free: int
    cut: list[Counter[str]] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)


def first_fit(problem: Problem) -> FirstFit | None:
    """None where this way finds no packing, which says nothing about others. Shared GPUs are not used."""
    plan = _choice(problem)
    if plan is None:
        return None
    filling = _Filling(problem)
    steps = []
    for demand, option, count in plan:
        before = Counter(node.pool.key for node in filling.nodes)
        if not filling.add(demand, option, count):
            return None
        bought = Counter(node.pool.key for node in filling.nodes) - before
        steps.append(Step(demand.model, option.key, count, dict(bought)))
    return FirstFit(filling.packing(), tuple(steps))


def _choice(problem: Problem) -> list[tuple[Demand, OptionSpec, int]] | None:
    """(demand, option, replicas) by falling size; None where a model has no option."""
    price = {option.key: _unit_price(problem, option) for option in problem.options}
    chosen = []
    for demand in problem.demands:
        if demand.requests_per_s <= 0 and demand.min_replicas <= 0 and not demand.spare:
            continue
        options = [o for o in problem.options if o.model == demand.model and math.isfinite(price[o.key])]
        counts = {o.key: replicas_alone(demand, o.requests_per_s) for o in options if _carries(o, demand)}
        if not counts:
            return None
        best = min((o for o in options if o.key in counts), key=lambda o: (counts[o.key] * price[o.key], o.key))
        chosen.append((demand, best, counts[best.key]))
    return sorted(chosen, key=lambda entry: (-entry[1].gpus, -price[entry[1].key], entry[1].partition))


def _carries(option: OptionSpec, demand: Demand) -> bool:
    return option.requests_per_s > 0 or demand.requests_per_s <= 0


def _unit_price(problem: Problem, option: OptionSpec) -> float:
    """USD per hour of the part of a GPU that one replica takes up where that is cheapest."""
    prices = []
    for pool in problem.pools:
        if option.runs_in(pool):
            most = max(layout.profiles.get(option.partition, 0) for layout in pool.layouts)
            nodes = math.ceil(option.gpus / pool.gpus_per_node)
            gpus = nodes * pool.gpus_per_node if nodes > 1 else option.gpus
            prices.append(pool.usd_per_gpu_hour * gpus / most)
    return min(prices, default=math.inf)


class _Filling:
    """Nodes in the order in which they were bought."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.nodes: list[_Node] = []
        self.bought: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.homes: dict[tuple[str, State, str], str] = {}
        self.pools = sorted(problem.pools, key=lambda pool: (pool.usd_per_gpu_hour, pool.usd_per_hour, pool.key))

    def add(self, demand: Demand, option: OptionSpec, count: int) -> bool:
        """Place every replica; the first ones on nodes of their own where the demand asks for several."""
        hosts = {pool.key for pool in self.pools if option.runs_in(pool)}
        inside = {key for key in hosts if option.gpus <= self.problem.pool_of[key].gpus_per_node}
        start = 0
        for number in range(count):
            apart = number < demand.min_nodes and demand.min_nodes > 1
            start = 0 if apart else start
            found = self._first(option, inside, apart, start)
            if found is None:
                found = self._buy(option, hosts)
                if found is None:
                    return False
            elif not apart:
                start = found
            self._seat(found, option)
        return True

    def _first(self, option: OptionSpec, hosts: AbstractSet[str], apart: bool, start: int) -> int | None:
        for place in range(start, len(self.nodes)):
            node = self.nodes[place]
            if apart and option.model in node.models:
                continue
            if node.pool.key in hosts and self._room(node, option):
                return place
        return None

    def _room(self, node: _Node, option: OptionSpec) -> bool:
        if option.partition == WHOLE:
            return node.free >= option.gpus
        return node.free > 0 or any(self._fits(node.pool, gpu, option.partition) for gpu in node.cut)

    def _fits(self, pool: PoolSpec, gpu: Counter[str], partition: str) -> str:
        """The name of the first layout that holds what is on the GPU and one slice more; empty without one."""
        key = (pool.key, tuple(sorted(gpu.items())), partition)
        if key not in self.homes:
            wanted = gpu + Counter({partition: 1})
            self.homes[key] = next((layout.name for layout in pool.layouts if _holds(layout, wanted)), "")
        return self.homes[key]

    def _buy(self, option: OptionSpec, hosts: AbstractSet[str]) -> int | None:
        """Nodes of the cheapest pool that hosts the option and is not used up; the number of the first."""
        for pool in self.pools:
            nodes = math.ceil(option.gpus / pool.gpus_per_node)
            gpus = nodes * pool.gpus_per_node
            most = math.inf if pool.max_nodes is None else pool.max_nodes
            within = all(self.used[key] + gpus <= self.problem.limits.get(key, math.inf) for key in pool.limits)
            if pool.key in hosts and self.bought[pool.key] + nodes <= most and within:
                self.bought[pool.key] += nodes
                self.used.update(dict.fromkeys(pool.limits, gpus))
                self.nodes += [_Node(pool, pool.gpus_per_node) for _ in range(nodes)]
                return len(self.nodes) - nodes
        return None

    def _seat(self, place: int, option: OptionSpec) -> None:
        node = self.nodes[place]
        node.runs[option.key] += 1
        node.models.add(option.model)
        if option.partition != WHOLE:
            gpu = next((gpu for gpu in node.cut if self._fits(node.pool, gpu, option.partition)), None)
            if gpu is None:
                gpu = Counter()
                node.cut.append(gpu)
                node.free -= 1
            gpu[option.partition] += 1
            return
        left = option.gpus
        while left > 0:
            taken = min(left, self.nodes[place].free)
            self.nodes[place].free -= taken
            left -= taken
            place += 1

    def packing(self) -> Packing:
        """The counts; each node is a group of its own, since which replica sits where is decided."""
        groups = tuple(self._groups())
        nodes: Counter[str] = Counter()
        layouts: Counter[tuple[str, str]] = Counter()
        replicas: Counter[tuple[str, str]] = Counter()
        for group in groups:
            nodes[group.pool] += group.nodes
            layouts.update({(group.pool, name): count for name, count in group.layouts.items()})
            replicas.update({(group.pool, key): count for key, count in group.replicas.items()})
        usd = math.fsum(self.problem.pool_of[key].usd_per_hour * count for key, count in nodes.items())
        return Packing("stopped", usd, 0.0, dict(nodes), dict(layouts), dict(replicas), groups=groups)

    def _groups(self) -> Iterator[NodeGroup]:
        """A replica over several nodes keeps them in one group."""
        place = 0
        while place < len(self.nodes):
            node = self.nodes[place]
            span = max(
                (math.ceil(self.problem.option_of[key].gpus / node.pool.gpus_per_node) for key in node.runs), default=1
            )
            layouts: Counter[str] = Counter(self._layout(node.pool, gpu) for gpu in node.cut)
            whole = sum(
                self.problem.option_of[key].gpus * count for key, count in node.runs.items() if self._whole(key)
            )
            if whole:
                layouts[WHOLE] += whole
            yield NodeGroup(node.pool.key, span, dict(layouts), dict(node.runs))
            place += span

    def _whole(self, key: str) -> bool:
        return self.problem.option_of[key].partition == WHOLE

    def _layout(self, pool: PoolSpec, gpu: Counter[str]) -> str:
        return next(layout.name for layout in pool.layouts if _holds(layout, gpu))


def _holds(layout: GpuLayout, wanted: Mapping[str, int]) -> bool:
    return all(layout.profiles.get(name, 0) >= count for name, count in wanted.items())
