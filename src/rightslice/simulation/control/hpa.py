"""HorizontalPodAutoscaler v2: one sync of the controller, from specification, state and observation to a replica count.

Rules read in pkg/controller/podautoscaler/horizontal.go (with the ScaledToZero condition) and in replica_calculator.go
(with Tolerances) of Kubernetes, 2026. Clocks are ideal: one `now_s` for the whole sync.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from rightslice.simulation.control.hpa_limits import HpaState, Limited, limited, unlimited_by_policies
from rightslice.simulation.control.hpa_metrics import MetricError, Observation, proposal
from rightslice.simulation.control.hpa_spec import HpaSpec

Reason = Literal[
    "ScalingDisabled",
    "AboveMaxReplicas",
    "BelowMinReplicas",
    "MetricsUnavailable",
    "ScaleUpStabilized",
    "ScaleDownStabilized",
    "ScaleUpLimit",
    "ScaleDownLimit",
    "TooManyReplicas",
    "TooFewReplicas",
    "DesiredWithinRange",
]
"""Why a sync ended as it did, in the words of the controller's conditions and events."""

SYNC_PERIOD_S: Final = 15.0
"""--horizontal-pod-autoscaler-sync-period."""


@dataclass(frozen=True, slots=True)
class HpaDecision:
    """`replicas` to set; `proposed` by the metrics before any limit (None: not computed); `state` for the next sync."""

    replicas: int
    reason: Reason
    state: HpaState
    proposed: int | None = None
    metric: str = ""


def decide(now_s: float, spec: HpaSpec, state: HpaState, seen: Observation) -> HpaDecision:
    """One sync. Times never run backwards from one call to the next with the same state."""
    if not state.recommendations:
        state = replace(state, recommendations=((now_s, seen.replicas),))
    blocked = _without_metrics(spec, state, seen)
    if blocked is not None:
        replicas, reason = blocked
        return HpaDecision(replicas, reason, _rescaled(now_s, spec, state, seen.replicas, replicas))
    found = _largest(spec, seen)
    if found is None:
        return HpaDecision(seen.replicas, "MetricsUnavailable", state)
    proposed, metric = found
    step = (
        unlimited_by_policies(now_s, spec, state, seen.replicas, proposed)
        if spec.behavior is None
        else limited(now_s, spec, state, seen.replicas, proposed)
    )
    step = _at_least_minimum(spec, state, seen.replicas, step)
    after = _rescaled(now_s, spec, step.state, seen.replicas, step.replicas)
    return HpaDecision(step.replicas, step.reason, after, proposed, metric)


def reads_metrics(spec: HpaSpec, state: HpaState, seen: Observation) -> bool:
    """Whether a sync would ask the metrics APIs at all."""
    return _without_metrics(spec, state, seen) is None


def _without_metrics(spec: HpaSpec, state: HpaState, seen: Observation) -> tuple[int, Reason] | None:
    """What a sync does without looking at metrics; None where it looks.

    A workload at 0 is left alone unless this controller took it there and an Object or External metric can wake it.
    """
    if seen.replicas == 0:
        woken = spec.flags.scale_to_zero and state.scaled_to_zero
        if woken and (spec.min_replicas != 0 or spec.has_object_or_external):
            return None
        return 0, "ScalingDisabled"
    if seen.replicas > spec.max_replicas:
        return spec.max_replicas, "AboveMaxReplicas"
    if seen.replicas < spec.min_replicas:
        return spec.min_replicas, "BelowMinReplicas"
    return None


def _largest(spec: HpaSpec, seen: Observation) -> tuple[int, str] | None:
    """The largest proposal and its metric; None where all fail, or some fail and the rest would scale down."""
    best, name, failed = 0, "", 0
    for metric in spec.metrics:
        try:
            wanted = proposal(metric, spec.tolerances, seen)
        except MetricError:
            failed += 1
            continue
        if best == 0 or wanted > best:
            best, name = wanted, metric.name
    if failed == len(spec.metrics) or (failed and best < seen.replicas):
        return None
    return best, name


def _at_least_minimum(spec: HpaSpec, state: HpaState, current: int, step: Limited) -> Limited:
    if current == 0 and state.scaled_to_zero and step.replicas < spec.min_replicas:
        return replace(step, replicas=spec.min_replicas, reason="BelowMinReplicas")
    return step


def _rescaled(now_s: float, spec: HpaSpec, state: HpaState, before: int, after: int) -> HpaState:
    """The state with the scale event remembered, and whether it was this controller that went to zero."""
    if before == after:
        return state
    to_zero = spec.flags.scale_to_zero and after == 0 and spec.min_replicas == 0 and spec.has_object_or_external
    state = replace(state, scaled_to_zero=to_zero)
    return state if spec.behavior is None else state.with_event(now_s, spec, after - before)
