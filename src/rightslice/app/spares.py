"""What it costs that models outlive the loss of a replica and of a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rightslice.app.answer import Answer
from rightslice.core.quantities import format_usd
from rightslice.core.reasons import SparePrice
from rightslice.optimization.needs import Need
from rightslice.optimization.propose import propose

MOST_PRICED: Final = 6
"""Models with a spare that are priced one by one; each costs two packings."""
ALL: Final = "all"
LEAST_USD: Final = 0.5


def spare_prices(answer: Answer) -> tuple[SparePrice, ...]:
    """What the packing saves without the spares of all models, then without that of each; empty where none has one."""
    spared = [need for need in answer.question.needs if need.spare]
    if not spared:
        return ()
    full = _usd(answer, answer.question.needs)
    singly = [[need] for need in spared] if 1 < len(spared) <= MOST_PRICED else []
    return tuple(_price(answer, full, group) for group in (spared, *singly))


def _price(answer: Answer, full: float, group: Sequence[Need]) -> SparePrice:
    bare = _usd(answer, _changed(answer, [replace(need, spare=False, min_replicas=1) for need in group]))
    together = _usd(answer, _changed(answer, [replace(need, apart=False) for need in group]))
    name = group[0].name if len(group) == 1 else ALL
    return SparePrice(name, max(0.0, together - bare), max(0.0, full - together))


def _changed(answer: Answer, changed: Sequence[Need]) -> tuple[Need, ...]:
    by_name = {need.name: need for need in changed}
    return tuple(by_name.get(need.name, need) for need in answer.question.needs)


def _usd(answer: Answer, needs: Sequence[Need]) -> float:
    """USD a month of the packing at the rates that the search ended with."""
    state, question = answer.found.state, answer.question
    found = propose(needs, tuple(question.options.values()), state.rates, state.demands, question.market)
    return found.packing.usd_per_hour * answer.hours


def without_spare_usd(answer: Answer) -> float | None:
    """USD a month saved by running without any spare replica; None where there is none."""
    needs = answer.question.needs
    if not any(need.spare for need in needs):
        return None
    return answer.monthly_usd - _usd(answer, [replace(need, spare=False, min_replicas=1) for need in needs])


def spares_text(prices: Sequence[SparePrice]) -> str:
    """` (of it $3,700 for two nodes; chat alone $120)`; empty where there is nothing to add to the sum."""
    if not prices:
        return ""
    parts = [f"of it {format_usd(prices[0].node_usd)} for two nodes"] if prices[0].node_usd > LEAST_USD else []
    parts += [
        f"{price.model} alone {format_usd(price.replica_usd + price.node_usd)}"
        for price in prices[1:]
        if price.replica_usd + price.node_usd > LEAST_USD
    ]
    return f" ({'; '.join(parts)})" if parts else ""
