"""Value types of costs."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.performance.costs import StageCosts, StepCosts

COSTS = StepCosts(np.array([0, 100, 150, 210]), 3, 2, 7, 1000, 500, 0.4, "unvalidated")


def test_a_step_adds_up_its_terms() -> None:
    decode = COSTS.step_time_ps(prefill_tokens=0, attention_work=0, sequences=2, context_tokens=40)
    assert decode == 1000 + 7 * 2 + 150 + 3 * 40
    mixed = COSTS.step_time_ps(prefill_tokens=2, attention_work=9, sequences=1, context_tokens=40)
    assert mixed == 1000 + 500 + 7 + 210 + 3 * 40 + 2 * 9
    with pytest.raises(IndexError):
        COSTS.step_time_ps(prefill_tokens=3, attention_work=0, sequences=1, context_tokens=0)


def test_scaling_scales_every_term_and_keeps_the_band() -> None:
    twice = COSTS.scaled(2.0)
    assert twice.step_time_ps(2, 9, 1, 40) == 2 * COSTS.step_time_ps(2, 9, 1, 40)
    assert (twice.relative_error, twice.provenance, twice.max_tokens) == (0.4, "unvalidated", 3)


def test_costs_cannot_be_changed_behind_ones_back() -> None:
    given = np.array([0, 100, 150])
    costs = StepCosts(given, 0, 0, 0, 1, 0, 0.1, "measured")
    given[1] = 5
    assert costs.tokens_ps[1] == 100
    with pytest.raises(ValueError, match="read-only"):
        costs.tokens_ps[1] = 5


@pytest.mark.parametrize("table", [[1, 2], [0, 3, 2], [0]])
def test_a_table_that_falls_or_does_not_start_at_zero_is_refused(table: list[int]) -> None:
    with pytest.raises(ValueError, match="never fall"):
        StageCosts(np.array(table), 0.1, "measured")


def test_negative_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        StepCosts(np.array([0, 1]), -1, 0, 0, 0, 0, 0.1, "measured")
