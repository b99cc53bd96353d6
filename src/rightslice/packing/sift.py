"""Tens of thousands of sharing groups: the relaxation over all of them, and the few that an answer needs.

The relaxation's value is a bound for the whole problem, and a group's reduced cost says by how much any packing that
uses it must lie above it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rightslice.packing.columns import Block, Model
from rightslice.packing.model import build
from rightslice.packing.problem import Problem
from rightslice.packing.solver import sifted

FEW = 600
"""So many group columns are solved as they are; of more, so many are kept."""
FIRST_PER_MODEL = 10
"""Columns per model to begin with: those that carry most of it."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """The problem with the promising groups. `bound_usd_per_hour` counts today's layouts at their penalty.

    No packing that uses a left-out group costs less than the bound plus `margin_usd_per_hour`.
    """

    problem: Problem
    bound_usd_per_hour: float = 0.0
    margin_usd_per_hour: float = float("inf")


def sift(problem: Problem) -> Sifted:
    """Keep the groups of least reduced cost; the problem as it is where there are few, or nothing is feasible."""
    if len(problem.groups) <= FEW:
        return Sifted(problem)
    model = build(problem, [Block(pool, pool.max_nodes) for pool in problem.pools], relaxed=True)
    columns = np.array(list(model.groups.values()), dtype=np.int64)
    found = sifted(model.program, columns, _first(problem, model))
    if found is None:
        return Sifted(problem)
    bound, reduced = found
    least: dict[str, float] = {}
    for (_, key), column in model.groups.items():
        least[key] = min(float(reduced[column]), least.get(key, np.inf))
    today = {name for _, name in problem.current}
    ranked = sorted(least, key=lambda key: (key not in today, least[key], key))
    kept = set(ranked[:FEW])
    margin = min((max(least[key], 0.0) for key in ranked[FEW:]), default=np.inf)
    groups = tuple(group for group in problem.groups if group.key in kept)
    return Sifted(replace(problem, groups=groups), bound, margin)


def _first(problem: Problem, model: Model) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The columns that carry most of each model in each pool."""
    demand = {d.model: d.requests_per_s for d in problem.demands}
    best: dict[tuple[int, str], list[tuple[float, int]]] = {}
    for (block, key), column in model.groups.items():
        rates: dict[str, float] = {}
        for client in problem.group_of[key].clients:
            rates[client.model] = rates.get(client.model, 0.0) + client.requests_per_s
        total = sum(rate / demand[name] for name, rate in rates.items() if demand.get(name))
        for name in rates:
            best.setdefault((block, name), []).append((-total, column))
    chosen = {column for ranked in best.values() for _, column in sorted(ranked)[:FIRST_PER_MODEL]}
    return np.array(sorted(chosen), dtype=np.int64)
