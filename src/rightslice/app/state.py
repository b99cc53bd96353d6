"""One state of the search: what is believed about rates, the proposal it leads to, what the simulation says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from rightslice.app.clock import Clock
from rightslice.app.rating import ceiling, fastest_s, simulated_rate
from rightslice.app.sampling import of_the_whole, sampled
from rightslice.app.scenarios import Load, Slowdown, scenarios, servers, share_groups
from rightslice.core.rates import Rate, RateTable
from rightslice.core.results import PATIENCE_S, SimulationResult, percentile
from rightslice.optimization.needs import Need, PipelineShare
from rightslice.optimization.options import Option
from rightslice.optimization.propose import Market, Proposal, propose
from rightslice.simulation.run import simulate
from rightslice.traffic.traces import Trace

STEP_DOWN = 0.95
"""A rate that has just been refuted falls at least to this share of itself."""
JUST_BELOW = 1.0 - 1e-6
"""Turns a knob just past the point where the present packing no longer satisfies it."""
FAR_BELOW, BELOW_TOGETHER = 0.7, 0.8
"""The same, further: small steps alone creep up on a stage that lacks a third of its capacity."""
LEAST_STEP_GPUS = 0.4
LEAST_LOAD = 1e-3
AT_BEST = 1.02
"""A stage within 2 % of its fastest option cannot be tightened."""
LEAST_SAVED_S = 1e-3
"""Less delay saved than this counts as none."""


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that does not change while searching; `draws` keeps simulations with drawn errors."""

    needs: tuple[Need, ...]
    options: Mapping[str, Option]
    market: Market
    loads: tuple[Load, ...]
    traces: Mapping[str, Trace]
    clock: Clock
    draws: dict[tuple[object, ...], tuple[SimulationResult, ...]]

    @property
    def has_traffic(self) -> bool:
        """Whether there is anything to simulate."""
        return any(load.classes or load.populations for load in self.loads)

    def options_of(self, model: str) -> tuple[Option, ...]:
        """The options of one model."""
        return tuple(option for option in self.options.values() if option.model == model)


Simulated = dict[tuple[object, ...], tuple[SimulationResult, ...]]


def run(
    question: Question, counts: Mapping[str, int], slowdown: Slowdown, memo: Simulated, kind: tuple[object, ...]
) -> tuple[SimulationResult, ...]:
    """Simulate replica counts by option: each group of models under every population of its own.

    `memo` keeps what was simulated under `kind` (which must name the slowdown), so that a change of one group's
    replicas does not simulate the others again.
    """
    found: list[SimulationResult] = []
    for load in question.loads:
        part = {key: count for key, count in counts.items() if question.options[key].model in load.models}
        key = (*kind, frozenset(part.items()))
        if key not in memo:
            memo[key] = _run_part(question, load, part, slowdown)
        found += memo[key]
    return tuple(found)


def _run_part(
    question: Question, load: Load, counts: Mapping[str, int], slowdown: Slowdown
) -> tuple[SimulationResult, ...]:
    with question.clock.running("simulate_cpu_s"):
        part = sampled(load, counts, question.options)
        built = servers(part.counts, question.options, slowdown)
        if not built:
            return ()
        sharing = share_groups(part.counts, question.options)
        return tuple(of_the_whole(simulate(scenario), part.share) for scenario in scenarios(part.load, built, sharing))


