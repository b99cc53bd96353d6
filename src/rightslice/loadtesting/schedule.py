"""When the requests of a run are meant to be sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rightslice.traffic.generators import gamma_bursts, poisson

MAX_REQUESTS: Final = 2_000_000
MAX_CONCURRENCY: Final = 16_384


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many clients, each sending its next request when it has the answer to the last."""

    concurrency: int

    @property
    def name(self) -> str:
        """`8 streams`."""
        return f"{self.concurrency} streams" if self.concurrency != 1 else "1 stream"


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests come at this rate whether or not answers do; gaps are gamma with that coefficient of variation."""

    requests_per_s: float
    gap_cv: float = 1.0

    @property
    def name(self) -> str:
        """`2.5 requests/s`."""
        return f"{self.requests_per_s:.4g} requests/s"


@dataclass(frozen=True, slots=True)
class Replay:
    """Requests come when those of a recording came, which is this rate on average."""

    requests_per_s: float

    @property
    def name(self) -> str:
        """`recorded times, 2.5 requests/s`."""
        return f"recorded times, {self.requests_per_s:.4g} requests/s"


Load = ClosedLoop | OpenLoop | Replay


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends: after so many requests or seconds of sending, whichever comes first; at least one is set.

    `drain_s`: how long answers are waited for after that.
    """

    requests: int | None = None
    duration_s: float | None = None
    drain_s: float = 30.0

    def __post_init__(self) -> None:
        if self.requests is None and self.duration_s is None:
            raise ValueError("a run needs an end")


def intended_times(load: OpenLoop, limits: Limits, rng: np.random.Generator) -> NDArray[np.float64]:
    """Seconds from the start at which an open loop sends, sorted; as many as the limits allow."""
    per_s = load.requests_per_s
    wanted = limits.requests or MAX_REQUESTS
    # Long enough that the wanted number is drawn all but surely: six standard deviations above the mean.
    enough = (wanted + 6.0 * max(load.gap_cv, 1.0) * math.sqrt(wanted) + 6.0) / per_s
    horizon_s = min(limits.duration_s or enough, enough)
    times = (
        poisson(per_s, horizon_s, rng)
        if load.gap_cv == 1.0
        else gamma_bursts(per_s, horizon_s, rng, gap_cv=load.gap_cv)
    )
    return times[:wanted]
