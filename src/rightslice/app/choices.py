"""Several sources for one model, regions for clients far away, GPUs shared or not: each is planned as its own workload.

The cheapest that holds wins, so that the price of a region stands against its latency.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from rightslice.app.answer import Answer, Rival
from rightslice.app.decide import describe
from rightslice.app.explain import what_binds, works_too
from rightslice.app.grouping import sharing_text
from rightslice.app.network import client_regions, planned_network
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Rejection
from rightslice.core.quantities import format_seconds
from rightslice.spec.workload import Fleet, Workload

MOST_CHOICES = 8
"""Combinations; each is planned in full."""


def choices(workload: Workload) -> tuple[Workload, ...]:
    """The workload with one source for each model and one region, in every combination.

    As written where no model has several sources and no client says where it is. All regions together come last: they
    may hold, with the way to the farthest, where no single one has enough machines. Raises BadInputError RS0502 for
    more than MOST_CHOICES combinations.
    """
    fleets = _fleets(workload)
    count = math.prod([len(fleets), *(max(1, len(model.source)) for model in workload.models)])
    if count > MOST_CHOICES:
        both = "the sources of all models" if len(fleets) == 1 else "the sources of all models and the regions"
        message = f"{both} make {count} combinations"
        fewer = "sources" if len(fleets) == 1 else "sources or regions"
        raise BadInputError(Diagnostic("RS0502", message, hint=f"at most {MOST_CHOICES}: name fewer {fewer}"))
    variants = [
        [model.model_copy(update={"source": (source,)}) for source in model.source] or [model]
        for model in workload.models
    ]
    return tuple(
        workload.model_copy(update={"models": models, "fleet": fleet})
        for fleet in fleets
        for models in product(*variants)
    )


def _fleets(workload: Workload) -> list[Fleet]:
    """Each region alone, then all together, where distance matters; else the fleet as it is."""
    regions = workload.fleet.regions
    if not client_regions(workload) or len(regions) < 2:
        return [workload.fleet]
    alone = [workload.fleet.model_copy(update={"regions": (region,)}) for region in regions]
    return [*alone, workload.fleet]


def cheapest(answers: Sequence[Answer]) -> Answer:
    """The cheapest that holds, or the first; what became of the others is among its rejections."""
    chosen = min((a for a in answers if a.holds), key=lambda a: a.monthly_usd, default=answers[0])
    told = [(a, _rejection(a, chosen)) for a in answers if a is not chosen and not _holds_it(a, chosen)]
    others = tuple(rejection for _, rejection in told)
    rivals = tuple(Rival(rejection.option, a) for a, rejection in told if a.holds)
    asked = replace(chosen.asked, rejections=(*others, *chosen.asked.rejections))
    return replace(chosen, asked=asked, rivals=(*rivals, *chosen.rivals))


def _holds_it(answer: Answer, chosen: Answer) -> bool:
    """Whether it asked for all regions, the chosen one among them: no other choice."""
    return set(answer.workload.fleet.regions) > set(chosen.workload.fleet.regions)


def _rejection(answer: Answer, chosen: Answer) -> Rejection:
    """`chat as nvidia/Llama-3.1-70B-Instruct-FP8`: how much dearer it is, or what stands in its way."""
    if answer.workload.fleet.regions != chosen.workload.fleet.regions:
        return _rejected_region(answer, chosen)
    pairs = zip(answer.workload.models, chosen.workload.models, strict=True)
    changed = [(mine, theirs) for mine, theirs in pairs if mine.source != theirs.source]
    if not changed:
        return _rejected_sharing(answer, chosen)
    option = ", ".join(f"{mine.name} as {mine.source[0]}" for mine, _ in changed)
    models = ", ".join(mine.name for mine, _ in changed)
    if not answer.holds:
        return Rejection(option, models, "RS4001", what_binds(answer))
    instead = ", ".join(theirs.source[0] for _, theirs in changed)
    more = works_too(answer.monthly_usd - chosen.monthly_usd)
    reason = f"{more} than {instead} ({describe(answer.found)})"
    return Rejection(option, models, "RS4003", reason, monthly_usd=answer.monthly_usd)


def _rejected_sharing(answer: Answer, chosen: Answer) -> Rejection:
    """`asr + tts by time-slicing`, or every model on GPUs and slices of its own."""
    mine, theirs = sharing_text(answer.workload), sharing_text(chosen.workload)
    option = mine or "GPUs and slices of their own"
    models = [m.name for m, t in zip(answer.workload.models, chosen.workload.models, strict=True) if m != t]
    if not answer.holds:
        return Rejection(option, ", ".join(models), "RS4001", what_binds(answer))
    more = works_too(answer.monthly_usd - chosen.monthly_usd)
    reason = f"{more} than {theirs or 'GPUs and slices of their own'} ({describe(answer.found)})"
    return Rejection(option, ", ".join(models), "RS4003", reason, monthly_usd=answer.monthly_usd)


def _rejected_region(answer: Answer, chosen: Answer) -> Rejection:
    """`region us-central1`: the way there and what it breaks, or how much dearer it is."""
    option = f"region {', '.join(answer.workload.fleet.regions)}"
    sources = [model.source[0] for model in answer.workload.models if len(model.source) == 1]
    if [model.source for model in answer.workload.models] != [model.source for model in chosen.workload.models]:
        option = f"{option}, {', '.join(sources)}"
    models = ", ".join(model.name for model in answer.workload.models)
    network = planned_network(answer.workload)
    ways = zip(network.clients, network.round_trip_s[:, 0].tolist(), strict=True) if network else ()
    far = ", ".join(f"{format_seconds(way)} from {client} and back" for client, way in ways if way > 0.0) or "no way"
    if not answer.holds:
        return Rejection(option, models, "RS4001", f"{what_binds(answer)} ({far})")
    more = works_too(answer.monthly_usd - chosen.monthly_usd)
    instead = " or ".join(chosen.workload.fleet.regions)
    reason = f"{more} than {instead} ({describe(answer.found)}; {far})"
    return Rejection(option, models, "RS4003", reason, monthly_usd=answer.monthly_usd)
