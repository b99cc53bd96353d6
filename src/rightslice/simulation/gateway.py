"""A gateway that looks at saturation, as the endpoint picker of the Kubernetes inference gateway does.

A pool is saturated when no replica that takes requests has room: at most the threshold of waiting requests and at most
the threshold of its KV cache in use (gateway-api-inference-extension, SaturationDetector: 5 and 0.8; its figures are
fresh here). While it is, a request of negative priority is refused at once (HTTP 429). Others go to the replicas all
the same, or with flow control wait in their model's queue by priority; the first in line is routed as soon as there is
room. What waits there is looked at whenever something has happened, after everything else of that instant.
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.engine import used_blocks
from rightslice.simulation.layout import (
    ABLE,
    ASKED_MODEL,
    BEHIND,
    FIRST_REPLICA,
    GATE,
    GATE_KV,
    GATE_QUEUE,
    HOLDS,
    KV_BLOCKS,
    NO_GATE,
    NOBODY,
    OUTSTANDING,
    QUEUED,
    RANK,
    RUNNING,
    SHED_RANK,
    State,
)
from rightslice.simulation.queues import push_back
from rightslice.simulation.routing import able_replica


@compiled_apart
def saturated(model: int, now: int, state: State) -> bool:
    """Whether no replica that takes requests has room."""
    for at in range(state.models[model, ABLE]):
        replica = able_replica(model, at, state)
        if state.live[replica, OUTSTANDING] - state.live[replica, RUNNING] > state.models[model, GATE_QUEUE]:
            continue
        blocks = state.facts[replica, KV_BLOCKS]
        if blocks == 0 or used_blocks(replica, now, state) / blocks <= state.weights[model, GATE_KV]:
            return False
    return True


@compiled
def holds_back(model: int, now: int, state: State) -> bool:
    """Whether requests of a model must wait before its gateway now."""
    return bool(state.models[model, GATE] == HOLDS and saturated(model, now, state))


@compiled
def wait_before(model: int, job: int, state: State) -> None:
    """The job waits in its model's queue, behind the others of its priority."""
    push_back(len(state.live) + model, job, state)
    state.models[model, QUEUED] += 1


@compiled
def shed_or_hold(job: int, now: int, state: State) -> tuple[bool, bool]:
    """Whether a new request is refused because its model is saturated, and whether it was put into the queue."""
    model = state.jobs[job, ASKED_MODEL]
    gate = state.models[model, GATE]
    if gate == NO_GATE or state.models[model, FIRST_REPLICA] == state.models[model, BEHIND]:
        return False, False
    full = saturated(model, now, state)
    if full and state.jobs[job, RANK] >= state.clock[SHED_RANK]:
        return True, False
    if gate == HOLDS and (full or state.heads[len(state.live) + model] != NOBODY):
        wait_before(model, job, state)
        return False, True
    return False, False
