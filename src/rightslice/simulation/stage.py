"""A measured stage: processor sharing.

With n in service each progresses by 1 / latency[n] per picosecond; at most STREAMS in service, the rest wait in order.
All have the same work, so they end in order of admission. `progress` is reset so that its rounding stays far below a
picosecond; an event falls on the nearest whole picosecond.
"""

from __future__ import annotations

import numpy as np

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.engine import slowed
from rightslice.simulation.layout import (
    BATCH_PS,
    BUSY_PS,
    DEADLINE_PS,
    FINISH_PS,
    FINISHED,
    FIRST_PS,
    NEVER,
    NEXT,
    NOBODY,
    OFFSET,
    OLDEST,
    OUTSTANDING,
    OWNER,
    PROGRESS,
    ROUGH_BATCH,
    RUNNING,
    SINCE,
    STREAMS,
    State,
)
from rightslice.simulation.queues import drop_expired, pop


@compiled
def latency_ps(replica: int, count: int, state: State) -> int:
    """What each of `count` jobs in service takes."""
    return slowed(state.tables[state.facts[replica, OFFSET] + count], replica, state)


@compiled_apart
def settle(replica: int, now: int, state: State) -> None:
    """Bring the progress of a stage replica up to now."""
    count = state.live[replica, RUNNING]
    if count > 0:
        span_ps = now - state.live[replica, SINCE]
        state.pace[replica, PROGRESS] += float(span_ps) / latency_ps(replica, count, state)
        state.totals[replica, BUSY_PS] += span_ps
        state.totals[replica, BATCH_PS] += span_ps * count
        state.pace[replica, ROUGH_BATCH] += 1.0 * span_ps * count
    state.live[replica, SINCE] = now


@compiled
def end_services(replica: int, now: int, state: State) -> None:
    """Complete the jobs whose work ends within half a picosecond of now."""
    live = state.live
    settle(replica, now, state)
    latency = latency_ps(replica, live[replica, RUNNING], state)
    while live[replica, RUNNING] > 0:
        job = state.slots[replica, live[replica, OLDEST], OWNER]
        if (state.goal[job] - state.pace[replica, PROGRESS]) * latency > 0.5:
            break
        state.jobs[job, FIRST_PS] = now
        state.jobs[job, FINISH_PS] = now
        live[replica, OLDEST] = (live[replica, OLDEST] + 1) % state.slots.shape[1]
        live[replica, RUNNING] -= 1
        live[replica, OUTSTANDING] -= 1
        live[replica, FINISHED] += 1
        state.done[0] += 1
        state.done[state.done[0]] = job


@compiled
def start_services(replica: int, now: int, state: State) -> int:
    """Take waiting jobs into service; when the next one ends, or NEVER."""
    settle(replica, now, state)
    live, slots, pace, goal = state.live, state.slots, state.pace, state.goal
    oldest, count, width = live[replica, OLDEST], live[replica, RUNNING], slots.shape[1]
    if count == 0:
        pace[replica, PROGRESS] = 0.0
    elif pace[replica, PROGRESS] > 1.0:
        for k in range(count):
            goal[slots[replica, (oldest + k) % width, OWNER]] -= pace[replica, PROGRESS]
        pace[replica, PROGRESS] = 0.0
    live[replica, OUTSTANDING] -= drop_expired(replica, now, state)
    while state.heads[replica] != NOBODY and count < state.facts[replica, STREAMS]:
        job = pop(replica, state)
        state.jobs[job, DEADLINE_PS] = NEVER
        goal[job] = pace[replica, PROGRESS] + 1.0
        slots[replica, (oldest + count) % width, OWNER] = job
        count += 1
        live[replica, OUTSTANDING] -= drop_expired(replica, now, state)
    live[replica, RUNNING] = count
    if count == 0:
        return NEVER
    rest = (goal[slots[replica, oldest, OWNER]] - pace[replica, PROGRESS]) * latency_ps(replica, count, state)
    return int(now + np.int64(np.rint(max(rest, 0.0))))


@compiled_apart
def drop_services(replica: int, state: State) -> int:
    """Empty the replica after `settle`: the first of the jobs in service, chained by NEXT."""
    live, slots, width = state.live, state.slots, state.slots.shape[1]
    chain = NOBODY
    for k in range(live[replica, RUNNING] - 1, -1, -1):
        job = slots[replica, (live[replica, OLDEST] + k) % width, OWNER]
        state.jobs[job, NEXT] = chain
        chain = job
    live[replica, RUNNING] = 0
    return int(chain)
