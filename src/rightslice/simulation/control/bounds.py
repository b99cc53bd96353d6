"""What no autoscaler can beat and what sizing for the peak costs: GPU-hours from arrivals and a replica's rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests that arrive in each slice of `width_s` seconds, from 0.

    A slice as short as a request's own time shows chance as demand; a minute or more shows load.
    """

    width_s: float
    requests: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GpuHours:
    """GPU-hours over the demand's length.

    `fluid`: fractions of a replica, the floor of everything. `perfect`: whole replicas, ready the instant they are
    needed. `peak`: the perfect autoscaler's largest count all the time, `peak_replicas`.
    """

    fluid: float
    perfect: float
    peak: float
    peak_replicas: int


def demand(arrivals_s: NDArray[np.float64], horizon_s: float, width_s: float = 60.0) -> Demand:
    """Arrival times in seconds -> requests per slice. Those outside [0, horizon) are left out.

    Raises ValueError for a width of 0.
    """
    if not width_s > 0.0:
        raise ValueError(f"slices of {width_s} s")
    slices = max(1, int(np.ceil(horizon_s / width_s - 1e-9)))
    inside = arrivals_s[(arrivals_s >= 0.0) & (arrivals_s < horizon_s)]
    index = np.minimum((inside / width_s).astype(np.int64), slices - 1)
    return Demand(width_s, np.bincount(index, minlength=slices).astype(np.int64))


def replicas_needed(offered: Demand, requests_per_s: float) -> NDArray[np.int64]:
    """Whole replicas for each slice: ceil(requests / (rate x width)). Raises ValueError for a rate of 0."""
    if not requests_per_s > 0.0:
        raise ValueError(f"a replica that answers {requests_per_s} requests/s")
    return np.ceil(offered.requests / (requests_per_s * offered.width_s) - 1e-9).astype(np.int64)


def bounds(offered: Demand, requests_per_s: float, gpus_per_replica: float = 1.0, min_replicas: int = 0) -> GpuHours:
    """GPU-hours of the three. `gpus_per_replica` may be a fraction of a GPU (a slice)."""
    needed = np.maximum(replicas_needed(offered, requests_per_s), min_replicas)
    per_slice = offered.width_s / 3600.0 * gpus_per_replica
    peak = int(needed.max())
    fluid = float(offered.requests.sum()) / requests_per_s / 3600.0 * gpus_per_replica
    return GpuHours(fluid, float(needed.sum()) * per_slice, peak * len(needed) * per_slice, peak)
