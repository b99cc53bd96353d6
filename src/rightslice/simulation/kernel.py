"""The event loop: one compiled function that plays a whole scenario, step by step. It is the reference.

Time is int64 picoseconds. Nothing is stored per token. Everything is an array, so that one compiled specialisation
serves every scenario. Column numbers are the constants below.

INPUT
  arrival_ps, model, prompt, answer [n]   open-loop requests, sorted by time; job i is request i
  models     [m, 2]     first replica of a model and the one after its last; equal: nobody serves it, requests fail
  facts      [r, FACTS] what a replica is: kind, limits, costs; OFFSET points into `tables`
  tables     [..]       step time by tokens (LLM) or latency by concurrency (stage) of all deployments, end to end
  pipelines  [p, 4]     stages, think time, time from which no request starts; STARTED counts (written)
  stages     [p, s, 3]  model, first entry and number of entries in `samples`
  samples    [k, 2]     prompt and answer tokens
  user_pipeline, user_start_ps [u]        a user has at most one request under way; job n + u belongs to user u

STATE
  agenda     [3, r + u] row DUE: when entity e acts next (e < r: replica, its step or next service ends; else user
             e - r wakes up); rows HEAP and PLACE: a binary heap of entities by (DUE, e), and where each one is in it
  live       [r, LIVE]  counters of a replica: RUNNING jobs, OUTSTANDING = running + waiting, HEAD and TAIL of the
             waiting list, FREE blocks, BUSY (a step is under way), TOUCHED, OLDEST (ring start, stages), SINCE
  running    [r, w]     LLM: running jobs in order of admission. Stage: a ring of jobs in service, from OLDEST on
  jobs       [n + u, 8] NEEDED tokens in the cache before the next token appears (prompt + answered so far), CACHED
             tokens, LEFT answer tokens, BLOCKS held, CHUNK of the step under way, DECODING, NEXT in the waiting list
  touched    [r + 1]    replicas to look at when the events of this instant are done; entry 0 counts them
  done       [w + 1]    jobs that the event in hand completed; entry 0 counts them
  progress [r], goal [n + u]   stages: work done for a job that was always there, and the value at which a job is done
  totals     [r, TOTALS]       BUSY_PS, KV_BLOCK_PS, BATCH_PS (integrals), PEAK_BLOCKS, PREEMPTIONS

OUTPUT
  first_ps, finish_ps [n]: NOT_YET or the time; finish_ps FAILED: refused on arrival. totals.
  passes     [.., 5 + 3 s]     one row per pipeline request: pipeline, sample number, user, start, finish, and for each
             stage entered, first token, finished. A measured stage has its first token when it is finished.

ORDER WITHIN ONE INSTANT
  1. steps and services that end, then users that wake up, both by index; a job that ends enters its next stage at
     once, and a user without think time sends at once. 2. open-loop arrivals, by index. 3. Replicas without a step
     under way start one: an arrival at the very end of a step joins the next. Events at the horizon still happen.
  Routing: the replica of the model with the fewest outstanding jobs, the lowest index among equals.

LLM REPLICA (vLLM V1, first come first served)
  A step serves running jobs in order of admission, one token each or a chunk of their prompt, as long as the token
  budget lasts; the one prompt that may be partly done is always last. A job whose next block is not there evicts the
  job admitted last, possibly itself: blocks freed, computed again later (prompt and answer so far), front of the
  queue. Then waiting jobs join from the front while sequences, budget and blocks allow; joining takes the blocks of the
  whole prompt (scheduler_reserve_full_isl), so a job just evicted, of whose blocks one is taken, never fits. The step
  that computes the last prompt token gives the first answer token. The last answer token is never cached: a job needs
  room for prompt + answer - 1 tokens.

STAGE REPLICA (processor sharing)
  With n in service each progresses by 1 / latency[n] per picosecond; at most STREAMS in service, the rest wait in
  order. All have the same work, so they end in order of admission. `progress` is reset so that its rounding stays
  far below a picosecond; an event falls on the nearest whole picosecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., object])

NEVER: Final = 2**63 - 1
NOT_YET: Final = -1
FAILED: Final = -2

KIND, STREAMS, BUDGET, KV_BLOCKS, BLOCK_TOKENS, MODEL_LEN, OFFSET = 0, 1, 2, 3, 4, 5, 6
KV_TOKEN_PS, ATTENTION_PS, SEQUENCE_PS, STEP_PS, PREFILL_STEP_PS, FACTS = 7, 8, 9, 10, 11, 12
LLM, STAGE = 0, 1
PIPE_STAGES, PIPE_THINK_PS, PIPE_STOP_PS, PIPE_STARTED = 0, 1, 2, 3
STAGE_MODEL, SAMPLE_FIRST, SAMPLE_COUNT = 0, 1, 2
BUSY_PS, KV_BLOCK_PS, BATCH_PS, PEAK_BLOCKS, PREEMPTIONS, TOTALS = 0, 1, 2, 3, 4, 5
PASS_PIPELINE, PASS_SAMPLE, PASS_USER, PASS_START, PASS_FINISH, PASS_STAGES = 0, 1, 2, 3, 4, 5

DUE, HEAP, PLACE = 0, 1, 2
RUNNING, OUTSTANDING, HEAD, TAIL, FREE, BUSY, TOUCHED, OLDEST, SINCE, SERVED, LIVE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
NEEDED, CACHED, LEFT, BLOCKS, CHUNK, DECODING, NEXT, JOB = 0, 1, 2, 3, 4, 5, 6, 8
USER_PIPELINE, USER_STAGE, USER_PASS = 0, 1, 2
NOBODY: Final = -1


def compiled(function: Function) -> Function:
    """Compile a part of the loop. `_nrt=False`: parts never allocate, so numba need not count references to the arrays
    they are given; counting doubles the time of a step."""
    result: Function = numba.njit(nogil=True, error_model="numpy", _nrt=False)(function)
    return result


def compiled_and_cached(function: Function) -> Function:
    """Compile the whole loop, its parts included, and keep the machine code on disk where some folder is writable."""
    result: Function
    try:
        result = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # "no locator available": a read-only installation
        result = numba.njit(nogil=True, error_model="numpy")(function)
    return result


# --- agenda: which entity acts next ------------------------------------------------------------------------------


@compiled
def sooner(a: int, b: int, agenda: Ints) -> bool:
    """Whether entity a acts before entity b: time, then index."""
    return bool(agenda[DUE, a] < agenda[DUE, b] or (agenda[DUE, a] == agenda[DUE, b] and a < b))


@compiled
def reschedule(entity: int, when_ps: int, agenda: Ints) -> None:
    """Let `entity` act at `when_ps`."""
    agenda[DUE, entity] = when_ps
    at = agenda[PLACE, entity]
    while at > 0 and sooner(entity, agenda[HEAP, (at - 1) // 2], agenda):
        agenda[HEAP, at] = agenda[HEAP, (at - 1) // 2]
        agenda[PLACE, agenda[HEAP, at]] = at
        at = (at - 1) // 2
    size = agenda.shape[1]
    while True:
        child = 2 * at + 1
        if child + 1 < size and sooner(agenda[HEAP, child + 1], agenda[HEAP, child], agenda):
            child += 1
        if child >= size or not sooner(agenda[HEAP, child], entity, agenda):
            break
        agenda[HEAP, at] = agenda[HEAP, child]
        agenda[PLACE, agenda[HEAP, at]] = at
        at = child
    agenda[HEAP, at] = entity
    agenda[PLACE, entity] = at


# --- waiting lists and routing -----------------------------------------------------------------------------------


@compiled
def push_back(replica: int, job: int, live: Ints, jobs: Ints) -> None:
    """A new job waits behind the others."""
    jobs[job, NEXT] = NOBODY
    if live[replica, HEAD] == NOBODY:
        live[replica, HEAD] = job
    else:
        jobs[live[replica, TAIL], NEXT] = job
    live[replica, TAIL] = job


@compiled
def push_front(replica: int, job: int, live: Ints, jobs: Ints) -> None:
    """An evicted job waits before the others."""
    jobs[job, NEXT] = live[replica, HEAD]
    if live[replica, HEAD] == NOBODY:
        live[replica, TAIL] = job
    live[replica, HEAD] = job


@compiled
def submit(
    job: int, model: int, prompt: int, answer: int, models: Ints, facts: Ints, live: Ints, jobs: Ints, touched: Ints
) -> bool:
    """Route a job to a replica and let it wait there; False when it can never be served."""
    first, behind = models[model, 0], models[model, 1]
    if first == behind:
        return False
    chosen = first
    for replica in range(first + 1, behind):
        if live[replica, OUTSTANDING] < live[chosen, OUTSTANDING]:
            chosen = replica
    if facts[chosen, KIND] == LLM:
        block = facts[chosen, BLOCK_TOKENS]
        blocks = (prompt + answer - 1 + block - 1) // block
        if prompt + answer > facts[chosen, MODEL_LEN] or blocks > facts[chosen, KV_BLOCKS]:
            return False
    jobs[job, NEEDED] = prompt
    jobs[job, CACHED] = 0
    jobs[job, LEFT] = answer
    jobs[job, BLOCKS] = 0
    jobs[job, DECODING] = 0
    push_back(chosen, job, live, jobs)
    live[chosen, OUTSTANDING] += 1
    if live[chosen, TOUCHED] == 0:
        live[chosen, TOUCHED] = 1
        touched[0] += 1
        touched[touched[0]] = chosen
    return True


# --- LLM replica -------------------------------------------------------------------------------------------------


@compiled
def evict_last(replica: int, count: int, live: Ints, running: Ints, jobs: Ints, totals: Floats) -> int:
    """Evict the last of `count` running jobs; the number of blocks that it gave back."""
    job = running[replica, count - 1]
    blocks = jobs[job, BLOCKS]
    if jobs[job, DECODING] == 1:
        jobs[job, NEEDED] = jobs[job, CACHED] + 1
    jobs[job, CACHED] = 0
    jobs[job, BLOCKS] = 0
    jobs[job, DECODING] = 0
    push_front(replica, job, live, jobs)
    totals[replica, PREEMPTIONS] += 1.0
    return int(blocks)


@compiled
def start_step(
    replica: int,
    now: int,
    horizon_ps: int,
    facts: Ints,
    tables: Ints,
    live: Ints,
    running: Ints,
    jobs: Ints,
    totals: Floats,
) -> int:
    """Schedule one engine step; when it ends, or NEVER without a job."""
    count = live[replica, RUNNING]
    if count == 0 and live[replica, HEAD] == NOBODY:
        return NEVER
    block = facts[replica, BLOCK_TOKENS]
    budget = facts[replica, BUDGET]
    free = live[replica, FREE]
    decoding, context, prefill, work = 0, 0, 0, 0

    at = 0
    while at < count and budget > 0:
        job = running[replica, at]
        cached = jobs[job, CACHED]
        if jobs[job, DECODING] == 1:
            if cached == jobs[job, BLOCKS] * block:
                while free == 0 and count > at:
                    free += evict_last(replica, count, live, running, jobs, totals)
                    count -= 1
                if count == at:
                    break
                free -= 1
                jobs[job, BLOCKS] += 1
            decoding += 1
            context += cached + 1
            budget -= 1
        else:
            chunk = min(jobs[job, NEEDED] - cached, budget)
            prefill += chunk
            work += chunk * cached + chunk * (chunk + 1) // 2
            jobs[job, CHUNK] = chunk
            budget -= chunk
        at += 1

    # Budget is left only when every running job has its tokens: at == count.
    while live[replica, HEAD] != NOBODY and budget > 0 and count < facts[replica, STREAMS]:
        job = live[replica, HEAD]
        needed = jobs[job, NEEDED]
        blocks = (needed + block - 1) // block
        if blocks > free:
            break
        live[replica, HEAD] = jobs[job, NEXT]
        free -= blocks
        jobs[job, BLOCKS] = blocks
        chunk = min(needed, budget)
        jobs[job, CHUNK] = chunk
        running[replica, count] = job
        count += 1
        at += 1
        budget -= chunk
        prefill += chunk
        work += chunk * (chunk + 1) // 2

    live[replica, RUNNING] = count
    live[replica, SERVED] = at
    live[replica, FREE] = free
    live[replica, BUSY] = 1
    duration = (
        facts[replica, STEP_PS]
        + tables[facts[replica, OFFSET] + prefill + decoding]
        + facts[replica, SEQUENCE_PS] * decoding
        + facts[replica, KV_TOKEN_PS] * context
        + facts[replica, ATTENTION_PS] * work
    )
    if prefill > 0:
        duration += facts[replica, PREFILL_STEP_PS]
    used = facts[replica, KV_BLOCKS] - free
    span = float(min(duration, horizon_ps - now))
    totals[replica, BUSY_PS] += span
    totals[replica, KV_BLOCK_PS] += span * used
    totals[replica, BATCH_PS] += span * count
    totals[replica, PEAK_BLOCKS] = max(totals[replica, PEAK_BLOCKS], float(used))
    return int(now + duration)


@compiled
def end_step(
    replica: int, now: int, live: Ints, running: Ints, jobs: Ints, first_ps: Ints, finish_ps: Ints, done: Ints
) -> None:
    """Hand out the tokens of the step that ends; completed jobs go to `done` and give back their blocks."""
    kept, served = 0, live[replica, SERVED]
    for k in range(live[replica, RUNNING]):
        job = running[replica, k]
        if k < served:
            if jobs[job, DECODING] == 1:
                jobs[job, CACHED] += 1
                jobs[job, LEFT] -= 1
            else:
                jobs[job, CACHED] += jobs[job, CHUNK]
                if jobs[job, CACHED] == jobs[job, NEEDED]:
                    jobs[job, DECODING] = 1
                    jobs[job, LEFT] -= 1
                    if first_ps[job] == NOT_YET:
                        first_ps[job] = now
            if jobs[job, LEFT] == 0:
                finish_ps[job] = now
                live[replica, FREE] += jobs[job, BLOCKS]
                done[0] += 1
                done[done[0]] = job
                continue
        running[replica, kept] = job
        kept += 1
    live[replica, RUNNING] = kept
    live[replica, OUTSTANDING] -= done[0]
    live[replica, BUSY] = 0


# --- stage replica -----------------------------------------------------------------------------------------------


@compiled
def settle(replica: int, now: int, facts: Ints, tables: Ints, live: Ints, progress: Floats, totals: Floats) -> None:
    """Bring the progress of a stage replica up to now."""
    count = live[replica, RUNNING]
    if count > 0:
        span = float(now - live[replica, SINCE])
        progress[replica] += span / tables[facts[replica, OFFSET] + count]
        totals[replica, BUSY_PS] += span
        totals[replica, BATCH_PS] += span * count
    live[replica, SINCE] = now


@compiled
def end_services(
    replica: int,
    now: int,
    facts: Ints,
    tables: Ints,
    live: Ints,
    running: Ints,
    progress: Floats,
    goal: Floats,
    totals: Floats,
    first_ps: Ints,
    finish_ps: Ints,
    done: Ints,
) -> None:
    """Complete the jobs whose work ends within half a picosecond of now."""
    settle(replica, now, facts, tables, live, progress, totals)
    latency = tables[facts[replica, OFFSET] + live[replica, RUNNING]]
    while live[replica, RUNNING] > 0:
        job = running[replica, live[replica, OLDEST]]
        if (goal[job] - progress[replica]) * latency > 0.5:
            break
        first_ps[job] = now
        finish_ps[job] = now
        live[replica, OLDEST] = (live[replica, OLDEST] + 1) % running.shape[1]
        live[replica, RUNNING] -= 1
        live[replica, OUTSTANDING] -= 1
        done[0] += 1
        done[done[0]] = job


@compiled
def start_services(
    replica: int,
    now: int,
    facts: Ints,
    tables: Ints,
    live: Ints,
    running: Ints,
    jobs: Ints,
    progress: Floats,
    goal: Floats,
    totals: Floats,
) -> int:
    """Take waiting jobs into service; when the next one ends, or NEVER."""
    settle(replica, now, facts, tables, live, progress, totals)
    oldest, count, width = live[replica, OLDEST], live[replica, RUNNING], running.shape[1]
    if count == 0:
        progress[replica] = 0.0
    elif progress[replica] > 1.0:
        for k in range(count):
            goal[running[replica, (oldest + k) % width]] -= progress[replica]
        progress[replica] = 0.0
    while live[replica, HEAD] != NOBODY and count < facts[replica, STREAMS]:
        job = live[replica, HEAD]
        live[replica, HEAD] = jobs[job, NEXT]
        goal[job] = progress[replica] + 1.0
        running[replica, (oldest + count) % width] = job
        count += 1
    live[replica, RUNNING] = count
    if count == 0:
        return NEVER
    rest = (goal[running[replica, oldest]] - progress[replica]) * tables[facts[replica, OFFSET] + count]
    return int(now + np.int64(np.rint(max(rest, 0.0))))


# --- closed-loop users -------------------------------------------------------------------------------------------


@compiled
def end_pass(user: int, outcome: int, now: int, users: Ints, pipelines: Ints, passes: Ints, agenda: Ints) -> None:
    """The user's request has ended; think, then send again unless it is too late. Who is refused without having to
    think would be refused for ever at the same instant, and leaves."""
    pipeline = users[user, USER_PIPELINE]
    passes[users[user, USER_PASS], PASS_FINISH] = outcome
    think_ps = pipelines[pipeline, PIPE_THINK_PS]
    entity = agenda.shape[1] - users.shape[0] + user
    if now + think_ps >= pipelines[pipeline, PIPE_STOP_PS] or (outcome == FAILED and think_ps == 0):
        reschedule(entity, NEVER, agenda)
    else:
        reschedule(entity, now + think_ps, agenda)


@compiled
def enter_stage(
    user: int,
    now: int,
    users: Ints,
    pipelines: Ints,
    stages: Ints,
    samples: Ints,
    passes: Ints,
    agenda: Ints,
    models: Ints,
    facts: Ints,
    live: Ints,
    jobs: Ints,
    touched: Ints,
    first_ps: Ints,
    finish_ps: Ints,
) -> None:
    """Send the user's request to the stage it has come to."""
    pipeline, stage, row = users[user, USER_PIPELINE], users[user, USER_STAGE], users[user, USER_PASS]
    sample = stages[pipeline, stage, SAMPLE_FIRST] + passes[row, PASS_SAMPLE] % stages[pipeline, stage, SAMPLE_COUNT]
    job = jobs.shape[0] - users.shape[0] + user
    first_ps[job] = NOT_YET
    finish_ps[job] = NOT_YET
    passes[row, PASS_STAGES + 3 * stage] = now
    model = stages[pipeline, stage, STAGE_MODEL]
    if not submit(job, model, samples[sample, 0], samples[sample, 1], models, facts, live, jobs, touched):
        end_pass(user, FAILED, now, users, pipelines, passes, agenda)


