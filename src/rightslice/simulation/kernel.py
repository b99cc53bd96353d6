"""The event loop: plays a scenario up to a boundary. The state is outside (layout.py), so that a run can go on.

ORDER WITHIN ONE INSTANT
  1. steps and services that end, then users that wake up, both by index; a job that ends enters its next stage at
     once, and a user without think time sends at once. 2. open-loop arrivals, by index. 3. Replicas on one GPU change
     speed where one of them has become busy or idle (sharing.py). 4. Replicas without a step under way start one: an
     arrival at the very end of a step joins the next. 5. What gateways held back is routed where there is room now, and
     3. and 4. again. Events at the boundary still happen, then orders are carried out
     (orders.py), and replicas that they touch start.
"""

from __future__ import annotations

from collections.abc import Callable

from rightslice.simulation.agenda import reschedule
from rightslice.simulation.batching import end_batch, start_batch, stop_batch
from rightslice.simulation.compiling import compiled, compiled_and_cached, source_digest
from rightslice.simulation.disaggregation import hand_on, hands_on
from rightslice.simulation.engine import end_run, start_run, stop_run, used_blocks
from rightslice.simulation.layout import (
    AFTERWARDS,
    ARRIVED,
    BATCH,
    BUSY,
    DUE,
    FINISH_PS,
    FIRST_PS,
    HEAP,
    HOLDING,
    KIND,
    KV_USED,
    LEFT,
    LLM,
    NEVER,
    NOT_YET,
    NOW,
    ROWS,
    STAGE,
    TOUCHED,
    State,
)
from rightslice.simulation.orders import carry_out_orders, let_in
from rightslice.simulation.sharing import note_idle, share_out
from rightslice.simulation.stage import end_services, settle, start_services
from rightslice.simulation.users import leave_stage, start_pass
from rightslice.simulation.waiting import submit, touch


@compiled
def end_of_replica(replica: int, now: int, state: State) -> None:
    """A run of steps or a service ends; completed jobs of users go on."""
    state.done[0] = 0
    if state.facts[replica, KIND] == LLM:
        end_run(replica, now, state)
    elif state.facts[replica, KIND] == BATCH:
        end_batch(replica, now, state)
    else:
        end_services(replica, now, state)
    touch(replica, state)
    requests = len(state.arrival_ps)
    for k in range(1, state.done[0] + 1):
        job = state.done[k]
        if state.jobs[job, LEFT] > 0 and hands_on(replica, state):
            hand_on(replica, job, now, state)
        elif job >= requests:
            leave_stage(job - requests, state.jobs[job, FIRST_PS], now, state)


@compiled
def start_touched(now: int, state: State) -> None:
    """Replicas that something happened to start their next run or services, at the speed that their GPU leaves them."""
    if state.groups.shape[0] > 0:
        share_out(now, state)
    for k in range(1, state.touched[0] + 1):
        replica = state.touched[k]
        state.live[replica, TOUCHED] = 0
        if state.facts[replica, KIND] == STAGE:
            reschedule(replica, start_services(replica, now, state), state.agenda)
        elif state.live[replica, BUSY] == 0:
            llm = state.facts[replica, KIND] == LLM
            ends_ps = start_run(replica, now, state) if llm else start_batch(replica, now, state)
            reschedule(replica, ends_ps, state.agenda)
        if state.groups.shape[0] > 0:
            note_idle(replica, state)
    state.touched[0] = 0


@compiled
def settle_instant(now: int, state: State) -> None:
    """Start what something happened to, until gateways let nobody in any more."""
    open_gate = True
    while open_gate:
        start_touched(now, state)
        open_gate = state.clock[HOLDING] > 0 and let_in(now, state)
    state.clock[AFTERWARDS] = 0


@compiled
def next_ps(state: State) -> int:
    """When something happens next; NEVER."""
    now = NEVER
    if state.clock[ARRIVED] < len(state.arrival_ps):
        now = state.arrival_ps[state.clock[ARRIVED]]
    if state.agenda.shape[1] > 0:
        now = min(now, state.agenda[DUE, state.agenda[HEAP, 0]])
    return int(now)


@compiled
def play_instant(now: int, state: State) -> None:
    """Everything that happens now."""
    agenda, clock = state.agenda, state.clock
    replicas = state.live.shape[0]
    while agenda.shape[1] > 0 and agenda[DUE, agenda[HEAP, 0]] == now:
        entity = agenda[HEAP, 0]
        reschedule(entity, NEVER, agenda)
        if entity >= replicas:
            start_pass(entity - replicas, now, state)
        else:
            end_of_replica(entity, now, state)
    while clock[ARRIVED] < len(state.arrival_ps) and state.arrival_ps[clock[ARRIVED]] == now:
        job = clock[ARRIVED]
        outcome = submit(job, now, state)
        if outcome != NOT_YET:
            state.jobs[job, FINISH_PS] = outcome
        clock[ARRIVED] += 1
    settle_instant(now, state)


@compiled
def look_around(now: int, state: State) -> None:
    """Write what a control plane may read at a boundary and the arrays do not say."""
    state.clock[AFTERWARDS] = 1
    for replica in range(state.live.shape[0]):
        if state.facts[replica, KIND] == LLM:
            state.live[replica, KV_USED] = used_blocks(replica, now, state)
    state.clock[AFTERWARDS] = 0


@compiled
def close(now: int, state: State) -> None:
    """The play ends here; add what is under way to the totals."""
    state.clock[AFTERWARDS] = 1
    for replica in range(state.live.shape[0]):
        if state.facts[replica, KIND] == STAGE:
            settle(replica, now, state)
        elif state.facts[replica, KIND] == BATCH:
            stop_batch(replica, now, state)
        else:
            stop_run(replica, now, state)
    state.clock[AFTERWARDS] = 0


def _loop(digest: int) -> Callable[[State, int, bool, bool], bool]:
    """The compiled loop; `digest` of the sources is a part of its key in the cache."""

    @compiled_and_cached
    def advance(state: State, until_ps: int, ordered: bool, closing: bool) -> bool:
        """Play what happens up to and at `until_ps`; False when `passes` must be made longer and the call repeated.

        `ordered`: carry out the orders given at the last boundary first. `closing`: the play ends here.
        """
        _ = digest
        if ordered:
            state.clock[AFTERWARDS] = 1
            carry_out_orders(state.clock[NOW], state)
            settle_instant(state.clock[NOW], state)
        while True:
            now = next_ps(state)
            if now > until_ps:
                break
            if state.clock[ROWS] + state.users.shape[0] > state.passes.shape[0]:
                return False
            play_instant(now, state)
        state.clock[NOW] = until_ps
        if closing:
            close(until_ps, state)
        else:
            look_around(until_ps, state)
        return True

    return advance


advance = _loop(source_digest())
