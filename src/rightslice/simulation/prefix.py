"""The prefix cache of a replica: blocks of prompts, known by the ids of the trace, equal ids meaning equal prefixes.

A block that running jobs use has USERS; its KV blocks are taken from FREE once. When its last user leaves it stays
known, without users, and its KV blocks count as free: whoever needs them drops the block that went without users the
longest ago. Of the blocks that a job leaves, the last one of its prompt counts as left first, so that prefixes are
dropped from their end. A prompt is found as far as its first blocks are known, but for at least one token that must be
computed. All full blocks of a prompt are known from its admission on. Answers are not kept: a trace has no ids of them.
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.layout import (
    FIRST_ID,
    FREE,
    FRESHEST,
    IDLE_BLOCKS,
    IDS,
    NEEDED,
    NEWER,
    NOBODY,
    OLDER,
    PREFIX_BLOCKS,
    PREFIX_TOKENS,
    STALEST,
    UNKNOWN,
    USERS,
    State,
)


@compiled
def shared_blocks(replica: int, job: int, state: State) -> int:
    """KV blocks of a job that its prefix accounts for."""
    return int(state.jobs[job, IDS] * state.facts[replica, PREFIX_BLOCKS])


@compiled_apart
def known_tokens(replica: int, job: int, state: State) -> int:
    """Tokens of a waiting job that need not be computed."""
    tokens = state.facts[replica, PREFIX_TOKENS]
    if tokens == 0:
        return 0
    first, most = state.jobs[job, FIRST_ID], min(state.jobs[job, IDS], (state.jobs[job, NEEDED] - 1) // tokens)
    found = 0
    while found < most and state.cache[replica, state.prefix_ids[first + found], USERS] != UNKNOWN:
        found += 1
    return int(found * tokens)


@compiled_apart
def blocks_in_use(replica: int, job: int, state: State) -> int:
    """KV blocks of a waiting job's prefix that other jobs use already."""
    first, used = state.jobs[job, FIRST_ID], 0
    for at in range(first, first + state.jobs[job, IDS]):
        if state.cache[replica, state.prefix_ids[at], USERS] > 0:
            used += 1
    return int(used * state.facts[replica, PREFIX_BLOCKS])


@compiled
def forget(replica: int, block: int, state: State) -> None:
    """Take a block out of the list of those without users."""
    live, cache = state.live, state.cache
    older, newer = cache[replica, block, OLDER], cache[replica, block, NEWER]
    if older == NOBODY:
        live[replica, STALEST] = newer
    else:
        cache[replica, older, NEWER] = newer
    if newer == NOBODY:
        live[replica, FRESHEST] = older
    else:
        cache[replica, newer, OLDER] = older
    live[replica, IDLE_BLOCKS] -= state.facts[replica, PREFIX_BLOCKS]


@compiled_apart
def claim(replica: int, job: int, state: State) -> None:
    """An admitted job uses the blocks of its prefix."""
    cache, first = state.cache, state.jobs[job, FIRST_ID]
    for at in range(first, first + state.jobs[job, IDS]):
        block = state.prefix_ids[at]
        if cache[replica, block, USERS] == 0:
            forget(replica, block, state)
        cache[replica, block, USERS] = max(cache[replica, block, USERS], 0) + 1


@compiled_apart
def release(replica: int, job: int, state: State) -> int:
    """A job leaves the blocks of its prefix; KV blocks that nobody uses any more."""
    live, cache, first = state.live, state.cache, state.jobs[job, FIRST_ID]
    left = 0
    for at in range(first + state.jobs[job, IDS] - 1, first - 1, -1):
        block = state.prefix_ids[at]
        cache[replica, block, USERS] -= 1
        if cache[replica, block, USERS] > 0:
            continue
        freshest = live[replica, FRESHEST]
        cache[replica, block, OLDER] = freshest
        cache[replica, block, NEWER] = NOBODY
        if freshest == NOBODY:
            live[replica, STALEST] = block
        else:
            cache[replica, freshest, NEWER] = block
        live[replica, FRESHEST] = block
        left += 1
    left *= state.facts[replica, PREFIX_BLOCKS]
    live[replica, IDLE_BLOCKS] += left
    return int(left)


@compiled_apart
def trim(replica: int, state: State) -> None:
    """Drop known blocks whose place others have taken, those left longest ago first."""
    while state.live[replica, IDLE_BLOCKS] > state.live[replica, FREE]:
        block = state.live[replica, STALEST]
        forget(replica, block, state)
        state.cache[replica, block, USERS] = UNKNOWN


@compiled_apart
def clear(replica: int, state: State) -> None:
    """The replica is gone."""
    state.cache[replica, :, USERS] = UNKNOWN
    state.live[replica, IDLE_BLOCKS] = 0
    state.live[replica, STALEST] = NOBODY
    state.live[replica, FRESHEST] = NOBODY
