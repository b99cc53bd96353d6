"""The state of a run as arrays: one compiled specialisation serves every scenario, and a run can stop and go on.

Time is int64 picoseconds. Nothing is stored per token. Column numbers are the constants below.

INPUT
  arrival_ps [n]        open-loop requests, sorted by time; job i is request i
  prefix_ids [..]       the blocks that prompts start with
  models     [m, MODEL] FIRST_REPLICA of a model and the one BEHIND its last (equal: nobody serves it, requests fail);
             ABLE, how many take requests; QUEUED requests that wait for the first of them; ARRIVALS so far; the
             router's POLICY, TURN, RANDOM number, AGE_PS of its signals and READ_PS, when it read them; its GATE and
             GATE_QUEUE, the waiting requests up to which a replica has room (gateway.py), and SPILL_QUEUE (routing.py)
  weights    [m, 4]     what the router multiplies waiting requests, KV use and the unknown share of the prompt with;
             GATE_KV, the KV use up to which a replica has room
  facts      [r, FACTS] what a replica is: kind, limits, costs; OFFSET points into `tables`; LONGEST_PS bounds a run of
             steps so that no product overflows; ADMISSION; KV blocks of one block of `prefix_ids` in PREFIX_BLOCKS (0:
             no prefix cache) and its PREFIX_TOKENS; DELAY_PS of batches; WHOLE_PROMPTS: no chunks; from UNDISTURBED
             on, KV_TOKEN_PS to PREFILL_STEP_PS without slowdown; PREFILL_FIRST: prompts have steps of their own;
             REGION; SENDS_TO, the replica that takes over jobs whose prompt is computed, and THEN_MODEL, the model
             that takes over jobs that are served (disaggregation.py; NOBODY); KV_TOKEN_PS of a batch, by LOADED
  distances  [c, g]     network round trip from where clients are to REGION, for routers that prefer near replicas
  tables     [..]       step time by tokens (LLM) or latency by concurrency or size of a batch (stage) of all
             deployments, end to end
  pipelines  [p, PIPE]  stages, think time, time from which no request starts; STARTED counts (written); rank; the most
             REQUESTS that start
  stages     [p, s, 3]  model, first entry and number of entries in `samples`
  samples    [k, 2]     prompt and answer tokens

PLAY
  clock      [CLOCK]    NOW, the last boundary; ARRIVED open-loop requests, ROWS of passes in use; AFTERWARDS: 1 while
             orders are carried out, when the steps that start now have started; RETRY_LIMIT; REQUEUED jobs so far;
             SHED_RANK, from which on gateways shed; HOLDING, how many models' gateways hold back
  agenda     [3, r + u] row DUE: when entity e acts next (e < r: replica, its run or next service ends; else user
             e - r wakes up); rows HEAP and PLACE: a binary heap of entities by (DUE, e), and where each one is in it
  live       [r, LIVE]  counters of a replica: RUNNING jobs, OUTSTANDING = running + waiting, FINISHED jobs, FREE
             blocks, BUSY (a step is under way), TOUCHED, OLDEST (ring start, stages), SINCE
             LLM only: FIRST and LAST of the running list in order of admission, FRESH the first job in it that is
             computing its prompt, DECODING jobs, CONTEXT = sum of their CACHED + 1, STEPS done, ADMITTED jobs so far;
             the run under way: RUN_STEPS steps from SINCE on, step k of which takes STEP_FIRST_PS + k STEP_MORE_PS;
             IDLE_BLOCKS, STALEST, FRESHEST, LAST_GAP and FURTHER copies of the prefix cache; PROMISED, the sum of the
             decoding jobs' LEFT, and the expected RATIO of it (expectation.py); RETRACTED: the step has evicted some;
             PAUSED, the first job in the list that it leaves out, and all behind it; TAKEN, blocks of the run's later
             steps that were taken already
             for the control plane: CONDITION; NEW_CONDITION, an order given at a boundary and carried out when the play
             goes on (NO_ORDER); KV_USED blocks at the last boundary; ABLE_REPLICA, in the rows from FIRST_REPLICA of a
             model on: its ABLE replicas, in order
  pace       [r, PACE]  SLOWDOWN, the factor on every time: ORDERED, of the last order, times SHARED, of who else is on
             its GPU; NEW_SLOWDOWN, an order (0: none); PROGRESS of a stage: work done for a job that was always there;
             SEEN_WAITING requests and SEEN_KV use as the router last read them; ROUGH_KV and ROUGH_BATCH, the integrals
             of `totals` as floats
  tenancy    [r, 2]     GROUP of replicas on one GPU (NOBODY: alone) and PLACE_IN_GROUP
  groups     [g, 1 + t] BUSY_MEMBERS, a bit for each member that has requests (written), then the members
  shares     [r, 2^t]   slowdown of a replica by BUSY_MEMBERS of its group
  heads [r + m], tails [r + m, p]   lists of waiting jobs (queues.py) of each replica, then of each model
  holders    [i]        of an id that starts prompts: a bit for each replica below NUMBERED that has a copy; others: 0
  cache      [r, i + 2 (n + u), NODE]   prefix cache (prefix.py), by id, then own blocks and further copies by job:
             OLDER and NEWER in the list of those without users, the GAP before it, and the range of BLOCKS from
             AT in `prefix_ids`; NEXT_COPY of the same block
  uses       [r, i + 2 (n + u)]   jobs that use a copy; UNKNOWN: there is none; COPIED: by id, there are further copies
  slots      [r, w, 2]  LLM: heap of decoding jobs by the value of STEPS at which they end: (value, job).
             Stage: a ring of jobs in service, from OLDEST on: (unused, job). Batch server: those of the batch
  residues   [r, b]     LLM: decoding jobs by CACHED modulo block size
  jobs       [n + u, JOB] NEEDED tokens in the cache before the next token appears (prompt + answered so far), CACHED
             tokens, LEFT answer tokens, CHUNK of the step under way, NEXT in the waiting or running list, BEFORE in the
             running list, SLOT in the heap, ORDER of admission, ASKED_MODEL, RETRIES; RANK, 0 for the highest priority;
             from FIRST_ID on in `prefix_ids` the IDS full blocks that its prompt starts with, of which it uses the
             first IDS_USED like others; OWN_IDLE own blocks that it left when it was evicted; HIT_TOKENS found in the
             prefix cache when it was first admitted (NOT_YET); ENTERED_PS, when it came to its replica; DEADLINE_PS,
             until when it waits (NEVER once it was admitted); PROMPT tokens; where its CLIENT is; SERVED, the replica
             that it came to last (NOBODY); LOADED tokens, whose KV it brings along. While a job decodes, CACHED is
             counted from STEPS (tokens - STEPS) and LEFT to it (tokens + STEPS): a step changes STEPS and nothing else.
             Output: FIRST_PS and FINISH_PS, NOT_YET or the time; FINISH_PS FAILED: refused; LOST: its replica went away
             and it had no retry left; TIMED_OUT: it waited too long; SHED: its gateway refused it under saturation
  goal       [n + u]    stages: the PROGRESS at which a job is done
  users      [u, 3]     pipeline, stage, row of `passes`; a user has at most one request under way: job n + u
  touched    [r + 1]    replicas to look at when the events of this instant are done; entry 0 counts them
  done       [w + 1]    jobs that the event in hand completed; entry 0 counts them

OUTPUT
  passes     [.., 5 + 3 s]     one row per pipeline request: pipeline, sample number, user, start, finish, and for each
             stage entered, first token, finished. A measured stage has its first token when it is finished.
  totals     [r, TOTALS]       BUSY_PS, KV_BLOCK_PS, BATCH_PS (integrals), PEAK_BLOCKS, PREEMPTIONS. The integrals are
             exact modulo 2^64; the floats in `pace` are near enough to tell which multiple is meant
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Nodes = NDArray[np.int32]
Floats = NDArray[np.float64]

NEVER: Final = 2**63 - 1
NOT_YET: Final = -1
FAILED: Final = -2
LOST: Final = -3
TIMED_OUT: Final = -4
SHED: Final = -5
NOBODY: Final = -1
NO_ORDER: Final = -1

FIRST_REPLICA, BEHIND, ABLE, QUEUED, ARRIVALS, POLICY, TURN, RANDOM, AGE_PS, READ_PS = range(10)
GATE, GATE_QUEUE, SPILL_QUEUE, MODEL = range(10, 14)
NO_GATE, SHEDS, HOLDS = range(3)
GATE_KV: Final = 3
LEAST_REQUESTS, ROUND_ROBIN, TWO_CHOICES, SCORE, NEAREST = range(5)
KIND, STREAMS, BUDGET, KV_BLOCKS, BLOCK_TOKENS, MODEL_LEN, OFFSET = range(7)
KV_TOKEN_PS, ATTENTION_PS, SEQUENCE_PS, STEP_PS, PREFILL_STEP_PS, LONGEST_PS = range(7, 13)
ADMISSION, PREFIX_BLOCKS, PREFIX_TOKENS, DELAY_PS, WHOLE_PROMPTS, UNDISTURBED = range(13, 19)
PREFILL_FIRST, REGION, SENDS_TO, THEN_MODEL, FACTS = range(23, 28)
GROWING, WHOLE_ANSWER, ESTIMATE = range(3)
LLM, STAGE, BATCH = range(3)
PIPE_STAGES, PIPE_THINK_PS, PIPE_STOP_PS, PIPE_STARTED, PIPE_RANK, PIPE_REQUESTS, PIPE = range(7)
STAGE_MODEL, SAMPLE_FIRST, SAMPLE_COUNT = range(3)

NOW, ARRIVED, ROWS, AFTERWARDS, RETRY_LIMIT, REQUEUED, SHED_RANK, HOLDING, CLOCK = range(9)
DUE, HEAP, PLACE = range(3)
RUNNING, OUTSTANDING, FINISHED, FREE, BUSY, TOUCHED, OLDEST, SINCE = range(8)
FIRST, LAST, FRESH, DECODING, CONTEXT, STEPS, ADMITTED, RUN_STEPS, STEP_FIRST_PS, STEP_MORE_PS = range(8, 18)
CONDITION, NEW_CONDITION, ABLE_REPLICA, KV_USED, IDLE_BLOCKS, STALEST, FRESHEST, LAST_GAP = range(18, 26)
PROMISED, RATIO, RETRACTED, PAUSED, TAKEN, FURTHER, LIVE = range(26, 33)
ABSENT, STARTING, READY, DRAINING, GONE = range(5)
SLOWDOWN, NEW_SLOWDOWN, PROGRESS, SEEN_WAITING, SEEN_KV, ROUGH_KV, ROUGH_BATCH, ORDERED, SHARED, PACE = range(10)
GROUP, PLACE_IN_GROUP = range(2)
BUSY_MEMBERS, FIRST_MEMBER = range(2)
VALUE, OWNER = range(2)
NEEDED, CACHED, LEFT, CHUNK, NEXT, BEFORE, SLOT, ORDER, ASKED_MODEL, RETRIES, FIRST_PS, FINISH_PS = range(12)
RANK, FIRST_ID, IDS, IDS_USED, OWN_IDLE, HIT_TOKENS, ENTERED_PS, DEADLINE_PS, PROMPT = range(12, 21)
CLIENT, SERVED, LOADED, JOB = range(21, 25)
OLDER, NEWER, GAP, NEXT_COPY, AT, BLOCKS, NODE = range(7)
UNKNOWN: Final = -1
COPIED: Final = -2
USER_PIPELINE, USER_STAGE, USER_PASS = range(3)
PASS_PIPELINE, PASS_SAMPLE, PASS_USER, PASS_START, PASS_FINISH, PASS_STAGES = range(6)
BUSY_PS, KV_BLOCK_PS, BATCH_PS, PEAK_BLOCKS, PREEMPTIONS, TOTALS = range(6)

NUMBERED: Final = 63
"""Replicas that a mask of 64 bits can name; the others are asked one by one."""
LONGEST_RUN_PS: Final = 2**58
"""A run of steps is cut here at the latest: a horizon of 100 days plus it stays below 2^63 ps."""
LONGEST_RUN_STEPS: Final = 2**20
"""And here: sums of squares of its steps stay below 2^63."""


class State(NamedTuple):
    """Every array of a run; fixed types, C order."""

    arrival_ps: Ints
    models: Ints
    weights: Floats
    facts: Ints
    distances: Ints
    tables: Ints
    pipelines: Ints
    stages: Ints
    samples: Ints
    clock: Ints
    agenda: Ints
    live: Ints
    heads: Ints
    tails: Ints
    tenancy: Ints
    groups: Ints
    shares: Floats
    prefix_ids: Nodes
    holders: Ints
    cache: Nodes
    uses: Nodes
    pace: Floats
    slots: Ints
    residues: Ints
    jobs: Ints
    users: Ints
    touched: Ints
    done: Ints
    goal: Floats
    passes: Ints
    totals: Ints
