"""Propose, verify, tighten: the cheapest proposal whose simulation keeps every objective.

Rates start as optimistic ceilings and only fall, so the first proposal bounds the cost from below, and an option that
no proposal ever uses could not have won. See docs/adr/0002.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rightslice.app.rating import ceiling, fastest_s, simulated_rate
from rightslice.app.scenarios import Load, Slowdown, scenarios, servers
from rightslice.core.rates import Rate, RateTable
from rightslice.core.results import PipelineResult, SimulationResult
from rightslice.optimization.needs import Need, PipelineShare
from rightslice.optimization.options import Option
from rightslice.optimization.propose import Market, Proposal, propose
from rightslice.simulation.run import simulate
from rightslice.traffic.traces import Trace

MAX_ROUNDS = 40
STEP_DOWN = 0.95
"""A rate that has just been refuted falls at least to this share of itself."""
BUDGET_STEP = 0.7
"""Share of a stage's avoidable delay that a tightened budget leaves."""
AT_BEST = 1.02
"""A stage within 2 % of its fastest option cannot be tightened."""
TIE_USD_PER_HOUR = 1e-3
"""Added to what a tightening costs, so that among free ones the largest saving wins."""


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that does not change while searching."""

    needs: tuple[Need, ...]
    options: Mapping[str, Option]
    market: Market
    load: Load
    traces: Mapping[str, Trace]

    def options_of(self, model: str) -> tuple[Option, ...]:
        """The options of one model."""
        return tuple(option for option in self.options.values() if option.model == model)


@dataclass(frozen=True, slots=True)
class Found:
    """The end of one search. `results` is one simulation per population; empty when nothing could be proposed.

    `first` is the optimistic proposal, whose bound no plan of this kind undercuts.
    """

    proposal: Proposal
    first: Proposal
    state: State
    results: tuple[SimulationResult, ...]
    rounds: int
    verified: bool


def search(
    question: Question, slowdown: Slowdown, progress: Callable[[str], None], max_rounds: int = MAX_ROUNDS
) -> Found:
    """Run the loop with every option's times scaled by `slowdown`."""
    state = State.optimistic(question, slowdown)
    first = proposal = state.proposal()
    for number in range(1, max_rounds + 1):
        if not proposal.feasible:
            return Found(proposal, first, state, (), number, verified=False)
        results = run(question, proposal, slowdown)
        requests = sum(result.requests for result in results)
        progress(f"round {number}: {proposal.packing.usd_per_hour:,.2f} USD/h, {requests:,} requests simulated")
        tighter = None if _kept(results) else state.tightened(proposal, results)
        if tighter is None or number == max_rounds:
            return Found(proposal, first, state, results, number, verified=_kept(results))
        state, proposal = tighter, tighter.proposal()
    raise ValueError("max_rounds is at least 1")


def run(question: Question, proposal: Proposal, slowdown: Slowdown) -> tuple[SimulationResult, ...]:
    """Simulate a proposal under every population."""
    built = servers(proposal, question.options, slowdown)
    return tuple(simulate(scenario) for scenario in scenarios(question.load, built))


def _kept(results: Sequence[SimulationResult]) -> bool:
    return all(result.slos_met and result.failed == 0 for result in results)


