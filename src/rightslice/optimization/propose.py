"""Options + rates + offers -> the packing problem -> counts of nodes, layouts and replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rightslice.catalogue.hardware import WHOLE
from rightslice.catalogue.platforms import Platform, platforms
from rightslice.core.rates import RateTable
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.optimization.today import CHANGE_PENALTY, NodeNow, current_layouts
from rightslice.packing.packing import Packing
from rightslice.packing.place import place
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, PoolSpec, Problem
from rightslice.packing.solve import solve
from rightslice.packing.solver import Effort
from rightslice.procurement.offers import Offer

TAKEN_AWAY = ("spot", "flex_start")
"""Capacity that ends without being asked."""
WHOLE_LAYOUT = GpuLayout(WHOLE, {WHOLE: 1}, ((WHOLE, 0),))


@dataclass(frozen=True, slots=True)
class Market:
    """What can be bought, what each platform makes of it, the quotas (limit -> GPUs), and how hard to look.

    `today`: the nodes that run now, which are kept as they are where that costs next to nothing.
    """

    offers: tuple[Offer, ...]
    platform_of: Mapping[str, str]
    limits: Mapping[str, int]
    effort: Effort | None = None
    today: tuple[NodeNow, ...] = ()

    @property
    def gpu_usd_per_hour(self) -> dict[str, float]:
        """Accelerator -> USD per hour of one GPU of the cheapest machine that has it."""
        found: dict[str, float] = {}
        for offer in self.offers:
            name, usd = offer.machine.accelerator, offer.usd_per_hour / offer.machine.accelerator_count
            found[name] = min(usd, found.get(name, usd))
        return found


@dataclass(frozen=True, slots=True)
class Proposal:
    """A solved packing with the problem it answers and the offer behind each pool."""

    problem: Problem
    packing: Packing
    offer_of: Mapping[str, Offer]

    @property
    def counts(self) -> dict[str, int]:
        """Option -> replicas, over all pools."""
        counts: dict[str, int] = {}
        for (_, key), replicas in sorted(self.packing.replicas.items()):
            if replicas > 0:
                counts[key] = counts.get(key, 0) + replicas
        return counts

    @property
    def feasible(self) -> bool:
        """Whether there is a packing at all."""
        return self.packing.status != "infeasible"


def propose(
    needs: Sequence[Need],
    options: Sequence[Option],
    rates: RateTable,
    demands: Mapping[str, float],
    market: Market,
) -> Proposal:
    """The cheapest packing whose replicas carry `demands` (model -> requests/s) at `rates`."""
    problem, offer_of = problem_of(needs, options, rates, demands, market)
    return Proposal(problem, solve(problem, market.effort), offer_of)


def problem_of(
    needs: Sequence[Need],
    options: Sequence[Option],
    rates: RateTable,
    demands: Mapping[str, float],
    market: Market,
) -> tuple[Problem, dict[str, Offer]]:
    """What `propose` solves, and the offer behind each pool."""
    loaded = {need.name for need in needs if need.has_load}
    usable = [o for o in options if o.model not in loaded or rates[o.key].requests_per_s > 0]
    offer_of, pools, limits = _pools(market, usable)
    hosts = hosts_of(needs, offer_of)
    problem = Problem(
        pools=pools,
        options=tuple(
            OptionSpec(
                key=option.key,
                model=option.model,
                accelerator=option.accelerator,
                partition=option.slot,
                gpus=option.gpus,
                requests_per_s=rates[option.key].requests_per_s if option.model in loaded else 0.0,
                pools=hosts[option.model],
                node_gpus=option.node_gpus,
            )
            for option in usable
        ),
        demands=tuple(
            Demand(need.name, demands.get(need.name, 0.0), need.min_replicas, need.spare, _min_nodes(need))
            for need in needs
        ),
        limits=limits,
        current=_current(market, pools, offer_of),
        change_penalty=CHANGE_PENALTY,
    )
    return problem, offer_of


def repack(needs: Sequence[Need], options: Mapping[str, Option], counts: Mapping[str, int], market: Market) -> Proposal:
    """The cheapest packing of exactly these replicas (option -> count).

    A model's floor of nodes is kept by each of its options that has as many replicas; infeasible where they do not keep
    it together.
    """
    floors = {need.name: _min_nodes(need) for need in needs}
    used = [options[key] for key in sorted(counts)]
    offer_of, pools, limits = _pools(market, used)
    hosts = hosts_of(needs, offer_of)
    problem = Problem(
        pools=pools,
        options=tuple(
            OptionSpec(o.key, o.key, o.accelerator, o.slot, o.gpus, 0.0, hosts[o.model], o.node_gpus) for o in used
        ),
        demands=tuple(
            Demand(o.key, 0.0, counts[o.key], spare=False, min_nodes=min(counts[o.key], floors[o.model])) for o in used
        ),
        limits=limits,
        current=_current(market, pools, offer_of),
        change_penalty=CHANGE_PENALTY,
    )
    proposal = Proposal(problem, solve(problem, market.effort), offer_of)
    if proposal.feasible and _crowded(proposal, options, floors):
        return replace(proposal, packing=replace(proposal.packing, status="infeasible"))
    return proposal


def _crowded(proposal: Proposal, options: Mapping[str, Option], floors: Mapping[str, int]) -> bool:
    """Whether the replicas of some model, over all its options, sit on fewer nodes than it asks for."""
    if max(floors.values(), default=1) < 2:
        return False
    nodes: dict[str, set[tuple[str, int]]] = {}
    for gpu in place(proposal.problem, proposal.packing):
        for slot in gpu.slots:
            nodes.setdefault(options[slot.option].model, set()).add((gpu.pool, gpu.node))
    return any(len(used) < floors[model] for model, used in nodes.items())


def _current(market: Market, pools: Sequence[PoolSpec], offer_of: Mapping[str, Offer]) -> dict[tuple[str, str], int]:
    return current_layouts(market.today, pools, {key: offer.machine.machine_type for key, offer in offer_of.items()})


def _min_nodes(need: Need) -> int:
    return 2 if need.spare else 1


def hosts_of(needs: Sequence[Need], offer_of: Mapping[str, Offer]) -> dict[str, frozenset[str] | None]:
    """Model -> pools that may host it: only interruptible models run on capacity that can be taken away."""
    stable = frozenset(key for key, offer in offer_of.items() if offer.capacity not in TAKEN_AWAY)
    some = stable if len(stable) < len(offer_of) else None
    return {need.name: None if need.model.interruptible else some for need in needs}


def _pools(market: Market, options: Sequence[Option]) -> tuple[dict[str, Offer], tuple[PoolSpec, ...], dict[str, int]]:
    """One pool per offer, or one per offer and layout where the platform makes one layout per node pool; and limits."""
    limits = dict(market.limits)
    wanted: dict[str, list[Option]] = {}
    for option in options:
        wanted.setdefault(option.accelerator, []).append(option)
    offer_of: dict[str, Offer] = {}
    pools: list[PoolSpec] = []
    for offer in market.offers:
        hosted = wanted.get(offer.machine.accelerator)
        if not hosted:
            continue
        menus = _menus(offer, market.platform_of[offer.machine.provider], hosted)
        shared = _shared_limit(offer, len(menus))
        for suffix, menu in menus:
            key = pool_name(offer) + suffix
            offer_of[key] = offer
            limits.update(shared)
            pools.append(
                PoolSpec(
                    key=key,
                    accelerator=offer.machine.accelerator,
                    gpus_per_node=int(offer.machine.accelerator_count),
                    usd_per_hour=offer.usd_per_hour,
                    layouts=menu,
                    max_nodes=offer.max_nodes,
                    limits=(*offer.limits, *shared),
                )
            )
    return offer_of, tuple(pools), limits


def _shared_limit(offer: Offer, pools: int) -> dict[str, int]:
    """One offer split into several node pools: together they have the offer's nodes. Limit -> GPUs."""
    if offer.max_nodes is None or pools < 2:
        return {}
    return {f"nodes:{pool_name(offer)}": offer.max_nodes * int(offer.machine.accelerator_count)}


