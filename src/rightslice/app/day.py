"""GPU-hours of replicas over a day of their traffic: with a perfect autoscaler, and sized for the peak."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rightslice.catalogue.mig import share_of_gpu
from rightslice.core.plan import Deployment
from rightslice.optimization.needs import Need
from rightslice.simulation.control.bounds import Demand, GpuHours, bounds
from rightslice.traffic.arrivals import DAY_S, mean_day
from rightslice.traffic.traces import Trace

SLICE_S = 900.0
"""Slices of the expected rate: a quarter of an hour keeps the top of the busiest hour."""


def expected_demand(need: Need, traces: Mapping[str, Trace], horizon_s: float, share: float) -> Demand:
    """A share of what is expected to come for a model over days of its traffic that begin at midnight."""
    slices = max(1, math.ceil(horizon_s / SLICE_S - 1e-9))
    width_s = horizon_s / slices
    per_s = mean_day(need.model.traffic, SLICE_S, traces)
    known_s = (np.arange(len(per_s)) + 0.5) * SLICE_S
    middles_s = (np.arange(slices) + 0.5) * width_s
    expected = np.interp(middles_s, known_s, per_s, period=DAY_S) * width_s * share
    return Demand(width_s, np.rint(expected).astype(np.int64))


def day_gpu_hours(
    needs: Sequence[Need], deployments: Mapping[str, Sequence[Deployment]], traces: Mapping[str, Trace]
) -> tuple[float, float] | None:
    """(perfect, peak) GPU-hours of a day of expected rates; None where no model has `diurnal` traffic.

    What follows no hours of the day, or states no rate of a replica, counts with the replicas that are planned.
    """
    if not any(traffic.shape == "diurnal" for need in needs for traffic in need.model.traffic):
        return None
    found = [hours for need in needs for hours in _of_model(need, deployments.get(need.name, ()), traces)]
    return sum(hours.perfect for hours in found), sum(hours.peak for hours in found)


def _of_model(need: Need, deployments: Sequence[Deployment], traces: Mapping[str, Trace]) -> Iterator[GpuHours]:
    steady = sum(deployment.replicas.steady for deployment in deployments)
    for deployment in deployments:
        gpus = deployment.gpus_per_replica * share_of_gpu(deployment.accelerator, deployment.partition)
        rate, count = deployment.max_rate, deployment.replicas.steady
        if not need.model.traffic or rate is None or rate.value <= 0.0:
            whole = count * gpus * DAY_S / 3600.0
            yield GpuHours(whole, whole, whole, count)
            continue
        yield bounds(expected_demand(need, traces, DAY_S, count / steady), rate.value, gpus)
