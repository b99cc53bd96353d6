"""The answer to a packing problem: counts of nodes, layouts and replicas, its price, and what is proven about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["optimal", "infeasible", "stopped", "empty"]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one pool that are filled together: GPUs per layout name and replicas per option key."""

    pool: str
    nodes: int
    layouts: Mapping[str, int]
    replicas: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Packing:
    """The answer. No packing of the problem costs less than `bound_usd_per_hour`.

    `stopped`: the search ended before a proof; the packing is valid, its distance from the bound is `gap`. `empty`: no
    demand asks for a replica, so nothing is bought.
    `binding` (infeasible only): `model:NAME` that cannot be met, and `limit:KEY` or `pool:KEY` that stand in the way;
    `shortfall` says how many GPUs more each of those limits and pools would have to allow.
    `reasons`: model -> why no node can host it, where the node is what is too small.
    `shadow_usd_per_hour`: `limit:KEY` or `pool:KEY` -> what one more GPU of it saves by the linear relaxation, which is
    near the truth in a large fleet and a guide in a small one; missing means nothing.
    `changed_gpus`: GPUs of today that have to be cut or shared anew.
    `layouts` counts GPUs per layout or sharing group. `groups` splits each pool's counts into nodes that are filled
    together; empty means one group per pool.
    """

    status: Status
    usd_per_hour: float
    bound_usd_per_hour: float
    nodes: Mapping[str, int]
    layouts: Mapping[tuple[str, str], int]
    replicas: Mapping[tuple[str, str], int]
    binding: tuple[str, ...] = ()
    shortfall: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[NodeGroup, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    shadow_usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    changed_gpus: int = 0

    @property
    def gap(self) -> float:
        """(price - bound) / bound: how much dearer than the cheapest it can be at most; 0 when both are 0."""
        above = self.usd_per_hour - self.bound_usd_per_hour
        if self.status == "infeasible" or above <= 0:
            return 0.0
        return above / self.bound_usd_per_hour if self.bound_usd_per_hour > 0 else math.inf

    def node_groups(self) -> tuple[NodeGroup, ...]:
        """`groups`, or one group per pool when there are none."""
        if self.groups:
            return self.groups
        return tuple(
            NodeGroup(
                pool,
                count,
                {layout: n for (where, layout), n in sorted(self.layouts.items()) if where == pool},
                {option: n for (where, option), n in sorted(self.replicas.items()) if where == pool},
            )
            for pool, count in sorted(self.nodes.items())
            if count
        )