@dataclass(frozen=True)
class State:
    """What is believed about rates: ceilings, lowered by three kinds of knobs that the results turn.

    `budgets_s`: (pipeline, model) -> seconds per visit; options that are slower when idle are out. `loads`: model ->
    share of the ceiling that its pipeline stages may be loaded to. `refuted`: option -> simulated rate of its model's
    own classes. `known_ceilings` and `simulations` are shared by all states of one search.
    """

    question: Question
    slowdown: Slowdown
    fastest_s: Mapping[str, float]
    budgets_s: Mapping[tuple[str, str], float]
    loads: Mapping[str, float]
    refuted: Mapping[str, Rate]
    known_ceilings: dict[tuple[str, float | None], Rate]
    simulations: Simulated

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
        loads = {need.name: 1.0 for need in question.needs if need.shares}
        return cls(question, slowdown, fastest, budgets, loads, {}, {}, {})

    def informed_by(self, known: State) -> State:
        """What was refuted with smaller times is refuted with larger ones."""
        budgets = {key: min(budget, known.budgets_s[key]) for key, budget in self.budgets_s.items()}
        return replace(self, budgets_s=budgets, loads=known.loads, refuted=known.refuted)

    @cached_property
    def rates(self) -> RateTable:
        """Option -> requests/s of one replica."""
        table = {}
        for need in self.question.needs:
            budgets = [self.budgets_s[share.pipeline.name, need.name] for share in need.shares]
            for option in self.question.options_of(need.name):
                most = self._ceiling(need, option, min(budgets, default=None))
                most = replace(most, requests_per_s=most.requests_per_s * self.loads.get(need.name, 1.0))
                known = self.refuted.get(option.key, most)
                table[option.key] = min(most, known, key=lambda rate: rate.requests_per_s)
        return RateTable(table)

    def _ceiling(self, need: Need, option: Option, budget_s: float | None) -> Rate:
        key = (option.key, budget_s)
        if key not in self.known_ceilings:
            self.known_ceilings[key] = ceiling(need, option, self.slowdown(option), budget_s)
        return self.known_ceilings[key]

    @cached_property
    def demands(self) -> Mapping[str, float]:
        """Requests/s per model: its own planned rate, and the heaviest population of its pipelines."""
        return {
            need.name: need.planned_rate_per_s
            + max((share.visits * _closed_rate(share) for share in need.shares), default=0.0)
            for need in self.question.needs
        }

    @cached_property
    def proposal(self) -> Proposal:
        """The cheapest packing under this state."""
        options = tuple(self.question.options.values())
        with self.question.clock.running("pack_cpu_s"):
            return propose(self.question.needs, options, self.rates, self.demands, self.question.market)

    @property
    def results(self) -> tuple[SimulationResult, ...]:
        """The simulation of the proposal."""
        return self.simulated(self.proposal.counts)

    def simulated(self, counts: Mapping[str, int]) -> tuple[SimulationResult, ...]:
        """Simulate replica counts by option, times scaled by `slowdown`; equal counts are simulated once."""
        return run(self.question, counts, self.slowdown, self.simulations, ("scaled",))

    def expected(self, counts: Mapping[str, int]) -> tuple[SimulationResult, ...]:
        """The same at expected times."""
        return run(self.question, counts, _as_expected, self.simulations, ("expected",))

    def holds(self, counts: Mapping[str, int]) -> bool:
        """Whether these replicas keep everything; at expected times also with a model's largest replica lost."""
        return kept(self.simulated(counts)) and all(kept(self.expected(less)) for less in self.losses(counts))

    def losses(self, counts: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """`counts` less the largest replica of each model that is to have a spare."""
        for need in self.question.needs:
            own = [key for key in counts if self.question.options[key].model == need.name]
            if need.spare and need.has_load and own:
                yield moved(counts, max(own, key=lambda k: (self.rates[k].requests_per_s, k)), None)

    def can_carry(self, need: Need, option: Option) -> bool:
        """Whether an idle replica keeps every objective of the model's own classes."""
        return self._ceiling(need, option, None).requests_per_s > 0

    @property
    def verified(self) -> bool:
        """Whether the proposal keeps every objective and loses no request."""
        return self.proposal.feasible and self.holds(self.proposal.counts)

    @property
    def usd_per_hour(self) -> float:
        """Cost of the proposal."""
        return self.proposal.packing.usd_per_hour

    def tightened(self) -> State | None:
        """A state that rules this proposal out; None when nothing is left to tighten."""
        seen = list(self._seen())
        lower = {}
        for need in self.question.needs:
            if any(_missed(need, results) for results in seen):
                lower.update(self._refuted(need))
        if lower:
            return replace(self, refuted={**self.refuted, **lower})
        return self._best_turn() if self.late_s > 0 else None

    def _seen(self) -> Iterator[tuple[SimulationResult, ...]]:
        """The simulation of the proposal, and of what is left of it when a spare replica has to step in."""
        yield self.results
        yield from (self.expected(less) for less in self.losses(self.proposal.counts))

    @cached_property
    def late_s(self) -> float:
        """Seconds by which pipelines miss their objectives, also with a model's largest replica lost."""
        return sum(_late_s(results) for results in self._seen())

    def _refuted(self, need: Need) -> dict[str, Rate]:
        """Simulated rates of the options in use, all below what they were taken for."""
        return {
            key: simulated_rate(
                need,
                self.question.options[key],
                replicas,
                self.slowdown(self.question.options[key]),
                self.question.traces,
                at_most_per_s=STEP_DOWN * self.rates[key].requests_per_s,
            )
            for key, replicas in self._used(need).items()
        }

    def _best_turn(self) -> State | None:
        """The turn that saves most delay for its money; the cheapest where none saves any."""
        late_s, usd_per_hour, least_usd = self.late_s, self.usd_per_hour, self._least_step_usd()
        trials: dict[frozenset[tuple[str, int]], State] = {}
        for trial in (*self._faster(), *self._grown()):
            trials.setdefault(frozenset(trial.proposal.counts.items()), trial)
        saved = {key: late_s - trial.late_s for key, trial in trials.items()}
        saving = [key for key in trials if saved[key] >= LEAST_SAVED_S]
        if saving:
            dearer = {key: max(trials[key].usd_per_hour - usd_per_hour, least_usd) for key in saving}
            return trials[max(saving, key=lambda key: saved[key] / dearer[key])]
        return min(trials.values(), key=lambda trial: trial.usd_per_hour, default=None)

    def _least_step_usd(self) -> float:
        """What a turn is taken to cost at least, so that a tiny gain for nothing does not beat a large one."""
        return LEAST_STEP_GPUS * min(self.question.market.gpu_usd_per_hour.values(), default=0.0)

    def _faster(self) -> Iterator[State]:
        """A faster option for one stage."""
        for need in self.question.needs:
            used = self._used(need)
            for share in need.shares:
                knob = (share.pipeline.name, need.name)
                slowest = max((self._idle_s(need, key) for key in used), default=0.0)
                if slowest > self.fastest_s[need.name] * AT_BEST:
                    budget = min(self.budgets_s[knob], slowest) * JUST_BELOW
                    yield from _feasible(replace(self, budgets_s={**self.budgets_s, knob: budget}))

    def _grown(self) -> Iterator[State]:
        """More capacity for one stage, by a little and by a lot, or for two at once.

        Where two stages are full, more of one only moves the queue to the other: both must grow.
        """
        staged = [need for need in self.question.needs if need.shares]
        steps: list[tuple[tuple[Need, ...], float]] = []
        steps += [((need,), step) for need in staged for step in (JUST_BELOW, FAR_BELOW)]
        steps += [(pair, BELOW_TOGETHER) for pair in combinations(staged, 2) if _tied(*pair)]
        for needs, step in steps:
            lower = {need.name: self._load_in_use(need) * step for need in needs}
            if all(load > LEAST_LOAD for load in lower.values()):
                yield from _feasible(replace(self, loads={**self.loads, **lower}))

    def _load_in_use(self, need: Need) -> float:
        """The load that the replicas in use have at the planned demand."""
        capacity = sum(count * self.rates[key].requests_per_s for key, count in self._used(need).items())
        return self.loads[need.name] * min(self.demands[need.name] / capacity, 1.0) if capacity > 0 else 0.0

    def _idle_s(self, need: Need, key: str) -> float:
        option = self.question.options[key]
        return fastest_s(need, option, self.slowdown(option))

    def _used(self, need: Need) -> dict[str, int]:
        """Option -> replicas of one model in the proposal."""
        counts = self.proposal.counts
        return {key: n for key, n in counts.items() if self.question.options[key].model == need.name}


def _tied(first: Need, second: Need) -> bool:
    """Whether one pipeline goes through both."""
    return any(second.name in share.pipeline.stages for share in first.shares)


def _feasible(state: State) -> Iterator[State]:
    if state.proposal.feasible:
        yield state


def moved(counts: Mapping[str, int], source: str, target: str | None) -> dict[str, int]:
    """`counts` with one replica of option `source` on `target` instead, or gone."""
    changed = {**counts, source: counts[source] - 1}
    if target is not None:
        changed[target] = changed.get(target, 0) + 1
    return {key: count for key, count in changed.items() if count > 0}


def kept(results: Sequence[SimulationResult]) -> bool:
    """Whether every objective holds and no request fails."""
    return all(result.sound for result in results)


def _late_s(results: Sequence[SimulationResult]) -> float:
    """Seconds by which pipelines miss their end-to-end objectives, summed over populations."""
    late = 0.0
    for result in results:
        for pipeline in result.pipelines:
            for outcome in pipeline.outcomes:
                if not outcome.met and pipeline.e2e_ms is not None:
                    late += max(percentile(pipeline.e2e_ms, outcome.slo.share) / 1e3 - outcome.slo.at_most_s, 1e-3)
            if not pipeline.kept_up and pipeline.e2e_ms is not None:
                late += pipeline.e2e_ms.p95 / 1e3 - PATIENCE_S
    return late


def _as_expected(_option: Option) -> float:
    return 1.0


def _missed(need: Need, results: Sequence[SimulationResult]) -> bool:
    return any(
        found.failed or not found.kept_up or any(not outcome.met for outcome in found.outcomes)
        for result in results
        for found in result.per_class
        if found.model == need.name
    )


def _loosest_s(share: PipelineShare, model: str, fastest: Mapping[str, float]) -> float:
    """The pipeline's limit less the fastest possible other stages, for one visit."""
    others = sum(fastest[stage] for stage in share.pipeline.stages if stage != model)
    return (_limit_s(share) - others) / share.visits


def _closed_rate(share: PipelineShare) -> float:
    """users / (think time + the slowest response that still keeps the objective): Little's law."""
    return share.users.concurrent / (share.users.think_time + max(_limit_s(share), 1e-3))


def _limit_s(share: PipelineShare) -> float:
    """The pipeline's tightest end-to-end limit; a minute where it has none."""
    return min((slo.at_most_s for slo in share.pipeline.slo if slo.metric == "e2e"), default=PATIENCE_S)
