"""Recorded traffic in a simulation: how long it lasts, and what is said where it is played more than once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rightslice.core.quantities import format_seconds
from rightslice.spec.workload import TrafficClass, Workload
from rightslice.traffic.traces import Trace


def recorded_s(workload: Workload, traces: Mapping[str, Trace]) -> float | None:
    """The longest recording, where all traffic of the models' own is recorded; else None."""
    classes = [traffic for model in workload.models for traffic in model.traffic]
    if not classes or any(traffic.trace is None for traffic in classes):
        return None
    return max(_lasts_s(traffic, traces) for traffic in classes)


def repeats(workload: Workload, traces: Mapping[str, Trace], horizon_s: float) -> tuple[str, ...]:
    """One sentence for each recording that is shorter than the run, which plays it again and again."""
    found = {}
    for traffic in (traffic for model in workload.models for traffic in model.traffic):
        if traffic.trace is not None:
            lasts_s = _lasts_s(traffic, traces)
            if lasts_s < horizon_s * (1.0 - 1e-9):
                times = f"{horizon_s / lasts_s:,.1f} times"
                found[traffic.trace] = f"{Path(traffic.trace).name} lasts {format_seconds(lasts_s)}, played {times}"
    return tuple(found.values())


def _lasts_s(traffic: TrafficClass, traces: Mapping[str, Trace]) -> float:
    """At the class's mean rate, where it has one, the recording's clock is stretched."""
    trace = traces[traffic.trace or ""]
    return len(trace) / (traffic.rate.mean if traffic.rate else trace.requests_per_s)
