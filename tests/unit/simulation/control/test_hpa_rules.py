"""Rules of the HorizontalPodAutoscaler beyond the published cases: documented examples, Object metrics, readiness."""

from __future__ import annotations

import pytest

from rightslice.simulation.control.hpa import decide, reads_metrics
from rightslice.simulation.control.hpa_limits import HpaState
from rightslice.simulation.control.hpa_metrics import MetricError, Observation, PodClock, cpu_unready, proposal
from rightslice.simulation.control.hpa_spec import (
    DEFAULT_FLAGS,
    Behavior,
    ControllerFlags,
    HpaSpec,
    Metric,
    ScalingPolicy,
    ScalingRules,
)

AT_ONCE = ControllerFlags(downscale_stabilization_s=0)
QUEUE = Metric("queue", "External", 10)


def _cpu(target: float = 50.0) -> Metric:
    return Metric("cpu", "Resource", target, "Utilization", request=1.0)


def test_documented_doubling_and_halving() -> None:
    """Kubernetes documentation, algorithm details: 200m against 100m doubles the replicas, 50m halves them."""
    spec = HpaSpec(100, (Metric("cpu", "Resource", 0.1),), flags=AT_ONCE)
    up = decide(0.0, spec, HpaState(), Observation(2, {"cpu": (0.2, 0.2)}))
    down = decide(0.0, spec, HpaState(recommendations=((-60.0, 4),)), Observation(4, {"cpu": (0.05,) * 4}))
    assert (up.replicas, down.replicas) == (4, 2)


def test_documented_limit_of_ten_percent_and_of_four_pods() -> None:
    """Kubernetes documentation, scaling policies: at 80 pods 10 % = 8 may go within a minute, below 40 pods 4 may."""
    rules = ScalingRules(window_s=0, policies=(ScalingPolicy("Pods", 4, 60), ScalingPolicy("Percent", 10, 60)))
    spec = HpaSpec(100, (QUEUE,), behavior=Behavior(down=rules))
    assert decide(0.0, spec, HpaState(), Observation(80, {"queue": 10.0})).replicas == 72
    assert decide(0.0, spec, HpaState(), Observation(30, {"queue": 10.0})).replicas == 26


def test_object_metrics_compute_as_external_ones() -> None:
    for target_type in ("Value", "AverageValue"):
        seen = Observation(4, {"m": 80.0}, ready=2)
        pair = [
            proposal(Metric("m", kind, 40, target_type), HpaSpec(9, (QUEUE,)).tolerances, seen)
            for kind in ("Object", "External")
        ]
        assert pair == ([4, 4] if target_type == "Value" else [2, 2])


def test_zero_pods_with_a_value_target_start_as_many_as_the_ratio() -> None:
    metric = Metric("m", "Object", 10, "Value")
    assert proposal(metric, HpaSpec(9, (metric,)).tolerances, Observation(0, {"m": 31.0})) == 4


def test_pods_and_resource_metrics_cannot_wake_a_workload() -> None:
    flags = ControllerFlags(scale_to_zero=True)
    with pytest.raises(ValueError, match="Object or External"):
        HpaSpec(5, (_cpu(),), min_replicas=0, flags=flags)
    with pytest.raises(ValueError, match="HPAScaleToZero"):
        HpaSpec(5, (QUEUE,), min_replicas=0)


def test_minimum_raised_while_at_zero_wakes_the_workload() -> None:
    flags = ControllerFlags(scale_to_zero=True, downscale_stabilization_s=0)
    asleep = decide(15.0, HpaSpec(5, (QUEUE,), 0, flags=flags), HpaState(((0.0, 1),)), Observation(1, {"queue": 0.0}))
    assert asleep.replicas == 0
    assert asleep.state.scaled_to_zero
    raised = HpaSpec(5, (QUEUE,), 2, flags=flags)
    woken = decide(30.0, raised, asleep.state, Observation(0, {"queue": 0.0}))
    assert woken.replicas == 2


def test_raised_minimum_wakes_with_a_behavior_block_too() -> None:
    flags = ControllerFlags(scale_to_zero=True)
    spec = HpaSpec(5, (QUEUE,), 2, Behavior(), flags)
    asleep = HpaState(((0.0, 0),), scaled_to_zero=True)
    assert decide(30.0, spec, asleep, Observation(0, {"queue": 0.0})).replicas == 2
    by_hand = HpaState(((0.0, 0),))
    assert decide(30.0, spec, by_hand, Observation(0, {"queue": 50.0})).reason == "ScalingDisabled"


