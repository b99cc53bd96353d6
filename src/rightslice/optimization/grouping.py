"""Which models should share GPUs, and how: legal groups with what each client gives beside the others, packed with all
else that is possible.

The packing runs on optimistic rates; what it chooses is a proposal, to be planned and verified like any workload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rightslice.catalogue.hardware import ON_ONE_GPU
from rightslice.catalogue.platforms import platforms
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.optimization.propose import Market, hosts_of, pool_name
from rightslice.optimization.sharing import FILLED
from rightslice.packing import clients
from rightslice.packing.packing import Packing
from rightslice.packing.problem import Client, PoolSpec, Problem, SharingGroup
from rightslice.packing.solve import solve
from rightslice.performance.sharing import Mode, Tenant, shared


@dataclass(frozen=True, slots=True)
class Lone:
    """One model alone on a GPU that others could use too: its profile, the bytes that it needs, the share of the time
    in which its load keeps the GPU busy."""

    need: Need
    option: Option
    tenant: Tenant
    memory_bytes: float
    duty: float

    @property
    def as_neighbour(self) -> Tenant:
        """As the others feel it on average: busy for its share of the time."""
        return Tenant(self.tenant.busy * self.duty, self.tenant.sm_bound * self.duty, 0.0)


RateBeside = Callable[[Lone, float], float]
"""Requests/s of a model with its times longer by this factor."""


@dataclass(frozen=True, slots=True)
class Together:
    """Models that are to share one GPU by `mode`."""

    mode: Mode
    models: tuple[str, ...]


def groups_of(
    lone: Sequence[Lone], accelerator: str, mode: Mode, rate: RateBeside, pools: Mapping[str, bool]
) -> Iterator[SharingGroup]:
    """Every legal group of different models on one GPU. `pools`: those that share it so -> whether the plan chooses who
    meets whom, as on nodes of one GPU; elsewhere any clients of the group must fit together."""
    by_name = {one.need.name: one for one in lone}
    tenants = [clients.Tenant(o.option.key, o.need.name, o.memory_bytes, o.duty) for o in lone]
    usable = FILLED * (lone[0].option.device.memory_bytes if lone else 0)
    for found in clients.legal_groups(tenants, usable):
        members = [by_name[tenant.model] for tenant in found]
        if len({tenant.model for tenant in found}) < len(found):
            continue
        largest = max(one.memory_bytes + clients.CONTEXT_BYTES for one in members)
        if mode == "mps" and largest > usable / len(members):
            continue  # the device plugin gives each client its part
        anywhere = largest * len(members) <= usable
        hosts = frozenset(key for key, chosen in pools.items() if chosen or anywhere)
        made = tuple(
            Client(o.option.key, o.need.name, rate(o, slowdown_beside(o, members, mode)) if o.need.has_load else 0.0)
            for o in members
        )
        if hosts and all(client.requests_per_s > 0 for client, o in zip(made, members, strict=True) if o.need.has_load):
            key = f"{accelerator} {mode} {'+'.join(client.model for client in made)}"
            yield SharingGroup(key, accelerator, mode, made, hosts)


def slowdown_beside(one: Lone, members: Sequence[Lone], mode: Mode) -> float:
    """Mean time of `one` over its time alone, beside the others at their loads."""
    neighbours = [other.as_neighbour for other in members if other is not one]
    return shared(mode, one.tenant, neighbours, 1.0 / len(members) if mode == "mps" else 1.0)


def worth_it(groups: Sequence[SharingGroup]) -> tuple[SharingGroup, ...]:
    """Without MPS where time-slicing gives every client as much: an MPS client that fails takes the others with it."""
    sliced = {(g.accelerator, _models(g)): g for g in groups if g.mode == "time-slicing"}
    kept = []
    for group in groups:
        twin = sliced.get((group.accelerator, _models(group)))
        pairs = zip(group.clients, twin.clients, strict=True) if twin and group.mode == "mps" else ()
        if not pairs or any(mine.requests_per_s > theirs.requests_per_s * (1 + 1e-9) for mine, theirs in pairs):
            kept.append(group)
    return tuple(kept)


def _models(group: SharingGroup) -> tuple[str, ...]:
    return tuple(sorted(client.model for client in group.clients))


def shared_pools(market: Market) -> dict[tuple[str, Mode], list[PoolSpec]]:
    """(accelerator, mode) -> node pools whose GPUs can be shared so."""
    found: dict[tuple[str, Mode], list[PoolSpec]] = {}
    for offer in market.offers:
        machine = offer.machine
        for mode in ON_ONE_GPU:
            if platforms()[market.platform_of[machine.provider]].shares(mode):
                way: Mode = "mps" if mode == "mps" else "time-slicing"
                pool = PoolSpec(
                    key=f"{pool_name(offer)}-{mode}",
                    accelerator=machine.accelerator,
                    gpus_per_node=int(machine.accelerator_count),
                    usd_per_hour=offer.usd_per_hour,
                    layouts=(),
                    max_nodes=offer.max_nodes,
                    limits=offer.limits,
                    sharing=mode,
                )
                found.setdefault((machine.accelerator, way), []).append(pool)
    return found


def stable_pools(pools: Sequence[PoolSpec], needs: Sequence[Need], market: Market) -> dict[str, bool]:
    """Of these the pools that may host every one of `needs` -> whether their nodes have one GPU."""
    offers = {f"{pool_name(offer)}-{pool.sharing}": offer for pool in pools for offer in market.offers}
    allowed = [hosts for hosts in hosts_of(needs, offers).values() if hosts is not None]
    return {pool.key: pool.gpus_per_node == 1 for pool in pools if all(pool.key in hosts for hosts in allowed)}


def chosen_groups(
    problem: Problem, pools: Sequence[PoolSpec], groups: Sequence[SharingGroup], market: Market
) -> tuple[Together, ...]:
    """The groups in the cheapest packing; a model in several of them belongs to the one with most GPUs."""
    wider = replace(problem, pools=(*problem.pools, *pools), groups=tuple(groups))
    packing = solve(wider, market.effort)
    used = _used(wider, packing)
    home: dict[str, str] = {}
    for key, _ in used.most_common():
        for client in wider.group_of[key].clients:
            home.setdefault(client.model, key)
    found = []
    for key in sorted(used):
        models = tuple(client.model for client in wider.group_of[key].clients if home[client.model] == key)
        if len(models) > 1:
            found.append(Together("mps" if wider.group_of[key].mode == "mps" else "time-slicing", models))
    return tuple(found)


def _used(problem: Problem, packing: Packing) -> Counter[str]:
    """Group -> GPUs that it has."""
    found: Counter[str] = Counter()
    for (_, name), gpus in sorted(packing.layouts.items()):
        if gpus > 0 and name in problem.group_of:
            found[name] += gpus
    return found