def _menus(offer: Offer, platform: str, options: Sequence[Option]) -> list[tuple[str, tuple[GpuLayout, ...]]]:
    """(pool name suffix, layouts a GPU of that pool may carry).

    The device plugin shares all GPUs of a node alike (k8s-device-plugin#353): each way to share is a pool of its own.
    """
    maker = platforms()[platform]
    partitions = {option.slot for option in options}
    wanted = [x for x in maker.layouts(offer.machine.accelerator) if set(x.profiles) & partitions]
    made = [GpuLayout(x.name, x.profiles, x.placements) for x in wanted]
    together = [
        (f"-{layout.name}", (layout,))
        for layout in _shared_layouts(options, maker, int(offer.machine.accelerator_count))
    ]
    if maker.mig != "uniform-per-pool":
        return [("", (WHOLE_LAYOUT, *made)), *together]
    own_pools = [("-" + next(iter(x.profiles)).replace(".", "").replace("+", "-"), (x,)) for x in made]
    return [("", (WHOLE_LAYOUT,)), *own_pools, *together]


def _shared_layouts(options: Sequence[Option], maker: Platform, gpus_per_node: int) -> list[GpuLayout]:
    """One GPU with a place for each of its tenants, for every group that the platform can put on it.

    On a node of several GPUs the device plugin chooses who meets whom: there any of the group's replicas must fit.
    """
    places: dict[str, list[str]] = {}
    for option in options:
        share = option.share
        if share and maker.shares(share.mode) and (gpus_per_node == 1 or share.anywhere):
            label = f"-{share.label}" if share.label else ""
            places.setdefault(f"{share.mode}{label}", []).extend([option.slot] * share.each)
    return [
        GpuLayout(name, dict(Counter(slots)), tuple((slot, start) for start, slot in enumerate(slots)))
        for name, slots in places.items()
    ]


def pool_name(offer: Offer) -> str:
    """A stable, readable, DNS-safe pool name: provider, machine type, region, capacity."""
    machine = offer.machine
    words = f"{machine.provider}-{machine.machine_type}-{machine.region}-{offer.capacity}"
    if offer.price not in ("list", "spot", "owned", "flex"):
        words += f"-{offer.price}"
    if offer.number > 1:
        words += f"-{offer.number}"
    return "".join(c if c.isalnum() else "-" for c in words.lower()).strip("-")
