"""How a plan's deployments follow their load, and what that saves over a day: sentences for terminal and page."""

from __future__ import annotations

from rightslice.core.plan import Autoscaling, Plan
from rightslice.core.quantities import format_seconds, format_usd

_SIGNALS = {
    "in_flight": "requests in flight",
    "running": "running requests",
    "waiting": "waiting requests",
    "kv_use": "of the KV cache in use",
}
_KINDS = {"hpa": "HPA", "keda": "KEDA"}


def scaling_rows(plan: Plan) -> list[tuple[str, str]]:
    """(Deployment, how it follows its load)."""
    return [(found.deployment, _how(found)) for found in plan.autoscaling]


def scaled_day_text(plan: Plan) -> str:
    """What a day costs with the autoscalers, beside the planned replicas all the time and what nothing beats."""
    if not plan.autoscaling:
        return ""
    day = plan.autoscaling[0].day
    hours = f"{day.gpu_hours:,.0f} GPU hours"
    against = f"{day.static_gpu_hours:,.0f} with the planned replicas all the time"
    if day.usd is not None and day.static_usd is not None:
        hours = f"{format_usd(day.usd)} ({hours})"
        against = f"{format_usd(day.static_usd)} ({against})"
    span = "a day" if day.horizon_s == 86_400.0 else format_seconds(day.horizon_s)
    best = f"{day.perfect_gpu_hours:,.0f} GPU hours with replicas that are there at once"
    objective = f"; {day.objective} by {day.achieved_share:.1%} of requests" if day.objective else ""
    return f"{span} of traffic: {hours} against {against}; at best {best}{objective}"


def trial_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Settings that were tried."""
    return [
        (
            "yes" if t.holds else "no",
            f"{t.share:.0%}" if t.share is not None else "as given",
            f"{t.min_replicas:,}",
            t.windows,
            f"{t.gpu_hours:,.0f}",
            t.objective,
            f"{t.achieved:.1%}",
        )
        for found in plan.autoscaling[:1]
        for t in found.trials
    ]


def _how(found: Autoscaling) -> str:
    target = f"{found.target:.0%}" if found.signal == "kv_use" else f"{found.target:g}"
    windows = f"up after {_window(found.up_window_s)}, down after {_window(found.down_window_s)}"
    sizes = f"{found.min_replicas} to {found.max_replicas} replicas"
    return f"{_KINDS[found.kind]}, {target} {_SIGNALS[found.signal]} a replica, {sizes}, {windows}"


def _window(seconds: float) -> str:
    return "0 s" if seconds == 0.0 else format_seconds(seconds)
