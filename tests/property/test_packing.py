"""Packing against an exhaustive search, against first-fit decreasing, and against its own placement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from packing_helpers import MENU, WHOLE_GPU, check, option, pool
from rightslice.catalogue.hardware import WHOLE
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, PoolSpec, Problem
from rightslice.packing.solve import solve

KINDS = ((WHOLE, 1), (WHOLE, 2), (WHOLE, 4), ("3g", 1), ("1g", 1))


@st.composite
def problems(draw: st.DrawFn, models: int, largest: int, *, limited: bool) -> Problem:
    """A few pools and models; `largest`: most replicas that one option can be asked for."""
    pools = []
    for index in range(draw(st.integers(1, 3))):
        layouts = draw(st.sampled_from([(WHOLE_GPU,), MENU, MENU[2:]]))
        usd = draw(st.sampled_from([0.0, 1.0, 1.3, 2.0, 3.7])) if index else draw(st.sampled_from([1.0, 1.7]))
        gpus = draw(st.sampled_from([1, 2, 3, 4]))
        most = draw(st.sampled_from([None, 1, 2])) if limited or usd == 0 else None
        if usd == 0 and most is None:
            most = 1
        marks = ("quota",) if limited and draw(st.booleans()) else ()
        accelerator = draw(st.sampled_from(["A", "B"]))
        usd = round(usd * gpus * draw(st.sampled_from([0.9, 1.0, 1.1])), 3)
        pools.append(
            pool(f"p{index}", gpus, usd, accelerator=accelerator, layouts=layouts, max_nodes=most, limits=marks)
        )
    options: list[OptionSpec] = []
    demands = []
    for index in range(draw(st.integers(1, models))):
        rate = draw(st.sampled_from([0.0, 1.0, 1.5]))
        spare = draw(st.booleans())
        demands.append(Demand(f"m{index}", rate, draw(st.integers(1, 2)), spare, draw(st.integers(1, 2))))
        chosen = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True))
        for (partition, gpus), accelerator in itertools.product(chosen, ("A", "B")):
            each = draw(st.sampled_from([rate / largest, rate / largest * 1.5, rate, rate * 2])) if rate else 0.0
            node_gpus = draw(st.sampled_from([0, 1])) if partition == WHOLE else 0
            options.append(
                option(f"m{index}", partition, each, gpus=gpus, accelerator=accelerator, node_gpus=node_gpus)
            )
    limits = {"quota": draw(st.integers(1, 6))} if limited else {}
    return Problem(tuple(pools), tuple(options), tuple(demands), limits)


@dataclass
class Node:
    """One node of the exhaustive search: per GPU None, "" (taken whole) or (layout, free slots)."""

    spec: PoolSpec
    gpus: list[str | tuple[GpuLayout, dict[str, int]] | None]
    models: set[str] = field(default_factory=set)

    def state(self) -> str:
        kinds = sorted(f"{g[0].name}{sorted(g[1].items())}" if isinstance(g, tuple) else str(g) for g in self.gpus)
        return f"{self.spec.key}{kinds}{sorted(self.models)}"


class Exhaustive:
    """Cheapest placement of a fixed list of replicas by trying everything."""

    def __init__(self, problem: Problem, replicas: list[OptionSpec], best: float) -> None:
        self.problem = problem
        self.replicas = sorted(replicas, key=lambda o: (-o.gpus, o.partition, o.key))
        self.best = best
        self.seen: set[str] = set()

    def run(self) -> float:
        self._next(0, [], 0.0, ())
        return self.best

    def _next(self, index: int, nodes: list[Node], cost: float, firsts: tuple[tuple[str, int], ...]) -> None:
        if cost >= self.best - 1e-9:
            return
        if index == len(self.replicas):
            for demand in self.problem.demands:
                homes = {home for model, home in firsts if model == demand.model}
                if demand.min_nodes > 1 and len(homes) < demand.min_nodes:
                    return
            self.best = cost
            return
        kept = sorted((model, nodes[home].state()) for model, home in firsts)
        key = f"{index}|{sorted(node.state() for node in nodes)}|{kept}|{cost:.6f}"
        if key in self.seen:
            return
        self.seen.add(key)
        replica = self.replicas[index]
        for used, added, price in self._moves(replica, nodes):
            self._next(index + 1, used, cost + price, (*firsts, (replica.model, added)))

    def _moves(self, replica: OptionSpec, nodes: list[Node]) -> Iterator[tuple[list[Node], int, float]]:
        for position, node in enumerate(nodes):
            if replica.runs_in(node.spec):
                for changed in fill(node, replica):
                    yield [*nodes[:position], changed, *nodes[position + 1 :]], position, 0.0
        for spec in self.problem.pools:
            if not replica.runs_in(spec):
                continue
            count = max(1, replica.gpus // spec.gpus_per_node)
            fresh = [Node(spec, [None] * spec.gpus_per_node) for _ in range(count)]
            if not self._allowed([*nodes, *fresh]):
                continue
            if replica.gpus > spec.gpus_per_node:
                taken = [Node(spec, [""] * spec.gpus_per_node, {replica.model}) for _ in range(count)]
                yield [*nodes, *taken], len(nodes), spec.usd_per_hour * count
                continue
            for changed in fill(fresh[0], replica):
                yield [*nodes, changed], len(nodes), spec.usd_per_hour

    def _allowed(self, nodes: list[Node]) -> bool:
        for spec in self.problem.pools:
            if spec.max_nodes is not None and sum(n.spec is spec for n in nodes) > spec.max_nodes:
                return False
        return all(
            sum(n.spec.gpus_per_node for n in nodes if key in n.spec.limits) <= most
            for key, most in self.problem.limits.items()
        )


def fill(node: Node, replica: OptionSpec) -> Iterator[Node]:
    """Every different way to put one replica into one node."""
    models = node.models | {replica.model}
    if replica.partition == WHOLE:
        free = [i for i, gpu in enumerate(node.gpus) if gpu is None]
        if len(free) >= replica.gpus and any(WHOLE in layout.profiles for layout in node.spec.layouts):
            gpus = list(node.gpus)
            for i in free[: replica.gpus]:
                gpus[i] = ""
            yield Node(node.spec, gpus, models)
        return
    opened = False
    for i, gpu in enumerate(node.gpus):
        if isinstance(gpu, tuple) and gpu[1].get(replica.partition):
            left = {**gpu[1], replica.partition: gpu[1][replica.partition] - 1}
            yield Node(node.spec, [*node.gpus[:i], (gpu[0], left), *node.gpus[i + 1 :]], models)
        elif gpu is None and not opened:
            opened = True
            for layout in node.spec.layouts:
                if layout.profiles.get(replica.partition):
                    left = {**layout.profiles, replica.partition: layout.profiles[replica.partition] - 1}
                    yield Node(node.spec, [*node.gpus[:i], (layout, left), *node.gpus[i + 1 :]], models)


def brute_force(problem: Problem) -> float:
    """Cheapest cost over every list of replicas that carries the demands; infinity when there is none."""
    choices = [list(covers(problem, demand)) for demand in problem.demands]
    best = math.inf
    for chosen in itertools.product(*choices):
        best = Exhaustive(problem, [o for replicas in chosen for o in replicas], best).run()
    return best


def covers(problem: Problem, demand: Demand) -> Iterator[tuple[OptionSpec, ...]]:
    """Every list of replicas that carries one demand and holds no replica for nothing."""
    options = [o for o in problem.options if o.model == demand.model and any(o.runs_in(p) for p in problem.pools)]

    def enough(replicas: tuple[OptionSpec, ...]) -> bool:
        rates = sorted(o.requests_per_s for o in replicas)
        left = rates[:-1] if demand.spare else rates
        floor = max(demand.min_replicas, 2 if demand.spare else 0, demand.min_nodes if demand.min_nodes > 1 else 0)
        return len(replicas) >= floor and sum(left) >= demand.requests_per_s - 1e-9

    spare_nodes = max(demand.min_nodes - 1, 0)  # replicas beyond what the rate needs can only serve `min_nodes`
    for count in range(6):
        for replicas in itertools.combinations_with_replacement(options, count):
            if enough(replicas) and not any(
                map(enough, itertools.combinations(replicas, max(count - 1 - spare_nodes, 0)))
            ):
                yield replicas


@settings(max_examples=150)
@given(problems(models=2, largest=2, limited=True))
def test_equals_exhaustive_search_and_is_realised(problem: Problem) -> None:
    found = solve(problem)
    best = brute_force(problem)
    if math.isinf(best):
        assert found.status == "infeasible"
        assert found.binding
        return
    assert found.status == "optimal"
    check(problem, found)
    assert abs(found.usd_per_hour - best) < 1e-6
    assert found.bound_usd_per_hour <= best + 1e-6


@settings(max_examples=60)
@given(problems(models=6, largest=5, limited=False))
def test_never_dearer_than_first_fit_decreasing(problem: Problem) -> None:
    found = solve(problem)
    assert found.usd_per_hour <= first_fit_decreasing(problem) + 1e-6
    if found.status != "infeasible":
        check(problem, found)


def first_fit_decreasing(problem: Problem) -> float:
    """Per model the best option by price per request; the largest replica first, into the first node with room."""
    replicas: list[OptionSpec] = []
    for demand in problem.demands:
        priced = [(o, p) for o in problem.options if o.model == demand.model for p in problem.pools if buyable(o, p)]
        if not priced:
            return math.inf
        best, _ = min(priced, key=lambda e: (price(*e) / (e[0].requests_per_s or 1.0), e[0].key))
        load = math.ceil(demand.requests_per_s / best.requests_per_s - 1e-9) if demand.requests_per_s else 1
        replicas += [best] * max(demand.min_replicas, demand.min_nodes, load + demand.spare)
    nodes: list[Node] = []
    cost = 0.0
    for replica in sorted(replicas, key=lambda o: (-o.gpus, o.partition, o.key)):
        for position, node in enumerate(nodes):
            changed = next(fill(node, replica), None) if replica.runs_in(node.spec) else None
            if changed and replica.model not in node.models:
                nodes[position] = changed
                break
        else:
            spec = min((p for p in problem.pools if buyable(replica, p)), key=lambda p: (price(replica, p), p.key))
            cost += price(replica, spec)
            if replica.gpus > spec.gpus_per_node:
                continue
            nodes.append(next(fill(Node(spec, [None] * spec.gpus_per_node), replica)))
    return cost


def buyable(replica: OptionSpec, spec: PoolSpec) -> bool:
    return spec.max_nodes is None and replica.runs_in(spec)


def price(replica: OptionSpec, spec: PoolSpec) -> float:
    return math.ceil(replica.gpus / spec.gpus_per_node) * spec.usd_per_hour
