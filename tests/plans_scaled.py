"""Hand-made plans with autoscalers."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plans import voice
from rightslice.core.plan import Autoscaling, Plan, PlannedGateway, ScaledDay
from rightslice.core.replay import Trial

DAY = ScaledDay(86_400.0, 345_706, 357.2, 357.33, 768.0, 768.32, 175.9, "tpot_p95", 0.999)
TRIALS = (
    Trial(0.4, 1, 148.9, 148.92, True, "tpot_p95", 0.9999, 19, 900.0, 0.0),
    Trial(0.6, 1, 187.0, 187.04, False, "tpot_p95", 0.9097, 185, 300.0, 0.0),
)


def scaled(
    kind: Literal["hpa", "keda"] = "hpa", signal: str = "in_flight", target: float = 26.2, least: int = 1
) -> Plan:
    """The speech pipeline whose language model follows its load."""
    plan = voice()
    entry = Autoscaling("llm", "llm", kind, signal, target, least, 6, 0.0, 900.0, 30.0, 300.0, DAY, TRIALS)
    (pool,) = plan.pools
    return replace(plan, autoscaling=(entry,), pools=(replace(pool, nodes_max=7),))


def gated(plan: Plan, *, holds: bool = True) -> Plan:
    """The same with an inference gateway before its language model."""
    gateway = PlannedGateway(holds, {"chat": 1, "nightly": -10})
    return replace(plan, models=tuple(replace(m, gateway=gateway) if m.name == "llm" else m for m in plan.models))
