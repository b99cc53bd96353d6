"""The prefix cache of a replica, as vLLM V1 keeps it: full blocks stay known after their job until others take them.

A prompt starts with blocks known by the ids of the trace (equal ids: equal prefixes); what follows, and the answer, is
the job's own. A block is known from the step on that computes it. A waiting job finds its prompt as far as its first
blocks are known, but for at least one token, which must be computed: the last block of a prompt of whole blocks is
computed again, and two copies of it are there then, of which the older is found first. Own blocks are found only by the
job itself, when it was evicted and comes back.

Blocks without users are free: they form a list, left longest ago first, of which whoever needs blocks takes the first.
The last block of a job that leaves counts as left first, so that prefixes are dropped from their end. Blocks that no
job can find (those of finished answers) are places in that list as well.

A job uses the first copies of blocks that follow each other, so of those that it leaves at once nobody else uses the
last ones: they are one range of the list, `prefix_ids` from AT on, whose node of `cache` is the id of its first block
(inputs.py sees to it that equal ids have equal ids before them). A range is dropped from its end and used again from
its start. A further copy of a block is a node of its own, that of the job that computed it; so are all own blocks of an
evicted job. GAP counts the blocks that no job can find just before a node. A block of ids that is larger than the
engine's is known, computed again and dropped as a whole; vLLM would do so with a part of it.
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.layout import (
    AT,
    BLOCK_TOKENS,
    BLOCKS,
    FIRST_ID,
    FRESHEST,
    FURTHER,
    IDLE_BLOCKS,
    IDS,
    IDS_USED,
    LAST_GAP,
    NEEDED,
    NEWER,
    NEXT_COPY,
    NOBODY,
    OWN_IDLE,
    PREFIX_BLOCKS,
    PREFIX_TOKENS,
    STALEST,
    UNKNOWN,
    State,
)
from rightslice.simulation.prefix_list import (
    append_idle,
    copy_node,
    first_copy,
    note_copy,
    own_node,
    remove_idle,
    shorten,
)


@compiled
def found_blocks(replica: int, job: int, state: State) -> int:
    """Blocks of its prefix that a waiting job finds."""
    first = state.jobs[job, FIRST_ID]
    most = min(state.jobs[job, IDS], (state.jobs[job, NEEDED] - 1) // state.facts[replica, PREFIX_TOKENS])
    found = 0
    while found < most and first_copy(replica, state.prefix_ids[first + found], state) != NOBODY:
        found += 1
    return int(found)


@compiled
def found_own(replica: int, job: int, found: int, state: State) -> int:
    """KV blocks of its own that a waiting job finds behind `found` blocks of its prefix."""
    if state.jobs[job, OWN_IDLE] == 0 or found < state.jobs[job, IDS]:
        return 0
    most = (state.jobs[job, NEEDED] - 1) // state.facts[replica, BLOCK_TOKENS]
    return int(min(state.jobs[job, OWN_IDLE], most - found * state.facts[replica, PREFIX_BLOCKS]))


@compiled
def found_tokens(replica: int, job: int, found: int, state: State) -> int:
    """Tokens that a waiting job need not compute when it finds so many blocks of its prefix."""
    own = found_own(replica, job, found, state)
    return int(found * state.facts[replica, PREFIX_TOKENS] + own * state.facts[replica, BLOCK_TOKENS])


@compiled
def blocks_in_use(replica: int, job: int, found: int, state: State) -> int:
    """KV blocks of the first `found` blocks of a waiting job's prefix that other jobs use already."""
    first, used = state.jobs[job, FIRST_ID], 0
    while used < found and state.uses[replica, first_copy(replica, state.prefix_ids[first + used], state)] > 0:
        used += 1
    return int(used * state.facts[replica, PREFIX_BLOCKS])


@compiled
def take_range(replica: int, node: int, at: int, end: int, state: State) -> int:
    """A job whose prefix is `prefix_ids` from `at` to `end` uses the range `node` as far as it is the same; how far."""
    mine, blocks, taken = state.cache[replica, node, AT], state.cache[replica, node, BLOCKS], 0
    while taken < blocks and at + taken < end and state.prefix_ids[mine + taken] == state.prefix_ids[at + taken]:
        state.uses[replica, state.prefix_ids[at + taken]] = 1
        taken += 1
    shorten(replica, node, taken, state)
    return int(taken)


