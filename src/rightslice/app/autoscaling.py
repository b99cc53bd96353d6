"""A plan whose workload asks for autoscalers: their settings, tuned over a day of its traffic after it is verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Final

import numpy as np

from rightslice.app.clock import Clock
from rightslice.app.clusters import Controlled, controlled
from rightslice.app.judge import at_quantile
from rightslice.app.planning import PlanOutcome, plan_workload
from rightslice.app.scenarios import Load
from rightslice.app.simulating import Asked, asked_of, day_of, with_control
from rightslice.app.tuning import Autoscalers, Tried, tuned
from rightslice.app.warn import scaling_warnings
from rightslice.app.what_if import WhatIf
from rightslice.core.errors import BadInputError
from rightslice.core.plan import Autoscaling, Deployment, Plan, PlanWarning, Replicas, ScaledDay
from rightslice.core.replay import Replay, worst_objective
from rightslice.spec.autoscaler import Autoscaler

TRIAL_REQUESTS: Final = 100_000
"""Of one setting that is tried, where the day has more: a third of a CPU second."""
LEAST_TRIAL_S: Final = 4 * 3600.0
BEFORE_PEAK: Final = 0.6
"""Of the part of the day that is tried: the way up to the peak; the rest is the way down."""
PEAK_SLICE_S: Final = 600.0
WHOLE_DAYS: Final = 2
"""Settings that hold over a whole day, of which the cheapest is taken."""
NOT_SCALED: Final = "RS5015"


def _silent(_message: str) -> None:
    return


def plan_scaled(
    path: Path,
    *,
    seed: int = 0,
    risk: float = 0.05,
    progress: Callable[[str], None] = _silent,
    over_time: bool = False,
    current: Path | None = None,
    calibrations: Sequence[Path] = (),
) -> PlanOutcome:
    """`plan_workload`, and the autoscalers of models that ask for one. Raises as it does."""
    outcome = plan_workload(
        path,
        seed=seed,
        risk=risk,
        progress=progress,
        over_time=over_time,
        current=current,
        calibrations=calibrations,
    )
    clock = Clock()
    with clock.running("autoscale_cpu_s"):
        plan = autoscaled(outcome.plan, path.parent, risk, progress)
    if plan is outcome.plan:
        return outcome
    timings, spent = outcome.timings, clock.timings()
    total = {name: timings.get(name, 0.0) + seconds for name, seconds in spent.items()}
    return replace(outcome, plan=plan, timings={**timings, **total})


def autoscaled(plan: Plan, folder: Path, risk: float = 0.05, progress: Callable[[str], None] = _silent) -> Plan:
    """The plan with its autoscalers; as it is where no model asks for one, with a warning where none is of use."""
    if not plan.feasible or not any(model.get("autoscaling") for model in (plan.workload or {}).get("models", ())):
        return plan
    asked = asked_of(plan, folder, WhatIf())
    wanted = {model.name: model.autoscaling for model in asked.workload.models if model.autoscaling}
    try:
        return _scaled(plan, asked, wanted, risk, progress)
    except BadInputError as error:
        return _unscaled(plan, wanted, error.diagnostics[0].message)


def _scaled(plan: Plan, asked: Asked, wanted: Autoscalers, risk: float, progress: Callable[[str], None]) -> Plan:
    day = day_of(asked)
    tried = tuned(asked, wanted, WhatIf(), busiest_part(day), progress)
    found = _cheapest(asked, tried, day, risk, progress)
    if found is None:
        best = tried[0].trial
        nearest = f"{best.objective} by {best.achieved:.1%} of requests at best"
        text = f"no setting holds over a day, with times as long as the accepted risk allows ({nearest} as predicted)"
        return _unscaled(plan, wanted, text)
    chosen, replay = found
    made = controlled(plan, asked.servers, chosen.autoscalers, (), day, asked.traces)
    result = _day(plan, replay, made)
    if result.gpu_hours >= result.static_gpu_hours:
        text = f"{result.gpu_hours:,.0f} GPU-hours a day are no fewer than the {result.static_gpu_hours:,.0f} planned"
        return _unscaled(plan, wanted, text)
    entries = tuple(_entry(made, key, result, tried) for key in _keys(made, chosen.autoscalers))
    scaled = _with_room(replace(plan, autoscaling=entries), made)
    return replace(scaled, warnings=(*scaled.warnings, *scaling_warnings(scaled)))


def busiest_part(day: Load) -> Load:
    """The hours around the busiest ten minutes with at most about TRIAL_REQUESTS requests."""
    arrivals = [found.arrivals.arrival_ps / 1e12 for found in day.classes]
    count = sum(len(times) for times in arrivals)
    lasts_s = max(LEAST_TRIAL_S, day.horizon_s * TRIAL_REQUESTS / max(count, 1))
    if lasts_s >= day.horizon_s:
        return day
    times = np.concatenate(arrivals)
    busiest = int(np.bincount((times / PEAK_SLICE_S).astype(np.int64)).argmax())
    begin_s = float(min(max(0.0, (busiest + 0.5) * PEAK_SLICE_S - BEFORE_PEAK * lasts_s), day.horizon_s - lasts_s))
    classes = []
    for found, own in zip(day.classes, arrivals, strict=True):
        part = found.where((own >= begin_s) & (own < begin_s + lasts_s))
        moved = replace(part.arrivals, arrival_ps=part.arrivals.arrival_ps - round(begin_s * 1e12))
        classes.append(replace(part, arrivals=moved))
    return replace(day, classes=tuple(classes), horizon_s=lasts_s)


def _cheapest(
    asked: Asked, tried: tuple[Tried, ...], day: Load, risk: float, progress: Callable[[str], None]
) -> tuple[Tried, Replay] | None:
    """The cheapest over the whole day of the first settings that also hold with times as long as the risk allows."""
    slow = at_quantile(NormalDist().inv_cdf(1.0 - risk))
    part = busiest_part(day)
    found: list[tuple[Tried, Replay]] = []
    for candidate in (each for each in tried if each.trial.holds):
        if len(found) == WHOLE_DAYS:
            break
        progress("autoscaler with longer times")
        if with_control(asked, candidate.autoscalers, WhatIf(), part, slow).holds:
            progress("autoscaler over a whole day")
            replay = with_control(asked, candidate.autoscalers, WhatIf(), day)
            found += [(candidate, replay)] if replay.holds else []
    return min(found, key=lambda pair: pair[1].gpu_hours if pair[1].usd is None else pair[1].usd, default=None)


def _keys(made: Controlled, autoscalers: Autoscalers) -> list[str]:
    return [found.deployment for found in made.cluster.deployments if found.model in autoscalers]


def _day(plan: Plan, replay: Replay, made: Controlled) -> ScaledDay:
    hours = replay.horizon_s / 3600.0
    objective, achieved = worst_objective(replay)
    return ScaledDay(
        horizon_s=replay.horizon_s,
        requests=replay.requests,
        gpu_hours=replay.gpu_hours,
        usd=replay.usd,
        static_gpu_hours=sum(pool.nodes * pool.gpus_per_node for pool in plan.pools) * hours,
        static_usd=None if replay.usd is None else sum(pool.nodes * pool.hourly_usd for pool in plan.pools) * hours,
        perfect_gpu_hours=sum(bound.perfect for bound in made.bounds),
        objective=objective,
        achieved_share=achieved,
    )


def _entry(made: Controlled, key: str, day: ScaledDay, tried: tuple[Tried, ...]) -> Autoscaling:
    scaled = next(found for found in made.cluster.deployments if found.deployment == key)
    settings = made.settings[key]
    return Autoscaling(
        deployment=key,
        model=scaled.model,
        kind="keda" if settings.kind == "keda" else "hpa",
        signal=settings.signal or "in_flight",
        target=settings.target or 0.0,
        min_replicas=settings.min or 0,
        max_replicas=settings.max or 0,
        up_window_s=settings.up_window or 0.0,
        down_window_s=settings.down_window or 0.0,
        polling_s=settings.polling,
        cooldown_s=settings.cooldown,
        day=day,
        trials=tuple(found.trial for found in tried),
    )


def _with_room(plan: Plan, made: Controlled) -> Plan:
    """Sizes of deployments and pools as the autoscalers may change them."""
    entries = {found.deployment: found for found in plan.autoscaling}
    most = {pool.nodes.name: pool.nodes.max_nodes for pool in made.cluster.pools}

    def sized(deployment: Deployment) -> Deployment:
        found = entries.get(deployment.id)
        if found is None:
            return deployment
        sizes = Replicas(found.min_replicas, deployment.replicas.steady, found.max_replicas)
        return replace(deployment, replicas=sizes)

    models = tuple(replace(model, deployments=tuple(map(sized, model.deployments))) for model in plan.models)
    pools = tuple(replace(pool, nodes_max=max(pool.nodes_max, most.get(pool.name, 0))) for pool in plan.pools)
    return replace(plan, models=models, pools=pools)


def _unscaled(plan: Plan, wanted: Mapping[str, Autoscaler], why: str) -> Plan:
    warning = PlanWarning(NOT_SCALED, ", ".join(wanted), f"not autoscaled: {why}")
    return replace(plan, warnings=(*plan.warnings, warning))
