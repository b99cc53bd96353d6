"""What is counted in the measured window: a full deployment answers no less because more is asked of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.results import ClassResult
from rightslice.performance.costs import StepCosts
from rightslice.simulation import LlmServer, OpenClass, Scenario, simulate
from simulation_cases import arrivals

HORIZON_S = 600.0
STEP_S = 0.05
NOISE = 0.02
"""A request or two at either end of the window, of the hundreds in it."""


def offered(rate_per_s: float, prompt: int, answer: int, sequences: int, warm: float) -> ClassResult:
    """One replica of `sequences` places under evenly spaced requests."""
    times = (np.arange(0.0, HORIZON_S, 1.0 / rate_per_s) * 1e12).astype(np.int64)
    asked = arrivals(times.tolist(), [prompt] * len(times), [answer] * len(times))
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, int(STEP_S * 1e12), 0, 0.4, "first-principles")
    engine = LlmServer("chat", "chat", 1, costs, 400, 16, sequences, 64, 1000)
    scenario = Scenario((engine,), (OpenClass("chat", "c", asked),), horizon_s=HORIZON_S, warmup_s=warm * HORIZON_S)
    return simulate(scenario).per_class[0]


@given(
    prompt=st.integers(1, 200),
    answer=st.integers(2, 80),
    sequences=st.integers(1, 12),
    warm=st.floats(0.0, 0.5),
    more=st.floats(1.0, 20.0),
)
@settings(max_examples=40, deadline=None)
def test_a_full_deployment_answers_no_less_under_more_load(
    prompt: int, answer: int, sequences: int, warm: float, more: float
) -> None:
    """`full` asks for at least what a replica could do if prompts cost it nothing."""
    full = 1.2 * sequences / (answer * STEP_S)
    low = offered(full, prompt, answer, sequences, warm)
    high = offered(full * more, prompt, answer, sequences, warm)
    at_the_ends = 2.0 * sequences / (HORIZON_S * (1.0 - warm))
    assert high.requests_per_s >= low.requests_per_s * (1.0 - NOISE) - at_the_ends
    assert high.answered >= high.completed
    for found in (low, high):
        assert found.requests == found.completed + found.failed + found.shed + found.unfinished
        assert found.output_tokens_per_s == pytest.approx(found.requests_per_s * answer)
