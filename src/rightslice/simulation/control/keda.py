"""KEDA ScaledObject: between 0 (or idle) and the first replica itself, beyond that the HPA it creates.

Rules read in kedacore/keda 8b4f083ca8c8 (2026-08): scale_scaledobjects.go of the executor, fallback.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from rightslice.simulation.control.hpa import HpaDecision, decide, reads_metrics
from rightslice.simulation.control.hpa_limits import HpaState
from rightslice.simulation.control.hpa_metrics import Observation
from rightslice.simulation.control.hpa_spec import DEFAULT_FLAGS, Behavior, ControllerFlags, HpaSpec, Metric

FallbackBehavior = Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]
PollReason = Literal[
    "Activated",
    "Active",
    "PartialTriggerError",
    "AwaitsFallback",
    "TriggerError",
    "CoolingDown",
    "Deactivated",
    "ToMinimum",
    "NoChange",
]

POLLING_INTERVAL_S: Final = 30.0
COOLDOWN_S: Final = 300.0
MAX_REPLICAS: Final = 100


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger: an External metric and the value above which (strictly) it is active."""

    metric: Metric
    activation_threshold: float = 0.0

    def __post_init__(self) -> None:
        if self.metric.kind != "External":
            raise ValueError(f"{self.metric.name}: KEDA offers External metrics")


@dataclass(frozen=True, slots=True)
class Fallback:
    """After more than `failure_threshold` failed reads in a row a metric reads as if it asked for `replicas`."""

    failure_threshold: int
    replicas: int
    behavior: FallbackBehavior = "static"

    def __post_init__(self) -> None:
        if self.failure_threshold < 0 or self.replicas < 0:
            raise ValueError("a fallback's threshold and replicas are at least 0")


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """One ScaledObject at KEDA's defaults. `idle_replicas` must lie below `min_replicas`; ValueError otherwise."""

    triggers: tuple[Trigger, ...]
    min_replicas: int = 0
    max_replicas: int = MAX_REPLICAS
    idle_replicas: int | None = None
    polling_interval_s: float = POLLING_INTERVAL_S
    cooldown_s: float = COOLDOWN_S
    initial_cooldown_s: float = 0.0
    fallback: Fallback | None = None
    behavior: Behavior | None = None
    flags: ControllerFlags = DEFAULT_FLAGS
    hpa: HpaSpec = field(init=False)

    def __post_init__(self) -> None:
        if self.idle_replicas is not None and not 0 <= self.idle_replicas < self.min_replicas:
            raise ValueError(f"idleReplicaCount {self.idle_replicas} must be below minReplicaCount {self.min_replicas}")
        metrics = tuple(trigger.metric for trigger in self.triggers)
        hpa = HpaSpec(self.max_replicas, metrics, max(1, self.min_replicas), self.behavior, self.flags)
        object.__setattr__(self, "hpa", hpa)


@dataclass(frozen=True, slots=True)
class KedaState:
    """What KEDA and its HPA remember. `failures`: failed reads in a row, per metric."""

    created_s: float = 0.0
    last_active_s: float | None = None
    failures: tuple[tuple[str, int], ...] = ()
    hpa: HpaState = field(default_factory=HpaState)


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll of KEDA did."""

    replicas: int
    reason: PollReason
    state: KedaState


def poll(now_s: float, spec: ScaledObject, state: KedaState, seen: Observation) -> Poll:
    """One polling interval of KEDA: 0 or idle to the minimum and back. Nothing between; that is the HPA's."""
    values = [seen.values.get(trigger.metric.name) for trigger in spec.triggers]
    failed = any(value is None for value in values)
    active = any(
        isinstance(value, (int, float)) and value > trigger.activation_threshold
        for trigger, value in zip(spec.triggers, values, strict=True)
    )
    current = seen.replicas
    if active:
        asleep = current == 0 or (spec.idle_replicas is not None and current < spec.min_replicas)
        if asleep:
            return Poll(max(1, spec.min_replicas), "Activated", replace(state, last_active_s=now_s))
        if failed:
            return Poll(current, "PartialTriggerError", state)
        return Poll(current, "Active", replace(state, last_active_s=now_s))
    if failed and spec.fallback is None:
        return Poll(current, "TriggerError", state)
    if failed and spec.fallback is not None and spec.fallback.replicas != 0:
        return Poll(current, "AwaitsFallback", state)
    return _inactive(now_s, spec, state, current)


def _inactive(now_s: float, spec: ScaledObject, state: KedaState, current: int) -> Poll:
    """No trigger is active. The cooldown counts from the last active poll, strictly longer than the period."""
    above_idle = spec.idle_replicas is not None and current > spec.idle_replicas
    if above_idle or (current > 0 and spec.min_replicas == 0):
        since_s = state.created_s + spec.initial_cooldown_s
        if state.last_active_s is not None:
            since_s = state.last_active_s + spec.cooldown_s
        if now_s <= since_s:
            return Poll(current, "CoolingDown", state)
        return Poll(spec.min_replicas if spec.idle_replicas is None else spec.idle_replicas, "Deactivated", state)
    if spec.idle_replicas is None and current < spec.min_replicas:
        return Poll(spec.min_replicas, "ToMinimum", state)
    return Poll(current, "NoChange", state)


def sync(now_s: float, spec: ScaledObject, state: KedaState, seen: Observation) -> tuple[HpaDecision, KedaState]:
    """One sync of the HPA that KEDA made, with the fallback in place of metrics that keep failing."""
    if reads_metrics(spec.hpa, state.hpa, seen):
        state, seen = _with_fallback(spec, state, seen)
    decision = decide(now_s, spec.hpa, state.hpa, seen)
    return decision, replace(state, hpa=decision.state)


def _with_fallback(spec: ScaledObject, state: KedaState, seen: Observation) -> tuple[KedaState, Observation]:
    if spec.fallback is None:
        return state, seen
    failures = dict(state.failures)
    values = dict(seen.values)
    for metric in spec.hpa.metrics:
        failed = values.get(metric.name) is None
        failures[metric.name] = failures.get(metric.name, 0) + 1 if failed else 0
        if failures[metric.name] > spec.fallback.failure_threshold:
            values[metric.name] = _fallback_value(metric, spec.fallback, seen)
    return replace(state, failures=tuple(failures.items())), replace(seen, values=values)


def _fallback_value(metric: Metric, fallback: Fallback, seen: Observation) -> float | None:
    """The value that makes the HPA want the fallback's replicas; a Value metric needs a ready pod for it.

    Thousandths are cut off, not rounded, or 6 of 9 replicas would become 7.
    """
    replicas = {
        "static": fallback.replicas,
        "currentReplicas": seen.replicas,
        "currentReplicasIfHigher": max(seen.replicas, fallback.replicas),
        "currentReplicasIfLower": min(seen.replicas, fallback.replicas),
    }[fallback.behavior]
    if metric.target_type == "AverageValue":
        return metric.target * replicas
    ready = seen.replicas if seen.ready is None else seen.ready
    return int(metric.target * 1000.0 * (replicas / ready)) / 1000.0 if ready else None
