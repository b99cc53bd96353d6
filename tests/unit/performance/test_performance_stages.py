"""Measured stages: interpolation, slices, other accelerators."""

from __future__ import annotations

import pytest

import performance_cases as cases
from rightslice.performance.stages import stage_costs
from rightslice.spec.workload import Profile

TTS = {"memory": "13.4GiB", "streams": [1, 8, 16], "latency": ["103ms", "180ms", "2488ms"]}
"""Magpie TTS, NIM profile bs8 on an H100, time to first audio: published NIM speech measurements."""


def profile(**more: object) -> Profile:
    return Profile.model_validate({**TTS, **more})


def test_latency_is_linear_between_points_and_ends_at_the_last() -> None:
    costs = stage_costs(profile(), cases.whole(cases.H100))
    assert costs.max_streams == 16
    assert costs.latency_ps[[0, 1, 8, 16]].tolist() == [0, 103 * 10**9, 180 * 10**9, 2488 * 10**9]
    assert costs.latency_ps[12] == (180 + 2488) // 2 * 10**9
    assert (costs.provenance, costs.relative_error) == ("measured", 0.2)


def test_below_the_first_point_latency_is_the_first_points() -> None:
    costs = stage_costs(profile(streams=[4, 8], latency=["99ms", "165ms"]), cases.whole(cases.H100))
    assert costs.latency_ps[1] == costs.latency_ps[4] == 99 * 10**9


def test_a_slice_with_enough_sms_costs_nothing() -> None:
    """Parakeet CTC 1.1B gives 44 requests/s on a whole H100 and as many on a 3g.40gb."""
    costs = stage_costs(profile(sm_demand=0.25, measured_on="A100-SXM-80GB"), cases.A100_3G)
    assert costs.latency_ps[1] == 103 * 10**9
    assert costs.provenance == "interpolated"


def test_a_slice_with_too_few_sms_slows_the_stage_in_proportion() -> None:
    costs = stage_costs(profile(sm_demand=0.8), cases.A100_3G)
    assert costs.latency_ps[8] == pytest.approx(180e9 * 0.8 / (42 / 108), rel=1e-9)
    assert costs.provenance == "first-principles"
    assert costs.relative_error > 0.4


def test_another_accelerator_is_only_ever_slower() -> None:
    slower = stage_costs(profile(measured_on="H100-SXM-80GB"), cases.whole(cases.A100))
    faster = stage_costs(profile(measured_on="A100-SXM-80GB"), cases.whole(cases.H100))
    assert slower.latency_ps[1] == pytest.approx(103e9 * 989 / 312, rel=1e-3)
    assert faster.latency_ps[1] == 103 * 10**9
    assert {slower.provenance, faster.provenance} == {"unvalidated"}
    assert min(slower.relative_error, faster.relative_error) >= 0.4
