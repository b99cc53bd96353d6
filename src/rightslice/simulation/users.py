"""Closed-loop users: each sends one request through the stages of its pipeline, thinks, and sends again."""

from __future__ import annotations

from rightslice.simulation.agenda import reschedule
from rightslice.simulation.compiling import compiled
from rightslice.simulation.layout import (
    ASKED_MODEL,
    CACHED,
    DEADLINE_PS,
    FAILED,
    FINISH_PS,
    FIRST_PS,
    IDS,
    LEFT,
    LOADED,
    NEEDED,
    NEVER,
    NOT_YET,
    PASS_FINISH,
    PASS_PIPELINE,
    PASS_SAMPLE,
    PASS_STAGES,
    PASS_START,
    PASS_USER,
    PIPE_RANK,
    PIPE_REQUESTS,
    PIPE_STAGES,
    PIPE_STARTED,
    PIPE_STOP_PS,
    PIPE_THINK_PS,
    PROMPT,
    RANK,
    RETRIES,
    ROWS,
    SAMPLE_COUNT,
    SAMPLE_FIRST,
    SHED,
    STAGE_MODEL,
    USER_PASS,
    USER_PIPELINE,
    USER_STAGE,
    State,
)
from rightslice.simulation.waiting import submit


@compiled
def end_pass(user: int, outcome: int, now: int, state: State) -> None:
    """The user's request has ended; think, then send again unless it is too late. Who is refused without having to
    think would be refused for ever at the same instant, and leaves."""
    pipeline = state.users[user, USER_PIPELINE]
    state.passes[state.users[user, USER_PASS], PASS_FINISH] = outcome
    think_ps, refused = state.pipelines[pipeline, PIPE_THINK_PS], outcome in (FAILED, SHED)
    entity = state.agenda.shape[1] - state.users.shape[0] + user
    if now + think_ps >= state.pipelines[pipeline, PIPE_STOP_PS] or (refused and think_ps == 0):
        reschedule(entity, NEVER, state.agenda)
    else:
        reschedule(entity, now + think_ps, state.agenda)


@compiled
def enter_stage(user: int, now: int, state: State) -> None:
    """Send the user's request to the stage it has come to."""
    pipeline, stage = state.users[user, USER_PIPELINE], state.users[user, USER_STAGE]
    row = state.users[user, USER_PASS]
    facts = state.stages[pipeline, stage]
    sample = facts[SAMPLE_FIRST] + state.passes[row, PASS_SAMPLE] % facts[SAMPLE_COUNT]
    job = state.jobs.shape[0] - state.users.shape[0] + user
    jobs = state.jobs
    jobs[job, NEEDED] = state.samples[sample, 0]
    jobs[job, PROMPT] = state.samples[sample, 0]
    jobs[job, CACHED] = 0
    jobs[job, LOADED] = 0
    jobs[job, LEFT] = state.samples[sample, 1]
    jobs[job, ASKED_MODEL] = facts[STAGE_MODEL]
    jobs[job, RETRIES] = 0
    jobs[job, RANK] = state.pipelines[pipeline, PIPE_RANK]
    jobs[job, IDS] = 0
    jobs[job, DEADLINE_PS] = NEVER
    jobs[job, FIRST_PS] = NOT_YET
    jobs[job, FINISH_PS] = NOT_YET
    state.passes[row, PASS_STAGES + 3 * stage] = now
    outcome = submit(job, now, state)
    if outcome != NOT_YET:
        end_pass(user, outcome, now, state)


@compiled
def start_pass(user: int, now: int, state: State) -> None:
    """Open a row for the user's new request and send it, unless all requests of the pipeline have been sent."""
    users, passes, row = state.users, state.passes, state.clock[ROWS]
    pipeline = users[user, USER_PIPELINE]
    if state.pipelines[pipeline, PIPE_STARTED] >= state.pipelines[pipeline, PIPE_REQUESTS]:
        return
    state.clock[ROWS] += 1
    users[user, USER_STAGE] = 0
    users[user, USER_PASS] = row
    passes[row, :] = NOT_YET
    passes[row, PASS_PIPELINE] = pipeline
    passes[row, PASS_SAMPLE] = state.pipelines[pipeline, PIPE_STARTED]
    passes[row, PASS_USER] = user
    passes[row, PASS_START] = now
    state.pipelines[pipeline, PIPE_STARTED] += 1
    enter_stage(user, now, state)


@compiled
def leave_stage(user: int, first_ps: int, now: int, state: State) -> None:
    """The user's stage has ended: on to the next one, or the request has ended."""
    users = state.users
    row, stage = users[user, USER_PASS], users[user, USER_STAGE]
    state.passes[row, PASS_STAGES + 3 * stage + 1] = first_ps
    state.passes[row, PASS_STAGES + 3 * stage + 2] = now
    users[user, USER_STAGE] = stage + 1
    if stage + 1 < state.pipelines[users[user, USER_PIPELINE], PIPE_STAGES]:
        enter_stage(user, now, state)
    else:
        end_pass(user, now, now, state)
