"""The cheapest packing of a problem, the bound below it, and, when there is none, what stands in the way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rightslice.catalogue.hardware import WHOLE
from rightslice.packing import solver
from rightslice.packing.changes import changed_gpus
from rightslice.packing.columns import Block, Model
from rightslice.packing.covers import with_covers
from rightslice.packing.first_fit import first_fit
from rightslice.packing.model import build
from rightslice.packing.packing import NodeGroup, Packing
from rightslice.packing.place import node_spread, place
from rightslice.packing.problem import Demand, PoolSpec, Problem
from rightslice.packing.reduce import Reduced, cheapest_homes, reduce
from rightslice.packing.sift import Sifted, sift
from rightslice.packing.solver import INFINITY, Effort, Program, Solution

TIE_EFFORT = Effort(nodes=50)
"""The second objective only chooses among equally cheap packings; it is not worth a long search."""
PATIENCE = 50
"""Times as many nodes when a solve stops empty-handed."""
SINGLE_NODES = 8
ROUNDS = 6
"""At most so many nodes of a pool are looked at one by one, and at most so many times."""


@dataclass(frozen=True, slots=True)
class _Split:
    """Pools whose first nodes are looked at one by one; `strict`: all other nodes of a pool count as one."""

    single: Mapping[str, int] = field(default_factory=dict)
    strict: bool = False

    def blocks(self, problem: Problem) -> list[Block]:
        """One block per pool, and one per single node."""
        blocks: list[Block] = []
        for pool in problem.pools:
            alone = self.single.get(pool.key, 0)
            blocks += [Block(pool, 1)] * alone
            rest = None if pool.max_nodes is None else pool.max_nodes - alone
            if rest is None or rest > 0:
                blocks.append(Block(pool, rest, 1 if alone or self.strict else None))
        return blocks


def solve(problem: Problem, effort: Effort | None = None) -> Packing:
    """The cheapest nodes, layouts and replicas that carry every demand, with a proven lower bound.

    Among equally cheap packings: fewest nodes, then fewest GPUs in MIG mode, then earlier options. Deterministic. The
    program counts nodes and does not name them; when a model's replicas cannot be placed on `min_nodes` nodes, the
    pools concerned are solved again node by node. Never dearer than `first_fit`. Raises SolverError when the solver
    fails or finds nothing.
    """
    if not any(_floor(demand) for demand in problem.demands):
        return Packing("empty", 0.0, 0.0, {}, {}, {})
    reduced = reduce(problem)
    lost = _without_option(reduced.problem)
    if lost:
        return replace(_infeasible(tuple(f"model:{name}" for name in lost)), reasons=_too_large(problem, lost))
    sifted = sift(reduced.problem)
    packing = _optimum(problem, replace(reduced, problem=sifted.problem), _Split(), effort)
    if packing.status == "infeasible":
        return _diagnosed(reduced, effort)
    packing = _with_bound_of(sifted, problem, packing, effort)
    crowded = _crowded(problem, packing)
    if crowded:
        packing = _apart(replace(problem, groups=sifted.problem.groups), packing, crowded, effort)
    return replace(packing, changed_gpus=changed_gpus(problem, packing))


def _with_bound_of(sifted: Sifted, problem: Problem, packing: Packing, effort: Effort | None) -> Packing:
    """Count the groups that were left out: they cost the relaxation's value and their margin at least.

    With today's layouts counted the margin says nothing about the price alone.
    """
    if len(sifted.problem.groups) == len(problem.groups):
        return packing
    margin = 0.0 if problem.current else sifted.margin_usd_per_hour
    bound = max(sifted.bound_usd_per_hour, min(packing.bound_usd_per_hour, sifted.bound_usd_per_hour + margin))
    bound = min(bound, packing.usd_per_hour)
    near = packing.usd_per_hour - bound <= (effort or Effort()).relative_gap * packing.usd_per_hour + 1e-6
    return replace(packing, bound_usd_per_hour=bound, status=packing.status if near else "stopped")


def _too_large(problem: Problem, models: Sequence[str]) -> dict[str, str]:
    """Why a model that has options runs nowhere, where the size of the nodes is the reason."""
    reasons = {}
    for model in models:
        sizes = [o.node_gpus or o.gpus for o in problem.options if o.model == model]
        names = {o.accelerator for o in problem.options if o.model == model}
        largest = max((p.gpus_per_node for p in problem.pools if p.accelerator in names), default=0)
        if sizes and largest and min(sizes) > largest:
            reasons[model] = f"needs {min(sizes)} GPUs in one node; the largest node has {largest}"
    return reasons


def _apart(problem: Problem, relaxed: Packing, crowded: list[Demand], effort: Effort | None) -> Packing:
    """Solve again with the nodes of crowded pools named; the relaxed packing's bound stays a bound."""
    reduced = reduce(problem, merge=False)
    single: dict[str, int] = {}
    packing, found = relaxed, crowded
    for _ in range(ROUNDS):
        single |= _to_single(packing, found, problem)
        packing = _optimum(problem, reduced, _Split(single), effort)
        if packing.status == "infeasible":
            break
        found = _crowded(problem, packing)
        if not found:
            break
    if found:
        packing = _optimum(problem, reduced, _Split(single, strict=True), effort)
    if packing.status == "infeasible":
        return _infeasible(tuple(f"model:{demand.model}" for demand in crowded))
    return replace(packing, bound_usd_per_hour=min(relaxed.bound_usd_per_hour, packing.usd_per_hour))


