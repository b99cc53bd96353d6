"""Make a problem smaller without changing its cheapest answer: drop what is dominated, merge what is alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rightslice.catalogue.hardware import WHOLE
from rightslice.packing.model_groups import replicas_alone
from rightslice.packing.patterns import is_chain
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, PoolSpec, Problem
from rightslice.packing.reduce_groups import cheapest_shared_pools, useful_groups

Runs = Mapping[str, tuple[str, ...]]
"""Pool key -> keys of the options that run there, in the problem's order."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The smaller problem. `members`: merged demand -> its models with their replica counts.

    `own_option`: (model, option of the merged demand) -> the model's own option.
    """

    problem: Problem
    members: Mapping[str, tuple[tuple[str, int], ...]]
    own_option: Mapping[tuple[str, str], str]


def reduce(problem: Problem, *, merge: bool = True) -> Reduced:
    """Drop options, layouts and pools that another one replaces at no loss; merge demands that are exchangeable."""
    options = _usable(problem)
    runs = _runs(problem.pools, options)
    options = _best_options(problem, options, runs)
    kept = {option.key for option in options}
    runs = {pool: tuple(key for key in keys if key in kept) for pool, keys in runs.items()}
    option_of = {option.key: option for option in options}
    pools = _with_menus(problem, runs, option_of)
    if not problem.current:
        pools = _best_pools(pools, runs, option_of)
    groups = useful_groups(problem)
    shared = cheapest_shared_pools(problem, groups)
    smaller = replace(problem, pools=(*pools, *shared), options=tuple(options), groups=groups)
    return _merged(smaller, runs) if merge else Reduced(smaller, {}, {})


def cheapest_homes(problem: Problem) -> Problem:
    """Keep an option only where it may be cheapest; among equally cheap packings some are lost, the price is not.

    A replica that fills its nodes needs only the pool with the lowest price per GPU in which it does so. A pool whose
    every partial tenant has such a home elsewhere, at no higher price per GPU, needs to host none of them. And what
    costs more than renting a node of its own for each of its tenants is in no cheapest packing.
    """
    ranked = sorted(
        enumerate(problem.pools), key=lambda e: (e[1].usd_per_hour / e[1].gpus_per_node, e[1].gpus_per_node, e[0])
    )
    rent = _private_rents(problem)
    homes: dict[str, set[str]] = {option.key: set() for option in problem.options}
    before: dict[str, list[PoolSpec]] = {}
    for _, pool in ranked:
        rivals = before.setdefault(pool.accelerator, [])
        guests = [option for option in problem.options if option.runs_in(pool)]
        if _node_worth(pool, guests, rent) >= pool.usd_per_hour * (1.0 - 1e-9):
            movable = {o.key: any(_exact_home(o, rival, pool) for rival in rivals) for o in guests}
            leave = all(movable[o.key] for o in guests if not _fills(o, pool))
            for option in guests:
                if _fills(option, pool):
                    cheap = rent[option.key] >= _private_rent(option, pool) * (1.0 - 1e-9)
                    stays = cheap and not movable[option.key]
                else:
                    stays = not leave
                if stays:
                    homes[option.key].add(pool.key)
        if pool.max_nodes is None:
            rivals.append(pool)
    options = tuple(replace(o, pools=frozenset(homes[o.key])) for o in problem.options)
    used = {key for found in homes.values() for key in found}
    pools = tuple(pool for pool in problem.pools if pool.key in used or pool.sharing)
    return replace(problem, pools=pools, options=options)


def _fills(option: OptionSpec, pool: PoolSpec) -> bool:
    """Whether replicas of `option` leave no GPU of a node to anybody else; a slice always does."""
    return option.partition == WHOLE and option.gpus % pool.gpus_per_node == 0


def _exact_home(option: OptionSpec, rival: PoolSpec, pool: PoolSpec) -> bool:
    """Whether the GPUs that `option` uses in `pool` can be exactly bought as nodes of `rival`."""
    return (
        option.gpus % rival.gpus_per_node == 0
        and set(rival.limits) <= set(pool.limits)
        and option.runs_in(rival)
        and {layout.name for layout in pool.layouts} <= {layout.name for layout in rival.layouts}
    )


def _private_rent(option: OptionSpec, pool: PoolSpec) -> float:
    """USD per hour of the nodes that one replica needs for itself."""
    return math.ceil(option.gpus / pool.gpus_per_node) * pool.usd_per_hour


def _private_rents(problem: Problem) -> dict[str, float]:
    """Option -> USD per hour that replace one replica of it for good, whatever else is bought.

    The replacement runs on nodes of its own that nothing limits: one replica that carries as much, or several that
    carry less each.
    """
    offers: dict[str, list[tuple[float, float]]] = {}
    for option in problem.options:
        prices = [
            _private_rent(option, pool)
            for pool in problem.pools
            if pool.max_nodes is None and not pool.limits and option.runs_in(pool)
        ]
        if prices:
            offers.setdefault(option.model, []).append((option.requests_per_s, min(prices)))
    rents = {}
    for option in problem.options:
        wanted = option.requests_per_s
        rents[option.key] = min(
            (
                price if rate >= wanted else price * math.ceil(wanted / rate)
                for rate, price in offers.get(option.model, [])
                if rate > 0 or wanted <= 0
            ),
            default=math.inf,
        )
    return rents


def _node_worth(pool: PoolSpec, guests: Sequence[OptionSpec], rent: Mapping[str, float]) -> float:
    """The most that all tenants of one node could cost elsewhere: an unbounded knapsack over its GPUs."""
    size = pool.gpus_per_node
    slices: dict[str, float] = {}
    items: list[tuple[int, float]] = []
    worth = 0.0
    for option in guests:
        if option.partition != WHOLE:
            slices[option.partition] = max(slices.get(option.partition, 0.0), rent[option.key])
        elif option.gpus > size:
            worth = max(worth, rent[option.key] * size / option.gpus)
        else:
            items.append((option.gpus, rent[option.key]))
    cut = [sum(count * slices.get(name, 0.0) for name, count in layout.profiles.items()) for layout in pool.layouts]
    items.append((1, max(cut, default=0.0)))
    best = [0.0] * (size + 1)
    for gpus in range(1, size + 1):
        best[gpus] = max(best[gpus - count] + value for count, value in items if count <= gpus)
    return max(worth, best[size])


def _usable(problem: Problem) -> list[OptionSpec]:
    """Options of a demanded model that carry something; rates above the demand count as the demand."""
    wanted = {demand.model: demand.requests_per_s for demand in problem.demands}
    usable = []
    for option in problem.options:
        rate = wanted.get(option.model)
        if rate is None or (rate > 0 and option.requests_per_s <= 0):
            continue
        usable.append(replace(option, requests_per_s=min(option.requests_per_s, rate)))
    return usable


def _runs(pools: Sequence[PoolSpec], options: Sequence[OptionSpec]) -> dict[str, tuple[str, ...]]:
    """Which options run in which pool; pools of one shape share the work."""
    by_accelerator: dict[str, list[OptionSpec]] = {}
    for option in options:
        by_accelerator.setdefault(option.accelerator, []).append(option)
    shapes: dict[tuple[str, int, tuple[str, ...]], list[OptionSpec]] = {}
    runs = {}
    for pool in pools:
        shape = (pool.accelerator, pool.gpus_per_node, tuple(layout.name for layout in pool.layouts))
        if shape not in shapes:
            mine = by_accelerator.get(pool.accelerator, [])
            shapes[shape] = [o for o in mine if replace(o, pools=None).runs_in(pool)]
        runs[pool.key] = tuple(o.key for o in shapes[shape] if o.pools is None or pool.key in o.pools)
    return runs


def _best_options(problem: Problem, options: Sequence[OptionSpec], runs: Runs) -> list[OptionSpec]:
    """Drop an option when as many replicas of a smaller one as fit on its GPUs carry no less, wherever it runs.

    The smaller one must not carry more each: the largest replica is the one that a spare has to make up for.
    """
    homes: dict[str, set[str]] = {option.key: set() for option in options}
    for pool, keys in runs.items():
        for key in keys:
            homes[key].add(pool)
    groups: dict[tuple[str, str, str], list[OptionSpec]] = {}
    for option in options:
        if homes[option.key]:
            groups.setdefault((option.model, option.accelerator, option.partition), []).append(option)
    kept: set[str] = set()
    for group in groups.values():
        best: list[OptionSpec] = []
        for option in sorted(group, key=lambda o: (o.gpus, -o.requests_per_s)):
            if not any(_carries_as_much(b, option) and homes[b.key] >= homes[option.key] for b in best):
                best.append(option)
        kept.update(option.key for option in best)
    return [option for option in options if option.key in kept]


def _carries_as_much(small: OptionSpec, large: OptionSpec) -> bool:
    """One of `small` as much as one of `large`; or as many as fit on its GPUs, each no more than one of `large`."""
    fitting = large.gpus // small.gpus
    return small.requests_per_s >= large.requests_per_s or fitting * small.requests_per_s >= large.requests_per_s


def _with_menus(problem: Problem, runs: Runs, option_of: Mapping[str, OptionSpec]) -> list[PoolSpec]:
    """The pools in which anything runs, with the layouts that matter there; today's layouts always do."""
    menus: dict[tuple[tuple[str, ...], frozenset[str], frozenset[str]], tuple[GpuLayout, ...]] = {}
    kept = []
    for pool in problem.pools:
        if runs[pool.key]:
            used = frozenset(option_of[key].partition for key in runs[pool.key])
            today = frozenset(name for where, name in problem.current if where == pool.key)
            menu = (tuple(layout.name for layout in pool.layouts), used, today)
            if menu not in menus:
                menus[menu] = _best_layouts(pool.layouts, used, today)
            kept.append(replace(pool, layouts=menus[menu]))
    return kept


