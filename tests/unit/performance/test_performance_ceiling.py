"""Optimistic rates against cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.performance.ceiling import rate_ceiling, stage_rate_ceiling
from rightslice.performance.costs import StageCosts, StepCosts

MS = 10**9


def flat_step(step_ms: int, budget: int = 64) -> StepCosts:
    """Every step takes the same time, whatever it holds."""
    return StepCosts(np.zeros(budget + 1, dtype=np.int64), 0, 0, 0, step_ms * MS, 0, 0.4, "unvalidated")


def rate(costs: StepCosts, prompt: float, answer: float, most: int, limit_s: float | None = None) -> float:
    return rate_ceiling(
        costs,
        input_tokens=prompt,
        output_tokens=answer,
        max_sequences=most,
        tpot_limit_s=limit_s,
        prefix_hit_rate=0.0,
    )


def test_decode_alone_is_limited_by_the_slots() -> None:
    """11 tokens: 10 decode steps of 10 ms shared by 8 sequences; the prompt rides along."""
    assert rate(flat_step(10), 1, 11, most=8) == pytest.approx(8 / (10 * 0.010))


def test_prompts_alone_are_limited_by_the_budget() -> None:
    assert rate(flat_step(10), 32, 1, most=8) == pytest.approx(2 / 0.010)


def test_linear_token_cost_is_paid_in_full() -> None:
    table = np.arange(65, dtype=np.int64) * MS
    costs = StepCosts(table, 0, 0, 0, 0, 0, 0.4, "unvalidated")
    assert rate(costs, 30, 11, most=64) == pytest.approx(1 / 0.040)


def test_a_tpot_limit_lowers_the_rate_and_an_impossible_one_ends_it() -> None:
    table = np.arange(65, dtype=np.int64) * MS
    costs = StepCosts(table, 0, 0, 0, 10 * MS, 0, 0.4, "unvalidated")
    free, tight = rate(costs, 1, 101, most=64), rate(costs, 1, 101, most=64, limit_s=0.020)
    # at most 10 sequences together: a step of 20 ms for 10 tokens
    assert tight == pytest.approx(1 / (0.001 + 100 * 0.020 / 10), rel=1e-3)
    assert tight < free
    assert rate(costs, 1, 101, most=64, limit_s=0.0109) == 0.0


def test_a_cached_prefix_saves_prompt_tokens() -> None:
    table = np.arange(65, dtype=np.int64) * MS
    costs = StepCosts(table, 0, 0, 0, 0, 0, 0.4, "unvalidated")
    cached = rate_ceiling(
        costs, input_tokens=30, output_tokens=11, max_sequences=64, tpot_limit_s=None, prefix_hit_rate=0.5
    )
    assert cached == pytest.approx(1 / 0.025)


STAGE = StageCosts(np.array([0, 100, 110, 150, 400], dtype=np.int64) * MS, 0.2, "measured")


@pytest.mark.parametrize(
    ("limit_s", "ends_per_s"),
    [(None, 3 / 0.150), (float("inf"), 3 / 0.150), (0.150, 3 / 0.150), (0.110, 2 / 0.110), (0.099, 0.0)],
)
def test_a_stage_ends_as_many_requests_as_its_best_concurrency_within_the_limit(
    limit_s: float | None, ends_per_s: float
) -> None:
    assert stage_rate_ceiling(STAGE, limit_s) == pytest.approx(ends_per_s, rel=0.01)


def test_requests_that_may_miss_the_limit_raise_the_rate_up_to_the_best() -> None:
    strict, lenient = stage_rate_ceiling(STAGE, 0.105), stage_rate_ceiling(STAGE, 0.105, share=0.9)
    assert strict < lenient <= 20.0 + 1e-9
    assert 1 / 0.100 < strict < 2 / 0.105