def _without_option(problem: Problem) -> list[str]:
    served = {option.model for option in problem.options} | problem.shared_models
    return [demand.model for demand in problem.demands if demand.model not in served and _floor(demand)]


def _floor(demand: Demand) -> bool:
    return demand.requests_per_s > 0 or demand.min_replicas > 0 or demand.spare


def _optimum(problem: Problem, reduced: Reduced, split: _Split, effort: Effort | None) -> Packing:
    """Solve for money, then for the second objective among what costs no more."""
    named = bool(split.single) or split.strict
    lean = reduced.problem if named or problem.current else cheapest_homes(reduced.problem)
    model = build(lean, split.blocks(lean))
    program = with_covers(model, lean)
    start = None if named else _first_fit_start(model, lean)
    cheapest = _first_solution(program, effort or Effort(), start)
    if cheapest.values is None:
        return _infeasible(())
    values = _rounded(model, cheapest.values)
    bound, shadow = _proven(model, program, cheapest.bound)
    status = cheapest.status
    cost = float(model.program.cost @ values)
    full = model if lean is reduced.problem else build(reduced.problem, split.blocks(reduced.problem))
    known = full.start(model, values)
    tied = full.program.without(full.unused(known)).with_row("budget", full.program.cost, -INFINITY, cost + 1e-9 * cost)
    neatest = solver.solve(replace(tied, cost=full.tie_cost), TIE_EFFORT, known)
    if neatest.values is not None:
        model, values = full, _rounded(full, neatest.values)
    packing = _packing(problem, reduced, model, values)
    bound = min(max(bound, 0.0), packing.usd_per_hour)
    return replace(packing, status=status, bound_usd_per_hour=bound, shadow_usd_per_hour=shadow)


def _first_fit_start(model: Model, problem: Problem) -> dict[int, float] | None:
    """The counts of a first-fit packing as columns: a point that the search cannot end above."""
    found = first_fit(problem)
    if found is None:
        return None
    counts = found.packing
    start = {
        column: float(counts.nodes.get(block.pool.key, 0))
        for block, column in zip(model.blocks, model.nodes, strict=True)
    }
    for columns, used in ((model.layouts, counts.layouts), (model.replicas, counts.replicas)):
        for (block, name), column in columns.items():
            start[column] = float(used.get((model.blocks[block].pool.key, name), 0))
    return start | dict.fromkeys(model.groups.values(), 0.0)


