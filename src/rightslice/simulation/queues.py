"""Lists of waiting jobs, one per replica and one per model: by rank, and first come first served within a rank.

A job that waits longer than its timeout is dropped when it is first in line and something could start.

A list is linked by NEXT from its head; its tails, one per rank, are the last jobs of each rank, or NOBODY.
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled
from rightslice.simulation.layout import (
    DEADLINE_PS,
    FINISH_PS,
    NEXT,
    NOBODY,
    RANK,
    TIMED_OUT,
    State,
)


@compiled
def link(queue: int, job: int, above: int, state: State) -> None:
    """Put a job behind the last one of rank `above` or higher."""
    before = NOBODY
    while above >= 0 and before == NOBODY:
        before = state.tails[queue, above]
        above -= 1
    if before == NOBODY:
        state.jobs[job, NEXT] = state.heads[queue]
        state.heads[queue] = job
    else:
        state.jobs[job, NEXT] = state.jobs[before, NEXT]
        state.jobs[before, NEXT] = job


@compiled
def push_back(queue: int, job: int, state: State) -> None:
    """A job waits behind the others of its rank."""
    rank = state.jobs[job, RANK]
    link(queue, job, rank, state)
    state.tails[queue, rank] = job


@compiled
def push_front(queue: int, job: int, state: State) -> None:
    """A job waits before the others of its rank."""
    rank = state.jobs[job, RANK]
    link(queue, job, rank - 1, state)
    if state.tails[queue, rank] == NOBODY:
        state.tails[queue, rank] = job


@compiled
def pop(queue: int, state: State) -> int:
    """Take the first job."""
    job = state.heads[queue]
    state.heads[queue] = state.jobs[job, NEXT]
    rank = state.jobs[job, RANK]
    if state.tails[queue, rank] == job:
        state.tails[queue, rank] = NOBODY
    return int(job)


@compiled
def take_all(queue: int, state: State) -> int:
    """Empty the list: its first job, the others behind it by NEXT."""
    chain = state.heads[queue]
    state.heads[queue] = NOBODY
    state.tails[queue, :] = NOBODY
    return int(chain)


@compiled
def drop_expired(queue: int, now: int, state: State) -> int:
    """Drop jobs from the front that have waited too long; how many."""
    dropped = 0
    while state.heads[queue] != NOBODY and state.jobs[state.heads[queue], DEADLINE_PS] <= now:
        state.jobs[pop(queue, state), FINISH_PS] = TIMED_OUT
        dropped += 1
    return dropped
