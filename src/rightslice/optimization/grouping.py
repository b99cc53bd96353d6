"""Which models should share GPUs, and how: legal groups with what each client gives beside the others, packed with all
else that is possible.

The packing runs on optimistic rates; what it chooses is a proposal, to be planned and verified like any workload.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

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
    """One model alone on a GPU that others could use too: its profile and the bytes that it needs.

    `duty`: its load over the largest that it could carry (`requests_per_s`, infinite without a load); `busy`: the share
    of the time in which it uses the GPU, which others feel; `tolerance`: times over those alone that it can bear.
    """

    need: Need
    option: Option
    tenant: Tenant
    memory_bytes: float
    requests_per_s: float
    duty: float
    busy: float
    tolerance: float

    def rate_beside(self, mean: float, worst: float) -> float:
        """Requests/s with times longer by `mean`; 0 where it cannot bear times longer by `worst` in one of 20 cases."""
        if not self.need.has_load or worst > self.tolerance:
            return 0.0
        return self.requests_per_s / mean


SELDOM: Final = 0.05
"""What happens less often than this is left to the simulation."""


@dataclass(frozen=True, slots=True)
class Together:
    """Models that are to share one GPU by `mode`."""

    mode: Mode
    models: tuple[str, ...]


def groups_of(lone: Sequence[Lone], accelerator: str, mode: Mode, pools: Mapping[str, bool]) -> Iterator[SharingGroup]:
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
            Client(o.option.key, o.need.name, o.rate_beside(*slowdowns_beside(o, members, mode))) for o in members
        )
        if hosts and all(client.requests_per_s > 0 for client, o in zip(made, members, strict=True) if o.need.has_load):
            key = f"{accelerator} {mode} {'+'.join(client.model for client in made)}"
            yield SharingGroup(key, accelerator, mode, made, hosts)


def slowdowns_beside(one: Lone, members: Sequence[Lone], mode: Mode) -> tuple[float, float]:
    """Time of `one` over its time alone, on average over who of the others is busy, and what 95 % stay below."""
    others = [other for other in members if other is not one]
    part = 1.0 / len(members) if mode == "mps" else 1.0
    cases: list[tuple[float, float]] = []
    for active in itertools.product((False, True), repeat=len(others)):
        present = [other for other, runs in zip(others, active, strict=True) if runs]
        chance = math.prod(o.busy if runs else 1.0 - o.busy for o, runs in zip(others, active, strict=True))
        cases.append((shared(mode, one.tenant, [other.tenant for other in present], part), chance))
    mean, left = sum(slower * chance for slower, chance in cases), 1.0
    worst = max(slower for slower, _ in cases)
    for slower, chance in sorted(cases):
        left -= chance
        if left <= SELDOM:
            return mean, slower
    return mean, worst


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