@compiled
def start_pass(user: int, row: int, now: int, users: Ints, pipelines: Ints, passes: Ints) -> None:
    """Open row `row` for the user's new request."""
    pipeline = users[user, USER_PIPELINE]
    users[user, USER_STAGE] = 0
    users[user, USER_PASS] = row
    passes[row, :] = NOT_YET
    passes[row, PASS_PIPELINE] = pipeline
    passes[row, PASS_SAMPLE] = pipelines[pipeline, PIPE_STARTED]
    passes[row, PASS_USER] = user
    passes[row, PASS_START] = now
    pipelines[pipeline, PIPE_STARTED] += 1


@compiled
def leave_stage(user: int, first: int, now: int, users: Ints, pipelines: Ints, passes: Ints, agenda: Ints) -> bool:
    """Note that the user's stage has ended; whether another stage follows."""
    row, stage = users[user, USER_PASS], users[user, USER_STAGE]
    passes[row, PASS_STAGES + 3 * stage + 1] = first
    passes[row, PASS_STAGES + 3 * stage + 2] = now
    users[user, USER_STAGE] = stage + 1
    if stage + 1 < pipelines[users[user, USER_PIPELINE], PIPE_STAGES]:
        return True
    end_pass(user, now, now, users, pipelines, passes, agenda)
    return False


