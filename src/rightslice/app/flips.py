"""What would have to be otherwise for a rival to win: traffic, lengths, prices, or how fast one of them really is.

Costs are those of the packing at the rates that the searches ended with (on shared GPUs beside busy neighbours), scaled
to what was verified; nothing is simulated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from rightslice.app.answer import Answer, Rival
from rightslice.app.rating import ceiling
from rightslice.core.rates import RateTable
from rightslice.core.reasons import Flip
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.optimization.propose import propose

MOST_RIVALS = 3
STEPS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Factors that are tried in both directions."""
HALVINGS = 5
Inputs = Mapping[str, float]
"""`traffic`, `output length`, `efficiency` -> factor on it."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One choice that stays on its accelerators whatever changes. `scale`: what was verified over what is proposed."""

    answer: Answer
    options: tuple[Option, ...]
    scale: float = 1.0

    def usd(self, inputs: Inputs) -> float:
        """USD a month with these inputs; infinite where nothing carries the load."""
        state, question = self.answer.found.state, self.answer.question
        needs = {need.name: need for need in question.needs}
        length, efficiency = inputs.get("output length", 1.0), inputs.get("efficiency", 1.0)
        rates = RateTable()
        for option in self.options:
            rate = state.rates[option.key]
            factor = efficiency * _longer(needs[option.model], option, length) / option.crowding
            rates.update({option.key: replace(rate, requests_per_s=rate.requests_per_s * factor)})
        demands = {name: demand * inputs.get("traffic", 1.0) for name, demand in state.demands.items()}
        found = propose(question.needs, self.options, rates, demands, question.market)
        return found.packing.usd_per_hour * self.answer.hours * self.scale if found.feasible else math.inf


def _longer(need: Need, option: Option, factor: float) -> float:
    """Share of its rate that is left when outputs are longer by this factor."""
    if factor == 1.0 or not need.has_load or need.architecture is None:
        return 1.0
    before = ceiling(need, option, 1.0, None).requests_per_s
    after = ceiling(replace(need, output_tokens=need.output_tokens * factor), option, 1.0, None).requests_per_s
    return after / before if before > 0 else 1.0


def _side(answer: Answer) -> _Side:
    used = {offer.machine.accelerator for offer in answer.used}
    side = _Side(answer, tuple(o for o in answer.question.options.values() if o.accelerator in used))
    proposed = side.usd({})
    known = math.isfinite(proposed) and proposed > 0
    return replace(side, scale=answer.monthly_usd / proposed) if known else side


def flips(answer: Answer) -> tuple[Flip, ...]:
    """For each of the cheapest rivals the input whose smallest change makes it as cheap as the plan."""
    close = sorted(answer.rivals, key=lambda rival: (rival.answer.monthly_usd, rival.label))[:MOST_RIVALS]
    mine = _side(answer) if close else None
    return tuple(_flip(mine, rival) for rival in close if mine)


def _flip(mine: _Side, rival: Rival) -> Flip:
    theirs = _side(rival.answer)
    found = [*_by_price(mine.answer, rival), *_by_inputs(mine, theirs, rival.label)]
    return min(found, key=lambda flip: abs(math.log(flip.factor or 1.0)), default=_none(rival))


def _none(rival: Rival) -> Flip:
    most = STEPS[-1]
    text = f"no change of traffic, output length, price or speed by up to {most:g} times alone makes it win"
    return Flip(rival.label, "", None, text)


def _by_price(mine: Answer, rival: Rival) -> Iterator[Flip]:
    """The price of one accelerator, all else as planned."""
    here, there = _costs(mine), _costs(rival.answer)
    for name in sorted({*here, *there}):
        slope = here.get(name, 0.0) - there.get(name, 0.0)
        rest = (sum(there.values()) - there.get(name, 0.0)) - (sum(here.values()) - here.get(name, 0.0))
        factor = rest / slope if abs(slope) > 1e-9 else 0.0
        if 1.0 / STEPS[-1] <= factor <= STEPS[-1]:
            yield Flip(
                rival.label, f"price of {name}", factor, f"wins with {name} {_change(factor, 'dearer', 'cheaper')}"
            )


def _costs(answer: Answer) -> dict[str, float]:
    """Accelerator -> USD a month."""
    found: dict[str, float] = {}
    proposal = answer.found.proposal
    for pool, nodes in proposal.packing.nodes.items():
        offer = proposal.offer_of[pool]
        name = offer.machine.accelerator
        found[name] = found.get(name, 0.0) + offer.usd_per_hour * nodes * answer.hours
    return found


def _by_inputs(mine: _Side, theirs: _Side, label: str) -> Iterator[Flip]:
    def both(name: str) -> Callable[[float], bool]:
        return lambda factor: theirs.usd({name: factor}) <= mine.usd({name: factor}) < math.inf

    for name, verb, much in (("traffic", "traffic", "more"), ("output length", "outputs", "longer")):
        for ups in (True, False):
            factor = _first(both(name), ups=ups)
            if factor:
                yield Flip(label, name, factor, f"wins with {verb} {_change(factor, much)}")
    here, there = mine.usd({}), theirs.usd({})
    faster = _first(lambda factor: theirs.usd({"efficiency": factor}) <= here, ups=True)
    if faster:
        yield Flip(label, "its efficiency", faster, f"wins if it carries {_change(faster, 'more')} than predicted")
    slower = _first(lambda factor: mine.usd({"efficiency": factor}) >= there, ups=False)
    if slower:
        yield Flip(
            label, "the plan's efficiency", slower, f"wins if the plan carries {_change(slower, 'more')} than predicted"
        )


def _first(turned: Callable[[float], bool], *, ups: bool) -> float | None:
    """The factor nearest to 1 on one side at which the order is turned; None where none of STEPS does."""
    last = 1.0
    for step in STEPS:
        factor = step if ups else 1.0 / step
        if turned(factor):
            for _ in range(HALVINGS):
                middle = math.sqrt(last * factor)
                last, factor = (last, middle) if turned(middle) else (middle, factor)
            return factor
        last = factor
    return None


def _change(factor: float, more: str, less: str = "") -> str:
    """`25 % more`, `20 % less`."""
    words = less or {"more": "less", "longer": "shorter"}[more]
    return f"{abs(factor - 1.0):.0%} {more if factor > 1.0 else words}".replace("%", " %")
