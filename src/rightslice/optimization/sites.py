"""One accelerator as it can be had, and how one replica can be split over accelerators of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.catalogue.platforms import platforms
from rightslice.memory.legality import gains_from_replicas
from rightslice.procurement.offers import Offer

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8, 16)
MAX_PIPELINE_NODES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Parallel sizes of one replica. With `data` > 1 experts are spread over `tensor` x `data` ranks. `node_gpus`: GPUs
    that must share a node (0: all)."""

    tensor: int
    pipeline: int = 1
    data: int = 1
    node_gpus: int = 0

    @property
    def gpus(self) -> int:
        """Accelerators of the replica."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True)
class Site:
    """One accelerator as it can be had: the largest machine, whether nodes reach each other fast, what MIG makes, how
    processes can share it."""

    accelerator: str
    machine_sizes: tuple[int, ...]
    fabrics: frozenset[str]
    fast_network: bool
    partitions: tuple[str, ...]
    largest_machine: str
    sharing: tuple[str, ...] = ()

    @property
    def largest(self) -> int:
        """Accelerators in the largest machine on offer."""
        return max(self.machine_sizes)


def sites(offers: Sequence[Offer], platform_of: Mapping[str, str]) -> tuple[Site, ...]:
    """Group offers by accelerator, in a fixed order. `platform_of` maps provider -> platform name."""
    grouped: dict[str, list[Offer]] = {}
    for offer in offers:
        grouped.setdefault(offer.machine.accelerator, []).append(offer)
    return tuple(_site(name, grouped[name], platform_of) for name in sorted(grouped))


def _site(name: str, offers: Sequence[Offer], platform_of: Mapping[str, str]) -> Site:
    machines = [offer.machine for offer in offers]
    makers = sorted({platform_of[m.provider] for m in machines})
    profiles = dict.fromkeys(profile for maker in makers for profile in platforms()[maker].partitions(name))
    largest = max(machines, key=lambda m: (m.accelerator_count, m.machine_type))
    return Site(
        accelerator=name,
        machine_sizes=tuple(sorted({int(m.accelerator_count) for m in machines})),
        fabrics=frozenset(m.fabric for m in machines),
        fast_network=any(m.gpudirect not in ("none", "") for m in machines),
        partitions=(WHOLE, *profiles),
        largest_machine=largest.machine_type,
        sharing=tuple(mode for mode in ON_ONE_GPU if any(platforms()[maker].shares(mode) for maker in makers)),
    )


def inside_a_machine(site: Site, partition: str, architecture: Architecture) -> list[Shape]:
    """Shapes within one machine, smallest first; one process on a slice."""
    if partition != WHOLE:
        return [Shape(1)]
    plain = [Shape(tensor) for tensor in TENSOR_PARALLEL_SIZES if tensor <= site.largest]
    return sorted([*plain, *_replicated(architecture, site.largest, 1)], key=_by_gpus)


def across_machines(site: Site, partition: str, architecture: Architecture) -> list[Shape]:
    """Only for what no machine holds: tensor parallel inside a machine and pipeline parallel across, or replicas of the
    attention with experts over all."""
    if partition != WHOLE or not site.fast_network:
        return []
    nodes = (2, MAX_PIPELINE_NODES)
    plain = [Shape(site.largest, pipeline=n, node_gpus=site.largest) for n in nodes]
    return sorted([*plain, *(s for n in nodes for s in _replicated(architecture, site.largest, n))], key=_by_gpus)


def _replicated(architecture: Architecture, machine: int, nodes: int) -> list[Shape]:
    """Attention replicas over all GPUs of up to one machine, or of several whole ones."""
    if not gains_from_replicas(architecture):
        return []
    if nodes > 1:
        return [Shape(t, data=machine * nodes // t, node_gpus=machine) for t in TENSOR_PARALLEL_SIZES if t <= machine]
    sizes = [size for size in TENSOR_PARALLEL_SIZES if size <= machine]
    return [Shape(t, data=n // t) for n in sizes for t in sizes if t < n]


def _by_gpus(shape: Shape) -> int:
    return shape.gpus