def _proven(model: Model, program: Program, bound: float) -> tuple[float, dict[str, float]]:
    """The bound on the price alone, and what one more GPU of each limit saves, both by the relaxation's duals."""
    priced = replace(program, cost=model.money)
    relaxed = solver.relaxation(priced)
    if relaxed is None:
        return bound, {}
    objective, _, duals = relaxed
    shadow = {
        name: -dual
        for name, dual in zip(program.row_names, duals.tolist(), strict=True)
        if name.startswith(("limit:", "pool:")) and dual < -1e-9
    }
    reduced = priced.reduced_costs(duals)
    for block, column in zip(model.blocks, model.nodes, strict=True):
        if block.max_nodes is not None and reduced[column] < -1e-9 and program.upper[column] == block.max_nodes:
            shadow[f"pool:{block.pool.key}"] = -float(reduced[column]) / block.pool.gpus_per_node
    return objective if model.changes else bound, shadow


def _first_solution(program: Program, effort: Effort, start: Mapping[int, float] | None) -> Solution:
    """Solve; when the count limit comes before any packing is found, look longer. No values: there is none."""
    found = solver.solve(program, effort, start)
    if found.status == "stopped" and found.values is None:
        longer = replace(effort, nodes=PATIENCE * max(effort.nodes, 1))
        found = solver.solve(program, longer, start)
        if found.status == "stopped" and found.values is None:
            raise solver.SolverError(f"no packing found in {longer.nodes} nodes, and none excluded")
    return found


