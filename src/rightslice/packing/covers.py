"""Rows that every packing meets anyway and that bring the bound close to the answer before any branching.

The linear relaxation buys 1.3 replicas where 2 are needed. For given prices of GPUs and slices, the cheapest whole
number of replicas that carries one demand is a small knapsack; its value bounds what the demand's replicas may use up.
With the relaxation's own prices (its duals) this row cuts the relaxation's answer off: a Lagrangian cut.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rightslice.packing.columns import Model
from rightslice.packing.problem import Demand, OptionSpec, Problem
from rightslice.packing.solver import INFINITY, Program, relaxation

UNITS = 1000
"""A demand is counted in so many units of rate, each replica's rounded up, which keeps the rows valid."""
ROUNDS = 6
LEAST_GAIN = 1e-4
"""Stop when a round lifts the relaxation by a smaller share."""


def with_covers(model: Model, problem: Problem) -> Program:
    """The model's program with cover rows, round by round while they lift its relaxation.

    None for models that also run on shared GPUs, whose clients have no price of their own.
    """
    program = model.program
    options = {demand.model: [o for o in problem.options if o.model == demand.model] for demand in problem.demands}
    columns: dict[str, list[int]] = {}
    for (_, key), column in sorted(model.replicas.items()):
        columns.setdefault(key, []).append(column)
    before = -INFINITY
    for _ in range(ROUNDS):
        relaxed = relaxation(program)
        if relaxed is None:
            return program
        objective, values, duals = relaxed
        if objective - before <= LEAST_GAIN * abs(objective):
            return program
        before = objective
        prices = _prices(model, program, duals)
        for demand in problem.demands:
            served = [o for o in options[demand.model] if o.key in columns]
            if demand.requests_per_s <= 0 or not served or demand.model in problem.shared_models:
                continue
            mine = np.zeros(len(program.cost))
            for option in served:
                mine[columns[option.key]] = prices[columns[option.key]]
            least = _cheapest_cover(demand, served, [min(prices[columns[o.key]]) for o in served]) * (1.0 - 1e-9)
            if float(mine @ values) < least * (1.0 - 1e-6):
                program = program.with_row(f"cover.{demand.model}", mine, least, INFINITY)
    return program


def _prices(model: Model, program: Program, duals: NDArray[np.float64]) -> NDArray[np.float64]:
    """What one of each column pays for GPUs, slices and places at the relaxation's prices."""
    weights = np.zeros(len(program.row_lower))
    weights[list(model.resources)] = duals[list(model.resources)]
    prices = program.reduced_costs(weights) - program.cost
    return np.where(prices > 1e-9, prices, 0.0)


def _cheapest_cover(demand: Demand, options: list[OptionSpec], prices: list[float]) -> float:
    """Least price of whole replicas that carry the demand; with a spare, what remains without the largest does.

    An unbounded knapsack over rate in units, options by rising rate: after each one, it may be the largest in use.
    """
    sizes = [math.ceil(min(o.requests_per_s / demand.requests_per_s, 1.0) * UNITS - 1e-9) for o in options]
    top = UNITS + (max(sizes) if demand.spare else 0)
    cost = np.full(top + 1, np.inf)
    cost[0] = 0.0
    least = math.inf
    for index in sorted(range(len(options)), key=lambda i: sizes[i]):
        cost = _with_option(cost, sizes[index], prices[index])
        if demand.spare:
            least = min(least, float(cost[UNITS + sizes[index]]))
    return least if demand.spare else float(cost[UNITS])


def _with_option(cost: NDArray[np.float64], size: int, price: float) -> NDArray[np.float64]:
    """cost[t] = min over k of cost[max(t - k size, 0)] + k price, by running minima along strides of `size`."""
    rows = -(-(size + len(cost)) // size)
    padded = np.full(rows * size, np.inf)
    padded[:size] = 0.0
    padded[size : size + len(cost)] = cost
    steps = np.arange(rows)[:, None] * price
    best = np.minimum.accumulate(padded.reshape(rows, size) - steps, axis=0) + steps
    covered: NDArray[np.float64] = best.ravel()[size : size + len(cost)]
    return covered
