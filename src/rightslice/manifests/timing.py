"""How long a server may take to start and to stop, from what it has to load and to finish."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.cold_start import startup_budget
from rightslice.core.estimate import Estimate
from rightslice.simulation.control.cold_start import ON_NODE, PULL, StartRequest, cold_start

MIN_STARTUP_S: Final = 600
PROBE_PERIOD_S: Final = 10
START_MARGIN: Final = 2.0
"""Of the budget over a simulated start."""
PRE_STOP_S: Final = 15
"""Time for load balancers to forget the pod before the server is told to stop (llm-d graceful shutdown page)."""

MIN_DRAIN_S: Final = 45
MAX_DRAIN_S: Final = 600
EXIT_S: Final = 15
"""From the end of the drain to the end of the process (llm-d: 15 + 45 + 15 s)."""

SPOT_PRE_STOP_S: Final = 5
SPOT_EXIT_S: Final = 5


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Seconds of each step of an orderly stop."""

    pre_stop_s: int
    drain_s: int
    exit_s: int

    @property
    def grace_s(self) -> int:
        """What the pod is granted in all."""
        return self.pre_stop_s + self.drain_s + self.exit_s


def startup_budget_s(weights_bytes: int) -> int:
    """Seconds from the first probe to a serving engine: load of the weights and engine start, at least 600 s.

    Both on the safe side (catalogue), and twice what a simulated start takes. The pull of the image lies before it.
    Rounded up to whole probe periods.
    """
    budget = startup_budget()
    safe_s = weights_bytes / budget.weights_bytes_per_s + budget.engine_s
    needed = max(MIN_STARTUP_S, safe_s, START_MARGIN * typical_start_s(weights_bytes))
    return math.ceil(needed / PROBE_PERIOD_S) * PROBE_PERIOD_S


def typical_start_s(weights_bytes: int) -> float:
    """What the simulation takes for a start on a node that has the image."""
    return cold_start(StartRequest("on-prem", "vllm", weights_bytes)).typical(skip=ON_NODE | PULL).total_s


def rollout_deadline_s(weights_bytes: int) -> int:
    """Seconds after which a rollout without progress is reported: image pull, and 1.5 times the start-up budget."""
    return startup_budget().image_pull_s + math.ceil(1.5 * startup_budget_s(weights_bytes))


def shutdown(e2e_ms: Estimate | None, notice_s: float | None) -> Shutdown:
    """Twice the upper p95 of a request, between 45 and 600 s, to finish what runs; less where `notice_s` is short.

    `notice_s` is what a spot machine grants its pods, None for machines that stay.
    """
    drain = MIN_DRAIN_S if e2e_ms is None else math.ceil(2.0 * e2e_ms.high / 1000.0)
    drain = max(MIN_DRAIN_S, min(MAX_DRAIN_S, drain))
    if notice_s is None or notice_s >= PRE_STOP_S + drain + EXIT_S:
        return Shutdown(PRE_STOP_S, drain, EXIT_S)
    return Shutdown(SPOT_PRE_STOP_S, max(1, int(notice_s) - SPOT_PRE_STOP_S - SPOT_EXIT_S), SPOT_EXIT_S)
