"""Sharing groups and their pools without those that another one replaces at no loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rightslice.packing.problem import PoolSpec, Problem, SharingGroup

Tenants = tuple[tuple[str, str], ...]
"""(option, model) of every client, sorted."""


def useful_groups(problem: Problem) -> tuple[SharingGroup, ...]:
    """The groups that can be in a cheapest packing.

    Left out: groups with a client that carries nothing or that nobody demands, groups without a pool, and groups to
    which a client can be added so that nobody gets slower.
    """
    rates = {demand.model: demand.requests_per_s for demand in problem.demands}
    shared = [pool for pool in problem.pools if pool.sharing]
    homes = {(pool.accelerator, pool.sharing) for pool in shared}
    names = {pool.key for pool in shared}
    served = [
        group
        for group in problem.groups
        if (group.accelerator, group.mode) in homes
        and (group.pools is None or group.pools & names)
        and all(c.model in rates and (c.requests_per_s > 0 or rates[c.model] <= 0) for c in group.clients)
    ]
    spared = {demand.model for demand in problem.demands if demand.spare}
    dominated = _dominated(served, spared) - {name for _, name in problem.current}
    return tuple(group for group in served if group.key not in dominated)


def _dominated(groups: Iterable[SharingGroup], spared: set[str]) -> set[str]:
    """Groups within another one that has one client more and serves each of theirs as fast.

    The client more must not be of a model with a spare: for it, another group in use can be a larger loss.
    """
    known: dict[tuple[str, str, frozenset[str] | None, Tenants], SharingGroup] = {}
    for group in groups:
        known[group.accelerator, group.mode, group.pools, _tenants(group)] = group
    lost: set[str] = set()
    for (accelerator, mode, pools, tenants), larger in known.items():
        for place, (_, model) in enumerate(tenants):
            if model in spared or (place and tenants[place] == tenants[place - 1]):
                continue
            smaller = known.get((accelerator, mode, pools, tenants[:place] + tenants[place + 1 :]))
            if smaller and _as_fast(larger, smaller, model):
                lost.add(smaller.key)
    return lost


def _tenants(group: SharingGroup) -> Tenants:
    return tuple(sorted((client.option, client.model) for client in group.clients))


def _as_fast(larger: SharingGroup, smaller: SharingGroup, added: str) -> bool:
    """Whether every model of `smaller` gets as many requests/s in `larger`, the added one for its other replicas."""
    more, less = _rates(larger), _rates(smaller)
    return all(more[model] >= rate for model, rate in less.items()) and added in more


def _rates(group: SharingGroup) -> Mapping[str, float]:
    rates: dict[str, float] = {}
    for client in group.clients:
        rates[client.model] = rates.get(client.model, 0.0) + client.requests_per_s
    return rates


def cheapest_shared_pools(problem: Problem, groups: Iterable[SharingGroup]) -> tuple[PoolSpec, ...]:
    """The shared pools that carry a group, without those that an unlimited one replaces GPU for GPU at no higher price.

    Pools of today's plan stay.
    """
    hosted = Counter(key for group in groups for key in _named(group, problem))
    wanted = [pool for pool in problem.pools if pool.sharing and hosted[pool.key]]
    today = {pool for pool, _ in problem.current}
    kept: list[PoolSpec] = []
    for pool in sorted(wanted, key=lambda p: (p.usd_per_gpu_hour, p.gpus_per_node)):
        rivals = [rival for rival in kept if _stands_for(rival, pool)]
        restricted = any(pool.key in group.pools for group in groups if group.pools is not None)
        if pool.key in today or restricted or not rivals:
            kept.append(pool)
    order = {pool.key: place for place, pool in enumerate(wanted)}
    return tuple(sorted(kept, key=lambda pool: order[pool.key]))


def _named(group: SharingGroup, problem: Problem) -> Iterable[str]:
    return (pool.key for pool in problem.pools if group.runs_in(pool))


def _stands_for(rival: PoolSpec, pool: PoolSpec) -> bool:
    """Whether nodes of `rival` can always take the place of one of `pool`."""
    return (
        rival.max_nodes is None
        and (rival.accelerator, rival.sharing) == (pool.accelerator, pool.sharing)
        and pool.gpus_per_node % rival.gpus_per_node == 0
        and set(rival.limits) <= set(pool.limits)
    )
