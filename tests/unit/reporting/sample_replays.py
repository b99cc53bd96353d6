"""Hand-made simulations of few bins; the figures are placeholders of a believable size."""

from __future__ import annotations

from dataclasses import replace

from sample_plans import HOSTILE

from rightslice.core.replay import (
    Confidence,
    GpuHourBounds,
    Moment,
    Preemption,
    Replay,
    ScaleEvent,
    Trial,
    Tuning,
)
from rightslice.core.results import ClassResult, Distribution, ReplicaResult, SimulationResult, SloOutcome
from rightslice.core.slo import Slo
from rightslice.core.timeline import Requests, Servers, Timeline, Track

EDGES_S = (0.0, 300.0, 600.0, 900.0, 1100.0)


def requests() -> Requests:
    """1,000 that came: 950 answered, 30 failed, 20 under way at the end."""
    return Requests(
        offered=(100, 400, 300, 200),
        completed=(90, 380, 290, 190),
        refused=(0, 5, 0, 0),
        timed_out=(0, 10, 0, 0),
        shed=(0, 0, 0, 0),
        lost=(0, 15, 0, 0),
        met=(100, 340, 290, 180),
        missed=(0, 60, 10, 0),
        asked_share=0.95,
    )


def servers() -> Servers:
    return Servers(
        waiting=(0.0, 12.5, 3.0, 0.0),
        running=(2.0, 16.0, 12.0, 6.0),
        kv_use=(0.02, 0.31, 0.24, 0.1),
        wanted=(1.0, 2.6, 3.0, 2.0),
        ready=(1.0, 1.5, 2.9, 2.0),
        starting=(0.0, 1.1, 0.1, 0.0),
    )


def timeline(model: str = "chat") -> Timeline:
    track = Track("model", model, requests(), servers())
    return Timeline(model, EDGES_S, (track,), (1.0, 2.0, 3.0, 2.0), (0.5, 1.5, 3.0, 3.7), (450.0, 450.2))


def scaled(model: str = "chat") -> Replay:
    """One model with an autoscaler and a lost zone."""
    slos = (Slo("ttft", 0.8), Slo("e2e", 12.0, 0.9))
    times = Distribution(410.0, 380.0, 950.0, 1800.0)
    longer = Distribution(4100.0, 3800.0, 9500.0, 18_000.0)
    outcomes = (SloOutcome(slos[0], 0.931, 980), SloOutcome(slos[1], 0.97, 980))
    found = ClassResult(
        model, "main", 1000, 950, 30, times, None, longer, 0.86, 172.0, 0.93, outcomes, timed_out=10, answered=950
    )
    replicas = tuple(ReplicaResult(model, number, 0.5, 0.1, 0.4, number, 6.5) for number in range(3))
    return Replay(
        plan="assistant" if model == "chat" else model,
        seed=7,
        results=(SimulationResult(7, 1100.0, 1000, 950, 30, 21, 15, (found,), (), replicas),),
        cpu_s=0.1,
        gpu_hours=0.62,
        usd=3.7,
        scale_events=(
            ScaleEvent(315.0, model, 1, 3, "DesiredWithinRange"),
            ScaleEvent(905.0, model, 3, 2, "ScaleDownStabilized"),
        ),
        timeline=(
            Moment(0.0, model, 1, 1, 2.0, 0.0, 0.02, 0.0),
            Moment(450.0, model, 3, 0, 30.0, 14.0, 0.0, 1.3),
            Moment(495.0, model, 3, 2, 28.0, 3.0, 0.2, 1.1),
        ),
        preemptions=(Preemption(450.0, "pool", "pool-1", 21, 15),),
        bounds=(GpuHourBounds(model, 0.2, 0.35, 0.92, 3),),
        faults=("zone@450s",),
        timelines=(timeline(model),),
        confidence=(Confidence(f"{model}/main", "ttft_ms", "p95", 900.0, 1000.0),),
        asked={"autoscaler": "hpa", "faults": ("zone@450s",), "horizon_s": 1100.0},
    )


def hostile() -> Replay:
    """Names that try to break out of every place that they stand in."""
    return replace(scaled(HOSTILE), apart=(HOSTILE,), unknown_phases=(HOSTILE,), asked={"changes": (HOSTILE,)})


def silent() -> Replay:
    """Not one request."""
    none = Requests(*((0, 0, 0, 0),) * 8, asked_share=0.95)
    still = Servers((0.0,) * 4, (0.0,) * 4, (), (1.0,) * 4, (1.0,) * 4, (0.0,) * 4)
    track = Track("model", "chat", none, still)
    course = Timeline("chat", EDGES_S, (track,), (1.0,) * 4, None)
    nothing = ClassResult("chat", "main", 0, 0, 0, None, None, None, 0.0, 0.0, 1.0)
    result = SimulationResult(0, 1100.0, 0, 0, 0, 0, 0, (nothing,), (), ())
    return Replay("quiet", 0, (result,), 0.0, 0.3, None, timelines=(course,))


def tuning(*, priced: bool = True) -> Tuning:
    """Four settings: two on the frontier hold, one on it does not, one is beaten."""
    rows = (
        (0.8, 1, 20.0, 0.91, False),
        (0.6, 1, 24.0, 0.97, True),
        (0.4, 2, 40.0, 0.999, True),
        (0.6, 2, 44.0, 0.99, True),
    )
    trials = tuple(
        Trial(share, least, hours, hours * 2.5 if priced else None, holds, "ttft_p95", achieved, 12)
        for share, least, hours, achieved, holds in rows
    )
    return Tuning("assistant", 7, tuple(sorted(trials, key=lambda t: (not t.holds, t.cost))))
