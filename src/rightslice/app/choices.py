"""Several sources for one model: each combination is planned as its own workload; the cheapest that holds wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from rightslice.app.answer import Answer
from rightslice.app.decide import describe
from rightslice.app.explain import what_binds, works_too
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Rejection
from rightslice.spec.workload import Workload

MOST_CHOICES = 8
"""Combinations; each is planned in full."""


def choices(workload: Workload) -> tuple[Workload, ...]:
    """The workload with one source for each model, in every combination; as written where no model has several.

    Raises BadInputError RS0502 for more than MOST_CHOICES combinations.
    """
    count = math.prod(max(1, len(model.source)) for model in workload.models)
    if count > MOST_CHOICES:
        message = f"the sources of all models make {count} combinations"
        raise BadInputError(Diagnostic("RS0502", message, hint=f"at most {MOST_CHOICES}: name fewer sources"))
    variants = [
        [model.model_copy(update={"source": (source,)}) for source in model.source] or [model]
        for model in workload.models
    ]
    return tuple(workload.model_copy(update={"models": models}) for models in product(*variants))


def cheapest(answers: Sequence[Answer]) -> Answer:
    """The cheapest that holds, or the first; what became of the others is among its rejections."""
    chosen = min((a for a in answers if a.holds), key=lambda a: a.monthly_usd, default=answers[0])
    others = tuple(_rejection(answer, chosen) for answer in answers if answer is not chosen)
    return replace(chosen, asked=replace(chosen.asked, rejections=(*others, *chosen.asked.rejections)))


def _rejection(answer: Answer, chosen: Answer) -> Rejection:
    """`chat as nvidia/Llama-3.1-70B-Instruct-FP8`: how much dearer it is, or what stands in its way."""
    pairs = zip(answer.workload.models, chosen.workload.models, strict=True)
    changed = [(mine, theirs) for mine, theirs in pairs if mine.source != theirs.source]
    option = ", ".join(f"{mine.name} as {mine.source[0]}" for mine, _ in changed)
    models = ", ".join(mine.name for mine, _ in changed)
    if not answer.holds:
        return Rejection(option, models, "RS4001", what_binds(answer))
    instead = ", ".join(theirs.source[0] for _, theirs in changed)
    more = works_too(answer.monthly_usd - chosen.monthly_usd)
    reason = f"{more} than {instead} ({describe(answer.found)})"
    return Rejection(option, models, "RS4003", reason, monthly_usd=answer.monthly_usd)