@dataclass(frozen=True, slots=True)
class State:
    """Rates of options and latency budgets of pipeline stages (by pipeline and model). Both only fall."""

    question: Question
    slowdown: Slowdown
    fastest_s: Mapping[str, float]
    rates: RateTable
    budgets_s: Mapping[tuple[str, str], float]

    @classmethod
    def optimistic(cls, question: Question, slowdown: Slowdown) -> State:
        """Ceilings for every option, and for each stage all the time that the fastest other stages leave."""
        fastest = {
            need.name: min((fastest_s(need, o, slowdown(o)) for o in question.options_of(need.name)), default=0.0)
            for need in question.needs
        }
        budgets = {
            (share.pipeline.name, need.name): _loosest_s(share, need.name, fastest)
            for need in question.needs
            for share in need.shares
        }
        state = cls(question, slowdown, fastest, RateTable(), budgets)
        for need in question.needs:
            state.rates.update(state.ceilings(need))
        return state

    def ceilings(self, need: Need) -> dict[str, Rate]:
        """Optimistic rates of a model's options under its present budget, where lower than what is known."""
        budget = min((self.budgets_s[share.pipeline.name, need.name] for share in need.shares), default=None)
        lower = {}
        for option in self.question.options_of(need.name):
            new = ceiling(need, option, self.slowdown(option), budget)
            old = self.rates.rates.get(option.key)
            if old is None or new.requests_per_s < old.requests_per_s:
                lower[option.key] = new
        return lower

    def demands(self) -> dict[str, float]:
        """Requests/s per model: its own planned rate, and the heaviest population of its pipelines."""
        return {
            need.name: need.planned_rate_per_s
            + max((share.visits * self._closed_rate(share) for share in need.shares), default=0.0)
            for need in self.question.needs
        }

    def _closed_rate(self, share: PipelineShare) -> float:
        """users / (think time + the slowest response that still keeps the objective): Little's law."""
        spent = sum(self.budgets_s[share.pipeline.name, stage] for stage in share.pipeline.stages)
        response_s = max(min(_limit_s(share), spent), 1e-3)
        return share.users.concurrent / (share.users.think_time + response_s)

    def proposal(self) -> Proposal:
        """The cheapest packing under this state."""
        options = tuple(self.question.options.values())
        return propose(self.question.needs, options, self.rates, self.demands(), self.question.market)

    def tightened(self, proposal: Proposal, results: Sequence[SimulationResult]) -> State | None:
        """A state that rules the refuted proposal out; None when nothing is left to tighten."""
        rates = dict(self.rates.rates)
        for need in self.question.needs:
            if _missed(need, results):
                rates.update(self._refuted(need, proposal))
        state = replace(self, rates=RateTable(rates)) if rates != self.rates.rates else None
        for result in results:
            for pipeline in result.pipelines:
                if any(not outcome.met for outcome in pipeline.outcomes):
                    state = (state or self).with_cheapest_stage(pipeline, proposal) or state
        return state

    def _refuted(self, need: Need, proposal: Proposal) -> dict[str, Rate]:
        """Simulated rates of the options in use."""
        return {
            key: self._simulated(need, key, replicas, STEP_DOWN * self.rates[key].requests_per_s, None)
            for key, replicas in self._used(need, proposal)
        }

    def _used(self, need: Need, proposal: Proposal) -> list[tuple[str, int]]:
        counts: dict[str, int] = {}
        for (_, key), replicas in sorted(proposal.packing.replicas.items()):
            if replicas > 0 and self.question.options[key].model == need.name and self.rates[key].requests_per_s > 0:
                counts[key] = counts.get(key, 0) + replicas
        return list(counts.items())

    def _simulated(self, need: Need, key: str, replicas: int, at_most: float, budget_s: float | None) -> Rate:
        option = self.question.options[key]
        return simulated_rate(
            need,
            option,
            replicas,
            self.slowdown(option),
            self.question.traces,
            at_most_per_s=at_most,
            budget_s=budget_s,
        )

    def with_cheapest_stage(self, result: PipelineResult, proposal: Proposal) -> State | None:
        """Give one stage less time: the one whose tightening costs least per second saved."""
        best: tuple[float, State] | None = None
        for name, stage_s in _stage_means(result).items():
            fastest = self.fastest_s[name]
            current = min(stage_s, self.budgets_s[result.name, name])
            if current <= fastest * AT_BEST:
                continue
            budget = fastest + BUDGET_STEP * (current - fastest)
            trial = self._with_budget(result.name, name, budget, proposal)
            again = trial.proposal()
            if again.feasible:
                dearer = max(again.packing.usd_per_hour - proposal.packing.usd_per_hour, 0.0)
                score = (dearer + TIE_USD_PER_HOUR) / (stage_s - budget)
                best = min(best, (score, trial), key=lambda pair: pair[0]) if best else (score, trial)
        return best[1] if best else None

    def _with_budget(self, pipeline: str, model: str, budget_s: float, proposal: Proposal) -> State:
        budgets = {**self.budgets_s, (pipeline, model): budget_s}
        state = replace(self, budgets_s=budgets, rates=RateTable(dict(self.rates.rates)))
        need = next(n for n in self.question.needs if n.name == model)
        state.rates.update(state.ceilings(need))
        if need.samples:
            for key, replicas in state._used(need, proposal):  # noqa: SLF001 - the same class
                most = state.rates[key].requests_per_s
                state.rates.update({key: state._simulated(need, key, replicas, most, budget_s)})  # noqa: SLF001
        return state


def _missed(need: Need, results: Sequence[SimulationResult]) -> bool:
    return any(
        found.failed or any(not outcome.met for outcome in found.outcomes)
        for result in results
        for found in result.per_class
        if found.model == need.name
    )


def _loosest_s(share: PipelineShare, model: str, fastest: Mapping[str, float]) -> float:
    """The pipeline's limit less the fastest possible other stages, for one visit."""
    others = sum(fastest[stage] for stage in share.pipeline.stages if stage != model)
    return (_limit_s(share) - others) / share.visits


def _stage_means(result: PipelineResult) -> dict[str, float]:
    """Mean seconds per visit of each stage, by model."""
    means: dict[str, list[float]] = {}
    for stage in result.per_stage:
        if stage.e2e_ms is not None:
            means.setdefault(stage.model, []).append(stage.e2e_ms.mean / 1e3)
    return {name: sum(values) / len(values) for name, values in means.items()}


def _limit_s(share: PipelineShare) -> float:
    """The pipeline's tightest end-to-end limit; a minute where it has none."""
    return min((slo.at_most_s for slo in share.pipeline.slo if slo.metric == "e2e"), default=60.0)
