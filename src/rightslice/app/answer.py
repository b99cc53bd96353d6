"""What is asked and what a search answers: the values that decide, choices, explain and ways_out pass on."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.app.search import Found
from rightslice.app.state import Question
from rightslice.core.plan import Alternative, Rejection
from rightslice.optimization.evidence import Evidence
from rightslice.procurement.money import hours_per_month
from rightslice.procurement.offers import Offer
from rightslice.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be answered: the workload over the whole market with these engines, and the accepted risk.

    `written`: the workload without the groups on shared GPUs that were added to it, where some were.
    """

    workload: Workload
    question: Question
    rejections: tuple[Rejection, ...]
    seed: int
    risk: float
    engines: tuple[str, ...]
    written: Workload | None = None


@dataclass(frozen=True, slots=True)
class Rival:
    """Another choice that holds, and how it is told."""

    label: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished search, over `question`, which may be narrower than what was asked.

    `evidence` is None when no verified proposal was found; `holds`: the draws keep the accepted risk;
    `bound_usd_per_hour`: no plan for the workload costs less; `rivals`: dearer choices that hold, with their searches.
    """

    asked: Asked
    question: Question
    found: Found
    evidence: Evidence | None = None
    alternatives: tuple[Alternative, ...] = ()
    holds: bool = False
    bound_usd_per_hour: float = 0.0
    rivals: tuple[Rival, ...] = ()

    @classmethod
    def of(cls, asked: Asked, found: Found) -> Answer:
        """The answer of a search."""
        return cls(asked, found.state.question, found)

    @property
    def workload(self) -> Workload:
        """The workload asked about."""
        return self.asked.workload

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Refusals of the market and of memory."""
        return self.asked.rejections

    @property
    def seed(self) -> int:
        """Seed of the traffic and the draws."""
        return self.asked.seed

    @property
    def risk(self) -> float:
        """Accepted probability that an objective fails."""
        return self.asked.risk

    @property
    def used(self) -> list[Offer]:
        """What the proposal buys."""
        proposal = self.found.proposal
        return [proposal.offer_of[pool] for pool, nodes in sorted(proposal.packing.nodes.items()) if nodes > 0]

    @property
    def hours(self) -> float:
        """Hours a month that the fleet runs."""
        return hours_per_month(self.workload.hours)

    @property
    def usd_per_hour(self) -> float:
        """Cost of the proposal while the fleet runs."""
        return self.found.proposal.packing.usd_per_hour

    @property
    def monthly_usd(self) -> float:
        """Cost of the proposal over a month."""
        return self.usd_per_hour * self.hours
