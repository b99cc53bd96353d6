"""What holds of every autoscaler, whatever it is shown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.simulation.control.hpa import decide
from rightslice.simulation.control.hpa_limits import HpaState
from rightslice.simulation.control.hpa_metrics import Observation
from rightslice.simulation.control.hpa_spec import (
    Behavior,
    ControllerFlags,
    HpaSpec,
    Metric,
    ScalingPolicy,
    ScalingRules,
)
from rightslice.simulation.control.keda import Fallback, ScaledObject, Trigger
from rightslice.simulation.control.policies import Hpa, Keda, ModelView

QUEUE = Metric("queue", "External", 10)
LOADS = st.lists(st.floats(0.0, 3000.0), min_size=1, max_size=40)
POLICY = st.builds(ScalingPolicy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.integers(1, 300))


@st.composite
def rules(draw: st.DrawFn) -> ScalingRules:
    return ScalingRules(
        window_s=draw(st.none() | st.integers(0, 200)),
        select=draw(st.sampled_from(["Max", "Min", "Disabled"])),
        policies=draw(st.none() | st.lists(POLICY, min_size=1, max_size=3).map(tuple)),
        tolerance=draw(st.none() | st.floats(0.0, 0.5)),
    )


BEHAVIOR = st.none() | st.builds(Behavior, rules(), rules())


def _sizes(spec: HpaSpec, loads: list[float], start: int) -> list[int]:
    state, sizes = HpaState(), [start]
    for tick, load in enumerate(loads):
        decision = decide(15.0 * tick, spec, state, Observation(sizes[-1], {"queue": load}))
        state = decision.state
        sizes.append(decision.replicas)
    return sizes


@given(LOADS, BEHAVIOR, st.integers(1, 5), st.integers(5, 60), st.integers(1, 80))
def test_never_outside_the_bounds(
    loads: list[float], behavior: Behavior | None, low: int, high: int, start: int
) -> None:
    sizes = _sizes(HpaSpec(high, (QUEUE,), low, behavior), loads, start)
    assert all(low <= size <= high for size in sizes[1:])


@given(LOADS, st.integers(1, 60), st.integers(0, 200), st.integers(1, 20))
def test_the_window_of_the_way_down_never_lowers_a_scale_up(
    loads: list[float], high: int, window_s: int, start: int
) -> None:
    """With and without a window for the way down, the sizes with it are never the smaller ones, tick by tick."""
    start = min(start, high)
    held = HpaSpec(high, (QUEUE,), flags=ControllerFlags(downscale_stabilization_s=window_s))
    free = HpaSpec(high, (QUEUE,), flags=ControllerFlags(downscale_stabilization_s=0))
    state = HpaState(((0.0, start),))
    size = start
    for tick, load in enumerate(loads, start=1):
        seen = Observation(size, {"queue": load})
        now_s = 15.0 * tick
        decision = decide(now_s, held, state, seen)
        alone = decide(now_s, free, HpaState(((now_s - 1.0, 0),)), seen)
        assert decision.replicas >= alone.replicas
        state, size = decision.state, decision.replicas


@given(LOADS, POLICY, POLICY, st.integers(1, 60))
def test_policies_bound_the_change_within_a_period(
    loads: list[float], up: ScalingPolicy, down: ScalingPolicy, start: int
) -> None:
    """From the size at the start of any period, changes of the other direction taken back, no more than the policy."""
    behavior = Behavior(ScalingRules(0, policies=(up,)), ScalingRules(0, policies=(down,)))
    sizes = _sizes(HpaSpec(1000, (QUEUE,), 1, behavior), loads, start)
    for policy, sign in ((up, 1), (down, -1)):
        reach = (policy.period_s - 1) // 15
        for last in range(1, len(sizes)):
            first = max(0, last - 1 - reach)
            moves = [sizes[i + 1] - sizes[i] for i in range(first, last)]
            if moves[-1] * sign <= 0:
                continue
            begin = sizes[first] if policy.kind == "Percent" else 0
            allowed = policy.value if policy.kind == "Pods" else begin * policy.value / 100.0 + 1.0
            assert sum(moves) * sign <= allowed


@given(LOADS, BEHAVIOR)
def test_same_input_same_output(loads: list[float], behavior: Behavior | None) -> None:
    spec = HpaSpec(100, (QUEUE,), behavior=behavior)
    assert _sizes(spec, loads, 3) == _sizes(spec, loads, 3)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0.0, 500.0), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 3),
    st.sampled_from([10.0, 30.0, 45.0]),
    st.none() | st.builds(Fallback, st.integers(0, 3), st.integers(0, 9)),
)
def test_keda_stays_between_zero_and_its_maximum(
    loads: list[tuple[float, bool]], low: int, every_s: float, fallback: Fallback | None
) -> None:
    spec = ScaledObject((Trigger(QUEUE),), low, 12, polling_interval_s=every_s, cooldown_s=60.0, fallback=fallback)
    policy = Keda(spec, {"queue": "held"})
    size = low
    for tick, (load, _) in enumerate(loads):
        now_s = tick * policy.period_s
        after = policy.decide(now_s, ModelView(size, size, held=load)).replicas
        assert low <= after <= 12
        assert after > 0 or low == 0
        size = after


@given(LOADS, st.integers(1, 8))
def test_a_pods_metric_of_the_mean_proposes_as_the_single_pods_would(loads: list[float], ready: int) -> None:
    metric = Metric("running", "Pods", 10)
    policy = Hpa(HpaSpec(1000, (metric,)), {"running": "running"})
    for tick, load in enumerate(loads):
        total = float(int(load))
        seen = ModelView(ready, ready, running=total)
        shares = tuple(float(int(total) // ready + (i < int(total) % ready)) for i in range(ready))
        single = decide(15.0 * tick, policy.spec, policy.state, Observation(ready, {"running": shares}, ready, ready))
        assert policy.decide(15.0 * tick, seen).replicas == single.replicas
