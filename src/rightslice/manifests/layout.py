"""What each GPU of a pool is cut into, node by node, and what stays free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.core.plan import Deployment, Plan, Pool

Cut = Mapping[str, int]
"""MIG profile -> instances on one GPU, or the way it is shared -> places; empty for a whole GPU of one pod."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Nodes of one pool whose GPUs are cut alike, GPU by GPU."""

    gpus: tuple[Cut, ...]
    nodes: int

    @property
    def sliced(self) -> bool:
        """Whether any GPU is cut into MIG slices."""
        return any(set(cut) - set(ON_ONE_GPU) for cut in self.gpus)


def node_cuts(plan: Plan, pool: Pool) -> list[tuple[Cut, ...]]:
    """The cut of every GPU of every node of the pool."""
    cuts = _cuts(plan, pool)
    return [tuple(cuts[node, gpu] for gpu in range(pool.gpus_per_node)) for node in range(pool.nodes)]


def node_layouts(plan: Plan, pool: Pool) -> tuple[NodeLayout, ...]:
    """The distinct layouts of the pool's nodes, in the order of their first node."""
    per_node = node_cuts(plan, pool)
    counted: list[tuple[tuple[Cut, ...], int]] = []
    for gpus in per_node:
        if all(gpus != seen for seen, _ in counted):
            counted.append((gpus, per_node.count(gpus)))
    return tuple(NodeLayout(gpus, nodes) for gpus, nodes in counted)


def describe(gpus: Sequence[Cut]) -> str:
    """`GPU 0: whole, GPU 1: 2 × 3g.40gb`."""
    return ", ".join(
        f"GPU {gpu}: " + (" + ".join(f"{count} × {profile}" for profile, count in sorted(cut.items())) or "whole")
        for gpu, cut in enumerate(gpus)
    )


def capacity(plan: Plan, pool: Pool) -> Counter[str]:
    """Partition -> how many the pool's GPUs make: whole GPUs, or instances of each profile."""
    made: Counter[str] = Counter()
    for cut in _cuts(plan, pool).values():
        made.update(cut or {WHOLE: 1})
    return made


def has_spare(plan: Plan, deployment: Deployment) -> bool:
    """Whether one more replica finds room while all others run: what a rolling update without a gap needs.

    Whole GPUs must be free together on one node; a slice may be free anywhere in the pool.
    """
    pool = plan.pool(deployment.pool)
    tenants = _tenants(plan, pool)
    free: Counter[int] = Counter()
    for place, cut in _cuts(plan, pool).items():
        made = cut.get(deployment.partition, 0) if deployment.partition != WHOLE else int(not cut)
        free[place[0]] += made - tenants.get(place, Counter())[deployment.partition]
    return max(free.values(), default=0) >= deployment.gpus_per_replica


def _cuts(plan: Plan, pool: Pool) -> dict[tuple[int, int], Cut]:
    """(node, GPU) -> its cut.

    Where a placement does not say which of the pool's layouts its GPU has, it is found by matching: GPUs with most
    tenants first, each takes the remaining layout that holds its tenants with the least left over.
    """
    tenants = _tenants(plan, pool)
    remaining = {use.name: use.gpus for use in pool.layouts}
    offered = {use.name: use.profiles for use in pool.layouts}
    stated = {(p.node, p.gpu): p.layout for p in plan.placements if p.pool == pool.name and p.layout in offered}
    cuts: dict[tuple[int, int], Cut] = {place: offered[name] for place, name in stated.items()}
    for name in stated.values():
        remaining[name] -= 1
    every = [(node, gpu) for node in range(pool.nodes) for gpu in range(pool.gpus_per_node)]
    places = [place for place in every if place not in stated]
    for place in sorted(places, key=lambda at: (-sum(tenants.get(at, Counter()).values()), at)):
        present = tenants.get(place, Counter())
        name = _fitting(present, remaining, offered)
        if name:
            remaining[name] -= 1
        cuts[place] = offered[name] if name else {p: n for p, n in sorted(present.items()) if p != WHOLE}
    return cuts


def _tenants(plan: Plan, pool: Pool) -> dict[tuple[int, int], Counter[str]]:
    placed = (p for p in plan.placements if p.pool == pool.name)
    return {(p.node, p.gpu): Counter(s.partition for s in p.slots if s.deployment) for p in placed}


def _fitting(present: Counter[str], remaining: Mapping[str, int], offered: Mapping[str, Cut]) -> str:
    """The layout with the fewest instances beside the tenants; an empty name where none holds them."""
    fits: list[tuple[int, str]] = []
    for name, gpus in remaining.items():
        instances = Counter(offered[name]) if offered[name] else Counter({WHOLE: 1})
        if gpus > 0 and not present - instances:
            fits.append((sum(instances.values()) - sum(present.values()), name))
    return min(fits)[1] if fits else ""
