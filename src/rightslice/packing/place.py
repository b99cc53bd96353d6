"""Counts -> which replica sits on which GPU of which node: largest first, one model spread over nodes, then GPUs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rightslice.catalogue.hardware import WHOLE
from rightslice.core.errors import RightsliceError
from rightslice.packing.packing import NodeGroup, Packing
from rightslice.packing.patterns import is_chain, node_patterns
from rightslice.packing.problem import GpuLayout, OptionSpec, Problem
from rightslice.packing.solver import Builder, solve


@dataclass(frozen=True, slots=True)
class PlacedSlot:
    """One tenant. `start` is the layout's; on a shared GPU the place in its group, whose partition is the option.

    `replica` counts from 0 within (pool, option), equal on all its GPUs.
    """

    partition: str
    start: int
    option: str
    replica: int


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """One GPU of one node. Free slots of a layout are left out; an idle GPU has no slots and an empty layout name."""

    pool: str
    node: int
    gpu: int
    layout: str
    slots: tuple[PlacedSlot, ...]


def place(problem: Problem, packing: Packing) -> tuple[PlacedGpu, ...]:
    """Every GPU of every node of `packing`, by pool, node and GPU.

    Replicas of several GPUs sit side by side on one node, or take whole nodes when they are larger. Every count is
    realised exactly; raises RightsliceError RS9001 when that is impossible.
    """
    placed: list[PlacedGpu] = []
    nodes: dict[str, int] = {}
    replicas: dict[tuple[str, str], int] = {}
    for group in packing.node_groups():
        placed += _Filling(problem, group, nodes.get(group.pool, 0), replicas).gpus()
        nodes[group.pool] = nodes.get(group.pool, 0) + group.nodes
        for option, count in group.replicas.items():
            replicas[group.pool, option] = replicas.get((group.pool, option), 0) + count
    return tuple(sorted(placed, key=lambda gpu: (gpu.pool, gpu.node, gpu.gpu)))


def node_spread(problem: Problem, placed: Sequence[PlacedGpu]) -> dict[str, int]:
    """Model -> nodes that hold a replica of it; a replica over several nodes counts for its first one."""
    homes: dict[str, dict[tuple[str, str, int], tuple[str, int]]] = {}
    for gpu in placed:
        for slot in gpu.slots:
            replicas = homes.setdefault(problem.option_of[slot.option].model, {})
            replicas.setdefault((gpu.pool, slot.option, slot.replica), (gpu.pool, gpu.node))
    return {model: len(set(replicas.values())) for model, replicas in homes.items()}


@dataclass(frozen=True, slots=True)
class _Replica:
    option: OptionSpec
    number: int


@dataclass(slots=True)
class _Seat:
    """One slot of one cut GPU; `gpu` counts the cut GPUs of the node."""

    partition: str
    start: int
    gpu: int
    tenant: _Replica | None = None


@dataclass(slots=True)
class _Node:
    """One node while it fills up. `reserved`: places kept for replicas of a size; None when any order fits."""

    index: int
    free: int
    reserved: dict[int, int] | None = None
    whole: list[_Replica] = field(default_factory=list)
    cut: list[GpuLayout] = field(default_factory=list)
    seats: list[_Seat] = field(default_factory=list)
    models: dict[str, int] = field(default_factory=dict)

    def takes(self, gpus: int) -> bool:
        """Whether a replica of so many GPUs fits, and was meant to fit here."""
        return self.free >= gpus and (gpus == 1 or self.reserved is None or self.reserved.get(gpus, 0) > 0)

    def add(self, replica: _Replica) -> None:
        """Take the next GPUs."""
        gpus = replica.option.gpus
        self.free -= gpus
        if gpus > 1 and self.reserved is not None:
            self.reserved[gpus] -= 1
        self.whole.append(replica)
        self._count(replica)

    def add_cut(self, layout: GpuLayout) -> None:
        """Cut the next GPU."""
        self.free -= 1
        self.seats += [_Seat(partition, start, len(self.cut)) for partition, start in layout.placements]
        self.cut.append(layout)

    def empty_seats(self, partition: str) -> list[_Seat]:
        """Free slots of that kind."""
        return [seat for seat in self.seats if seat.tenant is None and seat.partition == partition]

    def seats_like(self, layout: GpuLayout) -> int:
        """Slots of the kinds that `layout` has."""
        return sum(seat.partition in layout.profiles for seat in self.seats)

    def seat(self, replica: _Replica) -> None:
        """Give it a slot, on the GPU that holds the fewest replicas of its model."""

        def alike(seat: _Seat) -> int:
            mates = (other.tenant for other in self.seats if other.gpu == seat.gpu)
            return sum(mate is not None and mate.option.model == replica.option.model for mate in mates)

        best = min(self.empty_seats(replica.option.partition), key=lambda seat: (alike(seat), seat.gpu, seat.start))
        best.tenant = replica
        self._count(replica)

    def order(self, replica: _Replica, room: int) -> tuple[int, int, int]:
        """Sort key of the nodes for a replica: without its model first, then with the most room."""
        return self.models.get(replica.option.model, 0), -room, self.index

    def _count(self, replica: _Replica) -> None:
        model = replica.option.model
        self.models[model] = self.models.get(model, 0) + 1


class _Filling:
    """The nodes of one group: whole-node replicas, then by falling size, then cut GPUs, then their slots."""

    def __init__(
        self, problem: Problem, group: NodeGroup, first_node: int, first_replica: Mapping[tuple[str, str], int]
    ) -> None:
        self.pool = problem.pool_of[group.pool]
        self.group = group
        self.menu = problem.layouts_of(self.pool, sorted(group.layouts))
        self.first_node = first_node
        self.nodes = [_Node(index, self.pool.gpus_per_node) for index in range(group.nodes)]
        self.across: list[_Replica] = []
        rank = {demand.model: index for index, demand in enumerate(problem.demands)}
        batches: dict[tuple[int, str, int], list[_Replica]] = {}
        for key, count in sorted(group.replicas.items()):
            option = problem.option_of[key]
            first = first_replica.get((group.pool, key), 0)
            batch = batches.setdefault((-option.gpus, option.partition, rank.get(option.model, len(rank))), [])
            batch += [_Replica(option, number) for number in range(first, first + count)]
        self.batches = [batch for _, batch in sorted(batches.items(), key=lambda b: (b[0][:2], -len(b[1]), b[0][2]))]
        """Replicas of one model and size, in the order in which they find their places."""

    def gpus(self) -> Iterator[PlacedGpu]:
        """Fill, then read every GPU."""
        size = self.pool.gpus_per_node
        whole = [batch for batch in self.batches if batch[0].option.partition == WHOLE]
        for batch in whole:
            if batch[0].option.gpus > size:
                self._across(batch)
        self._reserve(sorted({batch[0].option.gpus for batch in whole if 1 < batch[0].option.gpus <= size}))
        for batch in whole:
            if batch[0].option.gpus <= size:
                self._spread(batch)
        self._cut_gpus()
        for batch in self.batches:
            if batch[0].option.partition != WHOLE:
                self._spread_slices(batch)
        for node in self.nodes:
            yield from self._read(node)

    def _impossible(self, what: str) -> RightsliceError:
        return RightsliceError("RS9001", f"pool {self.pool.key}: {what} does not fit the counts of its packing")

    def _across(self, batch: Sequence[_Replica]) -> None:
        """Replicas larger than a node take the next whole nodes."""
        size = self.pool.gpus_per_node
        for replica in batch:
            span = replica.option.gpus // size
            chosen = [node for node in self.nodes if not node.whole][:span]
            if replica.option.gpus % size or len(chosen) < span:
                raise self._impossible(replica.option.key)
            for node in chosen:
                node.free = 0
                node.whole.append(replica)

    def _reserve(self, sizes: Sequence[int]) -> None:
        """Sizes that do not divide each other: fix which node keeps places for which size, by the fewest nodes."""
        capacity = self.pool.gpus_per_node
        if is_chain(sizes, capacity):
            return
        patterns = node_patterns(sizes, capacity)
        builder = Builder()
        columns = [builder.column(f"pattern.{index}", 1.0) for index in range(len(patterns))]
        for position, size in enumerate(sizes):
            count = sum(len(batch) for batch in self.batches if batch[0].option.gpus == size)
            builder.row(
                f"size.{size}", [(c, float(p[position])) for c, p in zip(columns, patterns, strict=True)], count
            )
        solution = solve(builder.program())
        if solution.values is None:
            raise self._impossible("a replica of several GPUs")
        kept = [p for p, n in zip(patterns, solution.values, strict=True) for _ in range(round(n))]
        for index, node in enumerate(node for node in self.nodes if node.free):
            node.reserved = dict(zip(sizes, kept[index], strict=True)) if index < len(kept) else {}

    def _spread(self, batch: Sequence[_Replica]) -> None:
        """Deal replicas of one model to the emptiest nodes, one each, again and again."""
        size = batch[0].option.gpus
        waiting = list(batch)
        while waiting:
            nodes = sorted((n for n in self.nodes if n.takes(size)), key=lambda n: n.order(waiting[0], n.free))
            if not nodes:
                raise self._impossible(waiting[0].option.key)
            for node in nodes[: len(waiting)]:
                node.add(waiting.pop(0))

    def _cut_gpus(self) -> None:
        """Deal the GPUs of each layout to the nodes that have the fewest slots of its kinds."""
        for layout in self.menu:
            count = 0 if WHOLE in layout.profiles else self.group.layouts.get(layout.name, 0)
            ranked = [(node.seats_like(layout), -node.free, node.index) for node in self.nodes if node.free and count]
            heapq.heapify(ranked)
            for _ in range(count):
                if not ranked:
                    raise self._impossible(f"layout {layout.name}")
                node = self.nodes[heapq.heappop(ranked)[2]]
                node.add_cut(layout)
                if node.free:
                    heapq.heappush(ranked, (node.seats_like(layout), -node.free, node.index))

    def _spread_slices(self, batch: Sequence[_Replica]) -> None:
        """As `_spread`, over free slots instead of free GPUs."""
        partition = batch[0].option.partition
        waiting = list(batch)
        while waiting:
            free = [(node, len(node.empty_seats(partition))) for node in self.nodes]
            nodes = sorted((entry for entry in free if entry[1]), key=lambda e: e[0].order(waiting[0], e[1]))
            if not nodes:
                raise self._impossible(waiting[0].option.key)
            for node, _ in nodes[: len(waiting)]:
                node.seat(waiting.pop(0))

    def _read(self, node: _Node) -> Iterator[PlacedGpu]:
        """The node's GPUs from left to right: whole replicas, cut GPUs, idle ones."""
        size = self.pool.gpus_per_node
        number = self.first_node + node.index
        gpu = 0
        undivided = next((layout.name for layout in self.pool.layouts if WHOLE in layout.profiles), WHOLE)
        for replica in node.whole:
            slot = PlacedSlot(WHOLE, 0, replica.option.key, replica.number)
            for _ in range(min(replica.option.gpus, size)):
                yield PlacedGpu(self.pool.key, number, gpu, undivided, (slot,))
                gpu += 1
        for index, layout in enumerate(node.cut):
            slots = tuple(
                PlacedSlot(seat.partition, seat.start, seat.tenant.option.key, seat.tenant.number)
                for seat in node.seats
                if seat.gpu == index and seat.tenant
            )
            yield PlacedGpu(self.pool.key, number, gpu, layout.name, slots)
            gpu += 1
        for idle in range(gpu, size):
            yield PlacedGpu(self.pool.key, number, idle, "", ())
