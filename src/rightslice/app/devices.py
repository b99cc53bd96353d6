"""Devices of a pool's nodes as Kubernetes counts them, GPU by GPU, and what one replica asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.core.plan import Plan, Pool
from rightslice.optimization.options import Option

GPU: Final = "nvidia.com/gpu"


def devices_of(plan: Plan, pool: Pool) -> tuple[Mapping[str, int], ...] | None:
    """What each GPU of one node offers, where all nodes of the pool are cut alike and nobody shares a GPU."""
    if pool.sharing in ON_ONE_GPU:
        return None
    if not any(layout.profiles for layout in pool.layouts):
        return ({GPU: 1},) * pool.gpus_per_node
    nodes: dict[int, list[dict[str, int]]] = {}
    for placement in plan.placements:
        if placement.pool == pool.name:
            slices = [slot.partition for slot in placement.slots if slot.partition != WHOLE]
            offered = {_slice(partition): slices.count(partition) for partition in slices} or {GPU: 1}
            nodes.setdefault(placement.node, []).append(offered)
    found = list(nodes.values())
    return tuple(found[0]) if found and all(total(node) == total(found[0]) for node in found) else None


def by_mps(pool: Pool, options: Sequence[Option]) -> tuple[Mapping[str, int], ...] | None:
    """A place for each model on every GPU, where all GPUs are shared by the same models with one replica of each.

    The i-th replica of each is on GPU i then, here as in the groups that slow each other down.
    """
    models = [option.model for option in options]
    labels = {option.share.label for option in options if option.share}
    alone = all(option.share and option.share.each == 1 for option in options)
    if not alone or len(labels) != 1 or len(set(models)) < len(models):
        return None
    return ({_place(model): 1 for model in models},) * pool.gpus_per_node


def _place(model: str) -> str:
    return f"mps/{model}"


def total(devices: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Resources of a node."""
    found: dict[str, int] = {}
    for offered in devices:
        for name, count in offered.items():
            found[name] = found.get(name, 0) + count
    return found


def _slice(partition: str) -> str:
    return f"nvidia.com/mig-{partition}"


def asks(option: Option) -> tuple[str, int]:
    """(Resource, how many) of one replica."""
    if option.share:
        return _place(option.model), 1
    return (GPU, option.gpus) if option.partition == WHOLE else (_slice(option.partition), 1)
