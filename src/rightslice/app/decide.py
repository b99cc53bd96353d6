"""Search several ways to narrow the fleet and take the cheapest that holds; the others are the alternatives.

The search goes step by step and can miss a cheaper mix. Looking at each accelerator alone as well finds many of those,
and a plan never tells of an alternative that costs less than itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist

from rightslice.app.explain import Answer, Asked
from rightslice.app.judge import at_quantile, holds, sigma
from rightslice.app.prune import pruned
from rightslice.app.search import Found, search
from rightslice.app.state import Question, State
from rightslice.core.plan import Alternative
from rightslice.procurement.refusals import ON_PREMISES

MAX_RIVALS = 8
MAX_RIVALS_OF_MANY = 2
FEW_MODELS = 3
"""With more models each search takes seconds."""
RIVAL_PROVIDERS = 2
"""Accelerators are looked at one by one at the most promising providers."""
JOINT_START = 0.6
"""Share of the joint quantile z / sqrt(k) to start from."""
RISK_STEPS = (0.0, 0.2, 0.4, 0.6, 0.9, 1.2, 1.6)
"""Standard deviations added to the design quantile, in turn, until the draws keep the objectives often enough."""


@dataclass(frozen=True, slots=True)
class _Start:
    """One narrowing: `accelerator` is empty for all of them. `usd_per_hour`: its first, optimistic proposal."""

    question: Question
    accelerator: str
    usd_per_hour: float
    bound_usd_per_hour: float


def decide(asked: Asked, progress: Callable[[str], None], *, rivals: bool = True) -> Answer:
    """The cheapest answer that holds over all narrowings, with the dearer ones as alternatives.

    One model is not split over cloud providers unless the workload names regions of several. Without `rivals` only
    whole fleets are searched: what is found then is no cheaper than the full answer.
    """
    fleets = sorted(_fleets(asked), key=lambda start: start.usd_per_hour)
    tried: list[tuple[_Start, Answer]] = []
    for start in fleets:
        if not tried or start.usd_per_hour < _best_usd(tried):
            tried.append((start, _at_risk(asked, start.question, progress)))
    if rivals:
        for start in _rivals(asked, fleets[:RIVAL_PROVIDERS]):
            progress(f"alternative {start.accelerator}")
            tried.append((start, _at_risk(asked, start.question, lambda _: None)))
    accepted = [(start, answer) for start, answer in tried if answer.holds]
    if not accepted:
        return next((answer for _, answer in tried if answer.found.verified), tried[0][1])
    chosen = min(accepted, key=lambda pair: _usd(pair[1]))
    bound = min(start.bound_usd_per_hour for start in fleets)
    return replace(chosen[1], alternatives=_alternatives(chosen, accepted), bound_usd_per_hour=bound)


def _usd(answer: Answer) -> float:
    return answer.found.proposal.packing.usd_per_hour


def _best_usd(tried: list[tuple[_Start, Answer]]) -> float:
    return min((_usd(answer) for _, answer in tried if answer.holds), default=math.inf)


def _fleets(asked: Asked) -> Iterator[_Start]:
    """The whole market, or one part per cloud provider with what is on premises beside it."""
    question = asked.question
    clouds = sorted({offer.machine.provider for offer in question.market.offers} - {ON_PREMISES})
    together = bool(asked.workload.fleet.regions) or len(clouds) < 2
    for group in [frozenset(clouds)] if together else [frozenset({cloud}) for cloud in clouds]:
        kept = tuple(o for o in question.market.offers if o.machine.provider in group | {ON_PREMISES})
        sold = {offer.machine.accelerator for offer in kept}
        options = {key: option for key, option in question.options.items() if option.accelerator in sold}
        narrowed = replace(question, options=options, market=replace(question.market, offers=kept))
        yield _start(asked, narrowed, "")


def _start(asked: Asked, question: Question, accelerator: str) -> _Start:
    proposal = State.optimistic(question, at_quantile(_quantile(asked))).proposal
    if not proposal.feasible:
        return _Start(question, accelerator, math.inf, math.inf)
    return _Start(question, accelerator, proposal.packing.usd_per_hour, proposal.packing.bound_usd_per_hour)


def _rivals(asked: Asked, fleets: list[_Start]) -> list[_Start]:
    """Each accelerator alone, where it can carry every model; the cheapest provider of each, most promising first."""
    models = {need.name for need in asked.question.needs}
    best: dict[str, _Start] = {}
    for fleet in fleets:
        able = {option.accelerator for option in fleet.question.options.values()}
        for name in sorted(able) if len(able) > 1 else ():
            options = {key: o for key, o in fleet.question.options.items() if o.accelerator == name}
            if {option.model for option in options.values()} == models:
                start = _start(asked, replace(fleet.question, options=options), name)
                if start.usd_per_hour < best.get(name, start).usd_per_hour or name not in best:
                    best[name] = start
    most = MAX_RIVALS if len(models) <= FEW_MODELS else MAX_RIVALS_OF_MANY
    able_starts = [start for start in best.values() if math.isfinite(start.usd_per_hour)]
    return sorted(able_starts, key=lambda start: (start.usd_per_hour, start.accelerator))[:most]


def _quantile(asked: Asked) -> float:
    """Standard deviations of error to start from.

    Groups of models that no pipeline ties together must each hold: the quantile is that of (1 - risk) to the power of
    one over their number. Within a group of k models, whose errors are independent, it starts lower: the chance that
    all are late at once is small.
    """
    question = asked.question
    uncertain = {option.model for option in question.options.values() if sigma(option) > 0}
    tied = max((len(load.models & uncertain) for load in question.loads), default=0)
    share = (1.0 - asked.risk) ** (1.0 / max(1, len(question.loads)))
    return NormalDist().inv_cdf(share) * (1.0 if tied < 2 else JOINT_START / math.sqrt(tied))


def _at_risk(asked: Asked, question: Question, progress: Callable[[str], None]) -> Answer:
    """Search with times at a quantile of their error; raise it until the draws keep the risk or nothing is left.

    What is found then is pruned, as far as the draws still keep it.
    """
    z = _quantile(asked)
    uncertain = any(sigma(option) > 0 for option in question.options.values())
    verified: Answer | None = None
    known = None
    for extra in RISK_STEPS if uncertain else RISK_STEPS[:1]:
        found = search(question, at_quantile(z + extra), progress, known=known)
        if known and not found.verified:
            found = search(question, at_quantile(z + extra), progress)
        known = found.state
        answer = Answer.of(asked, found)
        if not found.verified:
            break
        verified = answer
        progress("draws of prediction error")
        if holds(question, found.proposal, asked.seed, asked.risk):
            return _pruned(answer, progress)
    return verified or answer


def _pruned(answer: Answer, progress: Callable[[str], None]) -> Answer:
    """The cheapest of the ever cheaper proposals that the draws keep; the first of them is known to."""
    asked, found = answer.asked, answer.found
    progress("taking back what is not needed")
    first, *cheaper = pruned(found.state)
    progress("draws of prediction error")
    kept = (p for p in reversed(cheaper) if holds(answer.question, p, asked.seed, asked.risk))
    return replace(answer, found=replace(found, proposal=next(kept, first)), holds=True)


def _alternatives(chosen: tuple[_Start, Answer], accepted: list[tuple[_Start, Answer]]) -> tuple[Alternative, ...]:
    """Everything else that holds on one accelerator alone and is another choice, cheapest first."""
    hours, present = chosen[1].hours, _usd(chosen[1])
    found = []
    for start, answer in accepted:
        same = answer.found.proposal.counts == chosen[1].found.proposal.counts
        if start is chosen[0] or same or not start.accelerator:
            continue
        monthly = _usd(answer) * hours
        text, more = describe(answer.found), detail(answer.question, answer.found)
        found.append(Alternative(text, start.accelerator, monthly, monthly - present * hours, more, verified=True))
    return tuple(sorted(found, key=lambda a: (a.monthly_usd, a.accelerator)))


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
    for key, replicas in sorted(found.proposal.counts.items()):
        option = question.options[key]
        where = option.device.name if option.gpus == 1 else f"{option.gpus} {option.device.name}"
        parts.append(f"{option.model} {replicas} x {where}")
    return "; ".join(parts)