def _best_layouts(layouts: Sequence[GpuLayout], used: frozenset[str], today: frozenset[str]) -> tuple[GpuLayout, ...]:
    """Layouts seen through the partitions in use: one per distinct count, none that another one contains.

    Layouts that GPUs have `today` stay: they cost nothing to keep.
    """
    seen: dict[tuple[tuple[str, int], ...], GpuLayout] = {}
    for layout in layouts:
        counts = tuple(sorted((name, count) for name, count in layout.profiles.items() if count and name in used))
        fewest = seen.get(counts)
        if counts and (fewest is None or len(layout.placements) < len(fewest.placements)):
            seen[counts] = layout

    def contained(small: Mapping[str, int], large: Mapping[str, int]) -> bool:
        return small != large and all(large.get(name, 0) >= count for name, count in small.items())

    best = {layout.name for counts, layout in seen.items() if not any(contained(dict(counts), dict(o)) for o in seen)}
    kept = []
    for layout in layouts:
        mine = {name: count for name, count in layout.profiles.items() if count and name in used}
        if mine and (layout.name in best or layout.name in today):
            placements = tuple(p for p in layout.placements if p[0] in mine)
            kept.append(replace(layout, profiles=mine, placements=placements))
    return tuple(kept)


def _best_pools(pools: Sequence[PoolSpec], runs: Runs, option_of: Mapping[str, OptionSpec]) -> list[PoolSpec]:
    """Drop a pool when an unlimited one hosts the same for no more money, node for node or split into smaller nodes."""
    kept: list[PoolSpec] = []
    rivals: dict[str, list[PoolSpec]] = {}
    for pool in pools:
        if pool.max_nodes is None:
            rivals.setdefault(pool.accelerator, []).append(pool)
    order = {pool.key: index for index, pool in enumerate(pools)}
    for pool in pools:
        mine = [option_of[key] for key in runs[pool.key]]
        if not any(
            _replaces(rival, pool, earlier=order[rival.key] < order[pool.key])
            and set(runs[pool.key]) <= set(runs[rival.key])
            and _splits(mine, rival, pool)
            for rival in rivals.get(pool.accelerator, [])
        ):
            kept.append(pool)
    return kept


