"""Whatever happens to requests: their bins add up, and a run that is looked at has the result of one that is not."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.slo import Slo
from rightslice.core.timeline import edges_s, standing
from rightslice.performance.costs import StepCosts
from rightslice.simulation import LlmServer, OpenClass, Scenario, simulate
from rightslice.simulation.run import watch
from simulation_cases import arrivals, random_scenario


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_any_scenario_has_the_same_result_when_it_is_looked_at(seed: int) -> None:
    scenario = random_scenario(seed)
    found = watch(scenario, standing({}, {}, None))
    assert found.result == simulate(scenario)
    totals = [track.requests.totals for track in found.timeline.tracks if track.requests]
    assert sum(total["completed"] for total in totals) == found.result.answered
    for name in ("failed", "lost"):
        assert sum(total[name] for total in totals) == getattr(found.result, name)
    assert sum(total["offered"] for total in totals) == found.result.requests


@given(
    count=st.integers(0, 400),
    seed=st.integers(0, 1000),
    horizon_s=st.floats(1.0, 2000.0),
    warm=st.floats(0.0, 0.9),
    timeout_s=st.none() | st.floats(0.1, 30.0),
)
@settings(max_examples=60, deadline=None)
def test_requests_are_conserved_in_every_bin(
    count: int, seed: int, horizon_s: float, warm: float, timeout_s: float | None
) -> None:
    """Up to the end of each bin: in flight before + came = answered + failed + in flight, never fewer than none."""
    numbers = np.random.default_rng(seed)
    times = np.sort(numbers.uniform(0.0, horizon_s * 1.1, count) * 1e12).astype(np.int64)
    asked = arrivals(times.tolist(), numbers.integers(1, 400, count).tolist(), numbers.integers(1, 40, count).tolist())
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 50_000_000_000, 0, 0.4, "first-principles")
    scenario = Scenario(
        (LlmServer("chat", "chat", 1, costs, 60, 16, 4, 64, 300),),
        (OpenClass("chat", "c", asked, (Slo("ttft", 2.0), Slo("e2e", 10.0)), timeout_s=timeout_s),),
        horizon_s=horizon_s,
        warmup_s=warm * horizon_s,
    )
    found = watch(scenario, standing({"chat": 1}, {"p": 1}, {"p": 3.0}))
    (track,) = found.timeline.tracks
    came = track.requests
    assert came is not None
    assert min(came.in_flight, default=0) >= 0
    gone = [done + failed for done, failed in zip(accumulate(came.completed), accumulate(came.failed), strict=True)]
    assert [came.before + a - g for a, g in zip(accumulate(came.offered), gone, strict=True)] == list(came.in_flight)
    assert came.totals["in_flight_at_end"] >= found.result.per_class[0].unfinished
    assert came.totals["completed"] == found.result.per_class[0].answered
    judged = sum(came.met) + sum(came.missed)
    assert judged <= found.result.requests
    assert sum(came.met) / judged == found.result.per_class[0].slo_attainment if judged else True
    assert found.result == simulate(replace(scenario))


@given(begin_s=st.floats(0.0, 1e6), span_s=st.floats(1e-3, 9e6))
def test_bins_cover_the_span_without_gaps(begin_s: float, span_s: float) -> None:
    edges = edges_s(begin_s, begin_s + span_s)
    assert edges[0] == begin_s
    assert edges[-1] == begin_s + span_s
    assert 1 <= len(edges) - 1 <= 400
    assert (np.diff(edges) > 0.0).all()
