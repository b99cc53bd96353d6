"""Propose, verify, tighten: the cheapest proposal whose simulation keeps every objective.

Rates start as optimistic ceilings and only fall, so the first proposal bounds the cost from below, and an option that
no proposal ever uses could not have won. See docs/adr/0002.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rightslice.app.scenarios import Slowdown
from rightslice.app.state import Question, State
from rightslice.core.results import SimulationResult
from rightslice.optimization.propose import Proposal

MAX_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Found:
    """The end of one search: the proposal, the state it came from, the first state (whose bound no plan undercuts)."""

    proposal: Proposal
    state: State
    first: State
    rounds: int

    @property
    def verified(self) -> bool:
        """Whether the simulation keeps every objective."""
        return self.proposal.feasible and self.state.holds(self.proposal.counts)

    @property
    def results(self) -> tuple[SimulationResult, ...]:
        """The simulation of the proposal, times at the quantile that was searched."""
        return self.state.simulated(self.proposal.counts) if self.proposal.feasible else ()


def search(
    question: Question,
    slowdown: Slowdown,
    progress: Callable[[str], None],
    max_rounds: int = MAX_ROUNDS,
    known: State | None = None,
) -> Found:
    """Run the loop with every option's times scaled by `slowdown`; `known`: a state of a search with smaller times."""
    first = State.optimistic(question, slowdown)
    state = first.informed_by(known) if known else first
    rounds = 0
    while state.proposal.feasible and rounds < max_rounds:
        rounds += 1
        requests = sum(result.requests for result in state.results)
        progress(f"round {rounds}: {state.usd_per_hour:,.2f} USD/h, {requests:,} requests simulated")
        if state.verified:
            break
        tighter = state.tightened()
        if tighter is None:
            break
        state = tighter
    return Found(state.proposal, state, first, rounds)
