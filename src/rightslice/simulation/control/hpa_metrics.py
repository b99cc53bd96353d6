"""What each metric of a HorizontalPodAutoscaler proposes: replica_calculator.go of Kubernetes.

Values are compared in whole thousandths, as the controller does (resource.Quantity.MilliValue).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rightslice.simulation.control.hpa_spec import ControllerFlags, Metric, Tolerances

MAX_REPLICAS: Final = 2**31 - 1
"""Counts are int32 in the API; larger proposals are cut off here."""


class MetricError(Exception):
    """A metric that gives no proposal: the API fails, or no pod that counts has a sample."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one sync sees of a workload.

    `replicas` is spec.replicas. `existing` (status.replicas) and `ready` pods default to it. `values`: by metric, one
    number for Object and External (several series added), one per pod for Pods and Resource, of the running pods that
    count and have a sample; None: the metrics API fails. Pods are counted beside `values`: `pending` in phase Pending
    (no node, or image pull), `no_sample` running without one (an engine that still loads), `cpu_unready` see there.
    """

    replicas: int
    values: Mapping[str, float | tuple[float, ...] | None]
    ready: int | None = None
    existing: int | None = None
    pending: int = 0
    no_sample: int = 0
    cpu_unready: int = 0


@dataclass(frozen=True, slots=True)
class PodClock:
    """When a pod started, last changed between ready and not ready, and was sampled over `window_s`; seconds."""

    started_s: float
    ready: bool
    changed_s: float
    sampled_s: float
    window_s: float


def cpu_unready(pod: PodClock, now_s: float, flags: ControllerFlags) -> bool:
    """Whether the CPU rule leaves this pod's sample out.

    Within the initialisation period: unready, or sampled before one window of readiness. Later: unready and never
    ready since shortly after the start.
    """
    if pod.started_s + flags.cpu_initialization_s > now_s:
        return not pod.ready or pod.sampled_s < pod.changed_s + pod.window_s
    return not pod.ready and pod.started_s + flags.initial_readiness_delay_s > pod.changed_s


def proposal(metric: Metric, tolerances: Tolerances, seen: Observation) -> int:
    """Replicas that one metric asks for. Raises MetricError where it cannot say."""
    value = seen.values.get(metric.name)
    if value is None:
        raise MetricError(f"{metric.name}: no value")
    if isinstance(value, tuple):
        wanted = _of_pods(metric, tolerances, seen, [_milli(v) for v in value])
    elif metric.target_type == "Value":
        wanted = _of_total(metric, tolerances, seen, _milli(value))
    else:
        wanted = _of_average(metric, tolerances, seen, _milli(value))
    return min(wanted, MAX_REPLICAS)


def _milli(value: float) -> int:
    return round(value * 1000.0)


def _of_total(metric: Metric, tolerances: Tolerances, seen: Observation, usage: int) -> int:
    """Object or External, Value: ratio x ready pods; from 0 replicas the ratio itself."""
    ratio = usage / _milli(metric.target)
    if seen.replicas == 0:
        return math.ceil(ratio)
    if tolerances.ignore(ratio):
        return seen.replicas
    return math.ceil(ratio * (seen.replicas if seen.ready is None else seen.ready))


def _of_average(metric: Metric, tolerances: Tolerances, seen: Observation, usage: int) -> int:
    """Object or External, AverageValue: usage / target, whether or not the pods are ready."""
    existing = seen.replicas if seen.existing is None else seen.existing
    target = _milli(metric.target)
    if existing and tolerances.ignore(usage / (float(target) * existing)):
        return existing
    return math.ceil(usage / target)


def _of_pods(metric: Metric, tolerances: Tolerances, seen: Observation, values: list[int]) -> int:
    """Pods and Resource: missing and unready pods count against the direction of the change, then it is asked again."""
    if not values:
        raise MetricError(f"{metric.name}: no sample of a pod that counts")
    unready = seen.pending + (seen.cpu_unready if metric.kind == "Resource" and metric.cpu else 0)
    ratio = _usage_ratio(metric, values)
    up_with_unready = unready > 0 and ratio > 1.0
    if not up_with_unready and seen.no_sample == 0:
        return seen.replicas if tolerances.ignore(ratio) else math.ceil(ratio * len(values))
    filled = list(values)
    if ratio < 1.0:
        filled += [_missing_on_the_way_down(metric)] * seen.no_sample
    elif ratio > 1.0:
        filled += [0] * (seen.no_sample + (unready if up_with_unready else 0))
    again = _usage_ratio(metric, filled)
    if tolerances.ignore(again) or (ratio < 1.0 < again) or (again < 1.0 < ratio):
        return seen.replicas
    wanted = math.ceil(again * len(filled))
    against = (again < 1.0 and wanted > seen.replicas) or (again > 1.0 and wanted < seen.replicas)
    return seen.replicas if against else wanted


def _missing_on_the_way_down(metric: Metric) -> int:
    """A pod without sample is taken to be at its target, for Utilization at 100 % or a target above it."""
    if metric.target_type != "Utilization":
        return _milli(metric.target)
    return _milli(metric.request) * max(100, int(metric.target)) // 100


def _usage_ratio(metric: Metric, values: list[int]) -> float:
    """Mean over target. Means and percentages are whole numbers in the controller, rounded down."""
    total = sum(values)
    if metric.target_type == "Utilization":
        return (total * 100 // (_milli(metric.request) * len(values))) / int(metric.target)
    return (total // len(values)) / _milli(metric.target)