# --- the loop ----------------------------------------------------------------------------------------------------


@compiled_and_cached
def run_scenario(
    horizon_ps: int,
    arrival_ps: Ints,
    model: Ints,
    prompt: Ints,
    answer: Ints,
    models: Ints,
    facts: Ints,
    tables: Ints,
    pipelines: Ints,
    stages: Ints,
    samples: Ints,
    user_pipeline: Ints,
    user_start_ps: Ints,
) -> tuple[Ints, Ints, Floats, Ints]:
    """Play a scenario up to its horizon; (first_ps, finish_ps, totals, passes)."""
    n, r, u = len(arrival_ps), len(facts), len(user_pipeline)
    width = 1
    for replica in range(r):
        width = max(width, min(facts[replica, STREAMS], n + u))
    live = np.zeros((r, LIVE), dtype=np.int64)
    running = np.empty((r, width), dtype=np.int64)
    jobs = np.empty((n + u, JOB), dtype=np.int64)
    first_ps = np.full(n + u, NOT_YET, dtype=np.int64)
    finish_ps = np.full(n + u, NOT_YET, dtype=np.int64)
    progress = np.zeros(r, dtype=np.float64)
    goal = np.empty(n + u, dtype=np.float64)
    totals = np.zeros((r, TOTALS), dtype=np.float64)
    touched = np.zeros(r + 1, dtype=np.int64)
    done = np.zeros(width + 1, dtype=np.int64)
    users = np.zeros((u, 3), dtype=np.int64)
    passes = np.empty((4 * u, PASS_STAGES + 3 * stages.shape[1]), dtype=np.int64)
    rows = 0
    agenda = np.empty((3, r + u), dtype=np.int64)
    for entity in range(r + u):
        agenda[DUE, entity] = NEVER
        agenda[HEAP, entity] = entity
        agenda[PLACE, entity] = entity
    for replica in range(r):
        live[replica, HEAD] = NOBODY
        live[replica, FREE] = facts[replica, KV_BLOCKS]
    for user in range(u):
        users[user, USER_PIPELINE] = user_pipeline[user]
        if user_start_ps[user] < pipelines[user_pipeline[user], PIPE_STOP_PS]:
            reschedule(r + user, user_start_ps[user], agenda)

    arrived = 0
    while True:
        now = arrival_ps[arrived] if arrived < n else NEVER
        if r + u > 0:
            now = min(now, agenda[DUE, agenda[HEAP, 0]])
        if now > horizon_ps:
            break
        if rows + u > len(passes):
            longer = np.empty((2 * len(passes), passes.shape[1]), dtype=np.int64)
            longer[:rows] = passes[:rows]
            passes = longer

        while r + u > 0 and agenda[DUE, agenda[HEAP, 0]] == now:
            entity = agenda[HEAP, 0]
            reschedule(entity, NEVER, agenda)
            if entity >= r:
                start_pass(entity - r, rows, now, users, pipelines, passes)
                rows += 1
                enter_stage(
                    entity - r, now, users, pipelines, stages, samples, passes,
                    agenda, models, facts, live, jobs, touched, first_ps, finish_ps,
                )  # fmt: skip
                continue
            done[0] = 0
            if facts[entity, KIND] == LLM:
                end_step(entity, now, live, running, jobs, first_ps, finish_ps, done)
            else:
                end_services(
                    entity, now, facts, tables, live, running, progress, goal, totals, first_ps, finish_ps, done
                )
            if live[entity, TOUCHED] == 0:
                live[entity, TOUCHED] = 1
                touched[0] += 1
                touched[touched[0]] = entity
            for k in range(1, done[0] + 1):
                job = done[k]
                if job >= n and leave_stage(job - n, first_ps[job], now, users, pipelines, passes, agenda):
                    enter_stage(
                        job - n, now, users, pipelines, stages, samples, passes,
                        agenda, models, facts, live, jobs, touched, first_ps, finish_ps,
                    )  # fmt: skip

        while arrived < n and arrival_ps[arrived] == now:
            if not submit(
                arrived, model[arrived], prompt[arrived], answer[arrived], models, facts, live, jobs, touched
            ):
                finish_ps[arrived] = FAILED
            arrived += 1

        for k in range(1, touched[0] + 1):
            replica = touched[k]
            live[replica, TOUCHED] = 0
            if facts[replica, KIND] == STAGE:
                ends = start_services(replica, now, facts, tables, live, running, jobs, progress, goal, totals)
                reschedule(replica, ends, agenda)
            elif live[replica, BUSY] == 0:
                ends = start_step(replica, now, horizon_ps, facts, tables, live, running, jobs, totals)
                reschedule(replica, ends, agenda)
        touched[0] = 0

    for replica in range(r):
        if facts[replica, KIND] == STAGE:
            settle(replica, horizon_ps, facts, tables, live, progress, totals)
    return first_ps[:n], finish_ps[:n], totals, passes[:rows]
