"""Settings of an autoscaler that nobody stated: from the plan that tuned them, else from the knee of a replica.

The knee is one replica at the largest load at which every objective holds. What it shows there, times a share that
leaves room for what comes while another replica starts, is the target. It is measured on as few replicas as the
autoscaler may keep: with fewer of them each holds more prefixes and meets burstier traffic, and its knee comes sooner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rightslice.app.horizons import least_horizon_s
from rightslice.app.rating import MOST_TOGETHER, simulated_rate
from rightslice.app.scenarios import rating_scenario, server
from rightslice.core.plan import Autoscaling, Plan
from rightslice.core.quantities import format_seconds
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.simulation.run import simulate
from rightslice.spec.autoscaler import Autoscaler, Signal
from rightslice.traffic.traces import Trace

KNEE_REQUESTS: Final = 2000
KV_USE_TELLS: Final = 0.5
"""Of the KV cache in use at the knee from which on its use tells the load; below, it hardly moves before the knee."""
SEQUENCES_TELL: Final = 0.95
"""Of the most sequences: who runs as many is limited by their number, not by the cache."""
LEAST_DOWN_WINDOW_S: Final = 300.0
"""Kubernetes' default."""
COLD_STARTS_DOWN: Final = 2.0
"""Cold starts in a down window: a replica that is missed is back no sooner than after one."""
MOST_WINDOW_S: Final = 3600.0
"""The longest that the API server takes."""
WINDOW_STEP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Knee:
    """One replica at its knee: requests per second it is sent, requests that it holds, and its share of the KV cache.

    `most_sequences`: the engine's limit; 0 where there is none.
    """

    requests_per_s: float
    in_flight: float
    kv_use: float
    most_sequences: int

    def shows(self, signal: Signal) -> float:
        """What it shows of a signal; one request where nothing should wait."""
        if signal == "offered_per_s":
            return self.requests_per_s
        if signal in ("held", "waiting"):
            return 1.0
        return self.kv_use if signal == "kv_use" else self.in_flight

    @property
    def signal(self) -> Signal:
        """What tells its load best: the KV cache where that limits it, else the requests."""
        limited = self.most_sequences and self.in_flight >= SEQUENCES_TELL * self.most_sequences
        return "kv_use" if self.kv_use >= KV_USE_TELLS and not limited else "in_flight"


def knee(need: Need, option: Option, replicas: int, most_per_s: float, traces: Mapping[str, Trace]) -> Knee:
    """The knee of one of `replicas` replicas, at most at `most_per_s` requests per second of each."""
    together = min(max(1, replicas), MOST_TOGETHER)
    built = server(option, option.key, together, option.crowding)
    for rate in _rates(need, option, together, most_per_s, traces):
        horizon_s = max(KNEE_REQUESTS / rate, least_horizon_s(need))
        result = simulate(rating_scenario(need, built, horizon_s, traces, rate * together))
        if result.sound:
            break
    in_flight = sum(c.requests_per_s * c.e2e_ms.mean / 1e3 for c in result.per_class if c.e2e_ms) / together
    kv_use = sum(found.kv_use_mean for found in result.replicas) / len(result.replicas)
    return Knee(rate, in_flight, kv_use, option.settings.max_num_seqs if option.settings else 0)


def _rates(
    need: Need, option: Option, together: int, most_per_s: float, traces: Mapping[str, Trace]
) -> Iterator[float]:
    """The plan's own rate, which often holds, then what is found below it; half of it where nothing is."""
    yield most_per_s
    found = simulated_rate(need, option, together, 1.0, traces, at_most_per_s=most_per_s).requests_per_s
    yield found or most_per_s / 2.0


def settled(wanted: Autoscaler, least: int, most: int, cold_s: float, at_knee: Callable[[], Knee]) -> Autoscaler:
    """The autoscaler with every setting as a number; what it states itself stays.

    `cold_s`: from the wish for a replica to its first request. A down window without a number spans two of them.
    """
    changes: dict[str, Any] = {"min": least, "max": most}
    if wanted.target is None:
        found = at_knee()
        signal = wanted.signal or ("in_flight" if wanted.kind == "keda" else found.signal)
        changes |= {"signal": signal, "target": _target(signal, wanted.share * found.shows(signal))}
    elif wanted.signal is None:
        changes["signal"] = "in_flight"
    if wanted.up_window is None:
        changes["up_window"] = 0.0
    if wanted.down_window is None:
        steps = math.ceil(COLD_STARTS_DOWN * cold_s / WINDOW_STEP_S)
        changes["down_window"] = min(MOST_WINDOW_S, max(LEAST_DOWN_WINDOW_S, steps * WINDOW_STEP_S))
    return wanted.model_copy(update=changes)


def _target(signal: Signal, target: float) -> float:
    """Three digits, as a manifest would have it; above zero."""
    return max(float(f"{target:.3g}"), 0.01 if signal == "kv_use" else 0.1)


def as_tuned(plan: Plan, wanted: Mapping[str, Autoscaler]) -> dict[str, Autoscaler]:
    """Model or deployment -> autoscaler: the plan's own settings where it has some of that kind and signal.

    What is stated beside the kind stays as it is stated.
    """
    found = dict(wanted)
    for tuned in plan.autoscaling:
        own = wanted.get(tuned.model)
        if own is not None and _goes_with(own, tuned):
            found[tuned.deployment] = _tuned(own, tuned)
    return found


def _goes_with(own: Autoscaler, tuned: Autoscaling) -> bool:
    return own.kind == tuned.kind and own.signal in (None, tuned.signal) and "share" not in own.model_fields_set


def _tuned(own: Autoscaler, tuned: Autoscaling) -> Autoscaler:
    settings = {
        "signal": tuned.signal,
        "target": tuned.target,
        "min": tuned.min_replicas,
        "max": tuned.max_replicas,
        "up_window": tuned.up_window_s,
        "down_window": tuned.down_window_s,
        "polling": tuned.polling_s,
        "cooldown": tuned.cooldown_s,
    }
    return own.model_copy(update={key: value for key, value in settings.items() if key not in own.model_fields_set})


def settings_notes(plan: Plan, used: Mapping[str, Autoscaler]) -> Iterator[str]:
    """What each deployment's autoscaler is set to, and whether that is what the plan tuned."""
    tuned = {found.deployment: found for found in plan.autoscaling}
    for key, one in used.items():
        if one.kind not in ("hpa", "keda"):
            continue
        up, down = (format_seconds(s) if s else "none" for s in (one.up_window, one.down_window))
        windows = f"windows: {up} up, {down} down"
        settings = f"{one.signal} {one.target:g} a replica, {one.min} to {one.max} replicas, {windows}"
        yield f"{key}: {one.kind} {_whose(one, tuned.get(key))}: {settings}"


def _whose(used: Autoscaler, tuned: Autoscaling | None) -> str:
    if tuned is None:
        return "(the plan has tuned none)"
    if used.kind != tuned.kind:
        return f"(what the plan tuned is for {tuned.kind})"
    mine = (used.signal, used.target, used.min, used.max, used.up_window, used.down_window)
    planned = (tuned.signal, tuned.target, tuned.min_replicas, tuned.max_replicas)
    return "as the plan tuned it" if mine == (*planned, tuned.up_window_s, tuned.down_window_s) else "as stated"
