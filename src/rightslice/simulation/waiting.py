"""From a request to the list of jobs that wait at a replica, or to the queue of a model that no replica serves yet."""

from __future__ import annotations

from rightslice.simulation.admission import could_join
from rightslice.simulation.compiling import compiled
from rightslice.simulation.engine import cut_short
from rightslice.simulation.gateway import shed_or_hold, wait_before
from rightslice.simulation.layout import (
    ARRIVALS,
    ASKED_MODEL,
    BEHIND,
    BLOCK_TOKENS,
    BUSY,
    DEADLINE_PS,
    ENTERED_PS,
    FAILED,
    FIRST_REPLICA,
    KIND,
    KV_BLOCKS,
    LEFT,
    LLM,
    MODEL_LEN,
    NEEDED,
    NEVER,
    NOBODY,
    NOT_YET,
    OUTSTANDING,
    SERVED,
    SHED,
    STAGE,
    TOUCHED,
    State,
)
from rightslice.simulation.queues import push_back
from rightslice.simulation.routing import route


@compiled
def touch(replica: int, state: State) -> None:
    """Look at the replica when the events of this instant are done."""
    if state.live[replica, TOUCHED] == 0:
        state.live[replica, TOUCHED] = 1
        state.touched[0] += 1
        state.touched[state.touched[0]] = replica


@compiled
def fits(job: int, replica: int, state: State) -> bool:
    """Whether the replica can ever serve the job: context and cache hold prompt and answer (but its last token)."""
    facts = state.facts
    if facts[replica, KIND] != LLM:
        return True
    tokens = state.jobs[job, NEEDED] + state.jobs[job, LEFT]
    block = facts[replica, BLOCK_TOKENS]
    blocks = (tokens - 1 + block - 1) // block
    return bool(tokens <= facts[replica, MODEL_LEN] and blocks <= facts[replica, KV_BLOCKS])


@compiled
def wait_at(replica: int, job: int, now: int, state: State) -> None:
    """The job waits behind the others of its priority."""
    push_back(replica, job, state)
    state.jobs[job, ENTERED_PS] = now
    state.jobs[job, SERVED] = replica
    state.live[replica, OUTSTANDING] += 1
    kind = state.facts[replica, KIND]
    if kind == STAGE or state.live[replica, BUSY] == 0:
        touch(replica, state)
    elif kind == LLM and state.heads[replica] == job:
        if could_join(replica, job, state):
            cut_short(replica, now, state)
        elif state.jobs[job, DEADLINE_PS] < NEVER:
            cut_short(replica, max(now, state.jobs[job, DEADLINE_PS]), state)


@compiled
def dispatch(job: int, now: int, state: State) -> bool:
    """Route a job, or let it wait until a replica of its model is ready; False when it can never be served."""
    model = state.jobs[job, ASKED_MODEL]
    replica = route(job, model, now, state)
    if replica == NOBODY:
        if state.models[model, FIRST_REPLICA] == state.models[model, BEHIND]:
            return False
        wait_before(model, job, state)
        return True
    if not fits(job, replica, state):
        return False
    wait_at(replica, job, now, state)
    return True


@compiled
def submit(job: int, now: int, state: State) -> int:
    """A new request, described in `jobs`: NOT_YET, SHED by its gateway, or FAILED: it can never be served."""
    state.models[state.jobs[job, ASKED_MODEL], ARRIVALS] += 1
    shed, held = shed_or_hold(job, now, state)
    if shed:
        return SHED
    return NOT_YET if held or dispatch(job, now, state) else FAILED
