"""The list of jobs that wait at a replica, and the choice of the replica."""

from __future__ import annotations

from rightslice.simulation.compiling import compiled
from rightslice.simulation.engine import could_join, cut_short
from rightslice.simulation.layout import (
    BLOCK_TOKENS,
    BUSY,
    CACHED,
    HEAD,
    KIND,
    KV_BLOCKS,
    LEFT,
    LLM,
    MODEL_LEN,
    NEEDED,
    NEXT,
    NOBODY,
    OUTSTANDING,
    TAIL,
    TOUCHED,
    State,
)


@compiled
def push_back(replica: int, job: int, state: State) -> None:
    """A new job waits behind the others."""
    state.jobs[job, NEXT] = NOBODY
    if state.live[replica, HEAD] == NOBODY:
        state.live[replica, HEAD] = job
    else:
        state.jobs[state.live[replica, TAIL], NEXT] = job
    state.live[replica, TAIL] = job


@compiled
def route(model: int, state: State) -> int:
    """The replica with the fewest outstanding jobs, the lowest index among equals; NOBODY serves the model."""
    first, behind = state.models[model, 0], state.models[model, 1]
    if first == behind:
        return NOBODY
    chosen = first
    for replica in range(first + 1, behind):
        if state.live[replica, OUTSTANDING] < state.live[chosen, OUTSTANDING]:
            chosen = replica
    return int(chosen)


@compiled
def touch(replica: int, state: State) -> None:
    """Look at the replica when the events of this instant are done."""
    if state.live[replica, TOUCHED] == 0:
        state.live[replica, TOUCHED] = 1
        state.touched[0] += 1
        state.touched[state.touched[0]] = replica


@compiled
def submit(job: int, model: int, prompt: int, answer: int, now: int, state: State) -> bool:
    """Route a job to a replica and let it wait there; False when it can never be served."""
    replica = route(model, state)
    if replica == NOBODY:
        return False
    facts, live = state.facts, state.live
    if facts[replica, KIND] == LLM:
        block = facts[replica, BLOCK_TOKENS]
        blocks = (prompt + answer - 1 + block - 1) // block
        if prompt + answer > facts[replica, MODEL_LEN] or blocks > facts[replica, KV_BLOCKS]:
            return False
    state.jobs[job, NEEDED] = prompt
    state.jobs[job, CACHED] = 0
    state.jobs[job, LEFT] = answer
    was_empty = live[replica, HEAD] == NOBODY
    push_back(replica, job, state)
    live[replica, OUTSTANDING] += 1
    if facts[replica, KIND] != LLM or live[replica, BUSY] == 0:
        touch(replica, state)
    elif was_empty and could_join(replica, prompt, state):
        cut_short(replica, now, state)
    return True
