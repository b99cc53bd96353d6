"""Repeat the verification with times drawn from their error bands, and turn the results into evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import le
from statistics import NormalDist

import numpy as np

from rightslice.app.sampling import sampled
from rightslice.app.scenarios import Slowdown, scenarios, servers
from rightslice.app.state import Question, kept, run
from rightslice.core.estimate import Estimate, Provenance, least_trusted
from rightslice.core.plan import PrefixHits, SloResult, Verification
from rightslice.core.results import ClassResult, Distribution, PipelineResult, SimulationResult, SloOutcome, percentile
from rightslice.core.rng import generator
from rightslice.core.slo import SloMetric
from rightslice.core.timeline import Timeline, standing
from rightslice.optimization.evidence import Evidence, ModelEvidence, PipelineEvidence
from rightslice.optimization.options import Option
from rightslice.optimization.propose import Proposal
from rightslice.simulation.run import watch

DRAWS = 50
Z80 = NormalDist().inv_cdf(0.9)
"""Half width of an 80 % interval in standard deviations: 1.2816."""


def sigma(option: Option) -> float:
    """Standard deviation of log(time) for which 80 % of errors lie within the option's band."""
    return math.log1p(option.relative_error) / Z80


def at_quantile(z: float) -> Slowdown:
    """Every option's times at `z` standard deviations of its error."""
    return lambda option: math.exp(z * sigma(option))


def drawn(seed: int, number: int) -> Slowdown:
    """Draw number `number`: one error per model and accelerator, so that all replicas of a model err together."""

    def factor(option: Option) -> float:
        normal = generator(seed, "error", number, option.model, option.accelerator).standard_normal()
        return math.exp(float(normal) * sigma(option))

    return factor


def holds(question: Question, proposal: Proposal, seed: int, risk: float, *, quick: bool = False) -> bool:
    """Whether at most `risk` of the draws miss an objective; slowest draws first, up to the one that decides it.

    `quick` skips draws in which every option is at least as fast as in one that was kept: hardly ever wrong.
    """
    left = math.floor(risk * DRAWS + 1e-9)
    passed: list[tuple[float, ...]] = []
    for factors, number in _slowest_first(question, proposal, seed):
        if quick and any(all(map(le, factors, slower)) for slower in passed):
            continue
        if kept(_repeat(question, proposal.counts, seed, number)):
            passed.append(factors)
            continue
        left -= 1
        if left < 0:
            return False
    return True


def _slowest_first(question: Question, proposal: Proposal, seed: int) -> list[tuple[tuple[float, ...], int]]:
    """(factors of the options in use, number) of each draw, by the product of the factors; none without traffic."""
    used = [question.options[key] for key in sorted(proposal.counts)]
    draws = [
        (tuple(drawn(seed, number)(option) for option in used), number)
        for number in range(DRAWS if question.has_traffic else 0)
    ]
    return sorted(draws, key=lambda draw: -math.prod(draw[0]))


def _repeat(question: Question, counts: Mapping[str, int], seed: int, number: int) -> tuple[SimulationResult, ...]:
    return run(question, counts, drawn(seed, number), question.draws, (seed, number))


def judge(question: Question, proposal: Proposal, rounds: int, seed: int) -> Evidence:
    """Nominal results with their spread over DRAWS draws of prediction error; probability = share that keeps all."""
    counts = proposal.counts
    nominal = run(question, counts, at_quantile(0.0), question.draws, ("nominal",))
    draws = DRAWS if question.has_traffic else 0
    repeats = [_repeat(question, counts, seed, number) for number in range(draws)]
    met = sum(kept(results) for results in repeats)
    provenance = _provenance(question, proposal)
    requests = [result.requests for result in nominal]
    attainments = [result.slo_attainment for result in nominal]
    verification = Verification(
        seed=seed,
        draws=len(repeats),
        draws_met=met,
        horizon_s=max((result.horizon_s for result in nominal), default=0.0),
        requests=sum(requests),
        completed=sum(result.completed for result in nominal),
        failed=sum(result.failed for result in nominal),
        slo_attainment=min(attainments, default=1.0),
        rounds=rounds,
    )
    return Evidence(
        verification=verification,
        probability=met / len(repeats) if repeats else 1.0,
        models={name: _model(name, nominal, repeats, provenance[name]) for name in provenance},
        pipelines=tuple(
            _pipelines(nominal, repeats, least_trusted(*provenance.values()) if provenance else "measured")
        ),
    )


def course(question: Question, counts: Mapping[str, int]) -> tuple[Timeline, ...]:
    """The nominal simulation of replica counts over time, each run alone; of a large fleet the same part as `run`."""
    found = []
    for load in question.loads:
        mine = {key: count for key, count in counts.items() if question.options[key].model in load.models}
        part = sampled(load, mine, question.options)
        built = servers(part.counts, question.options, at_quantile(0.0))
        if not built:
            continue
        fleet = standing(part.counts, {}, None)
        runs = [watch(scenario, fleet).timeline for scenario in scenarios(part.load, built)]
        found += [replace(timeline, share=part.share) for timeline in runs]
    return tuple(found)


def _provenance(question: Question, proposal: Proposal) -> dict[str, Provenance]:
    found: dict[str, Provenance] = {}
    for (_, key), count in sorted(proposal.packing.replicas.items()):
        option = question.options[key]
        if count > 0 and option.costs is not None:
            known = found.get(option.model, option.costs.provenance)
            found[option.model] = least_trusted(known, option.costs.provenance)
    return found


