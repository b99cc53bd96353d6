"""A stage that serves in batches, one at a time: latency[n] is the time of a batch of n, whose jobs end together.

An idle server starts as soon as STREAMS jobs wait, or the first in line has waited for DELAY_PS, with all that wait but
at most STREAMS. A batch keeps the time it had when it started.
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.layout import (
    BATCH_PS,
    BUSY,
    BUSY_PS,
    DEADLINE_PS,
    DELAY_PS,
    ENTERED_PS,
    FINISH_PS,
    FINISHED,
    FIRST_PS,
    KV_TOKEN_PS,
    LOADED,
    NEVER,
    NOBODY,
    OLDEST,
    OUTSTANDING,
    OWNER,
    ROUGH_BATCH,
    RUNNING,
    SINCE,
    STREAMS,
    THEN_MODEL,
    State,
)
from rightslice.simulation.queues import drop_expired, pop
from rightslice.simulation.stage import latency_ps


@compiled_apart
def stop_batch(replica: int, now: int, state: State) -> None:
    """Add the batch under way to the totals up to now."""
    live, totals = state.live, state.totals
    if live[replica, BUSY] == 1:
        span_ps, count = now - live[replica, SINCE], live[replica, RUNNING]
        totals[replica, BUSY_PS] += span_ps
        totals[replica, BATCH_PS] += span_ps * count
        state.pace[replica, ROUGH_BATCH] += 1.0 * span_ps * count
        live[replica, BUSY] = 0


@compiled
def end_batch(replica: int, now: int, state: State) -> None:
    """Complete the jobs of the batch; nothing when a delay has ended instead."""
    live, jobs, done = state.live, state.jobs, state.done
    stop_batch(replica, now, state)
    for at in range(live[replica, RUNNING]):
        job = state.slots[replica, at, OWNER]
        if state.facts[replica, THEN_MODEL] == NOBODY:
            jobs[job, FIRST_PS] = now
            jobs[job, FINISH_PS] = now
        done[0] += 1
        done[done[0]] = job
    live[replica, OUTSTANDING] -= live[replica, RUNNING]
    live[replica, FINISHED] += live[replica, RUNNING]
    live[replica, RUNNING] = 0


@compiled
def start_batch(replica: int, now: int, state: State) -> int:
    """Start a batch on an idle server if one is due; when it ends, or the delay does, or NEVER."""
    live, facts = state.live, state.facts
    live[replica, OUTSTANDING] -= drop_expired(replica, now, state)
    if live[replica, OUTSTANDING] == 0:
        return NEVER
    due_ps = state.jobs[state.heads[replica], ENTERED_PS] + facts[replica, DELAY_PS]
    if live[replica, OUTSTANDING] < facts[replica, STREAMS] and now < due_ps:
        return int(due_ps)
    count = min(live[replica, OUTSTANDING], facts[replica, STREAMS])
    for at in range(count):
        state.slots[replica, at, OWNER] = pop(replica, state)
        state.jobs[state.slots[replica, at, OWNER], DEADLINE_PS] = NEVER
    live[replica, RUNNING] = count
    live[replica, OLDEST] = 0
    live[replica, SINCE] = now
    live[replica, BUSY] = 1
    moved_ps = facts[replica, KV_TOKEN_PS] * state.jobs[state.slots[replica, 0, OWNER], LOADED]
    return int(now + latency_ps(replica, count, state) + moved_ps)
