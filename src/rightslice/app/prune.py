"""Take back what a search turned out not to need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rightslice.app.state import Question, State, moved
from rightslice.optimization.propose import Proposal, repack

MAX_TRIES = 400
"""Neighbours looked at in all."""
MOST_REPACKS, LEAST_REPACKS = 60, 4
"""Packings tried: the first number over the models, at least the second."""
NEXT_CHEAPER = 6
"""Options tried in place of one in use."""
TIE_USD_PER_HOUR = 1e-3
"""A packing that is cheaper by less than this is not cheaper."""


def pruned(state: State, proposal: Proposal, accepts: Callable[[Proposal], bool]) -> Iterator[Proposal]:
    """`proposal`, then ever cheaper ones without what turns out not to be needed.

    The tightening turns one knob at a time and can overshoot. A replica is taken away or moved to something cheaper,
    alone or with one replica more of another model, as long as the simulation (with the times of `state`) still keeps
    everything, the packing gets cheaper and is accepted.
    """
    question, best = state.question, proposal
    yield best
    prices = _prices(question)
    improved, tries, left = True, 0, max(LEAST_REPACKS, MOST_REPACKS // len(question.needs))
    while improved and tries < MAX_TRIES:
        improved = False
        for counts in _lighter(state, best.counts, prices):
            tries += 1
            if tries > MAX_TRIES or left == 0:
                break
            if not state.holds(counts):
                continue
            left -= 1
            with question.clock.running("pack_cpu_s"):
                packed = repack(question.needs, question.options, counts, question.market)
            cheaper = packed.packing.usd_per_hour < best.packing.usd_per_hour - TIE_USD_PER_HOUR
            if packed.feasible and cheaper and accepts(packed):
                best, improved = packed, True
                yield best
                break


def _prices(question: Question) -> dict[str, float]:
    """Option -> USD per hour of the share of the cheapest machine that one replica takes."""
    per_gpu = question.market.gpu_usd_per_hour
    return {
        key: per_gpu[o.accelerator] * o.gpus * o.device.memory_bytes / o.device.accelerator.visible_memory_bytes
        for key, o in question.options.items()
    }


def _lighter(state: State, counts: Mapping[str, int], prices: Mapping[str, float]) -> Iterator[dict[str, int]]:
    """Neighbours of `counts` that should cost less: one replica less or cheaper; then the same and one more."""
    spent = _usd_per_hour(counts, prices)
    single = list(_cheaper(state, counts, prices))
    yield from (less for _, less in single)
    options = state.question.options
    for load in state.question.loads:
        for model, less in single if load.populations else ():
            for key in sorted(counts) if model in load.models else ():
                more = {**less, key: less.get(key, 0) + 1}
                if options[key].model in load.models and _usd_per_hour(more, prices) < spent:
                    yield more


def _usd_per_hour(counts: Mapping[str, int], prices: Mapping[str, float]) -> float:
    return sum(prices[key] * count for key, count in counts.items())


def _cheaper(
    state: State, counts: Mapping[str, int], prices: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, int]]]:
    """Model and counts: one replica of it away, or on one of the next cheaper options that can carry anything."""
    for need in state.question.needs:
        own = [key for key in counts if state.question.options[key].model == need.name]
        total = sum(counts[key] for key in own)
        able = [o.key for o in state.question.options_of(need.name) if not need.has_load or state.can_carry(need, o)]
        for key in own:
            if total > need.min_replicas:
                yield need.name, moved(counts, key, None)
            below = sorted((k for k in able if prices[k] < prices[key]), key=lambda k: (-prices[k], k))
            for other in below[:NEXT_CHEAPER]:
                yield need.name, moved(counts, key, other)
