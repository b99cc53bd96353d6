"""An LLM replica (vLLM V1; with other rules of admission TensorRT-LLM, SGLang): runs of steps, each computed at once.

RULES
  A step serves the running jobs in order of admission, one token each or a chunk of the prompt within the token budget.
  Jobs that compute their prompt were admitted last, and only the last of all may be left with a part of it. Who gives
  way when blocks are short: preemption.py; its blocks are freed, prompt and answer so far are computed again later, and
  it waits at the front of the queue of its priority. Then, unless one was evicted, waiting jobs join from the front
  while sequences, budget and blocks allow. There must be room for the whole prompt (scheduler_reserve_full_isl), but a
  job takes the blocks of a chunk with the chunk; with GUARANTEED_NO_EVICT it takes those of prompt and answer at once,
  and never lacks a block; SGLang's rule is in expectation.py. Full blocks are known to later jobs: prefix.py. The step
  that computes the last prompt token gives the first answer token. The last answer token is never cached: a job needs
  room for prompt + answer - 1 tokens. What of this vLLM's own scheduler confirms: docs/simulate.md.

PREFILL FIRST
  As long as a prompt can be computed (of a running job, or of one that joins) a step computes prompts only, and those
  that decode wait: SGLang, and vLLM before 0.8. Such a run has no step that decodes: RUN_STEPS is 0.

RUNS
  While all running jobs decode, a step changes nothing but the length of each: step k of a run takes a + c k, with
  c = KV_TOKEN_PS x jobs. A run ends with the first job that ends, before the first step that lacks a block, or at the
  end of the step under way when a job comes that could join, or when the first in line has waited too long. It is one
  step after an eviction, and while a job waits to be expected to fit. A waiting job that does not fit cannot join
  before the run ends, because free blocks only fall. A step that computes prompts is a run of its own.
  A job needs a block in the step before which its tokens fill whole blocks, so `residues` tells how many blocks each
  step takes. Those of a run's first step are taken when the run starts, the others when it ends.
"""

from __future__ import annotations

import math

import numpy as np

from rightslice.simulation.admission import estimates_again, join
from rightslice.simulation.agenda import reschedule
from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.expectation import FIRST_RATIO, decay
from rightslice.simulation.layout import (
    AFTERWARDS,
    ATTENTION_PS,
    BATCH_PS,
    BLOCK_TOKENS,
    BUDGET,
    BUSY,
    BUSY_PS,
    CACHED,
    CHUNK,
    CONTEXT,
    DEADLINE_PS,
    DECODING,
    FINISH_PS,
    FINISHED,
    FIRST_ID,
    FIRST_PS,
    FREE,
    FRESH,
    IDS,
    IDS_USED,
    KV_BLOCK_PS,
    KV_BLOCKS,
    KV_TOKEN_PS,
    LEFT,
    LOADED,
    LONGEST_PS,
    LONGEST_RUN_STEPS,
    NEEDED,
    NEVER,
    NEXT,
    NOBODY,
    NOT_YET,
    OFFSET,
    ORDER,
    OUTSTANDING,
    OWNER,
    PAUSED,
    PEAK_BLOCKS,
    PREFILL_FIRST,
    PREFILL_STEP_PS,
    PREFIX_BLOCKS,
    PREFIX_TOKENS,
    RATIO,
    RETRACTED,
    ROUGH_BATCH,
    ROUGH_KV,
    RUN_STEPS,
    RUNNING,
    SENDS_TO,
    SEQUENCE_PS,
    SINCE,
    SLOWDOWN,
    STEP_FIRST_PS,
    STEP_MORE_PS,
    STEP_PS,
    STEPS,
    TAKEN,
    VALUE,
    State,
)
from rightslice.simulation.preemption import go_on, make_room
from rightslice.simulation.prefix import become_known, found_blocks
from rightslice.simulation.prefix_list import first_copy, starts_here
from rightslice.simulation.queues import drop_expired
from rightslice.simulation.running import (
    give_back,
    new_blocks,
    start_decoding,
    stop_decoding,
    take_blocks,
    takes_chunks,
    unlink,
)


@compiled
def slowed(time_ps: int, replica: int, state: State) -> int:
    """A time of an undisturbed replica, as it is now."""
    factor = state.pace[replica, SLOWDOWN]
    return time_ps if factor == 1.0 else int(np.rint(time_ps * factor))


