"""The blocks that prompts start with, of all classes, as the prefix cache knows them (prefix.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rightslice.simulation.layout import NOBODY, Ints
from rightslice.simulation.scenario import OpenClass
from rightslice.traffic.recorded import dense


class PrefixBlocks(NamedTuple):
    """Tokens of a block by model; the ids of all prompts end to end, renumbered from 0; first id and number of ids
    (full blocks of the prompt) of each open-loop request."""

    block_tokens: dict[str, int]
    ids: NDArray[np.int32]
    first: Ints
    full: Ints


def prefix_blocks(classes: Sequence[OpenClass], class_index: Ints, row: Ints, prompt: Ints) -> PrefixBlocks:
    """The classes' prefixes; of each request its class, its row in the class's arrivals and its prompt tokens.

    Raises ValueError when classes of a model have blocks of different sizes.
    """
    if all(traffic.prefixes is None for traffic in classes):
        none = np.broadcast_to(np.int64(0), row.shape)
        return PrefixBlocks({}, np.zeros(0, dtype=np.int32), none, none)
    first, count = np.zeros_like(row), np.zeros_like(row)
    pieces: list[Ints] = [np.zeros(0, dtype=np.int64)]
    starts: list[Ints] = [np.zeros(0, dtype=np.int64)]
    block_tokens: dict[str, int] = {}
    behind = 0
    for index, traffic in enumerate(classes):
        prefixes = traffic.prefixes
        if prefixes is None:
            continue
        if block_tokens.setdefault(traffic.model, prefixes.block_tokens) != prefixes.block_tokens:
            raise ValueError(f"{traffic.model}: prefix blocks of one size")
        mine = class_index == index
        rows = row[mine]
        first[mine] = behind + prefixes.starts[rows]
        full = prompt[mine] // prefixes.block_tokens
        count[mine] = np.minimum(prefixes.starts[rows + 1] - prefixes.starts[rows], full)
        pieces.append(prefixes.ids)
        starts.append(behind + prefixes.starts)
        behind += len(prefixes.ids)
    return PrefixBlocks(block_tokens, chained(np.concatenate(pieces), np.concatenate(starts)), first, count)


def chained(ids: Ints, starts: Ints) -> NDArray[np.int32]:
    """Ids numbered from 0, equal ones after equal ones only, as an engine's are, which hashes a block with all before
    it. `starts` [..]: where prompts start, in order; an id that comes after different ones is a different block each
    time. Shape [ids].
    """
    before = np.full(len(ids), NOBODY, dtype=np.int32)
    numbers = dense(ids).astype(np.int32)
    before[1:] = numbers[:-1]
    before[starts[starts < len(ids)]] = NOBODY
    usual = np.empty_like(numbers)
    usual[numbers] = before
    if np.array_equal(usual[numbers], before):
        return numbers
    known: dict[tuple[int, int], int] = {}
    parent, begins = NOBODY, set(starts.tolist())
    for at, block in enumerate(numbers.tolist()):
        parent = known.setdefault((NOBODY if at in begins else parent, block), len(known))
        numbers[at] = parent
    return numbers
