"""Times of a request that meets an idle engine: no option does better under load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightslice.performance.costs import PS_PER_S, StepCosts

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class UnloadedTimes:
    """Seconds per request; `tpot_s` is 0 for answers of one token."""

    ttft_s: Seconds
    tpot_s: Seconds
    e2e_s: Seconds


def unloaded_times(
    costs: StepCosts, input_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]
) -> UnloadedTimes:
    """Chunked prefill of the whole prompt, then one decode step per further token, batch 1.

    TTFT = sum over chunks c of (step + prefill step + tokens[c]) + attention * n (n + 1) / 2;
    E2E = TTFT + (m - 1) (step + sequence + tokens[1]) + kv * sum of the contexts, with n input and m output tokens.
    """
    budget = costs.max_tokens
    full, rest = np.divmod(input_tokens, budget)
    per_step_ps = float(costs.step_ps + costs.prefill_step_ps)
    n = input_tokens.astype(np.float64)
    prefill_ps = full * (per_step_ps + float(costs.tokens_ps[budget]))
    prefill_ps = prefill_ps + np.where(rest > 0, per_step_ps + costs.tokens_ps[rest], 0.0)
    prefill_ps = prefill_ps + costs.attention_ps * n * (n + 1.0) / 2.0
    further = np.maximum(output_tokens.astype(np.float64) - 1.0, 0.0)
    contexts = further * n + further * (further + 1.0) / 2.0
    decode_ps = further * float(costs.step_ps + costs.sequence_ps + int(costs.tokens_ps[1]))
    decode_ps = decode_ps + costs.kv_token_ps * contexts
    tpot_s = np.divide(decode_ps, further, out=np.zeros_like(decode_ps), where=further > 0) / PS_PER_S
    return UnloadedTimes(prefill_ps / PS_PER_S, tpot_s, (prefill_ps + decode_ps) / PS_PER_S)
