"""Other choices that work: the cheapest verified proposal on each other accelerator alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rightslice.app.search import Found, search
from rightslice.app.state import Question, State
from rightslice.core.plan import Alternative

MAX_ALTERNATIVES = 8
MAX_FOR_MANY = 2
FEW_MODELS = 3
"""With more models each alternative takes seconds."""
MAX_ROUNDS = 12


def alternatives(
    question: Question, chosen: Found, hours: float, progress: Callable[[str], None]
) -> tuple[Alternative, ...]:
    """One per accelerator that could carry every model, cheapest first; the chosen mix itself is not repeated.

    Accelerators are tried in the order of their optimistic cost, at most MAX_ALTERNATIVES of them.
    """
    used = {question.options[key].accelerator for (_, key), n in chosen.proposal.packing.replicas.items() if n > 0}
    names = sorted({option.accelerator for option in question.options.values()} - (used if len(used) == 1 else set()))
    first = [(usd, name) for name in names if (usd := _optimistic_usd(question, chosen, name)) is not None]
    present = chosen.proposal.packing.usd_per_hour * hours
    found_all = []
    for _, name in sorted(first)[: MAX_ALTERNATIVES if len(question.needs) <= FEW_MODELS else MAX_FOR_MANY]:
        progress(f"alternative {name}")
        few = len(question.needs) <= FEW_MODELS
        found = search(_only(question, name), chosen.state.slowdown, lambda _: None, MAX_ROUNDS, prune=few)
        if found.verified:
            monthly = found.proposal.packing.usd_per_hour * hours
            text, more = describe(found), detail(question, found)
            found_all.append(Alternative(text, name, monthly, monthly - present, more, verified=True))
    return tuple(sorted(found_all, key=lambda a: (a.monthly_usd, a.accelerator)))


def _only(question: Question, accelerator: str) -> Question:
    options = {key: option for key, option in question.options.items() if option.accelerator == accelerator}
    return replace(question, options=options)


def _optimistic_usd(question: Question, chosen: Found, accelerator: str) -> float | None:
    """USD per hour of the first proposal on that accelerator alone; None when there is none."""
    narrowed = _only(question, accelerator)
    if {option.model for option in narrowed.options.values()} != {need.name for need in question.needs}:
        return None
    proposal = State.optimistic(narrowed, chosen.state.slowdown).proposal
    return proposal.packing.usd_per_hour if proposal.feasible else None


def describe(found: Found) -> str:
    """`2 x a2-ultragpu-1g + 1 x g2-standard-4`."""
    nodes = [
        f"{count} x {found.proposal.offer_of[pool].machine.machine_type}"
        for pool, count in sorted(found.proposal.packing.nodes.items())
        if count > 0
    ]
    return " + ".join(nodes)


def detail(question: Question, found: Found) -> str:
    """`llm 2 x H100-SXM-80GB; tts 1 x A100-SXM-80GB:MIG-2g.20gb`."""
    parts = []
    for (_, key), replicas in sorted(found.proposal.packing.replicas.items()):
        if replicas > 0:
            option = question.options[key]
            where = option.device.name if option.gpus == 1 else f"{option.gpus} {option.device.name}"
            parts.append(f"{option.model} {replicas} x {where}")
    return "; ".join(parts)
