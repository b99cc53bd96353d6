"""How much slower a tenant of a shared GPU is than alone on it: time-slicing, MPS, a MIG slice.

A tenant is described by its lone run on the whole GPU: the share of that time in which its kernels are on the GPU
(`busy`), and the share that is bound by SMs or by memory bandwidth, which grows in proportion when there is less of
either; the rest (launches, host, kernels too small to fill the GPU) does not. One number belongs to the mechanism, the
cost of switching between time slices; it is fitted on published curves (tools/fit_sharing.py, data/sharing.json).

A slowdown of 1.5 means 1.5 times the time, or 1 / 1.5 of the throughput of a loaded server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.hardware import Device
from rightslice.performance import coefficients
from rightslice.performance.costs import StepCosts

Mode = Literal["time-slicing", "mps"]
"""How processes share one whole GPU."""
MOST_TENANTS: Final = 8
"""Processes on one shared GPU that are modelled: a simulation tabulates their speeds over which of them are busy."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Shares of the time of a lone run on the whole GPU: with kernels on it; bound by SMs; bound by bandwidth.

    `overlaps`: with several requests in flight the host works on some while others are on the GPU, so that longer GPU
    times are felt only once the GPU is the bottleneck; without, GPU and host take turns (an engine's step loop).
    Raises ValueError unless all shares are within 0 .. 1 and the bound ones do not exceed `busy`.
    """

    busy: float
    sm_bound: float
    bandwidth_bound: float = 0.0
    overlaps: bool = False
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not (0.0 <= self.bound <= self.busy <= 1.0 and min(self.sm_bound, self.bandwidth_bound) >= 0.0):
            raise ValueError(f"busy {self.busy}, bound by SMs {self.sm_bound}, by bandwidth {self.bandwidth_bound}")

    @property
    def bound(self) -> float:
        """Share bound by the scarcer of SMs and bandwidth."""
        return max(self.sm_bound, self.bandwidth_bound)

    def slowdown(self, longer: float) -> float:
        """Time over lone time when the time on the GPU is longer by this share of the lone time."""
        return max(1.0, self.busy + longer) if self.overlaps else 1.0 + longer


@lru_cache(maxsize=1)
def switch_cost() -> float:
    """What switching adds to time-sliced time, as a share of it."""
    cost: float = read_json("sharing.json")["fit"]["switch_cost"]
    return cost


def relative_error() -> float:
    """Largest relative error of the laws on the published cases, fitted and checked."""
    error: float = read_json("sharing.json")["fit"]["largest_error"]
    return error


def time_sliced(tenant: Tenant, neighbours: Sequence[Tenant], switch: float | None = None) -> float:
    """Slowdown beside neighbours on one GPU with time-slicing: contexts take turns, nothing runs at once.

    GPU time grows by b ((1 + sum b_j) (1 + c p) - 1): b the busy shares, c the switch cost, p = 1 - prod (1 - b_j) the
    probability that some neighbour wants the GPU. N tenants that are always busy: N (1 + c). Idle ones cost nothing.
    """
    cost = switch_cost() if switch is None else switch
    wanted, idle = 1.0, 1.0
    for other in neighbours:
        wanted += other.busy
        idle *= 1.0 - other.busy
    return tenant.slowdown(tenant.busy * (wanted * (1.0 + cost * (1.0 - idle)) - 1.0))


def mps(tenant: Tenant, neighbours: Sequence[Tenant], thread_share: float = 1.0) -> float:
    """Slowdown beside neighbours under MPS: kernels run at once and share SMs and bandwidth.

    GPU time grows by u sum b_j: the bound share u gets 1 / (1 + sum b_j) of the GPU, the rest is as fast as alone. N
    equal tenants that are always busy: (1 - u) + u N.

    `thread_share`: the share of SMs that one client may use at most, neighbours or not (active thread percentage); as
    on a MIG slice GPU time then grows by u (1 / s - 1) over SMs at least.
    """
    limited = tenant.sm_bound * (1.0 / thread_share - 1.0)
    return tenant.slowdown(max(tenant.bound * sum(other.busy for other in neighbours), limited))


def shared(mode: Mode, tenant: Tenant, neighbours: Sequence[Tenant], thread_share: float = 1.0) -> float:
    """Slowdown beside these neighbours; `thread_share` matters under MPS only."""
    return time_sliced(tenant, neighbours) if mode == "time-slicing" else mps(tenant, neighbours, thread_share)


def mig(tenant: Tenant, part: Device) -> float:
    """Slowdown on a MIG slice against the whole GPU; neighbours in other slices do not matter.

    GPU time grows by max(u (1 / s - 1)) over SMs and bandwidth, s the slice's share of each. Infinite where the
    tenant's memory does not fit.
    """
    if tenant.memory_bytes > part.memory_bytes:
        return math.inf
    bandwidth_share = part.memory_bandwidth_bytes_per_s / part.accelerator.memory_bandwidth_bytes_per_s
    by_sm = tenant.sm_bound * (1.0 / part.sm_share - 1.0)
    return tenant.slowdown(max(by_sm, tenant.bandwidth_bound * (1.0 / bandwidth_share - 1.0)))


def from_rates(
    device: Device, flop_per_s: float, bytes_per_s: float, *, busy: float | None = None, overlaps: bool = False
) -> Tenant:
    """A tenant that does so many 16-bit operations and moves so many bytes a second when alone on `device`.

    Bound shares are the rates over what the device achieves (`coefficients`), at most 1. Without `busy` its kernels
    are taken to be on the GPU for just as long. Raises BadInputError where the device's compute rate is not known.
    """
    path = coefficients.dense_path(device, "bf16", has_experts=False)
    sm_bound = min(flop_per_s / path.flops_per_s, 1.0)
    bandwidth_bound = min(bytes_per_s / path.bytes_per_s, 1.0)
    bound = max(sm_bound, bandwidth_bound)
    return Tenant(bound if busy is None else busy, sm_bound, bandwidth_bound, overlaps)


def of_engine(costs: StepCosts, sequences: int, context_tokens: int, busy: float = 1.0) -> Tenant:
    """An engine that decodes so many sequences with so many tokens of context in all.

    Bound: linear layers and attention over the time of the step; which of SMs and bandwidth binds is not told apart.
    `busy`: the share of a step with kernels on the GPU; all of it unless measured, which is the worst for others.
    """
    bound_ps = int(costs.tokens_ps[sequences]) + costs.kv_token_ps * context_tokens
    bound = bound_ps / costs.step_time_ps(0, 0, sequences, context_tokens)
    return Tenant(busy, min(bound, busy), min(bound, busy))


def of_stage(sm_demand: float) -> Tenant:
    """A measured stage that keeps this share of the GPU's SMs busy, requests overlapping (performance/stages.py).

    On a slice of share s its slowdown is max(1, d / s), which is the law of stages.
    """
    demand = min(sm_demand, 1.0)
    return Tenant(demand, demand, overlaps=True)