@dataclass(frozen=True, slots=True)
class _Times:
    """Latencies of one model in one simulation: of one of its classes, or of its stage in one population."""

    ttft: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None


def _classes(results: Sequence[SimulationResult], model: str) -> Iterator[ClassResult]:
    for result in results:
        yield from (found for found in result.per_class if found.model == model)


def _times(results: Sequence[SimulationResult], model: str) -> list[_Times]:
    """Of the model's own classes, or, where it has none, of its stage in every pipeline."""
    own = [_Times(c.ttft_ms, c.tpot_ms, c.e2e_ms) for c in _classes(results, model)]
    return own or [
        _Times(stage.ttft_ms, None, stage.e2e_ms)
        for result in results
        for pipeline in result.pipelines
        for stage in pipeline.per_stage
        if stage.model == model
    ]


def _model(
    name: str,
    nominal: Sequence[SimulationResult],
    repeats: Sequence[Sequence[SimulationResult]],
    provenance: Provenance,
) -> ModelEvidence:
    own = list(_classes(nominal, name))
    spread = [list(_classes(results, name)) for results in repeats]
    here, there = _times(nominal, name), [_times(results, name) for results in repeats]
    outcomes = [all(o.met for c in classes for o in c.outcomes) for classes in spread]
    slos = tuple(
        _slo(f"{name}/{c.traffic_class}", outcome, _metric(c, outcome.slo.metric))
        for c in own
        for outcome in c.outcomes
    )
    return ModelEvidence(
        ttft_ms=_p95([t.ttft for t in here], [[t.ttft for t in times] for times in there], provenance),
        tpot_ms=_p95([t.tpot for t in here], [[t.tpot for t in times] for times in there], provenance),
        e2e_ms=_p95([t.e2e for t in here], [[t.e2e for t in times] for times in there], provenance),
        slos=_worst_of_each(slos),
        probability=sum(outcomes) / len(outcomes) if outcomes and slos else None,
        prefix_hits=tuple(_prefix_hits(own)),
    )


def _prefix_hits(classes: Sequence[ClassResult]) -> Iterator[PrefixHits]:
    """Of each class once, in the first of the populations beside which it was simulated."""
    first = {found.traffic_class: found for found in reversed(classes)}
    for name in sorted(first):
        rate, ceiling = first[name].prefix_hit_rate, first[name].prefix_hit_ceiling
        if rate is not None and ceiling is not None:
            yield PrefixHits(name, rate, ceiling)


def _metric(result: ClassResult, metric: SloMetric) -> Distribution | None:
    return {"ttft": result.ttft_ms, "tpot": result.tpot_ms, "e2e": result.e2e_ms}[metric]


def _p95(
    here: Sequence[Distribution | None], there: Sequence[Sequence[Distribution | None]], provenance: Provenance
) -> Estimate | None:
    """95th percentile of the slowest class, with the 10th and 90th percentile of the draws."""
    values = [d.p95 for d in here if d]
    if not values:
        return None
    return _interval(max(values), [max((d.p95 for d in drawn_ if d), default=math.nan) for drawn_ in there], provenance)


def _interval(value: float, draws: Sequence[float], provenance: Provenance) -> Estimate:
    known = [d for d in draws if not math.isnan(d)]
    if not known:
        return Estimate(value, value, value, provenance)
    low, high = (float(q) for q in np.quantile(known, (0.1, 0.9)))
    return Estimate(value, min(low, value), max(high, value), provenance)


def _slo(subject: str, outcome: SloOutcome, distribution: Distribution | None) -> SloResult:
    return SloResult(
        subject=subject,
        slo=outcome.slo,
        predicted_ms=percentile(distribution, outcome.slo.share) if distribution else 0.0,
        achieved_share=outcome.achieved_share,
        met=outcome.met,
    )


def _worst_of_each(slos: Sequence[SloResult]) -> tuple[SloResult, ...]:
    """Several populations simulate the same classes: keep the worst result of each objective."""
    worst: dict[tuple[str, str, float], SloResult] = {}
    for slo in slos:
        key = (slo.subject, slo.slo.name, slo.slo.at_most_s)
        if key not in worst or slo.achieved_share < worst[key].achieved_share:
            worst[key] = slo
    return tuple(worst.values())


def _pipelines(
    nominal: Sequence[SimulationResult], repeats: Sequence[Sequence[SimulationResult]], provenance: Provenance
) -> Iterator[PipelineEvidence]:
    for result in nominal:
        for found in result.pipelines:
            draws = [d.p95 for results in repeats for d in _e2e(results, found)]
            value = found.e2e_ms.p95 if found.e2e_ms else None
            yield PipelineEvidence(
                pipeline=found.name,
                users=found.users,
                requests_per_s=found.requests_per_s,
                e2e_ms=_interval(value, draws, provenance) if value is not None else None,
                slos=tuple(_slo(f"{found.name}/{found.users}", o, found.e2e_ms) for o in found.outcomes),
            )


def _e2e(results: Sequence[SimulationResult], wanted: PipelineResult) -> Iterator[Distribution]:
    for result in results:
        for found in result.pipelines:
            if (found.name, found.users) == (wanted.name, wanted.users) and found.e2e_ms is not None:
                yield found.e2e_ms
