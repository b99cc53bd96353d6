"""The integer program over layouts and options: its size depends on kinds of things, never on replicas.

    min  sum usd[p] n[p]
    n[p] nodes, x[p,l] GPUs cut as l, y[p,o] replicas, z[p,k] GPUs shared by group k, all whole numbers
    G[p] n[p] >= sum gpus[o] y[p,o] (whole GPUs) + sum x[p,l] + sum z[p,k]     GPUs
    sum count[l,s] x[p,l] >= sum y[p,o] (o on slice s)                         slices
    sum r[o] y[p,o] + sum r[k] z[p,k] >= demand + largest rate in use (spare)  load
    sum y[p,o] + .. >= floor,  sum v[d,p] >= min_nodes,  v <= n, y             redundancy
    sum G[p] n[p] <= limit                                                     quota
    min .. + sum eps[p] new[p,l],  new[p,l] >= x[p,l] - current[p,l]           change

After the layout formulation of MIG-serving (arXiv 2109.11067).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rightslice.catalogue.hardware import WHOLE
from rightslice.packing.columns import Block, Model
from rightslice.packing.model_groups import Tenant, change_rows, levels, replicas_alone, tenancies
from rightslice.packing.patterns import is_chain, node_patterns
from rightslice.packing.problem import Demand, OptionSpec, PoolSpec, Problem
from rightslice.packing.solver import INFINITY, Builder

TIE_PER_NODE = 1.0
TIE_PER_SLICED_GPU = 1.0 / 64.0
TIE_PER_REPLICA = 1.0 / 4096.0
"""Second objective among equally cheap packings: fewer nodes, then fewer GPUs in MIG mode, then earlier options."""

Term = tuple[int, float]


def build(problem: Problem, blocks: Sequence[Block], *, elastic: bool = False, relaxed: bool = False) -> Model:
    """The program of `problem` with its pools split into `blocks`.

    `elastic`: limits and pool sizes may be exceeded, and the overrun in GPUs is what is minimised. `relaxed`: for a
    lower bound only; a spare may cover a little less than the largest shared GPU.
    """
    return _Assembly(problem, tuple(blocks), elastic, relaxed).model()


class _Assembly:
    """One build: columns first, then one method per family of rows."""

    def __init__(self, problem: Problem, blocks: tuple[Block, ...], elastic: bool, relaxed: bool) -> None:
        self.problem = problem
        self.blocks = blocks
        self.elastic = elastic
        self.relaxed = relaxed
        self.builder = Builder()
        self.demand_of = {demand.model: demand for demand in problem.demands}
        self.alone = {o.key: replicas_alone(self.demand_of[o.model], o.requests_per_s) for o in problem.options}
        self.tenancies = tenancies(problem)
        self.tenants: dict[str, list[Tenant]] = {}
        self.options = [[o for o in problem.options if o.runs_in(block.pool)] for block in blocks]
        self.cuts = [
            [
                layout
                for layout in block.pool.layouts
                if {o.partition for o in options} & layout.profiles.keys() - {WHOLE}
            ]
            for block, options in zip(blocks, self.options, strict=True)
        ]
        self.nodes: list[int] = []
        self.layouts: dict[tuple[int, str], int] = {}
        self.replicas: dict[tuple[int, str], int] = {}
        self.groups: dict[tuple[int, str], int] = {}
        self.excess: dict[str, int] = {}
        self.tie: dict[int, float] = {}
        self.resources: list[int] = []
        self.changes: list[int] = []

    def model(self) -> Model:
        for index, block in enumerate(self.blocks):
            self._columns(index, block)
            self._group_columns(index, block)
            self._gpu_rows(index, block)
            self._pattern_rows(index, block)
        for demand in self.problem.demands:
            self._load_rows(demand)
            self._node_rows(demand)
        self._limit_rows()
        self._order_rows()
        if self.problem.current and not self.elastic:
            self.changes = change_rows(self.problem, self.builder, self._cut_columns())
        program = self.builder.program()
        tie_cost = np.zeros(len(program.cost))
        for column, cost in self.tie.items():
            tie_cost[column] = cost
        nodes = tuple(self.nodes)
        models = {option.key: option.model for option in self.problem.options}
        return Model(
            program,
            tie_cost,
            self.blocks,
            nodes,
            self.layouts,
            self.replicas,
            self.groups,
            self.excess,
            models,
            tuple(self.resources),
            tuple(self.changes),
        )

    def _columns(self, index: int, block: Block) -> None:
        pool = block.pool
        options = self.options[index]
        enough = sum(self.alone[o.key] * math.ceil(o.gpus / pool.gpus_per_node) for o in options)
        enough += self._most_shared(pool)
        bounded = block.max_nodes is not None and not self.elastic
        most = min(enough, block.max_nodes) if bounded and block.max_nodes is not None else enough
        column = self.builder.column(f"nodes.{pool.key}", 0.0 if self.elastic else pool.usd_per_hour, most)
        self.nodes.append(column)
        self.tie[column] = TIE_PER_NODE
        for layout in self.cuts[index]:
            column = self.builder.column(f"cut.{pool.key}.{layout.name}", 0.0, most * pool.gpus_per_node)
            self.layouts[index, layout.name] = column
            self.tie[column] = TIE_PER_SLICED_GPU
        for rank, option in enumerate(options):
            column = self.builder.column(f"run.{pool.key}.{option.key}", 0.0, self.alone[option.key])
            self.replicas[index, option.key] = column
            self.tie[column] = TIE_PER_REPLICA * (1.0 + rank / len(options))

    def _most_shared(self, pool: PoolSpec) -> int:
        """GPUs of `pool` that sharing groups can use up: those that every model needs where it is slowest."""
        most: dict[str, int] = {}
        for tenancy in self.tenancies if pool.sharing else ():
            if tenancy.group.runs_in(pool):
                most |= {part.model: max(tenancy.most, most.get(part.model, 0)) for part in tenancy.parts}
        return sum(most.values())

    def _group_columns(self, index: int, block: Block) -> None:
        for tenancy in self.tenancies if block.pool.sharing else ():
            if tenancy.group.runs_in(block.pool):
                column = self.builder.column(f"share.{block.pool.key}.{tenancy.group.key}", 0.0, tenancy.most)
                self.groups[index, tenancy.group.key] = column
                self.tie[column] = TIE_PER_SLICED_GPU
                for part in tenancy.parts:
                    self.tenants.setdefault(part.model, []).append((index, column, part))

    def _cut_columns(self) -> dict[tuple[str, str], list[Term]]:
        """(pool, layout or group) -> its GPUs as columns with coefficients, over all blocks of the pool."""
        found: dict[tuple[str, str], list[Term]] = {}
        for columns in (self.layouts, self.groups):
            for (index, name), column in columns.items():
                found.setdefault((self.blocks[index].pool.key, name), []).append((column, 1.0))
        for (index, key), column in self.replicas.items():
            option = self.problem.option_of[key]
            if option.partition == WHOLE:
                found.setdefault((self.blocks[index].pool.key, WHOLE), []).append((column, float(option.gpus)))
        return found

    def _gpu_rows(self, index: int, block: Block) -> None:
        pool = block.pool
        whole: list[Term] = [(self.nodes[index], float(pool.gpus_per_node))]
        slices: dict[str, list[Term]] = {}
        for option in self.options[index]:
            column = self.replicas[index, option.key]
            if option.partition == WHOLE:
                whole.append((column, -float(option.gpus)))
            else:
                slices.setdefault(option.partition, []).append((column, -1.0))
        for layout in self.cuts[index]:
            cut = self.layouts[index, layout.name]
            whole.append((cut, -1.0))
            for partition, count in layout.profiles.items():
                if partition in slices:
                    slices[partition].append((cut, float(count)))
        whole += [(column, -1.0) for (where, _), column in self.groups.items() if where == index]
        self.resources.append(self.builder.row(f"gpus.{pool.key}", whole, 0.0))
        for partition in sorted(slices):
            self.resources.append(self.builder.row(f"slices.{pool.key}.{partition}", slices[partition], 0.0))

    def _pattern_rows(self, index: int, block: Block) -> None:
        """Sizes that do not divide each other (3 and 8) need node patterns; a sum of GPUs is not enough for them."""
        pool = block.pool
        inside = [o for o in self.options[index] if 1 < o.gpus <= pool.gpus_per_node]
        sizes = sorted({o.gpus for o in inside})
        if is_chain(sizes, pool.gpus_per_node):
            return
        patterns = node_patterns(sizes, pool.gpus_per_node)
        columns = [self.builder.column(f"pattern.{pool.key}.{'_'.join(map(str, p))}") for p in patterns]
        across = [
            (self.replicas[index, o.key], -float(o.gpus // pool.gpus_per_node))
            for o in self.options[index]
            if o.gpus > pool.gpus_per_node
        ]
        used = [(column, -1.0) for column in columns]
        self.resources.append(self.builder.row(f"patterns.{pool.key}", [(self.nodes[index], 1.0), *across, *used], 0.0))
        for position, size in enumerate(sizes):
            terms = [(column, float(p[position])) for column, p in zip(columns, patterns, strict=True) if p[position]]
            terms += [(self.replicas[index, o.key], -1.0) for o in inside if o.gpus == size]
            self.resources.append(self.builder.row(f"fit.{pool.key}.{size}", terms, 0.0))

    def _runs(self, option: OptionSpec) -> list[int]:
        """Columns of one option over all blocks."""
        return [self.replicas[b, option.key] for b in range(len(self.blocks)) if (b, option.key) in self.replicas]

    def _load_rows(self, demand: Demand) -> None:
        """Rates are divided by the demand and cut at 1: a replica cannot carry more than everything."""
        options = [o for o in self.problem.options if o.model == demand.model]
        columns = {o.key: self._runs(o) for o in options}
        every = [(c, 1.0) for o in options for c in columns[o.key]]
        shared = self.tenants.get(demand.model, [])
        together = demand.spare and demand.requests_per_s <= 0  # a lost GPU takes all of its replicas with it
        every += [(column, 1.0 if together else float(part.replicas)) for _, column, part in shared]
        if demand.requests_per_s <= 0:
            floor = replicas_alone(demand, 0.0) if options or shared else 0
            self.builder.row(f"replicas.{demand.model}", every, floor, INFINITY if shared else floor)
            return
        share = {o.key: min(o.requests_per_s / demand.requests_per_s, 1.0) for o in options}
        counts = [self.alone[o.key] for o in options] + [part.fewest for _, _, part in shared]
        self.builder.row(f"replicas.{demand.model}", every, min(counts, default=1))
        load = [(c, share[o.key]) for o in options for c in columns[o.key]]
        load += [(column, part.share) for _, column, part in shared]
        if not demand.spare:
            self.builder.row(f"load.{demand.model}", load, 1.0)
            return
        self._spare_rows(demand, options, share, load)

    def _spare_rows(
        self, demand: Demand, options: Sequence[OptionSpec], share: Mapping[str, float], load: list[Term]
    ) -> None:
        """sum load >= 1 + the largest rate in use, written as its smallest value plus steps: u[k] = 1 when a replica
        of rate k or more is in use, and the largest rate is the sum of step[k] u[k]."""
        shared = self.tenants.get(demand.model, [])
        level = levels([part.share for _, _, part in shared], down=self.relaxed)
        lost: list[Term] = []
        below = 0.0
        for rank, rate in enumerate(sorted({*share.values(), *level.values()})):
            used = self.builder.column(f"reach.{demand.model}.{rank}", 0.0, 1.0)
            if lost:
                self.builder.row(f"order.{demand.model}.{rank}", [(lost[-1][0], 1.0), (used, -1.0)], 0.0)
            lost.append((used, below - rate))
            below = rate
            for option in (o for o in options if share[o.key] == rate):
                runs = [(c, -1.0) for c in self._runs(option)]
                most = (used, float(self.alone[option.key]))
                self.builder.row(f"reach.{demand.model}.{option.key}", [most, *runs], 0.0)
            alike = [column for _, column, part in shared if level[part.share] == rate]
            if alike:
                most = (used, sum(self.builder.upper(column) for column in alike))
                self.builder.row(f"reach.{demand.model}.shared.{rank}", [most, *((c, -1.0) for c in alike)], 0.0)
        self.builder.row(f"load.{demand.model}", [*load, *lost], 1.0)

    def _node_rows(self, demand: Demand) -> None:
        """Count the nodes that can hold a replica each, over all blocks."""
        if demand.min_nodes <= 1:
            return
        counted: list[Term] = []
        for index, block in enumerate(self.blocks):
            mine = [o for o in self.options[index] if o.model == demand.model]
            shared = [column for where, column, _ in self.tenants.get(demand.model, []) if where == index]
            if shared:
                counted.append((self._shared_hosts(index, block, shared, demand), 1.0))
            if not mine:
                continue
            alone = [o for o in mine if o.partition == WHOLE and 2 * o.gpus > block.pool.gpus_per_node]
            if block.spread is None and len(alone) == len(mine):
                counted += [(self.replicas[index, o.key], 1.0) for o in mine]
            else:
                counted.append((self._hosts(index, block, mine, demand), 1.0))
        self.builder.row(f"min_nodes.{demand.model}", counted, demand.min_nodes)

    def _hosts(self, index: int, block: Block, mine: Sequence[OptionSpec], demand: Demand) -> int:
        """The column of nodes of one block that hold `mine`: at most its nodes, its replicas and its cut GPUs.

        For each size L of more GPUs than the replica has: a node that holds one has a place for L less, so
        hosts <= places for L - places taken. Replicas of the model that are themselves as large host as well.
        """
        most = float(min(demand.min_nodes, block.spread or demand.min_nodes))
        name = f"{demand.model}.{block.pool.key}"
        hosts = self.builder.column(f"hosts.{name}", 0.0, most, whole=False)
        run = {o.key: self.replicas[index, o.key] for o in self.options[index]}
        self.builder.row(f"on_nodes.{name}", [(self.nodes[index], 1.0), (hosts, -1.0)], 0.0)
        self.builder.row(f"on_runs.{name}", [*((run[o.key], 1.0) for o in mine), (hosts, -1.0)], 0.0)
        whole = [o for o in mine if o.partition == WHOLE]
        slices = {o.partition for o in mine} - {WHOLE}
        if slices:
            cuts = [layout for layout in self.cuts[index] if slices & layout.profiles.keys()]
            terms = [(self.layouts[index, layout.name], 1.0) for layout in cuts]
            self.builder.row(f"on_gpus.{name}", [*terms, *((run[o.key], 1.0) for o in whole), (hosts, -1.0)], 0.0)
        capacity = block.pool.gpus_per_node
        sizes = sorted({min(o.gpus, capacity) for o in self.options[index]})
        for size in sizes if is_chain(sizes, capacity) else ():
            if size > min(o.gpus for o in mine):
                taken = [
                    (run[o.key], float(o.model == demand.model) - o.gpus / size)
                    for o in self.options[index]
                    if o.partition == WHOLE and o.gpus >= size
                ]
                places: list[Term] = [(self.nodes[index], capacity / size), *taken, (hosts, -1.0)]
                self.builder.row(f"room.{name}.{size}", places, 0.0)
        return hosts

    def _shared_hosts(self, index: int, block: Block, shared: Sequence[int], demand: Demand) -> int:
        """The column of nodes of one block whose shared GPUs hold the model: at most its nodes, at most those GPUs."""
        most = float(min(demand.min_nodes, block.spread or demand.min_nodes))
        name = f"{demand.model}.{block.pool.key}"
        hosts = self.builder.column(f"hosts.{name}", 0.0, most, whole=False)
        self.builder.row(f"on_nodes.{name}", [(self.nodes[index], 1.0), (hosts, -1.0)], 0.0)
        self.builder.row(f"on_gpus.{name}", [*((column, 1.0) for column in shared), (hosts, -1.0)], 0.0)
        return hosts

    def _limit_rows(self) -> None:
        for key in sorted(self.problem.limits):
            terms = [
                (self.nodes[index], float(block.pool.gpus_per_node))
                for index, block in enumerate(self.blocks)
                if key in block.pool.limits
            ]
            self._at_most(f"limit:{key}", terms, float(self.problem.limits[key]))
        sizes = {block.pool.key: block.pool for block in self.blocks if block.pool.max_nodes is not None}
        for key in sorted(sizes):
            own = [index for index, block in enumerate(self.blocks) if block.pool.key == key]
            if self.elastic or len(own) > 1:
                gpus = float(sizes[key].gpus_per_node)
                most = gpus * (sizes[key].max_nodes or 0)
                self._at_most(f"pool:{key}", [(self.nodes[index], gpus) for index in own], most)

    def _at_most(self, name: str, terms: list[Term], most: float) -> None:
        if self.elastic and terms:
            over = self.builder.column(f"over.{name}", 1.0)
            self.excess[name] = over
            terms = [*terms, (over, -1.0)]
        if terms:
            self.builder.row(name, terms, -INFINITY, most)

    def _order_rows(self) -> None:
        """Single-node blocks of one pool are alike: fill the earlier ones first."""
        for index, (block, after) in enumerate(itertools.pairwise(self.blocks)):
            if block.max_nodes == after.max_nodes == 1 and block.pool.key == after.pool.key:
                self.builder.row(f"order.{index}", [(self.nodes[index], 1.0), (self.nodes[index + 1], -1.0)], 0.0)
