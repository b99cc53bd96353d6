"""When the answer is no: single changes to the workload, tried for real, that would make it yes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from rightslice.app.explain import Answer
from rightslice.app.rating import unreachable
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.slo import Slo
from rightslice.spec.workload import AcceleratorFilter, Model, Pipeline, Workload

MAX_WAYS = 4
HEADROOM = 1.25
"""A relaxed objective is set this much above what was reached: the figure is rounded up from there."""

Retry = Callable[[Workload], tuple[float, str] | None]
"""Plans a changed workload; (USD a month, machines), or None when it is still no."""


def ways_out(answer: Answer, retry: Retry) -> tuple[str, ...]:
    """At most MAX_WAYS lines, each one change and what the plan would then cost; cheapest first."""
    found = []
    for label, changed in _changes(answer):
        priced = retry(changed)
        if priced:
            found.append((priced[0], f"{label} → {format_usd(priced[0])} a month on {priced[1]}"))
        if len(found) == MAX_WAYS:
            break
    return tuple(line for _, line in sorted(found))


def _changes(answer: Answer) -> Iterator[tuple[str, Workload]]:
    workload = answer.workload
    yield from _relaxed_objectives(answer)
    for label, fleet in _wider_fleets(workload):
        yield label, workload.model_copy(update={"fleet": workload.fleet.model_copy(update=fleet)})
    for model in workload.models:
        if model.source and "fp8" not in model.precision:
            changed = model.model_copy(update={"precision": (*model.precision, "fp8")})
            yield f"models.{model.name}.precision: allow fp8 (a quality decision)", _with_model(workload, changed)
    if any(need.spare for need in answer.question.needs):
        models = tuple(m.model_copy(update={"min_replicas": m.min_replicas or 1}) for m in workload.models)
        yield "min_replicas: 1 (no spare replica)", workload.model_copy(update={"models": models})


def _wider_fleets(workload: Workload) -> Iterator[tuple[str, dict[str, Any]]]:
    fleet = workload.fleet
    if fleet.accelerators.allow:
        yield "fleet.accelerators.allow: any", {"accelerators": AcceleratorFilter(deny=fleet.accelerators.deny)}
    if "reservation" not in fleet.purchase:
        yield "fleet.purchase: add reservation", {"purchase": (*fleet.purchase, "reservation")}
    if fleet.regions:
        yield "fleet.regions: any", {"regions": ()}
    if fleet.providers:
        yield "fleet.providers: any", {"providers": (), "regions": (), "platform": None}
    if fleet.quota:
        yield "fleet.quota: raised as needed", {"quota": ()}


def _with_model(workload: Workload, changed: Model) -> Workload:
    models = tuple(changed if model.name == changed.name else model for model in workload.models)
    return workload.model_copy(update={"models": models})


def _relaxed_objectives(answer: Answer) -> Iterator[tuple[str, Workload]]:
    """Every objective that even an idle replica, or the last simulation, misses, set to what was reached."""
    for need in answer.question.needs:
        reached = _reached(answer, need.name)
        if not reached:
            continue
        classes = tuple(
            c.model_copy(update={"slo": tuple(_raised(slo, reached) for slo in c.slo)}) for c in need.model.traffic
        )
        label = ", ".join(f"{slo.name}: {_shown(limit)}" for slo, limit in reached.items())
        changed = need.model.model_copy(update={"traffic": classes})
        yield f"models.{need.name}: {label}", _with_model(answer.workload, changed)
    yield from _relaxed_pipelines(answer)


def _reached(answer: Answer, model: str) -> dict[Slo, float]:
    """Objective -> limit in seconds that could be kept."""
    need = next(n for n in answer.question.needs if n.name == model)
    slowdown = answer.found.state.slowdown
    best: dict[Slo, float] = {}
    idle = [unreachable(need, o, slowdown(o)) for o in answer.question.options_of(model)]
    if idle and all(found.missed for found in idle):
        fastest = min(idle, key=lambda found: found.reached_s)
        if fastest.missed:
            best[fastest.missed] = _rounded_up(fastest.reached_s * HEADROOM)
    for result in answer.found.results:
        for found in result.per_class:
            for outcome in found.outcomes if found.model == model else ():
                if not outcome.met:
                    best[outcome.slo] = _rounded_up(outcome.slo.at_most_s * HEADROOM)
    return best


def _relaxed_pipelines(answer: Answer) -> Iterator[tuple[str, Workload]]:
    for pipeline in answer.workload.pipelines:
        limit_s = min((slo.at_most_s for slo in pipeline.slo if slo.metric == "e2e"), default=0.0)
        fastest_s = sum(answer.found.state.fastest_s.get(stage, 0.0) for stage in pipeline.stages)
        if limit_s <= 0:
            continue
        for target_s in (_rounded_up(max(limit_s, fastest_s) * HEADROOM), _rounded_up(max(limit_s, fastest_s) * 2.0)):
            slos = tuple(_raised(slo, {slo: max(target_s, slo.at_most_s)}) for slo in pipeline.slo)
            changed = tuple(
                _with_slos(other, slos) if other.name == pipeline.name else other for other in answer.workload.pipelines
            )
            label = f"pipelines.{pipeline.name}: e2e {_shown(target_s)}"
            yield label, answer.workload.model_copy(update={"pipelines": changed})


def _with_slos(pipeline: Pipeline, slos: tuple[Slo, ...]) -> Pipeline:
    return pipeline.model_copy(update={"slo": slos})


def _raised(slo: Slo, reached: dict[Slo, float]) -> Slo:
    return Slo(slo.metric, reached[slo], slo.share) if slo in reached else slo


def _rounded_up(amount_s: float) -> float:
    """Two significant digits, upwards."""
    step = 10.0 ** (math.floor(math.log10(amount_s)) - 1)
    return round(math.ceil(amount_s / step - 1e-9) * step, 9)


def _shown(amount_s: float) -> str:
    return format_seconds(amount_s).replace(" ", "")