@compiled_apart
def adopt(replica: int, job: int, found: int, state: State) -> None:
    """An admitted job uses what it has found."""
    jobs, first = state.jobs, state.jobs[job, FIRST_ID]
    if jobs[job, OWN_IDLE] > 0:
        own = found_own(replica, job, found, state)
        remove_idle(replica, own_node(job, state), own, jobs[job, OWN_IDLE] - own, state)
        jobs[job, OWN_IDLE] = 0
    at = first
    while at < first + found:
        node = first_copy(replica, state.prefix_ids[at], state)
        if state.uses[replica, node] == 0 and node == state.prefix_ids[at]:
            at += take_range(replica, node, at, first + found, state)
            continue
        if state.uses[replica, node] == 0:
            remove_idle(replica, node, state.facts[replica, PREFIX_BLOCKS], 0, state)
        state.uses[replica, node] += 1
        at += 1
    jobs[job, IDS_USED] = found


@compiled
def add_copy(replica: int, job: int, block: int, state: State) -> None:
    """A job computes a further copy of a block, which is found when the older ones are gone."""
    cache, node = state.cache, copy_node(job, state)
    while cache[replica, block, NEXT_COPY] != NOBODY:
        block = cache[replica, block, NEXT_COPY]
    cache[replica, block, NEXT_COPY] = node
    cache[replica, node, NEXT_COPY] = NOBODY
    state.uses[replica, node] = 1
    state.live[replica, FURTHER] += 1


@compiled_apart
def become_known(replica: int, job: int, tokens: int, state: State) -> None:
    """A step computes the first `tokens` tokens of a job: their blocks can be found from now on."""
    first, shared = state.jobs[job, FIRST_ID], state.jobs[job, IDS_USED]
    full = min(state.jobs[job, IDS], tokens // state.facts[replica, PREFIX_TOKENS])
    while shared < full:
        block = state.prefix_ids[first + shared]
        if first_copy(replica, block, state) != NOBODY:  # the last one, which the job did not look for
            add_copy(replica, job, block, state)
            break
        state.uses[replica, block] = 1
        if shared == 0:
            note_copy(replica, block, True, state)
        shared += 1
    state.jobs[job, IDS_USED] = shared


@compiled
def leave_prefix(replica: int, job: int, copies: int, state: State) -> int:
    """A job leaves the copies that it uses, the last one first; how many of them others use still."""
    first, kept = state.jobs[job, FIRST_ID], 0
    low = high = first + copies  # a range that nobody uses, not yet in the list
    for at in range(first + copies - 1, first - 1, -1):
        block, node = state.prefix_ids[at], copy_node(job, state)
        if at < first + state.jobs[job, IDS_USED]:
            node = first_copy(replica, block, state)
        state.uses[replica, node] -= 1
        if state.uses[replica, node] > 0:
            kept += 1
        elif node == block:
            low = at
        else:
            if low < high:
                append_idle(replica, state.prefix_ids[low], low, high - low, state)
            append_idle(replica, node, at, 1, state)
            low = high = at
    if low < high:
        append_idle(replica, state.prefix_ids[low], low, high - low, state)
    return kept


@compiled_apart
def release(replica: int, job: int, tokens: int, again: bool, state: State) -> int:
    """A job with so many tokens in its blocks leaves them, its last block first; KV blocks that others use still.

    `again`: it comes back, and may find its own blocks."""
    live, jobs, blocks = state.live, state.jobs, state.facts[replica, PREFIX_BLOCKS]
    copies = min(jobs[job, IDS], tokens // state.facts[replica, PREFIX_TOKENS])
    own = tokens // state.facts[replica, BLOCK_TOKENS] - copies * blocks
    if own > 0 and again and copies == jobs[job, IDS]:
        append_idle(replica, own_node(job, state), NOBODY, 0, state)
        jobs[job, OWN_IDLE] = own
    else:
        live[replica, LAST_GAP] += own
    kept = leave_prefix(replica, job, copies, state)
    live[replica, IDLE_BLOCKS] += own + (copies - kept) * blocks
    return int(kept * blocks)


@compiled_apart
def clear(replica: int, state: State) -> None:
    """The replica is gone."""
    live, cache = state.live, state.cache
    node = live[replica, STALEST]
    while node != NOBODY:
        if own_node(0, state) <= node < copy_node(0, state):
            state.jobs[node - own_node(0, state), OWN_IDLE] = 0
        node = cache[replica, node, NEWER]
    state.uses[replica, :] = UNKNOWN
    for block in range(len(state.holders)):
        note_copy(replica, block, False, state)
    cache[replica, :, NEXT_COPY] = NOBODY
    live[replica, FURTHER] = 0
    live[replica, IDLE_BLOCKS] = 0
    live[replica, LAST_GAP] = 0
    live[replica, STALEST] = NOBODY
    live[replica, FRESHEST] = NOBODY
