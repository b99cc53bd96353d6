"""Search several ways to narrow the fleet and take the cheapest that holds; the others are the alternatives.

The search goes step by step and can miss a cheaper mix. Looking at each accelerator alone as well finds many of those,
and a plan never tells of an alternative that costs less than itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist

from rightslice.app.answer import Answer, Asked, Rival
from rightslice.app.judge import at_quantile, holds, sigma
from rightslice.app.prune import pruned
from rightslice.app.search import Found, search
from rightslice.app.state import Question, State
from rightslice.core.plan import Alternative
from rightslice.optimization.propose import Proposal
from rightslice.procurement.refusals import ON_PREMISES

MAX_RIVALS = 8
MAX_RIVALS_OF_MANY = 2
FEW_MODELS = 3
"""With more models each search takes seconds."""
RIVAL_PROVIDERS = 2
"""Accelerators are looked at one by one at the most promising providers."""
JOINT_START = 0.6
"""Share of the joint quantile z / sqrt(k) to start from."""
RISK_STEPS = (0.0, 0.3, 0.7, 1.1, 1.6, 2.4)
"""Standard deviations added to the design quantile, in turn, until the draws keep the objectives often enough."""


@dataclass(frozen=True, slots=True)
class _Start:
    """One narrowing: `accelerator` is empty for all of them. `usd_per_hour`: its first, optimistic proposal."""

    question: Question
    accelerator: str
    usd_per_hour: float
    bound_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class _Tried:
    """What one start led to: answers that seem to hold, cheapest first, or a single one that does not."""

    start: _Start
    answers: tuple[Answer, ...]


def decide(asked: Asked, progress: Callable[[str], None]) -> Answer:
    """The cheapest answer that holds over all narrowings, with the dearer ones as alternatives.

    One model is not split over cloud providers unless the workload names regions of several.
    """
    fleets = sorted(_fleets(asked), key=lambda start: start.usd_per_hour)
    tried: list[_Tried] = []
    for start in fleets:
        if start.usd_per_hour < min((t.answers[0].usd_per_hour for t in tried if t.answers[0].holds), default=math.inf):
            tried.append(_Tried(start, _at_risk(asked, start.question, progress)))
    tried = tried or [_Tried(fleets[0], _at_risk(asked, fleets[0].question, progress))]
    for start in _rivals(asked, fleets[:RIVAL_PROVIDERS]):
        progress(f"alternative {start.accelerator}")
        tried.append(_Tried(start, _at_risk(asked, start.question, lambda _: None)))
    progress("draws of prediction error")
    bound = min(start.bound_usd_per_hour for start in fleets)
    accepted = sorted(
        ((t.start, a) for t in tried for a in t.answers if a.holds), key=lambda pair: pair[1].usd_per_hour
    )
    for start, answer in accepted:
        if holds(answer.question, answer.found.proposal, asked.seed, asked.risk):
            pairs = _alternatives(start, answer, tried)
            rivals = tuple(Rival(alternative.accelerator, other) for alternative, other in pairs)
            alternatives = tuple(alternative for alternative, _ in pairs)
            return replace(answer, alternatives=alternatives, bound_usd_per_hour=bound, rivals=rivals)
    answers = [replace(t.answers[-1], holds=False, bound_usd_per_hour=bound) for t in tried]
    return next((answer for answer in answers if answer.found.verified), answers[0])


def least_usd_per_hour(asked: Asked) -> float:
    """No answer costs less; infinite where nothing can be proposed."""
    return min(start.bound_usd_per_hour for start in _fleets(asked))


def _fleets(asked: Asked) -> Iterator[_Start]:
    """The whole market, or one part per cloud provider, with what is on premises beside it and without.

    What is free on premises can lead the search to options that fit it and little else.
    """
    question = asked.question
    providers = {offer.machine.provider for offer in question.market.offers}
    clouds = sorted(providers - {ON_PREMISES})
    together = bool(asked.workload.fleet.regions) or len(clouds) < 2
    groups = [frozenset(clouds)] if together else [frozenset({cloud}) for cloud in clouds]
    own = providers & {ON_PREMISES}
    for group in [*(group | own for group in groups), *(groups if own and clouds else ())]:
        kept = tuple(o for o in question.market.offers if o.machine.provider in group)
        sold = {offer.machine.accelerator for offer in kept}
        options = {key: option for key, option in question.options.items() if option.accelerator in sold}
        narrowed = replace(question, options=options, market=replace(question.market, offers=kept))
        yield _start(asked, narrowed, "")


def _start(asked: Asked, question: Question, accelerator: str) -> _Start:
    proposal = State.optimistic(question, at_quantile(start_quantile(asked))).proposal
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


def start_quantile(asked: Asked) -> float:
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


def _at_risk(asked: Asked, question: Question, progress: Callable[[str], None]) -> tuple[Answer, ...]:
    """Search with times at a quantile of their error; raise it until the draws keep the risk or nothing is left.

    What is found then is pruned, as far as the draws still keep it.
    """
    z = start_quantile(asked)
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
        if holds(question, found.proposal, asked.seed, asked.risk, quick=True):
            progress("taking back what is not needed")
            return _pruned(answer, State.optimistic(question, at_quantile(z)))
    return (verified or answer,)


def _pruned(answer: Answer, state: State) -> tuple[Answer, ...]:
    """The answer and the same with ever less of what is not needed; cheapest first."""
    asked, found = answer.asked, answer.found

    def accepts(proposal: Proposal) -> bool:
        return holds(answer.question, proposal, asked.seed, asked.risk, quick=True)

    proposals = list(pruned(state, found.proposal, accepts))
    return tuple(replace(answer, found=replace(found, proposal=p), holds=True) for p in reversed(proposals))


def _alternatives(chosen: _Start, answer: Answer, tried: list[_Tried]) -> list[tuple[Alternative, Answer]]:
    """Everything else that holds on one accelerator alone and is another choice, cheapest first."""
    counts, found = answer.found.proposal.counts, []
    for start, other in ((t.start, t.answers[0]) for t in tried if t.start is not chosen and t.start.accelerator):
        more = other.monthly_usd - answer.monthly_usd
        if other.holds and other.found.proposal.counts != counts and more >= 0:
            text, shape = describe(other.found), detail(other.question, other.found)
            told = Alternative(text, start.accelerator, other.monthly_usd, more, shape, verified=True)
            found.append((told, other))
    return sorted(found, key=lambda pair: (pair[0].monthly_usd, pair[0].accelerator))


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