def _replaces(rival: PoolSpec, pool: PoolSpec, *, earlier: bool) -> bool:
    """Whether `rival` costs no more per GPU, counts against no other limit and cuts its GPUs the same ways.

    Smaller nodes must be strictly cheaper: at one price the larger node is the better one, as there are fewer of them.
    """
    if rival.key == pool.key or not set(rival.limits) <= set(pool.limits):
        return False
    if pool.gpus_per_node % rival.gpus_per_node:
        return False
    split = pool.gpus_per_node // rival.gpus_per_node
    cost = split * rival.usd_per_hour
    cheap = cost < pool.usd_per_hour or (split == 1 and earlier and cost == pool.usd_per_hour)
    return cheap and {layout.name for layout in pool.layouts} <= {layout.name for layout in rival.layouts}


def _splits(options: Sequence[OptionSpec], rival: PoolSpec, pool: PoolSpec) -> bool:
    """Whether whatever fills one node of `pool` also fills whole nodes of `rival`."""
    if rival.gpus_per_node == pool.gpus_per_node:
        return True
    sizes = {o.gpus for o in options if o.gpus <= pool.gpus_per_node}
    return is_chain({*sizes, rival.gpus_per_node}, pool.gpus_per_node)


def _merged(problem: Problem, runs: Runs) -> Reduced:
    """Demands whose replica count is the same on every option only differ by that count: sum them up."""
    homes: dict[str, list[str]] = {}
    for pool in problem.pools:
        for key in runs[pool.key]:
            homes.setdefault(key, []).append(pool.key)

    def shape(option: OptionSpec) -> tuple[str, str, int, int, tuple[str, ...]]:
        return option.accelerator, option.partition, option.gpus, option.node_gpus, tuple(homes.get(option.key, ()))

    options: dict[str, list[OptionSpec]] = {}
    for option in sorted(problem.options, key=shape):
        options.setdefault(option.model, []).append(option)
    classes: dict[object, list[tuple[Demand, int]]] = {}
    for demand in problem.demands:
        mine = options.get(demand.model, [])
        counts = {replicas_alone(demand, option.requests_per_s) for option in mine}
        if len(counts) == 1 and demand.model not in problem.shared_models:
            alike = (tuple(shape(option) for option in mine), demand.min_nodes)
            classes.setdefault(alike, []).append((demand, counts.pop()))
        else:
            classes[demand.model] = [(demand, 0)]
    return _classes(problem, options, classes)


def _classes(
    problem: Problem, options: Mapping[str, list[OptionSpec]], classes: Mapping[object, list[tuple[Demand, int]]]
) -> Reduced:
    demands: list[Demand] = []
    members: dict[str, tuple[tuple[str, int], ...]] = {}
    own: dict[tuple[str, str], str] = {}
    gone: set[str] = set()
    for group in classes.values():
        first, count = group[0]
        if count == 0:
            demands.append(first)
            continue
        demands.append(Demand(first.model, 0.0, sum(n for _, n in group), spare=False, min_nodes=first.min_nodes))
        members[first.model] = tuple((demand.model, n) for demand, n in group)
        gone.update(demand.model for demand, _ in group[1:])
        for demand, _ in group:
            for lead, mine in zip(options[first.model], options[demand.model], strict=True):
                own[demand.model, lead.key] = mine.key
    kept = tuple(option for option in problem.options if option.model not in gone)
    return Reduced(replace(problem, options=kept, demands=tuple(demands)), members, own)
