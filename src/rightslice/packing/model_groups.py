"""What shared GPUs and today's layouts add to the integer program: shares of demand per group, and changes counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rightslice.catalogue.hardware import WHOLE
from rightslice.packing.problem import Demand, Problem, SharingGroup
from rightslice.packing.solver import Builder

MOST_LEVELS = 16
LEVEL_RATIO = 2.0**0.25
"""The spare for a shared GPU is counted exactly up to so many different rates of a model, else rounded up to a step."""


def replicas_alone(demand: Demand, requests_per_s: float) -> int:
    """Replicas that `demand` needs when each gives `requests_per_s`: ceil(rate / rate of one), spare and floors."""
    load = 0
    if demand.requests_per_s > 0:
        load = math.ceil(demand.requests_per_s / requests_per_s - 1e-9)
    spare = 1 if demand.spare else 0
    return max(demand.min_replicas, demand.min_nodes if demand.min_nodes > 1 else 0, max(load, spare) + spare)


@dataclass(frozen=True, slots=True)
class Part:
    """What one GPU of a group gives one model: replicas, and their share of its demand, at most 1.

    `fewest`: replicas that the model needs if all were as fast as its fastest here.
    """

    model: str
    replicas: int
    share: float
    fewest: int


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A group as the program sees it. `most`: GPUs beyond which every model of it is served."""

    group: SharingGroup
    parts: tuple[Part, ...]
    most: int


Tenant = tuple[int, int, Part]
"""Block, column of the group, what it gives."""


def tenancies(problem: Problem) -> tuple[Tenancy, ...]:
    """Every group of the problem; clients that nobody demands are left out."""
    demand_of = {demand.model: demand for demand in problem.demands}
    return tuple(_tenancy(group, demand_of) for group in problem.groups)


def _tenancy(group: SharingGroup, demand_of: Mapping[str, Demand]) -> Tenancy:
    rates: dict[str, list[float]] = {}
    for client in group.clients:
        rates.setdefault(client.model, []).append(client.requests_per_s)
    demands = {model: demand_of[model] for model in rates if model in demand_of}
    parts = tuple(_part(demand, rates[model]) for model, demand in demands.items())
    most = max((_gpus_alone(demand, rates[model]) for model, demand in demands.items()), default=0)
    return Tenancy(group, parts, most)


def _part(demand: Demand, rates: list[float]) -> Part:
    share = min(sum(rates) / demand.requests_per_s, 1.0) if demand.requests_per_s > 0 else 0.0
    return Part(demand.model, len(rates), share, replicas_alone(demand, max(rates)))


def _gpus_alone(demand: Demand, rates: list[float]) -> int:
    """GPUs of one group that serve all of the demand: by rate, with one GPU lost, and for its floors."""
    load = math.ceil(demand.requests_per_s / sum(rates) - 1e-9) if demand.requests_per_s > 0 else 0
    return max(
        demand.min_replicas, demand.min_nodes if demand.min_nodes > 1 else 0, max(load, 1) + 1 if demand.spare else load
    )


def levels(shares: Iterable[float], *, down: bool) -> dict[float, float]:
    """Share of a shared GPU -> the share that a spare makes up for: itself, or the next step where there are many."""
    distinct = sorted(set(shares))
    if len(distinct) <= MOST_LEVELS:
        return {share: share for share in distinct}
    top = distinct[-1]

    def step(share: float) -> float:
        power = math.log(top / share, LEVEL_RATIO)
        return top * LEVEL_RATIO ** -(math.ceil(power - 1e-9) if down else math.floor(power + 1e-9))

    return {share: step(share) for share in distinct}


def change_rows(
    problem: Problem, builder: Builder, cuts: Mapping[tuple[str, str], list[tuple[int, float]]]
) -> list[int]:
    """new >= GPUs with a layout - GPUs that have it today, at the penalty each; the columns of `new`.

    `cuts`: (pool, layout) -> its GPUs as columns with coefficients. An undivided GPU is new
    only where today's GPUs are divided or shared.
    """
    changes = []
    divided = {pool for (pool, name), gpus in problem.current.items() if name != WHOLE and gpus}
    for (pool, name), terms in sorted(cuts.items()):
        if name == WHOLE and pool not in divided:
            continue
        cost = problem.change_penalty * problem.pool_of[pool].usd_per_gpu_hour
        new = builder.column(f"new.{pool}.{name}", cost, whole=False)
        changes.append(new)
        today = float(problem.current.get((pool, name), 0))
        builder.row(f"new.{pool}.{name}", [(new, 1.0), *((column, -value) for column, value in terms)], -today)
    return changes
