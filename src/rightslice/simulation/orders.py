"""What a control plane changes at a boundary: the condition of replicas, and how fast they are.

Only ready replicas take requests; draining ones finish what they have. When a replica is gone, its running and waiting
requests go to the front of their model's queue, to be computed again (prompt and answer so far), unless they have used
up their retries: then they are lost. Orders take effect after everything else at the boundary's instant: all
conditions and slowdowns first, by index, then requests that wait for a replica are routed. A step under way keeps the
time it had when it started.
"""

from __future__ import annotations

from rightslice.simulation.agenda import reschedule
from rightslice.simulation.batching import stop_batch
from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.engine import stop_run
from rightslice.simulation.gateway import holds_back
from rightslice.simulation.layout import (
    ABLE,
    ABLE_REPLICA,
    AFTERWARDS,
    ASKED_MODEL,
    BEHIND,
    CONDITION,
    DEADLINE_PS,
    FAILED,
    FINISH_PS,
    FIRST_REPLICA,
    GATE,
    GONE,
    HOLDS,
    KIND,
    LLM,
    LOST,
    NEVER,
    NEW_CONDITION,
    NEW_SLOWDOWN,
    NEXT,
    NO_ORDER,
    NOBODY,
    NOT_YET,
    ORDERED,
    OUTSTANDING,
    QUEUED,
    READ_PS,
    READY,
    REQUEUED,
    RETRIES,
    RETRY_LIMIT,
    STAGE,
    TIMED_OUT,
    State,
)
from rightslice.simulation.queues import pop, push_front, take_all
from rightslice.simulation.running import drop_running
from rightslice.simulation.sharing import change_speed
from rightslice.simulation.stage import drop_services, settle
from rightslice.simulation.users import end_pass
from rightslice.simulation.waiting import dispatch, touch


@compiled_apart
def give_up(job: int, outcome: int, now: int, state: State) -> None:
    """A request ends without its answer: FAILED, LOST or TIMED_OUT."""
    requests = len(state.arrival_ps)
    if job >= requests:
        end_pass(job - requests, outcome, now, state)
    else:
        state.jobs[job, FINISH_PS] = outcome


@compiled_apart
def requeue(chain: int, now: int, state: State) -> None:
    """Put a chain of jobs before the others of their priority in their model's queue; those without a retry left are
    lost."""
    jobs, models, clock = state.jobs, state.models, state.clock
    backwards = NOBODY
    while chain != NOBODY:
        job, chain = chain, jobs[chain, NEXT]
        jobs[job, NEXT] = backwards
        backwards = job
    while backwards != NOBODY:
        job, backwards = backwards, jobs[backwards, NEXT]
        if jobs[job, RETRIES] >= clock[RETRY_LIMIT]:
            give_up(job, LOST, now, state)
            continue
        jobs[job, RETRIES] += 1
        clock[REQUEUED] += 1
        models[jobs[job, ASKED_MODEL], QUEUED] += 1
        push_front(len(state.live) + jobs[job, ASKED_MODEL], job, state)


@compiled_apart
def lose(replica: int, now: int, state: State) -> None:
    """The replica is gone, and with it all it had in memory."""
    if state.facts[replica, KIND] == LLM:
        stop_run(replica, now, state)
        chain = drop_running(replica, state)
    else:
        if state.facts[replica, KIND] == STAGE:
            settle(replica, now, state)
        else:
            stop_batch(replica, now, state)
        chain = drop_services(replica, state)
    requeue(take_all(replica, state), now, state)
    requeue(chain, now, state)
    state.live[replica, OUTSTANDING] = 0
    reschedule(replica, NEVER, state.agenda)
    touch(replica, state)


@compiled
def list_able(model: int, state: State) -> None:
    """Who takes requests of a model; its router reads their signals anew."""
    count, first = 0, state.models[model, FIRST_REPLICA]
    for replica in range(first, state.models[model, BEHIND]):
        if state.live[replica, CONDITION] == READY:
            state.live[first + count, ABLE_REPLICA] = replica
            count += 1
    state.models[model, ABLE] = count
    state.models[model, READ_PS] = NOT_YET


@compiled_apart
def flush(model: int, now: int, state: State) -> bool:
    """Route the requests that wait for a replica, if there is one and the gateway lets them; whether any left."""
    queue, left = len(state.live) + model, False
    while state.heads[queue] != NOBODY and state.models[model, ABLE] > 0 and not holds_back(model, now, state):
        left = True
        job = pop(queue, state)
        state.models[model, QUEUED] -= 1
        if state.jobs[job, DEADLINE_PS] <= now:
            give_up(job, TIMED_OUT, now, state)
        elif not dispatch(job, now, state):
            give_up(job, FAILED, now, state)
    return left


@compiled_apart
def let_in(now: int, state: State) -> bool:
    """Route what gateways held back, when all else of this instant has happened; whether any left."""
    state.clock[AFTERWARDS] = 1
    left = False
    for model in range(state.models.shape[0]):
        if state.models[model, GATE] == HOLDS:
            left |= flush(model, now, state)
    return left


@compiled
def obey(replica: int, now: int, state: State) -> bool:
    """Carry out one replica's orders; whether its condition was among them."""
    condition, factor = state.live[replica, NEW_CONDITION], state.pace[replica, NEW_SLOWDOWN]
    state.live[replica, NEW_CONDITION] = NO_ORDER
    state.pace[replica, NEW_SLOWDOWN] = 0.0
    if factor > 0.0:
        state.pace[replica, ORDERED] = factor
        change_speed(replica, now, state)
    if condition == NO_ORDER:
        return False
    state.live[replica, CONDITION] = condition
    if condition == GONE:
        lose(replica, now, state)
    return True


@compiled_apart
def carry_out_orders(now: int, state: State) -> None:
    """Do what was ordered at the boundary."""
    for model in range(state.models.shape[0]):
        changed = False
        for replica in range(state.models[model, FIRST_REPLICA], state.models[model, BEHIND]):
            changed |= obey(replica, now, state)
        if changed:
            list_able(model, state)
    for model in range(state.models.shape[0]):
        flush(model, now, state)
