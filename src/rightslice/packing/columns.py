"""An integer program with the meaning of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightslice.packing.problem import PoolSpec
from rightslice.packing.solver import Program


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes of one pool that are counted together; at most `spread` of them count towards `min_nodes`."""

    pool: PoolSpec
    max_nodes: int | None
    spread: int | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """The program and the meaning of its columns; `excess` are the limits' overruns of an elastic model.

    `models`: option -> model. `resources`: the rows that make replicas take up GPUs, slices and places in nodes.
    `changes`: the columns that count GPUs cut anew.
    """

    program: Program
    tie_cost: NDArray[np.float64]
    blocks: tuple[Block, ...]
    nodes: tuple[int, ...]
    layouts: Mapping[tuple[int, str], int]
    replicas: Mapping[tuple[int, str], int]
    groups: Mapping[tuple[int, str], int]
    excess: Mapping[str, int]
    models: Mapping[str, str]
    resources: tuple[int, ...]
    changes: tuple[int, ...]

    @property
    def money(self) -> NDArray[np.float64]:
        """The prices alone, without what changes cost."""
        money = self.program.cost.copy()
        money[list(self.changes)] = 0.0
        return money

    def start(self, other: Model, values: NDArray[np.float64]) -> dict[int, float]:
        """The counts of a solution of `other`, whose blocks are some of ours, as columns of this model."""
        if other is self:
            return dict(enumerate(values.tolist()))
        mine = {block.pool.key: index for index, block in enumerate(self.blocks)}
        index = [mine[block.pool.key] for block in other.blocks]
        known = {self.nodes[index[b]]: values[column] for b, column in enumerate(other.nodes)}
        known |= {self.layouts[index[b], name]: values[column] for (b, name), column in other.layouts.items()}
        known |= {self.replicas[index[b], key]: values[column] for (b, key), column in other.replicas.items()}
        known |= {self.groups[index[b], key]: values[column] for (b, key), column in other.groups.items()}
        return {column: float(value) for column, value in known.items()}

    def unused(self, start: Mapping[int, float]) -> list[int]:
        """Columns of accelerators without nodes in `start`, of models where they do not run, of groups not in use."""
        kind = [block.pool.accelerator for block in self.blocks]
        used = {column for column, value in start.items() if value > 0.5}
        pairs = {(kind[b], self.models[key]) for (b, key), column in self.replicas.items() if column in used}
        bought = {kind[b] for b, column in enumerate(self.nodes) if column in used}
        idle = [column for b, column in enumerate(self.nodes) if kind[b] not in bought]
        idle += [column for (b, _), column in self.layouts.items() if kind[b] not in bought]
        idle += [column for column in self.groups.values() if column not in used]
        return idle + [c for (b, key), c in self.replicas.items() if (kind[b], self.models[key]) not in pairs]
