"""KEDA beyond the published cases: idle replicas, cooldowns, fallback."""

from __future__ import annotations

import pytest

from rightslice.simulation.control.hpa_metrics import Observation
from rightslice.simulation.control.hpa_spec import ControllerFlags, Metric
from rightslice.simulation.control.keda import Fallback, FallbackBehavior, KedaState, ScaledObject, Trigger, poll, sync

QUEUE = Metric("queue", "External", 10)
TOTAL = Metric("queue", "External", 10, "Value")


def _seen(replicas: int, queue: float | None, ready: int | None = None) -> Observation:
    return Observation(replicas, {"queue": queue}, ready=ready)


def test_idle_replicas_stand_in_for_zero() -> None:
    spec = ScaledObject((Trigger(QUEUE),), min_replicas=2, idle_replicas=0, cooldown_s=60.0)
    woken = poll(0.0, spec, KedaState(), _seen(0, 5.0))
    assert (woken.replicas, woken.reason) == (2, "Activated")
    cooling = poll(60.0, spec, woken.state, _seen(2, 0.0))
    assert (cooling.replicas, cooling.reason) == (2, "CoolingDown")
    assert poll(61.0, spec, cooling.state, _seen(2, 0.0)).replicas == 0


def test_idle_replicas_must_be_fewer_than_the_minimum() -> None:
    with pytest.raises(ValueError, match="idleReplicaCount 2"):
        ScaledObject((Trigger(QUEUE),), min_replicas=2, idle_replicas=2)


def test_at_idle_without_load_nothing_happens() -> None:
    spec = ScaledObject((Trigger(QUEUE),), min_replicas=3, idle_replicas=1)
    assert poll(900.0, spec, KedaState(last_active_s=0.0), _seen(1, 0.0)).reason == "NoChange"
    assert poll(900.0, spec, KedaState(), _seen(3, 5.0)).reason == "Active"
    enough = ScaledObject((Trigger(QUEUE),), min_replicas=3)
    assert poll(900.0, enough, KedaState(last_active_s=0.0), _seen(3, 0.0)).reason == "NoChange"


def test_bad_fallbacks() -> None:
    for wrong in ((-1, 3), (3, -1)):
        with pytest.raises(ValueError, match="at least 0"):
            Fallback(*wrong)


def test_the_hpa_below_keda_never_goes_under_one() -> None:
    assert ScaledObject((Trigger(QUEUE),)).hpa.min_replicas == 1
    assert ScaledObject((Trigger(QUEUE),), min_replicas=3).hpa.min_replicas == 3


def test_initial_cooldown_counts_from_the_creation() -> None:
    spec = ScaledObject((Trigger(QUEUE),), initial_cooldown_s=120.0)
    never_active = KedaState(created_s=1000.0)
    assert poll(1120.0, spec, never_active, _seen(1, 0.0)).reason == "CoolingDown"
    assert poll(1121.0, spec, never_active, _seen(1, 0.0)).replicas == 0


def test_below_the_minimum_without_load_goes_to_the_minimum() -> None:
    spec = ScaledObject((Trigger(QUEUE),), min_replicas=3)
    assert poll(0.0, spec, KedaState(), _seen(1, 0.0)).replicas == 3


def test_one_failed_trigger_keeps_the_last_active_time() -> None:
    spec = ScaledObject((Trigger(QUEUE), Trigger(Metric("other", "External", 5))))
    seen = Observation(2, {"queue": 8.0, "other": None})
    polled = poll(30.0, spec, KedaState(last_active_s=0.0), seen)
    assert (polled.reason, polled.state.last_active_s) == ("PartialTriggerError", 0.0)


@pytest.mark.parametrize(
    ("behavior", "current", "expected"),
    [
        ("static", 3, 6),
        ("static", 9, 6),
        ("currentReplicas", 3, 3),
        ("currentReplicasIfHigher", 3, 6),
        ("currentReplicasIfHigher", 9, 9),
        ("currentReplicasIfLower", 3, 3),
        ("currentReplicasIfLower", 9, 6),
    ],
)
@pytest.mark.parametrize("metric", [QUEUE, TOTAL])
def test_fallback_after_the_threshold(metric: Metric, behavior: FallbackBehavior, current: int, expected: int) -> None:
    flags = ControllerFlags(downscale_stabilization_s=0)
    spec = ScaledObject((Trigger(metric),), fallback=Fallback(2, 6, behavior), flags=flags)
    state, sizes = KedaState(), []
    for tick in range(3):
        decision, state = sync(15.0 * (tick + 1), spec, state, _seen(current, None))
        sizes.append(decision.replicas)
    assert sizes == [current, current, expected]


def test_a_good_read_ends_the_count_of_failures() -> None:
    spec = ScaledObject((Trigger(QUEUE),), fallback=Fallback(1, 6))
    state = KedaState()
    for value in (None, 30.0, None):
        decision, state = sync(0.0, spec, state, _seen(3, value))
        assert decision.replicas == 3
    assert dict(state.failures) == {"queue": 1}


def test_a_value_metric_without_ready_pod_has_no_fallback() -> None:
    spec = ScaledObject((Trigger(TOTAL),), fallback=Fallback(0, 6))
    decision, _ = sync(0.0, spec, KedaState(), _seen(3, None, ready=0))
    assert (decision.replicas, decision.reason) == (3, "MetricsUnavailable")


def test_an_error_with_fallback_is_not_an_empty_queue() -> None:
    spec = ScaledObject((Trigger(QUEUE),), fallback=Fallback(3, 2))
    assert poll(900.0, spec, KedaState(last_active_s=0.0), _seen(4, None)).reason == "AwaitsFallback"
    to_zero = ScaledObject((Trigger(QUEUE),), fallback=Fallback(3, 0))
    assert poll(900.0, to_zero, KedaState(last_active_s=0.0), _seen(4, None)).replicas == 0


def test_only_external_metrics_are_triggers() -> None:
    with pytest.raises(ValueError, match="External"):
        Trigger(Metric("m", "Pods", 10))
