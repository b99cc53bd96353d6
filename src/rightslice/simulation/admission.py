"""Who starts at an LLM replica: waiting jobs from the front, while there is room for them."""

from __future__ import annotations

from rightslice.simulation.compiling import compiled
from rightslice.simulation.expectation import expected_tokens
from rightslice.simulation.layout import (
    ADMISSION,
    BUDGET,
    CACHED,
    CHUNK,
    DEADLINE_PS,
    ESTIMATE,
    FREE,
    HIT_TOKENS,
    IDS,
    LEFT,
    LOADED,
    NEEDED,
    NEVER,
    NOBODY,
    NOT_YET,
    PREFIX_BLOCKS,
    RUN_STEPS,
    RUNNING,
    STREAMS,
    WHOLE_ANSWER,
    WHOLE_PROMPTS,
    State,
)
from rightslice.simulation.prefix import adopt, become_known, blocks_in_use, found_blocks, found_tokens
from rightslice.simulation.queues import pop
from rightslice.simulation.running import append, blocks_for, take_blocks, takes_chunks


@compiled
def wanted_blocks(replica: int, job: int, state: State) -> int:
    """Blocks that a job takes when it joins, shared ones included."""
    tokens = state.jobs[job, NEEDED]
    if state.facts[replica, ADMISSION] == WHOLE_ANSWER:
        tokens += state.jobs[job, LEFT] - 1
    return blocks_for(tokens, replica, state)


@compiled
def could_join(replica: int, job: int, state: State) -> bool:
    """Whether a job that comes to the front of the queue might join at the end of the step under way."""
    live, facts = state.live, state.facts
    count = live[replica, RUNNING]
    return bool(
        live[replica, RUN_STEPS] > 1
        and count < facts[replica, STREAMS]
        and count < facts[replica, BUDGET]
        and (
            wanted_blocks(replica, job, state) <= live[replica, FREE]
            or facts[replica, PREFIX_BLOCKS] > 0
            or facts[replica, ADMISSION] == ESTIMATE
        )
    )


@compiled
def fits_now(replica: int, job: int, cached: int, used: int, budget: int, expected: int, state: State) -> bool:
    """Whether the first in line may join: it finds `cached` tokens, in blocks of which others use `used`; ESTIMATE:
    the running jobs are expected to answer so many tokens yet."""
    facts, jobs, free = state.facts, state.jobs, state.live[replica, FREE]
    blocks = wanted_blocks(replica, job, state)
    if blocks - used > free:
        return False
    if facts[replica, WHOLE_PROMPTS] == 1 and jobs[job, NEEDED] - cached > budget:
        return False
    if facts[replica, ADMISSION] == ESTIMATE:
        blocks = blocks_for(jobs[job, NEEDED] + jobs[job, LEFT] - 1, replica, state)
        return bool(blocks - used + blocks_for(expected, replica, state) <= free)
    return True


@compiled
def join(replica: int, budget: int, state: State) -> tuple[int, int]:
    """Let waiting jobs join while sequences, budget and blocks allow; prompt tokens and attention work added."""
    live, facts, jobs = state.live, state.facts, state.jobs
    prefill, work, expected, found, used, cached = 0, 0, 0, 0, 0, 0
    if facts[replica, ADMISSION] == ESTIMATE:
        expected = expected_tokens(replica, state)
    while state.heads[replica] != NOBODY and budget > 0 and live[replica, RUNNING] < facts[replica, STREAMS]:
        job = state.heads[replica]
        if facts[replica, PREFIX_BLOCKS] > 0:
            found = found_blocks(replica, job, state)
            used = blocks_in_use(replica, job, found, state)
            cached = found_tokens(replica, job, found, state)
        else:
            cached = jobs[job, LOADED]
        if not fits_now(replica, job, cached, used, budget, expected, state):
            break
        pop(replica, state)
        expected += jobs[job, LEFT] - 1
        chunk = min(jobs[job, NEEDED] - cached, budget)
        blocks = wanted_blocks(replica, job, state)
        if takes_chunks(replica, state):
            blocks = blocks_for(cached + chunk, replica, state)
        if facts[replica, PREFIX_BLOCKS] > 0:
            adopt(replica, job, found, state)
        take_blocks(replica, blocks - used, state)
        if found < jobs[job, IDS] and facts[replica, PREFIX_BLOCKS] > 0:
            become_known(replica, job, cached + chunk, state)
        if jobs[job, HIT_TOKENS] == NOT_YET:
            jobs[job, HIT_TOKENS] = cached
        jobs[job, CACHED] = cached
        jobs[job, LOADED] = 0
        jobs[job, CHUNK] = chunk
        jobs[job, DEADLINE_PS] = NEVER
        append(replica, job, state)
        budget -= chunk
        prefill += chunk
        work += chunk * cached + chunk * (chunk + 1) // 2
    return prefill, work


@compiled
def estimates_again(replica: int, state: State) -> bool:
    """Whether the first in line may join after the next step because less is expected of the others then."""
    live, facts = state.live, state.facts
    return bool(
        facts[replica, ADMISSION] == ESTIMATE
        and state.heads[replica] != NOBODY
        and live[replica, RUNNING] < facts[replica, STREAMS]
        and live[replica, RUNNING] < facts[replica, BUDGET]
    )
