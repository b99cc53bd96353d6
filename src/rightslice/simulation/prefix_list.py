"""Copies of prefix blocks, and the list of those that nobody uses, of which whoever needs blocks takes the first.

What the nodes are, and why ranges need no more than one: prefix.py.
"""

from __future__ import annotations

import numpy as np

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.layout import (
    AT,
    BLOCKS,
    COPIED,
    FIRST_ID,
    FREE,
    FRESHEST,
    FURTHER,
    GAP,
    IDLE_BLOCKS,
    IDS,
    LAST_GAP,
    NEWER,
    NEXT_COPY,
    NOBODY,
    NUMBERED,
    OLDER,
    OWN_IDLE,
    PREFIX_BLOCKS,
    STALEST,
    UNKNOWN,
    State,
)

# --- nodes ---------------------------------------------------------------------------------------------------------


@compiled
def own_node(job: int, state: State) -> int:
    """The node of an evicted job's own blocks."""
    return int(state.cache.shape[1] - 2 * state.jobs.shape[0] + job)


@compiled
def copy_node(job: int, state: State) -> int:
    """The node of the further copy that a job has computed."""
    return int(state.cache.shape[1] - state.jobs.shape[0] + job)


@compiled
def first_copy(replica: int, block: int, state: State) -> int:
    """The copy of a block that is found; NOBODY."""
    uses = state.uses[replica, block]
    if uses >= 0:
        return block
    return int(state.cache[replica, block, NEXT_COPY]) if uses == COPIED else NOBODY


@compiled
def note_copy(replica: int, block: int, known: bool, state: State) -> None:
    """Whether the replica has a copy of a block that may start prompts."""
    if replica < NUMBERED:
        bit = np.int64(1) << replica
        state.holders[block] = state.holders[block] | bit if known else state.holders[block] & ~bit


@compiled
def starts_here(replica: int, job: int, state: State) -> bool:
    """Whether the replica might know the first block of a job's prefix; quick to say for all replicas."""
    if state.jobs[job, IDS] == 0:
        return False
    return bool(replica >= NUMBERED or state.holders[state.prefix_ids[state.jobs[job, FIRST_ID]]] >> replica & 1)


# --- the list of blocks without users ------------------------------------------------------------------------------


@compiled
def append_idle(replica: int, node: int, at: int, blocks: int, state: State) -> None:
    """Put a node at the end of the list: `blocks` blocks of `prefix_ids` from `at` on, if it is a range of those."""
    live, cache = state.live, state.cache
    freshest = live[replica, FRESHEST]
    cache[replica, node, OLDER] = freshest
    cache[replica, node, NEWER] = NOBODY
    cache[replica, node, GAP] = live[replica, LAST_GAP]
    cache[replica, node, AT] = at
    cache[replica, node, BLOCKS] = blocks
    live[replica, LAST_GAP] = 0
    if freshest == NOBODY:
        live[replica, STALEST] = node
    else:
        cache[replica, freshest, NEWER] = node
    live[replica, FRESHEST] = node


@compiled
def remove_idle(replica: int, node: int, blocks: int, lost: int, state: State) -> None:
    """Take `blocks` blocks of a node out of the list; `lost` more of them stay, and no job can find them."""
    live, cache = state.live, state.cache
    older, newer = cache[replica, node, OLDER], cache[replica, node, NEWER]
    if older == NOBODY:
        live[replica, STALEST] = newer
    else:
        cache[replica, older, NEWER] = newer
    if newer == NOBODY:
        live[replica, FRESHEST] = older
        live[replica, LAST_GAP] += cache[replica, node, GAP] + lost
    else:
        cache[replica, newer, OLDER] = older
        cache[replica, newer, GAP] += cache[replica, node, GAP] + lost
    live[replica, IDLE_BLOCKS] -= blocks


@compiled
def shorten(replica: int, node: int, taken: int, state: State) -> None:
    """Take the first `taken` blocks of a range out of the list; the rest of it stays where it is."""
    live, cache, blocks = state.live, state.cache, taken * state.facts[replica, PREFIX_BLOCKS]
    if taken == cache[replica, node, BLOCKS]:
        remove_idle(replica, node, blocks, 0, state)
        return
    rest = state.prefix_ids[cache[replica, node, AT] + taken]
    older, newer = cache[replica, node, OLDER], cache[replica, node, NEWER]
    cache[replica, rest, OLDER] = older
    cache[replica, rest, NEWER] = newer
    cache[replica, rest, GAP] = cache[replica, node, GAP]
    cache[replica, rest, AT] = cache[replica, node, AT] + taken
    cache[replica, rest, BLOCKS] = cache[replica, node, BLOCKS] - taken
    if older == NOBODY:
        live[replica, STALEST] = rest
    else:
        cache[replica, older, NEWER] = rest
    if newer == NOBODY:
        live[replica, FRESHEST] = rest
    else:
        cache[replica, newer, OLDER] = rest
    live[replica, IDLE_BLOCKS] -= blocks