def test_only_the_way_to_zero_is_remembered_as_such() -> None:
    flags = ControllerFlags(scale_to_zero=True, downscale_stabilization_s=0)
    spec = HpaSpec(9, (QUEUE,), 0, flags=flags)
    down = decide(60.0, spec, HpaState(((0.0, 4),)), Observation(4, {"queue": 10.0}))
    assert (down.replicas, down.state.scaled_to_zero) == (1, False)
    zero = decide(75.0, spec, down.state, Observation(1, {"queue": 0.0}))
    woken = decide(90.0, spec, zero.state, Observation(0, {"queue": 30.0}))
    assert (zero.state.scaled_to_zero, woken.replicas, woken.state.scaled_to_zero) == (True, 3, False)


def test_filling_in_never_moves_against_the_ratio() -> None:
    """More pods than spec.replicas (5 of 2): 84 % of the target must not add; 4 of 9 asked for must not take away."""
    metric = Metric("m", "Pods", 10)
    tolerances = HpaSpec(99, (metric,)).tolerances
    assert proposal(metric, tolerances, Observation(2, {"m": (8.0,) * 4}, no_sample=1)) == 2
    assert proposal(metric, tolerances, Observation(9, {"m": (20.0, 20.0)}, pending=1)) == 9


def test_means_are_cut_to_thousandths() -> None:
    metric = Metric("m", "Pods", 10)
    assert proposal(metric, HpaSpec(9, (metric,)).tolerances, Observation(3, {"m": (11.0, 11.0, 11.001)})) == 3
    assert proposal(metric, HpaSpec(9, (metric,)).tolerances, Observation(3, {"m": (11.0, 11.002, 11.001)})) == 4


def test_changes_are_remembered_for_the_longest_period_of_their_direction() -> None:
    rules = ScalingRules(0, "Min", (ScalingPolicy("Pods", 10, 15), ScalingPolicy("Pods", 12, 60)))
    spec = HpaSpec(100, (QUEUE,), behavior=Behavior(up=rules))
    state, size, sizes = HpaState(), 10, []
    for now_s in (0.0, 20.0, 40.0, 61.0):
        decision = decide(now_s, spec, state, Observation(size, {"queue": 1000.0}))
        state, size = decision.state, decision.replicas
        sizes.append(size)
    assert sizes == [20, 22, 22, 32]


def test_without_behavior_tolerances_of_the_spec_do_not_exist() -> None:
    rules = ScalingRules(tolerance=0.5)
    given = HpaSpec(9, (QUEUE,), behavior=Behavior(up=rules, down=rules))
    off = HpaSpec(9, (QUEUE,), behavior=given.behavior, flags=ControllerFlags(configurable_tolerance=False))
    assert (given.tolerances.up, off.tolerances.up) == (0.5, 0.1)


def test_cpu_samples_of_starting_pods_do_not_count() -> None:
    starting = PodClock(started_s=0.0, ready=True, changed_s=100.0, sampled_s=120.0, window_s=30.0)
    assert cpu_unready(starting, 125.0, DEFAULT_FLAGS)
    sampled = PodClock(started_s=0.0, ready=True, changed_s=100.0, sampled_s=131.0, window_s=30.0)
    assert not cpu_unready(sampled, 131.0, DEFAULT_FLAGS)
    never_ready = PodClock(started_s=0.0, ready=False, changed_s=10.0, sampled_s=400.0, window_s=30.0)
    assert cpu_unready(never_ready, 400.0, DEFAULT_FLAGS)
    was_ready = PodClock(started_s=0.0, ready=False, changed_s=350.0, sampled_s=400.0, window_s=30.0)
    assert not cpu_unready(was_ready, 400.0, DEFAULT_FLAGS)


def test_unready_pods_matter_to_cpu_only() -> None:
    seen = Observation(4, {"cpu": (0.72,) * 3, "m": (0.72,) * 3}, cpu_unready=1)
    tolerances = HpaSpec(9, (QUEUE,)).tolerances
    memory = Metric("m", "Resource", 50.0, "Utilization", request=1.0, cpu=False)
    assert proposal(_cpu(), tolerances, seen) == 4
    assert proposal(memory, tolerances, seen) == 5


def test_missing_cpu_sample_counts_as_the_whole_request_on_the_way_down() -> None:
    tolerances = HpaSpec(9, (QUEUE,)).tolerances
    seen = Observation(4, {"cpu": (0.1, 0.1, 0.1)}, no_sample=1)
    # (10 + 10 + 10 + 100) / 4 = 32 % against 50 %: ceil(0.64 x 4) = 3
    assert proposal(_cpu(), tolerances, seen) == 3


