"""Synthetic fleets that may also share GPUs: L4, L40S, A100 and H100, whole, by MIG, or by up to four processes on one.

Prices and speeds are list-like and relative. A replica alone keeps its objectives up to a rate at which the GPU is busy
for only part of the time (its duty: launches, memory and the CPU set that rate), which is what others can use. How much
slower a client gets beside others follows a stand-in law (1 + 1.11 x the others' duty): what is measured with these
fleets is how the packing scales, not a prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from synthetic_fleets import GB, WHOLE_GPU, sliced_menu, uniform_menu

from rightslice.catalogue.accelerators import device
from rightslice.packing.clients import Tenant, legal_groups
from rightslice.packing.problem import Client, Demand, OptionSpec, PoolSpec, Problem, SharingGroup

USD_PER_GPU_HOUR = {"L4": 0.4, "L40S": 0.9, "A100-SXM-80GB": 1.9, "H100-SXM-80GB": 3.3}
SPEED = {"L4": 1.0, "L40S": 1.8, "A100-SXM-80GB": 2.6, "H100-SXM-80GB": 4.2}
"""Requests/s of one replica, relative: less than the GPUs' own ratios, since such replicas do not fill a GPU."""
MIG = ("A100-SXM-80GB", "H100-SXM-80GB")
MODE = "time-slicing"
ISOLATED = 0.3
"""Share of models that need hardware isolation: they share no GPU with another process."""


@dataclass(frozen=True, slots=True)
class Load:
    """One model: memory, requests/s of the fleet, requests/s of one replica on an L4, and its duty there."""

    name: str
    memory_bytes: float
    requests_per_s: float
    l4_requests_per_s: float
    l4_duty: float
    isolated: bool

    def rate(self, accelerator: str, sm_share: float = 1.0) -> float:
        """Requests/s of one replica on a GPU or on a slice with that share of its multiprocessors."""
        return self.l4_requests_per_s * SPEED[accelerator] * min(1.0, sm_share / self.duty(accelerator))

    def duty(self, accelerator: str) -> float:
        """Share of the time that it keeps the GPU busy when alone; a faster GPU is idle for longer."""
        return self.l4_duty / math.sqrt(SPEED[accelerator])


def loads(models: int, replicas: int, seed: int) -> list[Load]:
    """Models of 3 to 70 GB that need about `replicas` replicas on an L4 or A100 together."""
    random = np.random.default_rng(seed)
    counts = np.maximum(random.dirichlet(np.full(models, 1.5)) * replicas, 1.0)
    made = []
    for number, count in enumerate(counts):
        rate = float(random.uniform(1.0, 5.0))
        memory = float(np.exp(random.uniform(np.log(3.0), np.log(70.0)))) * GB
        speed = SPEED["L4"] if memory < 22 * GB else SPEED["A100-SXM-80GB"]
        duty = float(random.uniform(0.1, 0.6))
        isolated = bool(random.random() < ISOLATED)
        made.append(Load(f"m{number}", memory, float(count) * rate * speed, rate, duty, isolated))
    return made


def sharing_fleet(models: int, replicas: int, seed: int, *, platform: bool = False) -> Problem:
    """One pool of single GPUs per accelerator and way to use it; with `platform` what a managed platform makes of them:
    one MIG profile per node pool, H100 only in nodes of eight, no L40S, and a quota of L4."""
    fleet = loads(models, replicas, seed)
    pools = tuple(_pools(platform))
    options = tuple(_options(fleet, pools))
    groups = tuple(_groups(fleet, {pool.accelerator for pool in pools if pool.sharing}))
    demands = tuple(Demand(load.name, load.requests_per_s, 1, spare=False) for load in fleet)
    limits = {"L4": replicas // 10} if platform else {}
    return Problem(pools, options, demands, limits, groups)


def _pools(platform: bool) -> Iterator[PoolSpec]:
    for name, usd in USD_PER_GPU_HOUR.items():
        if platform and name == "L40S":
            continue
        limits = ("L4",) if platform and name == "L4" else ()
        size = 8 if platform and name == "H100-SXM-80GB" else 1
        if platform and name in MIG:
            yield PoolSpec(name, name, size, usd * size, (WHOLE_GPU,))
            for layout in uniform_menu(name)[1:]:
                yield PoolSpec(f"{name}-{layout.name}", name, size, usd * size, (layout,))
        else:
            yield PoolSpec(name, name, size, usd * size, sliced_menu(name), None, limits)
        if size == 1:
            yield PoolSpec(f"{name}-shared", name, size, usd * size, (), None, limits, MODE)


def _options(fleet: Sequence[Load], pools: Iterable[PoolSpec]) -> Iterator[OptionSpec]:
    wanted = {(p.accelerator, part) for p in pools for layout in p.layouts for part in layout.profiles}
    for load in fleet:
        for accelerator, partition in sorted(wanted):
            seen = device(accelerator, partition)
            if load.memory_bytes <= seen.memory_bytes * 0.95:
                rate = load.rate(accelerator, seen.sm_share)
                yield OptionSpec(f"{load.name}/{accelerator}/{partition}", load.name, accelerator, partition, 1, rate)


def _groups(fleet: Sequence[Load], accelerators: Iterable[str]) -> Iterator[SharingGroup]:
    for accelerator in sorted(accelerators):
        tenants = [
            Tenant(f"{load.name}/{accelerator}/{MODE}", load.name, load.memory_bytes, load.duty(accelerator))
            for load in fleet
            if not load.isolated
        ]
        by_model = {load.name: load for load in fleet}
        for members in legal_groups(tenants, device(accelerator).memory_bytes):
            busy = sum(tenant.duty for tenant in members)
            clients = tuple(
                Client(t.option, t.model, by_model[t.model].rate(accelerator) / (1.0 + 1.11 * (busy - t.duty)))
                for t in members
            )
            yield SharingGroup(f"{accelerator}:{'+'.join(t.model for t in members)}", accelerator, MODE, clients)
