"""How much one replica of an option carries: a closed-form ceiling first, what is simulated for options in use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rightslice.app.horizons import MAX_HORIZON_S, least_horizon_s
from rightslice.app.scenarios import rating_scenario, server
from rightslice.core.rates import Rate
from rightslice.core.slo import Slo
from rightslice.optimization.needs import LengthSample, Need
from rightslice.optimization.options import Option
from rightslice.performance.ceiling import rate_ceiling, stage_rate_ceiling
from rightslice.performance.costs import PS_PER_S, StepCosts
from rightslice.performance.unloaded import UnloadedTimes, unloaded_times
from rightslice.simulation.run import simulate
from rightslice.traffic.traces import Trace

BISECTIONS = 7
"""Rate is known to 1 / 2^7 of the ceiling."""
LEAST_RATE_PER_S = 1e-3
"""A replica that cannot be sure to carry this much is taken to carry nothing."""
RATING_REQUESTS = 3000
MOST_TOGETHER = 8
"""Replicas that are rated together; more would even out little further."""


@dataclass(frozen=True, slots=True)
class Fastest:
    """The best an option can do for a need: seconds at the percentile of the tightest objective; `missed` names it."""

    missed: Slo | None
    reached_s: float


def fastest_s(need: Need, option: Option, slowdown: float) -> float:
    """Mean latency of one request on an idle replica, seconds."""
    costs = option.costs
    if costs is None:
        return 0.0
    scaled = costs.scaled(slowdown)
    if not isinstance(scaled, StepCosts):
        return float(scaled.latency_ps[1]) / PS_PER_S
    means = [float(_times(scaled, sample, option).e2e_s.mean()) for sample in need.samples]
    return max(means, default=0.0)


def unreachable(need: Need, option: Option, slowdown: float) -> Fastest:
    """Whether even an idle replica misses an objective of the model's own classes."""
    costs = option.costs
    if costs is None:
        return Fastest(None, 0.0)
    scaled = costs.scaled(slowdown)
    if not isinstance(scaled, StepCosts):
        alone_s = float(scaled.latency_ps[1]) / PS_PER_S
        missed = next((slo for slo in need.slos if slo.metric == "e2e" and slo.at_most_s < alone_s), None)
        return Fastest(missed, alone_s)
    for sample in need.samples:
        times = _times(scaled, sample, option)
        for slo in sample.slos:
            reached = float(np.quantile(_of(times, slo), slo.share))
            if reached > slo.at_most_s:
                return Fastest(slo, reached)
    return Fastest(None, 0.0)


def tolerance(need: Need, option: Option, budget_s: float | None) -> float:
    """Times over the option's own at which an idle replica just keeps every objective and the stage's budget."""
    limits = [budget_s / fastest_s(need, option, 1.0)] if budget_s is not None and option.costs else []
    if isinstance(option.costs, StepCosts):
        for sample in need.samples:
            times = _times(option.costs, sample, option)
            limits += [slo.at_most_s / float(np.quantile(_of(times, slo), slo.share)) for slo in sample.slos]
    elif option.costs is not None:
        limits += [slo.at_most_s / fastest_s(need, option, 1.0) for slo in need.slos if slo.metric == "e2e"]
    return min(limits, default=math.inf)


def _times(costs: StepCosts, sample: LengthSample, option: Option) -> UnloadedTimes:
    """At best: what may be in the prefix cache is there, and costs nothing."""
    prompts = sample.input_tokens
    if option.caches_prefixes and sample.seen_tokens is not None:
        prompts = prompts - sample.seen_tokens
    return unloaded_times(costs, prompts, sample.output_tokens)


def _of(times: UnloadedTimes, slo: Slo) -> np.ndarray:
    return {"ttft": times.ttft_s, "tpot": times.tpot_s, "e2e": times.e2e_s}[slo.metric]


def ceiling(need: Need, option: Option, slowdown: float, budget_s: float | None) -> Rate:
    """An optimistic rate: 0 where even an idle replica misses an objective or the stage's latency budget."""
    costs = option.costs
    if costs is None:
        return Rate(0.0, simulated=False)
    missed = unreachable(need, option, slowdown).missed
    if missed is not None:
        return Rate(0.0, simulated=False, binding=missed.name)
    if budget_s is not None and fastest_s(need, option, slowdown) > budget_s:
        return Rate(0.0, simulated=False, binding="pipeline")
    scaled = costs.scaled(slowdown)
    if not isinstance(scaled, StepCosts):
        limits = [limit for limit in (need.limit_s("e2e"), budget_s) if limit is not None]
        rate = stage_rate_ceiling(scaled, min(limits, default=math.inf))
        return Rate(rate, simulated=False, provenance=costs.provenance)
    tpot = min((slo for slo in need.slos if slo.metric == "tpot"), key=lambda slo: slo.at_most_s, default=None)
    rate = rate_ceiling(
        scaled,
        input_tokens=need.input_tokens,
        output_tokens=max(1.0, need.output_tokens),
        max_sequences=option.settings.max_num_seqs if option.settings else 1,
        tpot_limit_s=tpot.at_most_s if tpot and not need.shares else None,
        prefix_hit_rate=need.prefix_hit_ceiling if option.caches_prefixes else 0.0,
        tpot_share=tpot.share if tpot else 1.0,
    )
    return Rate(rate * option.engines, simulated=False, provenance=costs.provenance)


def rate_at_slo(need: Need, option: Option, replicas: int, traces: Mapping[str, Trace]) -> Rate:
    """What one replica carries at its expected times: simulated where the model has objectives, else the ceiling.

    On a shared GPU: while everybody else on it is busy.
    """
    most = ceiling(need, option, option.crowding, None)
    if not need.slos or need.shares:
        return most
    return simulated_rate(need, option, replicas, 1.0, traces, at_most_per_s=most.requests_per_s)


def simulated_rate(
    need: Need,
    option: Option,
    replicas: int,
    slowdown: float,
    traces: Mapping[str, Trace],
    *,
    at_most_per_s: float,
) -> Rate:
    """The largest rate of one of `replicas` replicas at which every objective of the model's classes holds.

    On a shared GPU: while everybody else on it is busy.
    """
    together = min(replicas, MOST_TOGETHER)
    built = server(option, option.key, together, slowdown * option.crowding)
    low, high = 0.0, at_most_per_s
    for _ in range(BISECTIONS if at_most_per_s > LEAST_RATE_PER_S else 0):
        middle = (low + high) / 2.0
        horizon_s = max(min(RATING_REQUESTS / (middle * together), MAX_HORIZON_S), least_horizon_s(need))
        result = simulate(rating_scenario(need, built, horizon_s, traces, middle * together))
        if result.sound:
            low = middle
        else:
            high = middle
    provenance = option.costs.provenance if option.costs else "first-principles"
    return Rate(low, simulated=True, provenance=provenance)
