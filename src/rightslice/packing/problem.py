"""The packing problem and its answer, as plain values: pools of nodes, layouts of GPUs, options of models, counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from rightslice.catalogue.hardware import WHOLE

Status = Literal["optimal", "infeasible", "stopped"]


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """One way to cut one GPU: partition -> count, and where each sits as (partition, start).

    `{"whole": 1}` is an undivided GPU. `placements` holds each partition as often as `profiles` says.
    """

    name: str
    profiles: Mapping[str, int]
    placements: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        placed = [partition for partition, _ in self.placements]
        if {name: placed.count(name) for name in placed} != {k: n for k, n in self.profiles.items() if n}:
            raise ValueError(f"layout {self.name}: placements do not match profiles")


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Equal nodes bought the same way. `limits` names the GPU limits that every node's GPUs count against."""

    key: str
    accelerator: str
    gpus_per_node: int
    usd_per_hour: float
    layouts: tuple[GpuLayout, ...]
    max_nodes: int | None = None
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One way to run one replica of a model. `gpus` devices: whole GPUs, or exactly one slice.

    `node_gpus` of them must share one node (the tensor-parallel group); 0 means all. A replica of more GPUs than a
    node has takes whole nodes, so its GPUs must be a multiple of the node's. `pools` None means every pool of that
    accelerator. `requests_per_s` is of one replica; 0 for a model without load.
    """

    key: str
    model: str
    accelerator: str
    partition: str
    gpus: int
    requests_per_s: float
    pools: frozenset[str] | None = None
    node_gpus: int = 0

    def __post_init__(self) -> None:
        if self.gpus < 1 or (self.partition != WHOLE and self.gpus != 1):
            raise ValueError(f"option {self.key}: {self.gpus} x {self.partition} is not a replica")

    def runs_in(self, pool: PoolSpec) -> bool:
        """Whether a node (or several whole nodes) of `pool` can host it."""
        if self.accelerator != pool.accelerator or (self.pools is not None and pool.key not in self.pools):
            return False
        if self.gpus > pool.gpus_per_node:
            together = self.node_gpus or self.gpus
            if self.gpus % pool.gpus_per_node or pool.gpus_per_node % together:
                return False
        return any(layout.profiles.get(self.partition) for layout in pool.layouts)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one model needs: requests/s, a floor of replicas, and `min_nodes` different nodes under them.

    `spare`: the rate still holds with the largest replica lost, and at least one replica is then left.
    """

    model: str
    requests_per_s: float
    min_replicas: int
    spare: bool
    min_nodes: int = 1


@dataclass(frozen=True)
class Problem:
    """Everything `solve` reads. `limits`: limit key -> GPUs; a key that is missing does not limit."""

    pools: tuple[PoolSpec, ...]
    options: tuple[OptionSpec, ...]
    demands: tuple[Demand, ...]
    limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, keys in (
            ("pool", [p.key for p in self.pools]),
            ("option", [o.key for o in self.options]),
            ("demand", [d.model for d in self.demands]),
        ):
            if len(set(keys)) != len(keys):
                raise ValueError(f"two of kind {kind} have one key")

    @cached_property
    def pool_of(self) -> Mapping[str, PoolSpec]:
        """Pool by key."""
        return {pool.key: pool for pool in self.pools}

    @cached_property
    def option_of(self) -> Mapping[str, OptionSpec]:
        """Option by key."""
        return {option.key: option for option in self.options}


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

    `stopped`: the solver reached its count limit; the packing is valid, its distance from the bound is what it is.
    `binding` (infeasible only): `model:NAME` that cannot be met, and `limit:KEY` or `pool:KEY` that stand in the way;
    `shortfall` says how many GPUs more each of those limits and pools would have to allow.
    `groups` splits each pool's counts into nodes that are filled together; empty means one group per pool.
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