def test_a_metric_nobody_asked_for_is_an_error_and_the_size_stays() -> None:
    spec = HpaSpec(9, (QUEUE,))
    with pytest.raises(MetricError):
        proposal(QUEUE, spec.tolerances, Observation(3, {}))
    assert decide(0.0, spec, HpaState(), Observation(3, {})).reason == "MetricsUnavailable"


def test_metrics_are_not_read_outside_the_bounds() -> None:
    spec = HpaSpec(9, (QUEUE,), 2)
    seen = {"queue": 10.0}
    assert [reads_metrics(spec, HpaState(), Observation(n, seen)) for n in (0, 1, 2, 9, 10)] == [
        False,
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("queue", "replicas", "reason"),
    [
        (1000.0, 8, "ScaleUpLimit"),
        (75.0, 8, "DesiredWithinRange"),
        (40.0, 4, "DesiredWithinRange"),
        (10.0, 4, "ScaleDownStabilized"),
    ],
)
def test_reasons(queue: float, replicas: int, reason: str) -> None:
    decision = decide(0.0, HpaSpec(100, (QUEUE,)), HpaState(), Observation(4, {"queue": queue}))
    assert (decision.replicas, decision.reason) == (replicas, reason)


def test_reasons_at_the_bounds() -> None:
    seen = Observation(4, {"queue": 1000.0})
    assert decide(0.0, HpaSpec(6, (QUEUE,)), HpaState(), seen).reason == "TooManyReplicas"
    nothing = Observation(4, {"queue": 0.0})
    assert (
        decide(1.0, HpaSpec(6, (QUEUE,), 3, flags=AT_ONCE), HpaState(((0.0, 4),)), nothing).reason == "TooFewReplicas"
    )
    assert decide(0.0, HpaSpec(6, (QUEUE,)), HpaState(), Observation(9, {})).reason == "AboveMaxReplicas"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Metric("m", "Pods", 10, "Value"),
        lambda: Metric("m", "Resource", 50, "Utilization"),
        lambda: Metric("m", "External", 0),
        lambda: ScalingPolicy("Pods", 0, 15),
        lambda: ScalingPolicy("Pods", 1, 1801),
        lambda: ScalingRules(window_s=3601),
        lambda: ScalingRules(policies=()),
        lambda: ScalingRules(tolerance=-0.1),
        lambda: HpaSpec(0, (QUEUE,), 0),
        lambda: HpaSpec(3, (QUEUE,), 4),
        lambda: HpaSpec(3, ()),
    ],
)
def test_what_the_api_server_refuses(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        wrong()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("target", "cores", "request_cores", "replicas", "missing", "high", "expected"),
    [
        (30, (0.3, 0.5, 0.7), 1.0, 3, 0, 6, 5),
        (100, (0.4, 0.095), 1.0, 4, 2, 6, 3),
        (50, (0.2,), 0.2, 4, 0, 5, 2),
        (50, (0.5,) * 5, 1.0, 4, 0, 8, 4),
        (50, (0.2,), 0.2, 1, 0, 5, 2),
        (50, (0.2, 0.2), 0.4, 2, 0, 5, 2),
        (100, (), 1.0, 4, 4, 6, 4),
    ],
)
def test_numbers_of_the_controllers_own_tests(
    target: float,
    cores: tuple[float, ...],
    request_cores: float,
    replicas: int,
    missing: int,
    high: int,
    expected: int,
) -> None:
    """Inputs and outcomes of horizontal_test.go (060da1681551): edge cases of CPU metrics."""
    metric = Metric("cpu", "Resource", target, "Utilization", request=request_cores)
    spec = HpaSpec(high, (metric,), flags=AT_ONCE)
    seen = Observation(replicas, {"cpu": cores}, no_sample=missing)
    assert decide(60.0, spec, HpaState(((0.0, replicas),)), seen).replicas == expected


@pytest.mark.parametrize(("high", "expected", "reason"), [(100, 24, "ScaleUpLimit"), (20, 20, "TooManyReplicas")])
def test_upscale_cap_of_the_controllers_own_tests(high: int, expected: int, reason: str) -> None:
    """horizontal_test.go: 700 % per 60 s lets 3 pods grow to 24."""
    metric = Metric("cpu", "Resource", 10, "Utilization", request=0.1)
    rules = ScalingRules(window_s=0, policies=(ScalingPolicy("Percent", 700, 60),))
    spec = HpaSpec(high, (metric,), behavior=Behavior(up=rules))
    decision = decide(0.0, spec, HpaState(), Observation(3, {"cpu": (0.1, 0.2, 0.3)}))
    assert (decision.replicas, decision.reason) == (expected, reason)