@compiled_apart
def forget_copy(replica: int, job: int, state: State) -> None:
    """The further copy that a job has computed is no more."""
    cache, node = state.cache, copy_node(job, state)
    state.live[replica, FURTHER] -= 1
    state.uses[replica, node] = UNKNOWN
    block = before = state.prefix_ids[state.jobs[job, FIRST_ID] + state.jobs[job, IDS] - 1]
    while cache[replica, before, NEXT_COPY] != node:
        before = cache[replica, before, NEXT_COPY]
    cache[replica, before, NEXT_COPY] = cache[replica, node, NEXT_COPY]
    if state.uses[replica, block] == COPIED and cache[replica, block, NEXT_COPY] == NOBODY:
        state.uses[replica, block] = UNKNOWN
        note_copy(replica, block, False, state)


@compiled
def drop_own(replica: int, job: int, most: int, state: State) -> None:
    """At most so many of an evicted job's own blocks are overwritten."""
    lost = min(most, state.jobs[job, OWN_IDLE])
    state.jobs[job, OWN_IDLE] -= lost
    if state.jobs[job, OWN_IDLE] > 0:
        state.live[replica, IDLE_BLOCKS] -= lost
    else:
        remove_idle(replica, own_node(job, state), lost, 0, state)


@compiled
def drop_gap(replica: int, node: int, most: int, state: State) -> None:
    """At most so many of the blocks before a node, or at the end of the list, are overwritten."""
    live, cache = state.live, state.cache
    if node == NOBODY:
        live[replica, IDLE_BLOCKS] -= min(most, live[replica, LAST_GAP])
        live[replica, LAST_GAP] -= min(most, live[replica, LAST_GAP])
    else:
        live[replica, IDLE_BLOCKS] -= min(most, cache[replica, node, GAP])
        cache[replica, node, GAP] -= min(most, cache[replica, node, GAP])


@compiled
def drop_range(replica: int, node: int, most: int, state: State) -> None:
    """The last blocks of a range are overwritten, from its end, until they held `most` KV blocks or it is empty."""
    cache, weight = state.cache, state.facts[replica, PREFIX_BLOCKS]
    at, blocks = cache[replica, node, AT], cache[replica, node, BLOCKS]
    left = max(0, blocks - (most + weight - 1) // weight)
    copied = state.live[replica, FURTHER] > 0
    for place in range(at + left, at + blocks):
        block = state.prefix_ids[place]
        known = copied and cache[replica, block, NEXT_COPY] != NOBODY
        state.uses[replica, block] = COPIED if known else UNKNOWN
    cache[replica, node, BLOCKS] = left
    if left == 0 and state.uses[replica, node] == UNKNOWN:
        note_copy(replica, node, False, state)
    if left > 0:
        state.live[replica, IDLE_BLOCKS] -= (blocks - left) * weight
    else:
        remove_idle(replica, node, (blocks - left) * weight, 0, state)


@compiled_apart
def drop_idle(replica: int, state: State) -> None:
    """Drop the blocks whose place others have taken, those left longest ago first."""
    live, first_own, further = state.live, own_node(0, state), copy_node(0, state)
    while live[replica, IDLE_BLOCKS] > live[replica, FREE]:
        excess, node = live[replica, IDLE_BLOCKS] - live[replica, FREE], live[replica, STALEST]
        if node == NOBODY or state.cache[replica, node, GAP] > 0:
            drop_gap(replica, node, excess, state)
        elif node < first_own:
            drop_range(replica, node, excess, state)
        elif node < further:
            drop_own(replica, node - first_own, excess, state)
        else:
            remove_idle(replica, node, state.facts[replica, PREFIX_BLOCKS], 0, state)
            forget_copy(replica, node - further, state)


@compiled
def trim(replica: int, state: State) -> None:
    """Drop the blocks whose place others have taken."""
    live = state.live
    if live[replica, IDLE_BLOCKS] > live[replica, FREE]:
        drop_idle(replica, state)
