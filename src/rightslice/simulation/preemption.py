"""Who gives way when running jobs lack blocks, as in vLLM V1.

Running jobs take their blocks one after the other, in order of admission. While one lacks a block, of the jobs with the
lowest priority the one admitted last is evicted, whether it has had its blocks of this step or not. A job that evicts
itself ends the round: those behind it get no token in this step, and go on with the next.
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.expectation import expect_anew, retracted
from rightslice.simulation.layout import (
    ADMISSION,
    BEFORE,
    BLOCK_TOKENS,
    BUDGET,
    CACHED,
    CHUNK,
    DECODING,
    ESTIMATE,
    FIRST,
    FREE,
    FRESH,
    LAST,
    NEEDED,
    NEXT,
    NOBODY,
    ORDER,
    PAUSED,
    PREEMPTIONS,
    RANK,
    STEPS,
    State,
)
from rightslice.simulation.queues import push_front
from rightslice.simulation.running import (
    give_back,
    new_blocks,
    start_decoding,
    stop_decoding,
    take_blocks,
    unlink,
)


@compiled
def victim(replica: int, state: State) -> int:
    """Of the running jobs with the lowest priority, the one admitted last."""
    jobs, lowest = state.jobs, state.tails.shape[1] - 1
    job = chosen = state.live[replica, LAST]
    while job != NOBODY and jobs[chosen, RANK] < lowest:
        if jobs[job, RANK] > jobs[chosen, RANK]:
            chosen = job
        job = jobs[job, BEFORE]
    return int(chosen)


@compiled_apart
def evict(replica: int, job: int, served: int, state: State) -> None:
    """Evict a running job at the start of a step, when only the last one can be partly computed; `served`: 1 when it
    has had the block of this step already."""
    live, jobs = state.live, state.jobs
    if job == live[replica, FRESH]:
        live[replica, FRESH] = NOBODY
    else:
        stop_decoding(replica, job, state)
        jobs[job, NEEDED] = jobs[job, CACHED] + 1
    give_back(replica, job, jobs[job, CACHED] + served, True, state)
    jobs[job, CACHED] = 0
    unlink(replica, job, state)
    push_front(replica, job, state)
    state.totals[replica, PREEMPTIONS] += 1


@compiled
def pause(replica: int, job: int, state: State) -> None:
    """No token in this step for a running job and those behind it."""
    live, jobs = state.live, state.jobs
    live[replica, PAUSED] = job
    while job != NOBODY:
        if job == live[replica, FRESH]:
            jobs[job, CHUNK] = 0
        else:
            stop_decoding(replica, job, state)
        job = jobs[job, NEXT]


@compiled_apart
def go_on(replica: int, state: State) -> None:
    """Those who were paused decode again."""
    live = state.live
    job = live[replica, PAUSED]
    live[replica, PAUSED] = NOBODY
    while job != NOBODY:
        if job != live[replica, FRESH]:
            start_decoding(replica, job, state)
        job = state.jobs[job, NEXT]


@compiled
def retract(replica: int, state: State) -> None:
    """SGLang's way: evict until the others' blocks are there."""
    live = state.live
    residue = -live[replica, STEPS] % state.facts[replica, BLOCK_TOKENS]
    while state.residues[replica, residue] > live[replica, FREE]:
        evict(replica, retracted(replica, state), 0, state)
    expect_anew(replica, state)
    take_blocks(replica, state.residues[replica, residue], state)


@compiled_apart
def make_room(replica: int, state: State) -> None:
    """Serve the running jobs of a step for which blocks are short."""
    live, jobs = state.live, state.jobs
    if state.facts[replica, ADMISSION] == ESTIMATE:
        retract(replica, state)
        return
    job = live[replica, FIRST]
    while job != NOBODY:
        held, chunk = jobs[job, CACHED] + live[replica, STEPS], 1
        if job == live[replica, FRESH]:
            held = jobs[job, CACHED]
            chunk = min(jobs[job, NEEDED] - held, state.facts[replica, BUDGET] - live[replica, DECODING])
            jobs[job, CHUNK] = chunk
        blocks = new_blocks(replica, held, chunk, state)
        while blocks > live[replica, FREE]:
            chosen, after = victim(replica, state), jobs[job, NEXT]
            evict(replica, chosen, int(jobs[chosen, ORDER] < jobs[job, ORDER]), state)
            if chosen == job:
                pause(replica, after, state)
                return
        take_blocks(replica, blocks, state)
        job = jobs[job, NEXT]
