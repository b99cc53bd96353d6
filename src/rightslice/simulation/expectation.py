"""Admission by expectation, as SGLang does: how much of the promised answers will come, and who goes if it is more.

A job joins when its prompt and whole answer fit beside the expected rest of the running answers: RATIO of what they
have left (all of it for those that joined in the same step). The ratio starts at 0.7 and falls by (0.7 - 0.098) / 600
with every step that decodes, down to 0.098. When blocks are short, the decoding jobs with the fewest answer tokens are
retracted, of those the ones with the longest prompt, of those the last; then the ratio becomes (answered + 20 jobs) /
(promised + 1) of the others, at most 1. An idle engine starts anew. Source: SGLang's scheduler, defaults of 2026
(INIT_NEW_TOKEN_RATIO 0.7, MIN_NEW_TOKEN_RATIO_FACTOR 0.14, NEW_TOKEN_RATIO_DECAY_STEPS 600, RETRACT_DECODE_STEPS 20).

Not modelled: the cap of 4,096 on what one answer counts. The promised answer is the real one, as if clients asked for
just that. Whether steps mix prompts and decoding (mixed chunks) is the server's `prefill_first`. Priorities do not
protect from retraction.
"""

from __future__ import annotations

from typing import Final

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.layout import (
    CACHED,
    DECODING,
    FIRST,
    FRESH,
    LEFT,
    NEVER,
    NEXT,
    NOBODY,
    PROMISED,
    PROMPT,
    RATIO,
    STEPS,
    State,
)

UNIT: Final = 10**9
FIRST_RATIO: Final = 700_000_000
LEAST_RATIO: Final = 98_000_000
DECAY: Final = (FIRST_RATIO - LEAST_RATIO) // 600
RETRACT_STEPS: Final = 20


@compiled
def expected_tokens(replica: int, state: State) -> int:
    """Tokens that the running jobs are expected to answer yet."""
    live = state.live
    left = live[replica, PROMISED] - live[replica, DECODING] * live[replica, STEPS]
    if live[replica, FRESH] != NOBODY:
        left += state.jobs[live[replica, FRESH], LEFT]
    return int((left * live[replica, RATIO] + UNIT - 1) // UNIT)


@compiled
def decay(replica: int, steps: int, state: State) -> None:
    """So many steps have decoded, and nobody was retracted."""
    state.live[replica, RATIO] = max(LEAST_RATIO, state.live[replica, RATIO] - DECAY * steps)


@compiled_apart
def retracted(replica: int, state: State) -> int:
    """The decoding job to retract."""
    live, jobs = state.live, state.jobs
    job = chosen = live[replica, FIRST]
    fewest, longest = NEVER, 0
    while job != NOBODY and job != live[replica, FRESH]:
        prompt = jobs[job, PROMPT]
        answered = jobs[job, CACHED] + live[replica, STEPS] + 1 - prompt
        if answered < fewest or (answered == fewest and prompt >= longest):
            chosen, fewest, longest = job, answered, prompt
        job = jobs[job, NEXT]
    return int(chosen)


@compiled_apart
def expect_anew(replica: int, state: State) -> None:
    """The ratio after a retraction."""
    live, jobs = state.live, state.jobs
    job, count, answered, promised = live[replica, FIRST], 0, 0, 0
    while job != NOBODY and job != live[replica, FRESH]:
        done = jobs[job, CACHED] + live[replica, STEPS] + 1 - jobs[job, PROMPT]
        count += 1
        answered += done
        promised += done + jobs[job, LEFT] - live[replica, STEPS]
        job = jobs[job, NEXT]
    live[replica, RATIO] = min(UNIT, (answered + RETRACT_STEPS * count) * UNIT // (promised + 1))