def _rounded(model: Model, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole columns to whole numbers; refuses a point that is not one."""
    program = model.program
    rounded = np.where(program.whole, np.round(values), values)
    violation = program.violation(rounded)
    if violation > 1e-5:
        raise solver.SolverError(f"its answer breaks a row by {violation:.2g}")
    return rounded


def _packing(problem: Problem, reduced: Reduced, model: Model, values: NDArray[np.float64]) -> Packing:
    groups = _groups(reduced, model, values)
    nodes: dict[str, int] = {}
    layouts: dict[tuple[str, str], int] = {}
    replicas: dict[tuple[str, str], int] = {}
    for group in groups:
        nodes[group.pool] = nodes.get(group.pool, 0) + group.nodes
        for name, count in group.layouts.items():
            layouts[group.pool, name] = layouts.get((group.pool, name), 0) + count
        for key, count in group.replicas.items():
            replicas[group.pool, key] = replicas.get((group.pool, key), 0) + count
    cost = math.fsum(problem.pool_of[pool].usd_per_hour * count for pool, count in nodes.items())
    return Packing(
        status="optimal",
        usd_per_hour=cost,
        bound_usd_per_hour=cost,
        nodes=dict(sorted(nodes.items())),
        layouts=dict(sorted(layouts.items())),
        replicas=dict(sorted(replicas.items())),
        groups=groups,
    )


def _groups(reduced: Reduced, model: Model, values: NDArray[np.float64]) -> tuple[NodeGroup, ...]:
    """The counts of each block, with merged demands given back to their models."""
    count_of = {column: round(value) for column, value in enumerate(values) if model.program.whole[column]}
    owed = {name: dict(members) for name, members in reduced.members.items()}
    groups = []
    for index, block in enumerate(model.blocks):
        pool = block.pool
        if not count_of[model.nodes[index]]:
            continue
        runs: dict[str, int] = {}
        for option in reduced.problem.options:
            count = count_of.get(model.replicas.get((index, option.key), -1), 0)
            for key, part in _shared_out(reduced, owed, option.model, option.key, count):
                runs[key] = runs.get(key, 0) + part
        shared = {key: count_of[column] for (where, key), column in model.groups.items() if where == index}
        for key, gpus in shared.items():
            for client in reduced.problem.group_of[key].clients if gpus else ():
                runs[client.option] = runs.get(client.option, 0) + gpus
        layouts = {
            layout.name: count_of[model.layouts[index, layout.name]]
            for layout in pool.layouts
            if (index, layout.name) in model.layouts and count_of[model.layouts[index, layout.name]]
        }
        layouts |= {key: gpus for key, gpus in sorted(shared.items()) if gpus}
        layouts |= _whole_layout(reduced.problem, pool, index, model, count_of)
        groups.append(NodeGroup(pool.key, count_of[model.nodes[index]], layouts, runs))
    return tuple(sorted(groups, key=lambda group: group.pool))


def _whole_layout(
    problem: Problem, pool: PoolSpec, index: int, model: Model, count_of: Mapping[int, int]
) -> dict[str, int]:
    gpus = sum(
        option.gpus * count_of[model.replicas[index, option.key]]
        for option in problem.options
        if option.partition == WHOLE and (index, option.key) in model.replicas
    )
    name = next((layout.name for layout in pool.layouts if WHOLE in layout.profiles), WHOLE)
    return {name: gpus} if gpus else {}


def _shared_out(
    reduced: Reduced, owed: Mapping[str, dict[str, int]], demand: str, option: str, count: int
) -> Iterable[tuple[str, int]]:
    """Give `count` replicas of a merged demand to its models in order, each as many as it still needs."""
    if demand not in owed:
        return [(option, count)] if count else []
    shares = []
    for model, missing in owed[demand].items():
        part = min(missing, count)
        if part:
            owed[demand][model] -= part
            count -= part
            shares.append((reduced.own_option[model, option], part))
    return shares


def _crowded(problem: Problem, packing: Packing) -> list[Demand]:
    """Demands whose replicas sit on fewer nodes than they ask for."""
    wanted = [demand for demand in problem.demands if demand.min_nodes > 1]
    if not wanted or not packing.nodes:
        return []
    spread = node_spread(problem, place(problem, packing))
    return [demand for demand in wanted if spread.get(demand.model, 0) < demand.min_nodes]


def _to_single(packing: Packing, crowded: Sequence[Demand], problem: Problem) -> dict[str, int]:
    """The pools that hold crowded models, with how many nodes to look at one by one: those that are not taken whole."""
    models = {demand.model for demand in crowded}
    fewest = max(demand.min_nodes for demand in crowded)
    single = {}
    for key in sorted({pool for pool, option in packing.replicas if problem.option_of[option].model in models}):
        pool = problem.pool_of[key]
        across = sum(
            count * (problem.option_of[option].gpus // pool.gpus_per_node)
            for (where, option), count in packing.replicas.items()
            if where == key and problem.option_of[option].gpus > pool.gpus_per_node
        )
        wanted = min(SINGLE_NODES, max(packing.nodes[key] - across + 1, fewest))
        single[key] = wanted if pool.max_nodes is None else min(wanted, pool.max_nodes - across)
    return single


def _infeasible(binding: tuple[str, ...], shortfall: Mapping[str, int] | None = None) -> Packing:
    return Packing("infeasible", INFINITY, INFINITY, {}, {}, {}, binding, shortfall or {})


def _diagnosed(reduced: Reduced, effort: Effort | None) -> Packing:
    """Let limits and pool sizes be exceeded by as few GPUs as possible: what is exceeded is what binds.

    The models named are those that cannot be met even alone; when each one can, all that share what binds.
    """
    problem = reduced.problem
    model = build(problem, _Split().blocks(problem), elastic=True)
    solution = solver.solve(model.program, effort)
    shortfall: dict[str, int] = {}
    if solution.values is not None:
        shortfall = {
            name: math.ceil(solution.values[column] - 1e-6)
            for name, column in model.excess.items()
            if solution.values[column] > 1e-6
        }
    alone = []
    for demand in problem.demands:
        single = replace(
            problem,
            options=tuple(o for o in problem.options if o.model == demand.model),
            demands=(demand,),
            groups=tuple(g for g in problem.groups if any(c.model == demand.model for c in g.clients)),
        )
        if solver.solve(build(single, _Split().blocks(single)).program, effort).status == "infeasible":
            alone.append(demand.model)
    blamed = alone or [demand.model for demand in problem.demands]
    models = [member for name in blamed for member in _members(reduced, name)]
    return _infeasible((*(f"model:{name}" for name in models), *shortfall), shortfall)


def _members(reduced: Reduced, demand: str) -> list[str]:
    return [model for model, _ in reduced.members.get(demand, ((demand, 0),))]
