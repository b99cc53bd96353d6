"""What drawn prompts of a model's classes have in common, as block ids: histories, common prefixes, stated rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from rightslice.traffic.conversations import groups, parted, shared_blocks
from rightslice.traffic.recorded import NONE, Trace

if TYPE_CHECKING:
    from rightslice.spec.workload import TrafficClass

MAX_BLOCKS: Final = 8_000_000
"""Of all prompts of one run; longer runs are cut into larger blocks. A cache takes 24 bytes for each, per replica."""


def with_blocks(
    drawn: Trace, classes: Sequence[TrafficClass], streams: Sequence[np.random.Generator], block_tokens: int
) -> Trace:
    """The requests with their blocks; labels are positions in `classes`, each of which draws from its own stream.

    Blocks have `block_tokens` or, where these would be too many, twice that, and so on.
    """
    while int(drawn.input_tokens.sum()) > MAX_BLOCKS * block_tokens:
        block_tokens *= 2
    n = len(drawn)
    history = np.full(n, NONE, dtype=np.int64)
    group, heads = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    first_of: dict[object, int] = {}
    assert drawn.traffic_class is not None  # noqa: S101 - the labels are the classes
    for index, (traffic, rng) in enumerate(zip(classes, streams, strict=True)):
        mine = np.flatnonzero(drawn.traffic_class.codes == index)
        if not len(mine) or not traffic.shares_prompts:
            continue
        part = drawn.take(mine)
        if traffic.sessions and traffic.sessions.carries_history:
            history[mine] = _histories(part, traffic.prefix_hit_rate, rng, int(history.max()) + 1)
        elif traffic.prefix_hit_rate is not None:
            # rounded up or down at random, so that blocks hold the stated share in the mean
            blocks = traffic.prefix_hit_rate * part.input_tokens / block_tokens
            heads[mine] = (blocks + rng.random(len(part))).astype(np.int64) * block_tokens
        prefix = traffic.prefix
        if prefix and prefix.tokens:
            heads[mine] = prefix.tokens
        name = (prefix.group if prefix else None) or index
        distinct = prefix.distinct if prefix else 1
        first = first_of.setdefault(name, _behind(classes, first_of))
        group[mine] = first + groups(part, distinct, rng)
    blocks_of = shared_blocks(drawn.input_tokens, history, group, heads, block_tokens=block_tokens)
    return replace(drawn, prefix=blocks_of)


def _histories(part: Trace, stated: float | None, rng: np.random.Generator, behind: int) -> NDArray[np.int64]:
    """Requests of one number go on from each other; numbers from `behind` on, NONE outside of a session."""
    if part.session is None:
        return np.full(len(part), NONE, dtype=np.int64)
    going_on = part.session if stated is None else parted(part, stated, rng)
    return np.where(part.session == NONE, NONE, going_on + behind)


def _behind(classes: Sequence[TrafficClass], taken: dict[object, int]) -> int:
    """A number above those of all groups so far."""
    widest = max((c.prefix.distinct for c in classes if c.prefix), default=1)
    return max(taken.values(), default=-widest) + widest
