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
    COPIED,
    FIRST_ID,
    FREE,
    FRESHEST,
    FURTHER,
    GAP,
    IDLE_BLOCKS,
    IDS,
    IDS_USED,
    LAST_GAP,
    NEEDED,
    NEWER,
    NEXT_COPY,
    NOBODY,
    OLDER,
    OWN_IDLE,
    PREFIX_BLOCKS,
    PREFIX_TOKENS,
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


# --- jobs ----------------------------------------------------------------------------------------------------------


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
    cache[replica, :, NEXT_COPY] = NOBODY
    live[replica, FURTHER] = 0
    live[replica, IDLE_BLOCKS] = 0
    live[replica, LAST_GAP] = 0
    live[replica, STALEST] = NOBODY
    live[replica, FRESHEST] = NOBODY
