"""When the answer is no: single changes to the workload, tried for real, that would make it yes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rightslice.app.answer import Answer
from rightslice.app.network import nearest_regions
from rightslice.app.rating import unreachable
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.slo import Slo
from rightslice.optimization.needs import Need
from rightslice.spec.serving import Router
from rightslice.spec.workload import AcceleratorFilter, Model, Pipeline, Workload

MAX_WAYS, ENOUGH_WAYS = 4, 6
"""Ways that are told, the cheapest of those found; the search for more ends at the second number."""
HEADROOMS = (1.3, 2.5, 10.0)
"""A missed objective is set this much above what was reached, and rounded up; the first that works is told."""
HEADROOMS_FOR_MONEY = (1.5, 4.0)
"""The same for objectives that are kept, where the cost binds."""
MAX_TRIES = 10
"""Plans tried in all; each costs as much as the plan itself."""

Retry = Callable[[Workload], tuple[float, str] | None]
"""Plans a changed workload; (USD a month, machines), or None when it is still no."""


def ways_out(answer: Answer, retry: Retry) -> tuple[str, ...]:
    """At most MAX_WAYS lines, each one change and what the plan would then cost; cheapest first."""
    found: list[tuple[float, str]] = []
    tries = 0
    for attempts in _changes(answer):
        for label, changed in attempts:
            if tries == MAX_TRIES:
                return _cheapest(found)
            tries += 1
            priced = retry(changed)
            if priced:
                found.append((priced[0], f"{label} → {format_usd(priced[0])} a month on {priced[1]}"))
                break
        if len(found) == ENOUGH_WAYS:
            break
    return _cheapest(found)


def _cheapest(found: list[tuple[float, str]]) -> tuple[str, ...]:
    return tuple(line for _, line in sorted(found)[:MAX_WAYS])


Change = tuple[str, Workload]


def _changes(answer: Answer) -> Iterator[Sequence[Change]]:
    """Each entry: the same change, ever further, until one works."""
    workload = answer.workload
    yield from _relaxed_objectives(answer)
    if "spot" in workload.fleet.purchase and not all(model.interruptible for model in workload.models):
        models = tuple(model.model_copy(update={"interruptible": True}) for model in workload.models)
        yield [("interruptible: true on every model", workload.model_copy(update={"models": models}))]
    for label, fleet in _wider_fleets(workload):
        yield [(label, workload.model_copy(update={"fleet": workload.fleet.model_copy(update=fleet)}))]
    for model in workload.models:
        if model.partition:
            free = model.model_copy(update={"partition": None})
            yield [(f"models.{model.name}.partition: any", _with_model(workload, free))]
        if model.source and "fp8" not in model.precision:
            changed = model.model_copy(update={"precision": (*model.precision, "fp8")})
            yield [(f"models.{model.name}.precision: allow fp8 (a quality decision)", _with_model(workload, changed))]
    for need in answer.question.needs:
        if need.prefix_hit_ceiling > 0.0 and (need.model.router is None or need.model.router.policy != "prefix_aware"):
            routed = need.model.model_copy(update={"router": Router(policy="prefix_aware")})
            yield [(f"models.{need.name}.router: prefix_aware", _with_model(workload, routed))]
    if any(need.spare for need in answer.question.needs):
        models = tuple(m.model_copy(update={"min_replicas": m.min_replicas or 1}) for m in workload.models)
        yield [("min_replicas: 1 (no spare replica)", workload.model_copy(update={"models": models}))]


def _wider_fleets(workload: Workload) -> Iterator[tuple[str, dict[str, Any]]]:
    fleet = workload.fleet
    if fleet.accelerators.allow:
        yield "fleet.accelerators.allow: any", {"accelerators": AcceleratorFilter(deny=fleet.accelerators.deny)}
    for capacity in ("on_demand", "reservation"):
        if capacity not in fleet.purchase:
            yield f"fleet.purchase: add {capacity}", {"purchase": (*fleet.purchase, capacity)}
    near = nearest_regions(workload)
    if near and fleet.regions != near[:1]:
        yield f"fleet.regions: [{near[0]}], nearest to the clients", {"regions": near[:1]}
    if fleet.regions and not near:
        yield "fleet.regions: any", {"regions": ()}
    if fleet.providers and not near:
        yield "fleet.providers, regions and platform: any", {"providers": (), "regions": (), "platform": None}
    if fleet.quota:
        yield "fleet.quota: raised as needed", {"quota": ()}


def _with_model(workload: Workload, changed: Model) -> Workload:
    models = tuple(changed if model.name == changed.name else model for model in workload.models)
    return workload.model_copy(update={"models": models})


def _relaxed_objectives(answer: Answer) -> Iterator[Sequence[Change]]:
    """Every objective that even an idle replica, or the last simulation, misses, set above what was reached."""
    headrooms = HEADROOMS_FOR_MONEY if answer.evidence else HEADROOMS
    for need in answer.question.needs:
        for slo, seconds in _reached(answer, need).items():
            yield [_with_limit(answer.workload, need.model, slo, seconds * headroom) for headroom in headrooms]
    for pipeline in answer.workload.pipelines:
        limit_s = min((slo.at_most_s for slo in pipeline.slo if slo.metric == "e2e"), default=0.0)
        fastest_s = sum(answer.found.state.fastest_s.get(stage, 0.0) for stage in pipeline.stages)
        if limit_s > 0:
            most_s = max(limit_s, fastest_s)
            yield [_with_pipeline_limit(answer.workload, pipeline, most_s * headroom) for headroom in headrooms]


def _reached(answer: Answer, need: Need) -> dict[Slo, float]:
    """Objective -> seconds to relax from: what was reached where it is missed, its limit where only money binds."""
    if answer.evidence:
        return {slo: slo.at_most_s for slo in need.slos}
    slowdown = answer.found.state.slowdown
    reached: dict[Slo, float] = {}
    idle = [unreachable(need, o, slowdown(o)) for o in answer.question.options_of(need.name)]
    if idle and all(found.missed for found in idle):
        fastest = min(idle, key=lambda found: found.reached_s)
        if fastest.missed:
            reached[fastest.missed] = fastest.reached_s
    for result in answer.found.results:
        for found in result.per_class:
            for outcome in found.outcomes if found.model == need.name else ():
                if not outcome.met:
                    reached[outcome.slo] = outcome.slo.at_most_s
    return reached


def _with_limit(workload: Workload, model: Model, slo: Slo, limit_s: float) -> Change:
    limits = {slo: _rounded_up(limit_s)}
    classes = tuple(c.model_copy(update={"slo": tuple(_raised(slo, limits) for slo in c.slo)}) for c in model.traffic)
    label = f"models.{model.name}: {slo.name}: {_shown(limits[slo])}"
    return label, _with_model(workload, model.model_copy(update={"traffic": classes}))


def _with_pipeline_limit(workload: Workload, pipeline: Pipeline, limit_s: float) -> Change:
    target_s = _rounded_up(limit_s)
    slos = tuple(_raised(slo, {slo: max(target_s, slo.at_most_s)}) for slo in pipeline.slo)
    changed = tuple(_with_slos(p, slos) if p.name == pipeline.name else p for p in workload.pipelines)
    return f"pipelines.{pipeline.name}: e2e {_shown(target_s)}", workload.model_copy(update={"pipelines": changed})


def _with_slos(pipeline: Pipeline, slos: tuple[Slo, ...]) -> Pipeline:
    return pipeline.model_copy(update={"slo": slos})


def _raised(slo: Slo, reached: Mapping[Slo, float]) -> Slo:
    return Slo(slo.metric, reached[slo], slo.share) if slo in reached else slo


def _rounded_up(amount_s: float) -> float:
    """Two significant digits, upwards."""
    step = 10.0 ** (math.floor(math.log10(amount_s)) - 1)
    return round(math.ceil(amount_s / step - 1e-9) * step, 9)


def _shown(amount_s: float) -> str:
    return format_seconds(amount_s).replace(" ", "")
