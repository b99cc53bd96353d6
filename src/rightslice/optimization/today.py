"""The nodes that run today: as layouts of the packing's pools, and matched with the nodes of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.packing.problem import GpuLayout, PoolSpec

CHANGE_PENALTY: Final = 1e-3
"""Of a GPU's price: what keeps nearly every GPU as it is at no noticeable cost (docs/packing.md)."""
OTHER: Final = "other"
"""A cut that no offered layout has; such a GPU has to change whatever the plan."""


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One GPU: MIG profile or way of sharing -> places (`{}`: whole), and (model, name) of each replica on it.

    `partial`: only places in use are known; what a layout has beside them is taken to be there.
    """

    cut: Mapping[str, int]
    replicas: tuple[tuple[str, str], ...] = ()
    partial: bool = False

    def is_cut_as(self, other: GpuNow) -> bool:
        """Whether nothing has to be done for it to become `other`."""
        if self.partial and self.cut and other.cut:
            return not Counter(self.cut) - Counter(other.cut)
        return dict(self.cut) == dict(other.cut)


@dataclass(frozen=True, slots=True)
class NodeNow:
    """One node. `pool` is empty where only its machine type is known."""

    name: str
    machine_type: str
    pool: str
    gpus: tuple[GpuNow, ...]

    @property
    def replicas(self) -> frozenset[tuple[str, str]]:
        """(model, name) of every replica with a part on it."""
        return frozenset(replica for gpu in self.gpus for replica in gpu.replicas)

    def may_be(self, other: NodeNow) -> bool:
        """Whether it can turn into `other` by cutting GPUs: the same pool, or the same machine type."""
        if self.pool and other.pool:
            return self.pool == other.pool
        return self.machine_type == other.machine_type and len(self.gpus) == len(other.gpus)


def current_layouts(
    today: Sequence[NodeNow], pools: Sequence[PoolSpec], machine_of: Mapping[str, str]
) -> dict[tuple[str, str], int]:
    """(pool, layout) -> GPUs that carry it now. `machine_of`: pool -> machine type.

    Nodes that nothing offered can be are left out: the plan does without them.
    """
    found: Counter[tuple[str, str]] = Counter()
    taken: Counter[str] = Counter()
    for node in today:
        homes = [pool for pool in pools if _houses(pool, node, machine_of)]
        homes = [pool for pool in homes if pool.max_nodes is None or taken[pool.key] < pool.max_nodes]
        if homes:
            home = max(homes, key=lambda pool: sum(_layout(pool, gpu) != OTHER for gpu in node.gpus))
            taken[home.key] += 1
            found.update((home.key, _layout(home, gpu)) for gpu in node.gpus)
    return dict(found)


def _houses(pool: PoolSpec, node: NodeNow, machine_of: Mapping[str, str]) -> bool:
    if node.pool:
        return pool.key == node.pool
    return machine_of[pool.key] == node.machine_type and pool.gpus_per_node == len(node.gpus)


def _layout(pool: PoolSpec, gpu: GpuNow) -> str:
    """The offered layout that has this GPU's places and the fewest more; `whole` for an undivided GPU."""
    if not gpu.cut:
        return WHOLE
    fitting = [(sum(layout.profiles.values()), layout.name) for layout in pool.layouts if _holds(layout, gpu)]
    return min(fitting, default=(0, OTHER))[1]


def _holds(layout: GpuLayout, gpu: GpuNow) -> bool:
    """On a shared GPU the places are those of models; else they are MIG profiles."""
    shared = set(gpu.cut) & set(ON_ONE_GPU)
    if not shared:
        return not Counter(gpu.cut) - Counter(layout.profiles)
    served = Counter(slot.rpartition("/")[2] for slot, _ in layout.placements)
    return all(slot.startswith(f"{mode} ") for mode in shared for slot in layout.profiles) and not (
        Counter(model for model, _ in gpu.replicas) - served
    )


def matched(old: Sequence[NodeNow], new: Sequence[NodeNow]) -> list[tuple[int, int]]:
    """Pairs (place in `old`, place in `new`): each old node with the new one that keeps most of its GPUs as they are.

    Greedy over kinds of nodes, which is best for nodes of one GPU.
    """
    waiting, free = _kinds(old), _kinds(new)
    pairs = [
        (_alike(old[mine[0]], new[theirs[0]]), -mine[0], -theirs[0], mine, theirs)
        for mine in waiting
        for theirs in free
        if old[mine[0]].may_be(new[theirs[0]])
    ]
    found: list[tuple[int, int]] = []
    for *_, mine, theirs in sorted(pairs, key=lambda pair: pair[:3], reverse=True):
        while mine and theirs:
            found.append((mine.pop(0), theirs.pop(0)))
    return sorted(found)


def _kinds(nodes: Sequence[NodeNow]) -> list[list[int]]:
    """Places of nodes that are cut alike."""
    kinds: dict[object, list[int]] = {}
    for place, node in enumerate(nodes):
        cuts = tuple(tuple(sorted(gpu.cut.items())) for gpu in node.gpus)
        kinds.setdefault((node.pool, node.machine_type, cuts), []).append(place)
    return list(kinds.values())


def _alike(old: NodeNow, new: NodeNow) -> int:
    """GPUs that stay as they are, wherever in the node."""
    return sum(1 for _ in _equal(old, new, list(range(len(new.gpus)))))


def reordered(old: NodeNow, new: NodeNow) -> tuple[int, ...]:
    """For each GPU of `old` the GPU of `new` that takes its place: one that is cut alike where there is one."""
    left = list(range(len(new.gpus)))
    chosen = dict(_equal(old, new, left))
    rest: Iterator[int] = iter(left)
    return tuple(chosen[gpu] if gpu in chosen else next(rest) for gpu in range(len(old.gpus)))


def _equal(old: NodeNow, new: NodeNow, left: list[int]) -> Iterator[tuple[int, int]]:
    for gpu, now in enumerate(old.gpus):
        twin = next((g for g in left if now.is_cut_as(new.gpus[g])), None)
        if twin is not None:
            left.remove(twin)
            yield gpu, twin
