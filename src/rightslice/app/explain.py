"""The answer of a search -> the plan document: cost, comparisons, reasons, warnings; or what binds when it is no."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rightslice.app.answer import Answer
from rightslice.app.day import day_gpu_hours
from rightslice.app.partition_reasons import partition_reasons
from rightslice.app.rating import rate_at_slo, unreachable
from rightslice.app.splits import other_splits
from rightslice.app.warn import requests_to_make, warnings
from rightslice.catalogue.accelerators import accelerators
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.plan import Baseline, Binding, Bound, MonthlyCost, Plan, Rejection
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.rates import RateTable
from rightslice.core.reasons import Saving
from rightslice.optimization.assemble import Fleet, fleet, planned_models, planned_pipelines
from rightslice.optimization.costing import TokenPrice, monthly_cost, token_prices
from rightslice.optimization.evidence import Evidence
from rightslice.optimization.needs import Need
from rightslice.optimization.propose import propose, repack
from rightslice.spec.workload import Workload

RANK = (
    "RS4003",
    "RS4001",
    "RS4008",
    "RS2001",
    "RS2005",
    "RS2006",
    "RS4005",
    "RS4006",
    "RS4014",
    "RS4004",
    "RS4007",
    "RS4013",
)
"""Order of reasons in the document."""


def plan_document(answer: Answer, evidence: Evidence) -> Plan:
    """The plan of a verified proposal; infeasible when it breaks the budget or the accepted risk."""
    question, proposal = answer.question, answer.found.proposal
    made = fleet(proposal, question.options, question.needs, _rates(answer), question.market)
    cost = monthly_cost(proposal, answer.workload.hours)
    prices = token_prices(question.needs, made.pools, made.placements, made.deployments, question.options)
    binding = _over_budget(answer.workload, cost, prices) or _too_risky(answer, evidence)
    tightest = evidence.binding
    return Plan(
        name=answer.workload.metadata.name,
        feasible=binding is None,
        reproducible=proposal.packing.status == "optimal",
        seed=answer.seed,
        environment=answer.workload.environment,
        objective=answer.workload.objective,
        monthly_usd=cost,
        usd_per_million_input_tokens=prices.input_usd,
        usd_per_million_output_tokens=prices.output_usd,
        slo_probability=evidence.probability,
        binding_slo=f"{tightest.subject} {tightest.slo.name}" if tightest else None,
        pools=made.pools,
        models=planned_models(question.needs, made, evidence),
        pipelines=planned_pipelines(question.needs, evidence),
        placements=made.placements,
        autoscaling=(),
        verification=evidence.verification,
        bound=_bound(answer, cost, made),
        baseline=_baseline(answer, cost),
        rejected=_rejected(answer, made),
        alternatives=answer.alternatives,
        requests_to_make=requests_to_make(answer.workload, made),
        warnings=warnings(answer.workload, question, made, _without_spare(answer)),
        assumptions=_assumptions(answer),
        binding=binding,
        partitions=partition_reasons(answer, made),
        savings=_savings(answer),
    )


def _savings(answer: Answer) -> tuple[Saving, ...]:
    """Dearest limit first."""
    shadow = answer.found.proposal.packing.shadow_usd_per_hour
    found = (Saving(limit, usd * answer.hours) for limit, usd in shadow.items())
    return tuple(sorted(found, key=lambda saving: (-saving.monthly_usd, saving.limit)))


def _rates(answer: Answer) -> RateTable:
    """What one replica of each option in use carries, at expected times."""
    question, counts = answer.question, answer.found.proposal.counts
    by_name = {need.name: need for need in question.needs}
    table = RateTable()
    for key, replicas in counts.items():
        option = question.options[key]
        if option.costs is not None:
            table.update({key: rate_at_slo(by_name[option.model], option, replicas, question.traces)})
    return table


def affordable(answer: Answer) -> bool:
    """Whether a proposal keeps every budget of its workload."""
    question, proposal = answer.question, answer.found.proposal
    made = fleet(proposal, question.options, question.needs, RateTable(), question.market)
    cost = monthly_cost(proposal, answer.workload.hours)
    prices = token_prices(question.needs, made.pools, made.placements, made.deployments, question.options)
    return _over_budget(answer.workload, cost, prices) is None


def infeasible_plan(answer: Answer) -> Plan:
    """The honest no: what binds; `ways_out` tries what would help."""
    binding = Binding(what_binds(answer), ())
    return Plan(
        name=answer.workload.metadata.name,
        feasible=False,
        reproducible=True,
        seed=answer.seed,
        environment=answer.workload.environment,
        objective=answer.workload.objective,
        monthly_usd=None,
        usd_per_million_input_tokens=None,
        usd_per_million_output_tokens=None,
        slo_probability=None,
        binding_slo=None,
        pools=(),
        models=(),
        pipelines=(),
        placements=(),
        autoscaling=(),
        verification=None,
        bound=None,
        baseline=None,
        rejected=_ordered((*_asked_for(answer), *_too_slow(answer))),
        alternatives=(),
        requests_to_make=(),
        warnings=(),
        assumptions=_assumptions(answer),
        binding=binding,
    )


def what_binds(answer: Answer) -> str:
    """One sentence: the model and the constraint that no option meets."""
    for need in answer.question.needs:
        options = answer.question.options_of(need.name)
        if not options:
            reasons = [r for r in answer.rejections if r.model == need.name]
            closest = max(reasons, key=_memory_bytes, default=None)
            nearest = f" The largest, {closest.option}: {closest.reason}." if closest else ""
            if not answer.question.market.offers:
                first = next(iter(_ordered(_wanted(answer))), None)
                why = f": {first.option}: {first.reason}" if first else "; name machines under fleet.owned"
                return f"The fleet offers no machine{why}."
            return f"{need.name} fits nothing that the fleet allows.{nearest}"
        if need.has_load and all(answer.found.first.rates[o.key].requests_per_s <= 0 for o in options):
            return _slowest(answer, need)
    packing = answer.found.proposal.packing
    if packing.status == "infeasible":
        return "Not enough machines: " + ("; ".join(_limits(packing.binding, packing.shortfall)) or "no packing exists")
    if answer.found.verified:
        return (
            f"The objectives hold as predicted, but not at the accepted risk of {answer.risk:g}: the error is too wide."
        )
    missed = [
        f"{o.slo.name} <= {format_seconds(o.slo.at_most_s)} is kept by {o.achieved_share:.1%} of requests"
        for result in answer.found.results
        for o in result.outcomes
        if not o.met
    ]
    return (
        f"After {answer.found.rounds} rounds of tightening an objective is still missed at the accepted risk of "
        f"{answer.risk:g}: {'; '.join(missed) or 'requests fail'}."
    )


def _memory_bytes(rejection: Rejection) -> int:
    """Of the accelerator that was refused."""
    found = accelerators().get(rejection.option.split(" ")[0])
    return found.visible_memory_bytes if found else 0


def _wanted(answer: Answer) -> list[Rejection]:
    """Market refusals of the accelerators that the workload names, or all of them."""
    allow = answer.workload.fleet.accelerators.allow
    named = [r for r in answer.rejections if r.option.split(" ")[0] in allow]
    return named or list(answer.rejections)


def _limits(binding: tuple[str, ...], shortfall: Mapping[str, int]) -> list[str]:
    return [f"{key} needs {shortfall[key]} GPUs more" if key in shortfall else key for key in binding]


def _slowest(answer: Answer, need: Need) -> str:
    slowdown = answer.found.state.slowdown
    best = min(
        ((unreachable(need, option, slowdown(option)), option) for option in answer.question.options_of(need.name)),
        key=lambda pair: pair[0].reached_s,
    )
    missed, option = best[0].missed, best[1]
    if missed is None:
        limits = ", ".join(
            f"{slo.name} <= {format_seconds(slo.at_most_s)}" for s in need.shares for slo in s.pipeline.slo
        )
        return f"{need.name}: even an idle replica of every allowed option is too slow for its pipeline ({limits})."
    return (
        f"{need.name}: {missed.name} <= {format_seconds(missed.at_most_s)}; the fastest allowed option "
        f"({option.gpus} x {option.device.name}) needs {format_seconds(best[0].reached_s)} when idle."
    )


def _over_budget(workload: Workload, cost: MonthlyCost, prices: TokenPrice) -> Binding | None:
    budget = workload.budget
    checks = (
        ("budget.monthly", budget.monthly, cost.value, "a month"),
        ("budget.per_million_input_tokens", budget.per_million_input_tokens, prices.input_usd, "per million tokens"),
        ("budget.per_million_output_tokens", budget.per_million_output_tokens, prices.output_usd, "per million tokens"),
    )
    for name, limit, value, unit in checks:
        if limit is not None and value is not None and value > limit:
            what = f"{name} {format_usd(limit)}: the cheapest plan costs {format_usd(value)} {unit}"
            return Binding(what, (f"{name}: {format_usd(value * 1.01)}",))
    return None


def _too_risky(answer: Answer, evidence: Evidence) -> Binding | None:
    if evidence.probability >= 1.0 - answer.risk:
        return None
    what = (
        f"the chance that every objective holds is {evidence.probability:.0%}, {1 - answer.risk:.0%} is asked: "
        "the prediction error is too wide"
    )
    accepted = round(1.0 - evidence.probability + 0.005, 2)
    return Binding(what, (f"--risk {accepted:g} accepts it", "measure the models and plan with measured figures"))


def _bound(answer: Answer, cost: MonthlyCost, made: Fleet) -> Bound:
    lowest = min(answer.bound_usd_per_hour * answer.hours, cost.value)
    gap = (cost.value - lowest) / lowest if lowest > 0 else 0.0
    day = day_gpu_hours(answer.question.needs, made.deployments, answer.question.traces)
    if day is None:
        return Bound(lowest, max(gap, 0.0))
    planned = 24.0 * sum(pool.nodes * pool.gpus_per_node for pool in made.pools)
    return Bound(lowest, max(gap, 0.0), *day, planned)


def _baseline(answer: Answer, cost: MonthlyCost) -> Baseline | None:
    """The same replicas, each on whole GPUs of its own; None when that is what was chosen anyway."""
    question = answer.question
    counts: dict[str, int] = {}
    for key, count in answer.found.proposal.counts.items():
        option = question.options[key]
        whole = [
            o for o in question.options_of(option.model) if o.partition == WHOLE and o.accelerator == option.accelerator
        ]
        if not whole:
            return None
        own = option if option.partition == WHOLE else min(whole, key=lambda o: o.gpus)
        counts[own.key] = counts.get(own.key, 0) + count
    proposal = repack(question.needs, question.options, counts, question.market)
    value = proposal.packing.usd_per_hour * answer.hours
    if not proposal.feasible or value <= cost.value:
        return None
    return Baseline(value, "the same replicas, each on whole GPUs of its own")


def _without_spare(answer: Answer) -> float | None:
    """USD a month saved by running without the spare replica; None where there is none."""
    if not any(need.spare for need in answer.question.needs):
        return None
    bare = tuple(replace(need, spare=False, min_replicas=1) for need in answer.question.needs)
    state, question = answer.found.state, answer.question
    proposal = propose(bare, tuple(question.options.values()), state.rates, state.demands, question.market)
    if not proposal.feasible:
        return None
    return answer.monthly_usd - proposal.packing.usd_per_hour * answer.hours


def _rejected(answer: Answer, made: Fleet) -> tuple[Rejection, ...]:
    """Market and memory refusals, options too slow at any load, and working alternatives that cost more."""
    dearer = tuple(
        Rejection(
            option=alternative.option,
            model="",
            code="RS4003",
            reason=f"{works_too(alternative.difference_usd)} ({alternative.detail})",
            monthly_usd=alternative.monthly_usd,
        )
        for alternative in answer.alternatives
    )
    used = {pool.accelerator for pool in made.pools}
    slow = tuple(r for r in _too_slow(answer) if r.option.split(" for ")[0] not in used)
    return _ordered((*dearer, *other_splits(answer), *slow, *_asked_for(answer)))


def works_too(difference_usd: float) -> str:
    """How a choice that would do as well, and costs more, is told."""
    return f"works too, for {format_usd(difference_usd)} a month more"


def _asked_for(answer: Answer) -> Iterator[Rejection]:
    """Without accelerators that the workload does not allow anyway, unless that is the very reason."""
    allow = answer.workload.fleet.accelerators.allow
    for rejection in answer.rejections:
        name = rejection.option.split(" ")[0]
        if not allow or name in allow or rejection.code == "RS4009" or name not in accelerators():
            yield rejection


def _ordered(rejections: Iterable[Rejection]) -> tuple[Rejection, ...]:
    """What nearly made it first; what the workload itself rules out last."""

    def rank(rejection: Rejection) -> tuple[int, float, str]:
        place = RANK.index(rejection.code) if rejection.code in RANK else len(RANK)
        return (place, rejection.monthly_usd or 0.0, rejection.option)

    return tuple(sorted(rejections, key=rank))


def _too_slow(answer: Answer) -> tuple[Rejection, ...]:
    """Accelerators on which no option of a model keeps its objectives even when idle."""
    found = []
    rates = answer.found.first.rates  # as loose as it gets: later budgets are the search's own
    for need in answer.question.needs:
        if not need.has_load:
            continue
        by_accelerator: dict[str, list[str]] = {}
        for option in answer.question.options_of(need.name):
            by_accelerator.setdefault(option.accelerator, []).append(option.key)
        for accelerator, keys in sorted(by_accelerator.items()):
            if all(rates[key].requests_per_s <= 0 for key in keys):
                found.append(_slow_rejection(answer, need, accelerator, keys))
    return tuple(found)


def _slow_rejection(answer: Answer, need: Need, accelerator: str, keys: list[str]) -> Rejection:
    slowdown = answer.found.state.slowdown
    options = [answer.question.options[key] for key in keys]
    best = min((unreachable(need, option, slowdown(option)) for option in options), key=lambda f: f.reached_s)
    if best.missed is None:
        reason = "too slow for its pipeline even when idle"
        relaxation = "a looser e2e objective of the pipeline"
    else:
        reached = format_seconds(best.reached_s)
        reason = f"{best.missed.name} of an idle replica is {reached}, over {format_seconds(best.missed.at_most_s)}"
        relaxation = f"{best.missed.name}: {format_seconds(best.reached_s * 1.1).replace(' ', '')} or more"
    return Rejection(f"{accelerator} for {need.name}", need.name, "RS4001", reason, relaxation)


def _assumptions(answer: Answer) -> tuple[str, ...]:
    own = tuple(text for need in answer.question.needs for text in need.assumptions)
    architectures = tuple(
        f"{need.name}: {text}"
        for need in answer.question.needs
        if need.architecture
        for text in need.architecture.approximations
    )
    open_loads = [load for load in answer.question.loads if load.classes]
    shortest_s = min((load.horizon_s for load in open_loads), default=0.0)
    general = (
        f"step times are taken at the {1 - answer.risk:.0%} quantile of their error to choose, at the mean to report",
        f"open-loop traffic is verified at its planned (peak) rate over {format_seconds(shortest_s)} or more"
        if open_loads
        else "",
        f"a month has {answer.hours:g} hours",
    )
    return (*own, *architectures, *(text for text in general if text))
