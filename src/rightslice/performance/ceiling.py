"""Optimistic rates of one replica: no schedule of the simulated engine does better, so options are ruled out early."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rightslice.performance.costs import PS_PER_S, StageCosts, StepCosts

_SEARCH_STEPS = 60
"""Ternary search narrows by 2 / 3 each time: 3e-11 of the range. A search that stops early only loosens the bound."""


def rate_ceiling(
    costs: StepCosts,
    *,
    input_tokens: float,
    output_tokens: float,
    max_sequences: int,
    tpot_limit_s: float | None,
    prefix_hit_rate: float,
    tpot_share: float = 1.0,
) -> float:
    """Largest rate, requests/s, at which one replica can finish requests without falling behind.

    Bound. Let step k hold p_k prompt tokens, d_k decoding sequences and contexts S_k; its time is
    h(p_k + d_k) + sequence d_k + kv S_k + attention W_k + [p_k > 0] prefill, with h(T) = step + tokens[T]. N requests
    of mean lengths I and O need at least u = I (1 - prefix_hit_rate) prompt tokens, D = O - 1 decode steps,
    D I + D (D - 1) / 2 tokens of context read and (I (I + 1) - C (C + 1)) / 2 of attention work with C = I - u, each.
    For every line with h(T) >= a + b T and a >= 0, the steps take at least K a + b N (u + D). A step holds at most
    B = max_num_batched_tokens tokens and M = `max_sequences` decoding ones, so K >= N max((u + D) / B, D / M) and at
    least N u / B steps hold prompts. Busy time is therefore at least N times

        max over lines (k a + b (u + D)) + sequence D + kv (D I + D (D - 1) / 2) + attention W + prefill u / B

    with k the larger of the two quotients, and the rate is 1 over that.

    TPOT. If a share q = `tpot_share` of the requests ends with TPOT <= L, their o_k <= d_k decoding sequences satisfy
    sum o_k time_k <= L sum o_k. Weighing steps by o_k, every line below h + sequence T gives a + b E[o] <= L, and
    K >= (sum o_k) / E[o], so K >= q N D / M_L with M_L = min over lines (L - a) / b; M_L < 1 means that nobody meets L.

    Idle time and cache misses only add work. So does preemption: a recomputed prompt of n tokens takes the place of one
    decode step and costs more, as long as a prompt token costs at least twice a context token. Pass as `max_sequences`
    the most that can decode at once (max_num_seqs, or less where the KV cache is sure to hold fewer), not a typical
    number: with a typical one the bound is only typical. Lengths enter by their means: exact for equal lengths; spread
    ones only add work (by their squares) as long as input and output lengths are not negatively correlated and the
    requests that miss L do not have the longer answers.
    """
    prompt = input_tokens * (1.0 - prefix_hit_rate)
    decode = max(output_tokens - 1.0, 0.0)
    budget = costs.max_tokens
    steps = max((prompt + decode) / budget, decode / max(1, min(max_sequences, budget)))
    if tpot_limit_s is not None and decode > 0.0:
        together = _together(costs, tpot_limit_s * PS_PER_S)
        if together < 1.0:
            return 0.0
        steps = max(steps, tpot_share * decode / together)
    held = input_tokens - prompt
    work = (input_tokens * (input_tokens + 1.0) - held * (held + 1.0)) / 2.0
    context = decode * input_tokens + decode * (decode - 1.0) / 2.0
    busy_ps = (
        _steps_ps(costs, steps, prompt + decode)
        + costs.sequence_ps * decode
        + costs.kv_token_ps * max(0.0, context)
        + costs.attention_ps * work
        + costs.prefill_step_ps * prompt / budget
    )
    return PS_PER_S / busy_ps


def stage_rate_ceiling(costs: StageCosts, latency_limit_s: float | None, share: float = 1.0) -> float:
    """Largest rate, requests/s, of one replica of a measured stage.

    While n requests are served, g(n) = n / latency(n) end per second: without a limit the rate is at most max g. If a
    share q = `share` of them take at most L, those present are q rate L on average (Little), so for every line
    a + b n above g: q rate = E[n / latency] <= E[g(n)] <= a + b q rate L, hence q rate <= a / (1 - b L).
    0 when L < latency(1).
    """
    latency_s = costs.latency_ps[1:] / PS_PER_S
    streams = np.arange(1, costs.max_streams + 1)
    ends_per_s = streams / latency_s
    if latency_limit_s is None or not np.isfinite(latency_limit_s):
        return float(ends_per_s.max())
    if latency_limit_s < latency_s[0]:
        return 0.0

    def bound(load: float) -> float:
        slope = load / latency_limit_s
        return float(np.max(ends_per_s - slope * streams, initial=0.0)) / (1.0 - load)

    return min(bound(0.0), _lowest(bound, 0.0, 1.0 - 1e-9) / share)


def _steps_ps(costs: StepCosts, steps: float, tokens: float) -> float:
    """Most that a line below `step + tokens_ps` proves for that many steps and tokens in all."""
    total = (costs.step_ps + costs.tokens_ps[1:]).astype(np.float64)
    counts = np.arange(1, costs.max_tokens + 1, dtype=np.float64)
    steepest = float(np.min(total / counts))

    def missing(slope: float) -> float:
        return -(steps * _intercept(total, counts, slope) + slope * tokens)

    return -_lowest(missing, 0.0, steepest)


def _together(costs: StepCosts, limit_ps: float) -> float:
    """Largest mean number of decoding sequences that keeps the mean step within the limit."""
    counts = np.arange(1, costs.max_tokens + 1, dtype=np.float64)
    total = costs.step_ps + costs.tokens_ps[1:] + costs.sequence_ps * counts
    if limit_ps < total[0]:
        return 0.0
    steepest = float(np.max(np.diff(total, prepend=float(costs.step_ps))))
    if steepest <= 0.0:
        return float(costs.max_tokens)

    def fitting(slope: float) -> float:
        return (limit_ps - _intercept(total, counts, slope)) / slope

    return min(float(costs.max_tokens), _lowest(fitting, steepest * 1e-9, steepest))


def _intercept(values: NDArray[np.float64], counts: NDArray[np.float64], slope: float) -> float:
    return float(np.min(values - slope * counts))


def _lowest(value: Callable[[float], float], low: float, high: float) -> float:
    """Least value that a ternary search of a quasi-convex function meets."""
    best = min(value(low), value(high))
    for _ in range(_SEARCH_STEPS):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        at_left, at_right = value(left), value(right)
        best = min(best, at_left, at_right)
        low, high = (low, right) if at_left <= at_right else (left, high)
    return best
