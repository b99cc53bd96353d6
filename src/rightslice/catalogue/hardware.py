"""Value types of the hardware catalogue: accelerators, MIG geometry, machines, and the device an engine sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

WHOLE = "whole"
ON_ONE_GPU = ("time-slicing", "mps")
"""Ways in which processes share a whole GPU."""
SHARED = (*ON_ONE_GPU, "vm-fraction")
"""Partitions that a workload may name beside the whole GPU and MIG profiles."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator. `visible_memory_bytes`: what CUDA/HIP gives an engine; `visible_assumed`: nobody printed it.

    `flops` holds dense operations per second by dtype (bf16, fp16, fp8, int8, fp4, tf32, fp32); an absent key means
    that the hardware has no such unit.
    """

    name: str
    vendor: str
    arch: str
    form_factor: str
    advertised_memory_bytes: int
    visible_memory_bytes: int
    visible_assumed: bool
    memory_bandwidth_bytes_per_s: float
    sm_count: int | None
    l2_cache_bytes: int | None
    flops: Mapping[str, float]
    link_kind: str
    link_bytes_per_s: float
    link_domain_max: int
    pcie_bytes_per_s: float
    tdp_w: float | None
    compute_capability: str
    mig: bool
    source: str
    disputed: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One MIG profile: `starts` and `mem_units` in the memory units of `nvidia-smi mig -lgipp`."""

    name: str
    compute_slices: int
    mem_units: int
    starts: tuple[int, ...]
    max_instances: int
    memory_bytes: int
    sm_count: int
    media: str = ""
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class MigGeometry:
    """What one accelerator can be cut into. Instances coexist iff their [start, start + mem_units) are disjoint."""

    accelerator: str
    mem_units: int
    compute_slices: int
    max_instances: int
    sm_full: int
    profiles: tuple[MigProfile, ...]

    def profile(self, name: str) -> MigProfile:
        """The profile of that name; KeyError when absent."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine type in one region. Prices are the whole machine's list prices per hour, None when not sold so."""

    provider: str
    region: str
    machine_type: str
    accelerator: str
    accelerator_count: float
    vcpu: int | None
    memory_gib: float | None
    on_demand_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    spot_interruption: str
    price_date: str
    quality: str
    source: str
    host_architecture: str
    nic_gbps: float | None
    gpudirect: str
    fabric: str
    local_ssd_gib: float | None
    sold_as: frozenset[str]
    managed_kubernetes: str


@dataclass(frozen=True)
class Device:
    """What one engine process sees: a whole accelerator (its own or shared) or one MIG slice, in absolute terms.

    `flops` and `memory_bandwidth_bytes_per_s` are the slice's own; `link_bytes_per_s` is 0 inside a slice (no NVLink,
    no peer access).
    """

    accelerator: Accelerator
    partition: str
    memory_bytes: int
    sm_count: int | None
    memory_bandwidth_bytes_per_s: float
    flops: Mapping[str, float]
    link_bytes_per_s: float

    @property
    def name(self) -> str:
        """`A100-SXM-80GB`, `A100-SXM-80GB:MIG-3g.40gb` or `A100-SXM-80GB:time-slicing`."""
        if self.partition == WHOLE:
            return self.accelerator.name
        return f"{self.accelerator.name}:{'MIG-' if self.sliced else ''}{self.partition}"

    @property
    def sliced(self) -> bool:
        """Whether it is a MIG slice."""
        return self.partition not in (WHOLE, *ON_ONE_GPU)

    @cached_property
    def sm_share(self) -> float:
        """SMs of the slice over SMs of the whole accelerator; 1.0 for a whole one."""
        whole = self.accelerator.sm_count
        return self.sm_count / whole if self.sm_count and whole else 1.0
