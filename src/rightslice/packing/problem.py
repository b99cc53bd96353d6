"""The packing problem, as plain values: pools of nodes, layouts of GPUs, options of models, who may share a GPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rightslice.catalogue.hardware import WHOLE


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
    """Equal nodes bought the same way. `limits` names the GPU limits that every node's GPUs count against.

    `sharing`: `time-slicing` or `mps` where processes share every GPU of its nodes, since the device plugin is set per
    node; such a pool has no layouts, its GPUs carry sharing groups.
    """

    key: str
    accelerator: str
    gpus_per_node: int
    usd_per_hour: float
    layouts: tuple[GpuLayout, ...]
    max_nodes: int | None = None
    limits: tuple[str, ...] = ()
    sharing: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_hour) and self.usd_per_hour >= 0 and self.gpus_per_node >= 1):
            raise ValueError(f"pool {self.key}: {self.gpus_per_node} GPUs at {self.usd_per_hour} USD per hour")
        if self.sharing and self.layouts:
            raise ValueError(f"pool {self.key}: its GPUs are shared, so they cannot be cut")

    @property
    def usd_per_gpu_hour(self) -> float:
        """Price of one of its GPUs."""
        return self.usd_per_hour / self.gpus_per_node


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
        _check_rate(f"option {self.key}", self.requests_per_s)

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
class Client:
    """One process on a shared GPU: which option's replica it is, and the requests/s it gives beside the others."""

    option: str
    model: str
    requests_per_s: float


@dataclass(frozen=True, slots=True)
class SharingGroup:
    """One GPU and all who share it by `mode`; a model may be there more than once. The rates hold inside this group.

    One option may have another rate in every group. `pools` None means every pool that shares that accelerator so.
    """

    key: str
    accelerator: str
    mode: str
    clients: tuple[Client, ...]
    pools: frozenset[str] | None = None

    def runs_in(self, pool: PoolSpec) -> bool:
        """Whether a GPU of `pool` can carry it."""
        return (
            self.mode == pool.sharing
            and self.accelerator == pool.accelerator
            and (self.pools is None or pool.key in self.pools)
        )

    @property
    def layout(self) -> GpuLayout:
        """The GPU as a layout: one place for each client, named by its option."""
        places = tuple((client.option, place) for place, client in enumerate(self.clients))
        return GpuLayout(self.key, Counter(option for option, _ in places), places)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one model needs: requests/s, a floor of replicas, and `min_nodes` different nodes under them.

    `spare`: the rate still holds with the largest replica lost, or the shared GPU on which most of it runs, and at
    least one replica is then left.
    """

    model: str
    requests_per_s: float
    min_replicas: int
    spare: bool
    min_nodes: int = 1


def _check_rate(what: str, requests_per_s: float) -> None:
    if not (math.isfinite(requests_per_s) and requests_per_s >= 0):
        raise ValueError(f"{what}: {requests_per_s} requests/s")


@dataclass(frozen=True)
class Problem:
    """Everything `solve` reads. `limits`: limit key -> GPUs; a key that is missing does not limit.

    `current`: (pool, layout or sharing group) -> GPUs that carry it now, `whole` and idle ones as `whole`. Every GPU
    that has to carry something else costs `change_penalty` of its pool's price of a GPU hour.
    """

    pools: tuple[PoolSpec, ...]
    options: tuple[OptionSpec, ...]
    demands: tuple[Demand, ...]
    limits: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[SharingGroup, ...] = ()
    current: Mapping[tuple[str, str], int] = field(default_factory=dict)
    change_penalty: float = 0.0

    def __post_init__(self) -> None:
        for kind, keys in (
            ("pool", [p.key for p in self.pools]),
            ("option", [o.key for o in self.options]),
            ("demand", [d.model for d in self.demands]),
            ("group", [g.key for g in self.groups]),
        ):
            if len(set(keys)) != len(keys):
                raise ValueError(f"two of kind {kind} have one key")
        for demand in self.demands:
            _check_rate(f"demand {demand.model}", demand.requests_per_s)
        if not self.change_penalty >= 0:
            raise ValueError(f"a change penalty of {self.change_penalty}")

    @cached_property
    def pool_of(self) -> Mapping[str, PoolSpec]:
        """Pool by key."""
        return {pool.key: pool for pool in self.pools}

    @cached_property
    def group_of(self) -> Mapping[str, SharingGroup]:
        """Sharing group by key."""
        return {group.key: group for group in self.groups}

    @cached_property
    def option_of(self) -> Mapping[str, OptionSpec]:
        """Option by key; a client's option takes up a place of its own name and has no rate outside its groups."""
        clients = {client.option: (client, group) for group in self.groups for client in group.clients}
        shared = {
            key: OptionSpec(key, client.model, group.accelerator, key, 1, 0.0)
            for key, (client, group) in clients.items()
        }
        return {**shared, **{option.key: option for option in self.options}}

    @cached_property
    def shared_models(self) -> frozenset[str]:
        """Models that may run on a shared GPU."""
        return frozenset(client.model for group in self.groups for client in group.clients)

    def layouts_of(self, pool: PoolSpec, names: Iterable[str]) -> tuple[GpuLayout, ...]:
        """The layouts of `pool`, or the sharing groups of these names as layouts."""
        return tuple(self.group_of[name].layout for name in names) if pool.sharing else pool.layouts