@compiled
def run_time_ps(first_ps: int, more_ps: int, steps: int) -> int:
    """Duration of `steps` steps, step k of which takes first_ps + k more_ps."""
    return first_ps * steps + more_ps * (steps * (steps - 1) // 2)


@compiled
def steps_within(first_ps: int, more_ps: int, span_ps: int) -> int:
    """The fewest steps, at least 1, that take `span_ps` or longer."""
    linear = first_ps - 0.5 * more_ps  # first_ps >= more_ps, because every context has a token
    steps = max(1, int(2.0 * span_ps / (linear + math.sqrt(linear * linear + 2.0 * more_ps * span_ps))))
    while run_time_ps(first_ps, more_ps, steps) < span_ps:
        steps += 1
    while steps > 1 and run_time_ps(first_ps, more_ps, steps - 1) >= span_ps:
        steps -= 1
    return steps


@compiled
def started_steps(replica: int, now: int, state: State) -> int:
    """Steps of the run under way that have started; one that starts now has done so only when orders are given."""
    live = state.live
    span_ps = now - live[replica, SINCE] + state.clock[AFTERWARDS]
    return steps_within(live[replica, STEP_FIRST_PS], live[replica, STEP_MORE_PS], span_ps)


@compiled
def cut_short(replica: int, when_ps: int, state: State) -> None:
    """End the run with the step that is under way then."""
    live = state.live
    first_ps, more_ps, since = live[replica, STEP_FIRST_PS], live[replica, STEP_MORE_PS], live[replica, SINCE]
    steps = started_steps(replica, when_ps, state)
    if steps < live[replica, RUN_STEPS]:
        live[replica, RUN_STEPS] = steps
        reschedule(replica, since + run_time_ps(first_ps, more_ps, steps), state.agenda)


@compiled
def decode_steps(replica: int, now: int, first_ps: int, more_ps: int, state: State) -> int:
    """Steps until a job ends or the first in line has waited too long, as long as blocks last; not too long a run."""
    live, block = state.live, state.facts[replica, BLOCK_TOKENS]
    steps = min(state.slots[replica, 0, VALUE] - live[replica, STEPS], LONGEST_RUN_STEPS)
    longest_ps = state.facts[replica, LONGEST_PS]
    if (1.0 * first_ps + 0.5 * more_ps * steps) * steps > longest_ps:
        steps = max(1, steps_within(first_ps, more_ps, longest_ps) - 1)
    head = state.heads[replica]
    if head != NOBODY and state.jobs[head, DEADLINE_PS] < NEVER:
        steps = min(steps, steps_within(first_ps, more_ps, state.jobs[head, DEADLINE_PS] - now))
    free, count = live[replica, FREE], live[replica, DECODING]
    if ((steps - 1) // block + 1) * count <= free:
        return int(steps)
    known = min(free // count, (steps - 1) // block) * block  # whole rounds: every job takes one block in each
    free -= known // block * count
    residue = (-live[replica, STEPS] - known - 1) % block
    while known < steps - 1 and state.residues[replica, residue] <= free:
        free -= state.residues[replica, residue]
        residue = residue - 1 if residue > 0 else block - 1
        known += 1
    return int(known + 1)


@compiled
def continue_prompt(replica: int, decoding: int, state: State) -> int:
    """The next chunk of the prompt that is partly computed, in a step that decodes so many; blocks it needs."""
    jobs, job = state.jobs, state.live[replica, FRESH]
    chunk = min(jobs[job, NEEDED] - jobs[job, CACHED], state.facts[replica, BUDGET] - decoding)
    jobs[job, CHUNK] = chunk
    if not takes_chunks(replica, state):
        return 0
    return new_blocks(replica, jobs[job, CACHED], chunk, state)


@compiled
def serve_running(replica: int, state: State) -> bool:
    """Give the running jobs the blocks of a step; whether somebody was evicted for it."""
    live = state.live
    blocks = state.residues[replica, -live[replica, STEPS] % state.facts[replica, BLOCK_TOKENS]]
    if live[replica, FRESH] != NOBODY:
        blocks += continue_prompt(replica, live[replica, DECODING], state)
    if blocks > live[replica, FREE]:
        make_room(replica, state)
        return True
    take_blocks(replica, blocks, state)
    return False


@compiled
def start_run(replica: int, now: int, state: State) -> int:
    """Begin the next run of steps; when it ends, or NEVER without a job."""
    live, facts, jobs = state.live, state.facts, state.jobs
    live[replica, OUTSTANDING] -= drop_expired(replica, now, state)
    if live[replica, OUTSTANDING] == 0:
        live[replica, RATIO] = FIRST_RATIO
        return NEVER
    alone, evicting = facts[replica, PREFILL_FIRST] == 1, False
    if not alone:
        evicting = serve_running(replica, state)
    elif live[replica, FRESH] != NOBODY:
        continue_prompt(replica, 0, state)
    decoding = 0 if alone else live[replica, DECODING]
    budget = facts[replica, BUDGET] - decoding
    prefill, work = 0, 0
    if live[replica, FRESH] != NOBODY:
        job = live[replica, FRESH]
        cached, chunk = jobs[job, CACHED], jobs[job, CHUNK]
        prefill, work = chunk, chunk * cached + chunk * (chunk + 1) // 2
        if facts[replica, PREFIX_BLOCKS] > 0 and jobs[job, IDS_USED] < jobs[job, IDS]:
            become_known(replica, job, cached + chunk, state)
    if not evicting:
        joined, more_work = join(replica, budget - prefill, state)
        prefill += joined
        work += more_work

    if alone and prefill == 0:
        evicting = serve_running(replica, state)
        decoding = live[replica, DECODING]
    context = live[replica, CONTEXT] + decoding * live[replica, STEPS] if decoding > 0 else 0
    first_ps = (
        facts[replica, STEP_PS]
        + slowed(state.tables[facts[replica, OFFSET] + prefill + decoding], replica, state)
        + facts[replica, SEQUENCE_PS] * decoding
        + facts[replica, KV_TOKEN_PS] * context
        + facts[replica, ATTENTION_PS] * work
    )
    more_ps = facts[replica, KV_TOKEN_PS] * decoding
    if prefill > 0:
        first_ps += facts[replica, PREFILL_STEP_PS]
    first_ps = max(first_ps, 1)
    steps = 0 if alone and prefill > 0 else 1
    if prefill == 0 and not evicting and not estimates_again(replica, state):
        steps = decode_steps(replica, now, first_ps, more_ps, state)
    live[replica, BUSY] = 1
    live[replica, RETRACTED] = evicting
    live[replica, SINCE] = now
    live[replica, RUN_STEPS] = steps
    live[replica, STEP_FIRST_PS] = first_ps
    live[replica, STEP_MORE_PS] = more_ps
    return int(now + run_time_ps(first_ps, more_ps, max(steps, 1)))


@compiled
def grow(replica: int, steps: int, span_ps: int, state: State) -> tuple[int, int]:
    """Blocks taken after the first of `steps` started steps, and the sum over them of the time since, `span_ps` after
    the start of the run."""
    live, block = state.live, state.facts[replica, BLOCK_TOKENS]
    first_ps, more_ps = live[replica, STEP_FIRST_PS], live[replica, STEP_MORE_PS]
    residue = (-live[replica, STEPS] - 1) % block
    blocks, block_ps = 0, 0
    for step in range(1, min(steps, block + 1)):
        jobs = state.residues[replica, residue]
        if jobs > 0:
            rounds = (steps - 1 - step) // block + 1 if steps > block + 1 else 1
            # steps step, step + block, ..: their number, their sum and the sum of their pairs k (k - 1) / 2
            total = rounds * step + block * (rounds * (rounds - 1) // 2)
            squares = (
                rounds * step * step
                + step * block * (rounds * (rounds - 1))
                + block * block * ((rounds - 1) * rounds * (2 * rounds - 1) // 6)
            )
            blocks += jobs * rounds
            block_ps += jobs * (rounds * span_ps - first_ps * total - more_ps * ((squares - total) // 2))
        residue = residue - 1 if residue > 0 else block - 1
    return blocks, block_ps


@compiled
def count_up(replica: int, steps: int, span_ps: int, state: State) -> int:
    """Add a run's `steps` started steps over `span_ps` to the totals; blocks that must still be taken for them."""
    live, totals, pace = state.live, state.totals, state.pace
    used = state.facts[replica, KV_BLOCKS] - live[replica, FREE] - live[replica, TAKEN]
    blocks, block_ps = 0, 0
    if steps > 1:
        blocks, block_ps = grow(replica, steps, span_ps, state)
    totals[replica, BUSY_PS] += span_ps
    totals[replica, KV_BLOCK_PS] += used * span_ps + block_ps
    totals[replica, BATCH_PS] += live[replica, RUNNING] * span_ps
    pace[replica, ROUGH_KV] += 1.0 * used * span_ps + block_ps
    pace[replica, ROUGH_BATCH] += 1.0 * live[replica, RUNNING] * span_ps
    totals[replica, PEAK_BLOCKS] = max(totals[replica, PEAK_BLOCKS], used + blocks)
    blocks -= live[replica, TAKEN]
    live[replica, TAKEN] = 0
    return int(blocks)


@compiled_apart
def catch_up(replica: int, now: int, state: State) -> None:
    """Take the blocks of the steps that have started, so that the prefix cache is that of the step under way."""
    blocks = grow(replica, started_steps(replica, now, state), 0, state)[0]
    take_blocks(replica, blocks - state.live[replica, TAKEN], state)
    state.live[replica, TAKEN] = blocks


@compiled_apart
def known_now(replica: int, job: int, now: int, state: State) -> int:
    """Tokens of a new job that the replica has in its prefix cache in the middle of a run."""
    if state.facts[replica, PREFIX_TOKENS] == 0 or not starts_here(replica, job, state):
        return 0
    found = found_blocks(replica, job, state)
    if found > 0 and state.live[replica, BUSY] == 1 and state.live[replica, RUN_STEPS] > 1:
        last = first_copy(replica, state.prefix_ids[state.jobs[job, FIRST_ID] + found - 1], state)
        if state.uses[replica, last] == 0:  # it may be dropped in this run
            catch_up(replica, now, state)
            found = found_blocks(replica, job, state)
    return int(found * state.facts[replica, PREFIX_TOKENS])


@compiled
def complete(replica: int, job: int, now: int, state: State) -> None:
    """A job that has all its answer leaves."""
    state.jobs[job, FINISH_PS] = now
    give_back(replica, job, state.jobs[job, CACHED], False, state)
    unlink(replica, job, state)
    state.live[replica, OUTSTANDING] -= 1
    state.live[replica, FINISHED] += 1


@compiled_apart
def release_prompt(replica: int, job: int, state: State) -> None:
    """A job whose prompt is computed leaves for another replica, with its KV cache and its first token."""
    jobs = state.jobs
    give_back(replica, job, jobs[job, CACHED], False, state)
    unlink(replica, job, state)
    state.live[replica, OUTSTANDING] -= 1
    state.live[replica, FINISHED] += 1
    jobs[job, LOADED] = jobs[job, CACHED]
    jobs[job, NEEDED] = jobs[job, CACHED] + 1
    jobs[job, CACHED] = 0
    state.done[0] += 1
    state.done[state.done[0]] = job


@compiled
def end_decodes(replica: int, now: int, state: State) -> None:
    """Complete the decoding jobs whose last step this was, in order of admission."""
    live, done, jobs = state.live, state.done, state.jobs
    while live[replica, DECODING] > 0 and state.slots[replica, 0, VALUE] == live[replica, STEPS]:
        job = state.slots[replica, 0, OWNER]
        stop_decoding(replica, job, state)
        done[0] += 1
        at = done[0]
        while at > 1 and jobs[done[at - 1], ORDER] > jobs[job, ORDER]:
            done[at] = done[at - 1]
            at -= 1
        done[at] = job
    for at in range(1, done[0] + 1):
        complete(replica, done[at], now, state)


@compiled
def end_prefills(replica: int, now: int, state: State) -> None:
    """Hand out the first tokens of the prompts that are computed."""
    live, jobs = state.live, state.jobs
    job = live[replica, FRESH]
    live[replica, FRESH] = NOBODY
    while job != NOBODY:
        after = jobs[job, NEXT]
        jobs[job, CACHED] += jobs[job, CHUNK]
        if jobs[job, CACHED] < jobs[job, NEEDED]:
            live[replica, FRESH] = job
        else:
            jobs[job, LEFT] -= 1
            if jobs[job, FIRST_PS] == NOT_YET:
                jobs[job, FIRST_PS] = now
            if jobs[job, LEFT] > 0 and state.facts[replica, SENDS_TO] != NOBODY:
                release_prompt(replica, job, state)
            elif jobs[job, LEFT] == 0:
                complete(replica, job, now, state)
                state.done[0] += 1
                state.done[state.done[0]] = job
            else:
                start_decoding(replica, job, state)
        job = after


@compiled
def end_run(replica: int, now: int, state: State) -> None:
    """Play the run that ends now; completed jobs go to `done` and give back their blocks."""
    live = state.live
    steps = live[replica, RUN_STEPS]
    take_blocks(replica, count_up(replica, steps, now - live[replica, SINCE], state), state)
    live[replica, STEPS] += steps
    live[replica, BUSY] = 0
    if live[replica, PAUSED] != NOBODY:
        go_on(replica, state)
    if live[replica, DECODING] > 0 and live[replica, RETRACTED] == 0:
        decay(replica, steps, state)
    end_decodes(replica, now, state)
    if live[replica, FRESH] != NOBODY:
        end_prefills(replica, now, state)


@compiled_apart
def used_blocks(replica: int, now: int, state: State) -> int:
    """Blocks of the KV cache in use."""
    used = state.facts[replica, KV_BLOCKS] - state.live[replica, FREE] - state.live[replica, TAKEN]
    if state.live[replica, BUSY] == 1 and state.live[replica, RUN_STEPS] > 1:
        steps = started_steps(replica, now, state)
        if steps > 1:
            used += grow(replica, steps, 0, state)[0]
    return int(used)


@compiled_apart
def stop_run(replica: int, now: int, state: State) -> None:
    """Add the run under way to the totals up to now. Its steps that have ended count, the one under way does not."""
    live = state.live
    if live[replica, BUSY] == 1:
        steps = started_steps(replica, now, state)
        live[replica, FREE] -= count_up(replica, steps, now - live[replica, SINCE], state)
        live[replica, STEPS] += steps - 1
        live[replica, BUSY] = 0
        if live[replica, PAUSED] != NOBODY:
            go_on(replica, state)
