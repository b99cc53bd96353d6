"""The running jobs of an LLM replica: in order of admission, and those that decode by the step after which they end."""

from __future__ import annotations

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.expectation import FIRST_RATIO
from rightslice.simulation.layout import (
    ADMISSION,
    ADMITTED,
    BEFORE,
    BLOCK_TOKENS,
    CACHED,
    CONTEXT,
    DECODING,
    FIRST,
    FREE,
    FRESH,
    GROWING,
    KV_BLOCKS,
    LAST,
    LEFT,
    NEEDED,
    NEXT,
    NOBODY,
    ORDER,
    OWNER,
    PREFILL_FIRST,
    PREFIX_BLOCKS,
    PROMISED,
    RATIO,
    RUNNING,
    SLOT,
    STEPS,
    VALUE,
    WHOLE_ANSWER,
    State,
)
from rightslice.simulation.prefix import clear, release
from rightslice.simulation.prefix_list import trim

# --- the heap of decoding jobs, by the step after which they end ---------------------------------------------------


@compiled
def put(replica: int, at: int, value: int, job: int, state: State) -> None:
    """Write one place of the heap."""
    state.slots[replica, at, VALUE] = value
    state.slots[replica, at, OWNER] = job
    state.jobs[job, SLOT] = at


@compiled
def settle_up(replica: int, at: int, value: int, job: int, state: State) -> None:
    """Put a job at place `at` or above."""
    slots = state.slots
    while at > 0 and slots[replica, (at - 1) // 2, VALUE] > value:
        above = (at - 1) // 2
        put(replica, at, slots[replica, above, VALUE], slots[replica, above, OWNER], state)
        at = above
    put(replica, at, value, job, state)


@compiled
def take_out(replica: int, at: int, size: int, state: State) -> None:
    """Remove place `at` of a heap of `size`: the last one takes its place, down or up from there."""
    slots = state.slots
    value, job = slots[replica, size - 1, VALUE], slots[replica, size - 1, OWNER]
    if at == size - 1:
        return
    while 2 * at + 1 < size - 1:
        child = 2 * at + 1
        if child + 1 < size - 1 and slots[replica, child + 1, VALUE] < slots[replica, child, VALUE]:
            child += 1
        if slots[replica, child, VALUE] >= value:
            break
        put(replica, at, slots[replica, child, VALUE], slots[replica, child, OWNER], state)
        at = child
    settle_up(replica, at, value, job, state)


# --- the running list ----------------------------------------------------------------------------------------------


@compiled
def append(replica: int, job: int, state: State) -> None:
    """Admit a job, behind all that run."""
    live, jobs = state.live, state.jobs
    last = live[replica, LAST]
    jobs[job, NEXT] = NOBODY
    jobs[job, BEFORE] = last
    if last == NOBODY:
        live[replica, FIRST] = job
    else:
        jobs[last, NEXT] = job
    live[replica, LAST] = job
    if live[replica, FRESH] == NOBODY:
        live[replica, FRESH] = job
    jobs[job, ORDER] = live[replica, ADMITTED]
    live[replica, ADMITTED] += 1
    live[replica, RUNNING] += 1


@compiled
def unlink(replica: int, job: int, state: State) -> None:
    """Take a job out of the running list."""
    live, jobs = state.live, state.jobs
    before, after = jobs[job, BEFORE], jobs[job, NEXT]
    if before == NOBODY:
        live[replica, FIRST] = after
    else:
        jobs[before, NEXT] = after
    if after == NOBODY:
        live[replica, LAST] = before
    else:
        jobs[after, BEFORE] = before
    live[replica, RUNNING] -= 1


@compiled
def stop_decoding(replica: int, job: int, state: State) -> None:
    """Take a decoding job out of the sums; its counters become its own again."""
    live, jobs = state.live, state.jobs
    take_out(replica, jobs[job, SLOT], live[replica, DECODING], state)
    live[replica, DECODING] -= 1
    live[replica, CONTEXT] -= jobs[job, CACHED] + 1
    live[replica, PROMISED] -= jobs[job, LEFT]
    if state.facts[replica, ADMISSION] != WHOLE_ANSWER:
        state.residues[replica, jobs[job, CACHED] % state.facts[replica, BLOCK_TOKENS]] -= 1
    jobs[job, CACHED] += live[replica, STEPS]
    jobs[job, LEFT] -= live[replica, STEPS]


@compiled
def start_decoding(replica: int, job: int, state: State) -> None:
    """Add a job whose prompt is computed to the sums."""
    live, jobs = state.live, state.jobs
    jobs[job, CACHED] -= live[replica, STEPS]
    jobs[job, LEFT] += live[replica, STEPS]
    live[replica, PROMISED] += jobs[job, LEFT]
    if state.facts[replica, ADMISSION] != WHOLE_ANSWER:
        state.residues[replica, jobs[job, CACHED] % state.facts[replica, BLOCK_TOKENS]] += 1
    live[replica, CONTEXT] += jobs[job, CACHED] + 1
    settle_up(replica, live[replica, DECODING], jobs[job, LEFT], job, state)
    live[replica, DECODING] += 1


@compiled
def blocks_for(tokens: int, replica: int, state: State) -> int:
    """Blocks that hold so many tokens."""
    block = state.facts[replica, BLOCK_TOKENS]
    return int((tokens + block - 1) // block)


@compiled
def new_blocks(replica: int, held: int, tokens: int, state: State) -> int:
    """Blocks for further tokens of a job that holds so many."""
    return blocks_for(held + tokens, replica, state) - blocks_for(held, replica, state)


@compiled
def takes_chunks(replica: int, state: State) -> bool:
    """Whether a prompt takes the blocks of each chunk with the chunk, not all when it joins."""
    return bool(state.facts[replica, ADMISSION] == GROWING and state.facts[replica, PREFILL_FIRST] == 0)


@compiled
def take_blocks(replica: int, blocks: int, state: State) -> None:
    """Running jobs grow."""
    state.live[replica, FREE] -= blocks
    if state.facts[replica, PREFIX_BLOCKS] > 0:
        trim(replica, state)


@compiled
def give_back(replica: int, job: int, tokens: int, again: bool, state: State) -> None:
    """Blocks of a job that leaves with so many tokens in them; those of its prefix stay while others use them."""
    blocks = blocks_for(tokens, replica, state)
    if state.facts[replica, PREFIX_BLOCKS] > 0:
        blocks -= release(replica, job, tokens, again, state)
    state.live[replica, FREE] += blocks


@compiled_apart
def drop_running(replica: int, state: State) -> int:
    """Empty the replica after `stop_run`: the first of its running jobs, chained by NEXT, each to be computed again."""
    live, jobs = state.live, state.jobs
    chain = live[replica, FIRST]
    job, decodes = chain, True
    while job != NOBODY:
        decodes = decodes and job != live[replica, FRESH]
        if decodes:
            jobs[job, NEEDED] = jobs[job, CACHED] + live[replica, STEPS] + 1
            jobs[job, LEFT] -= live[replica, STEPS]
        jobs[job, CACHED] = 0
        job = jobs[job, NEXT]
    if state.facts[replica, PREFIX_BLOCKS] > 0:
        clear(replica, state)
    state.residues[replica, :] = 0
    live[replica, RUNNING] = 0
    live[replica, DECODING] = 0
    live[replica, CONTEXT] = 0
    live[replica, PROMISED] = 0
    live[replica, RATIO] = FIRST_RATIO
    live[replica, FREE] = state.facts[replica, KV_BLOCKS]
    live[replica, FIRST] = NOBODY
    live[replica, LAST] = NOBODY
    live[replica, FRESH] = NOBODY
    return int(chain)
