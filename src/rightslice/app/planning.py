"""`rightslice plan`: one workload file in, the cheapest verified deployment out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rightslice.app.answer import Answer, Asked
from rightslice.app.calibrated import of_models, read_calibrations, told_of
from rightslice.app.choices import cheapest, choices
from rightslice.app.clock import Clock
from rightslice.app.decide import decide, describe, least_usd_per_hour
from rightslice.app.explain import affordable, infeasible_plan, plan_document
from rightslice.app.grouping import shared_workload
from rightslice.app.judge import course, judge
from rightslice.app.knowledge import known_names
from rightslice.app.models import find_model
from rightslice.app.network import planned_network
from rightslice.app.scenarios import draw_loads
from rightslice.app.state import Question
from rightslice.app.today import read_today, with_changes
from rightslice.app.warn import change_warnings
from rightslice.app.ways_out import Retry, ways_out
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import engine
from rightslice.catalogue.platforms import default_platform, with_operator
from rightslice.core.calibrated import Calibrated
from rightslice.core.documents import to_json
from rightslice.core.errors import BadInputError, Diagnostic, RightsliceError
from rightslice.core.files import check_folder, write_together
from rightslice.core.plan import Plan, Rejection
from rightslice.core.reasons import PlatformCost
from rightslice.core.rng import checked_seed
from rightslice.core.timeline import Timeline
from rightslice.manifests.render import render
from rightslice.memory.speculation import speculation_problem
from rightslice.optimization.candidates import candidates
from rightslice.optimization.needs import needs
from rightslice.optimization.propose import Market
from rightslice.optimization.sites import sites
from rightslice.optimization.today import NodeNow
from rightslice.packing.solver import Effort
from rightslice.procurement.money import hours_per_month
from rightslice.procurement.offers import offers, quota_limits
from rightslice.procurement.refusals import ON_PREMISES
from rightslice.reporting.html import plan_html
from rightslice.spec.loader import load_workload
from rightslice.spec.plan_document import load_plan
from rightslice.spec.workload import Model, Workload
from rightslice.traffic.traces import Trace, read_trace

PLANNED_ENGINES = ("vllm",)
"""Engines whose performance is modelled; the others in `fleet.engines` are reported as not considered."""
MOST_NODES, LEAST_NODES = 500, 5
WORTH_KEEPING = 1e-3
"""Of the cost: what a plan that keeps today's GPUs may cost more than one made from nothing. The search for it is
another one, and may end elsewhere."""
NEAR_ENOUGH = 5e-4
"""Of the cost of one proposal: less than one GPU in fleets of up to 2,000, and saves minutes in larger ones."""
NO_TIMINGS = dict.fromkeys(("read_s", "candidates_cpu_s", "pack_cpu_s", "simulate_cpu_s"), 0.0)


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The plan, CPU seconds of its stages, what the loader warned of, and its simulation over time where asked for."""

    plan: Plan
    timings: dict[str, float]
    warnings: tuple[Diagnostic, ...]
    timelines: tuple[Timeline, ...] = ()


def _silent(_message: str) -> None:
    return


def plan_workload(
    path: Path,
    *,
    seed: int = 0,
    risk: float = 0.05,
    progress: Callable[[str], None] = _silent,
    over_time: bool = False,
    current: Path | None = None,
    calibrations: Sequence[Path] = (),
) -> PlanOutcome:
    """Plan a workload file. `risk`: accepted probability, over prediction error, that an objective fails.

    `over_time`: play the verification once more and keep its course. `current`: a plan or layout that runs now; its
    GPUs stay as they are where that costs next to nothing, and the plan tells the steps. `calibrations`: files of
    measured times.

    Raises BadInputError for a bad file or option; an infeasible workload returns a plan that says what binds.
    """
    checked_seed(seed)
    if not 0.0 < risk < 1.0:
        raise BadInputError(Diagnostic("RS0501", f"--risk {risk:g} is not between 0 and 1", hint="for example 0.05"))
    clock = Clock()
    with clock.running("read_s"):
        loaded = load_workload(path, known_names())
        traces = traces_of(loaded.workload, path.parent)
        measured = read_calibrations(calibrations)
        today = read_today(current) if current else ()
    asking = Asking(traces, seed, risk, measured, today, clock)
    answer, architectures = answered(loaded.workload, asking, progress)
    answer, plan = _written(answer)
    if today:
        progress("from nothing")
        fresh, its_own = answered(loaded.workload, replace(asking, today=()), progress)
        fresh, instead = _written(fresh)
        if _changes_less(instead, plan, today):
            answer, plan, architectures = fresh, instead, its_own
    if plan.binding:
        progress("ways out")
        tried = ways_out(answer, _retry(architectures, replace(asking, clock=Clock(), today=())))
        plan = replace(plan, binding=replace(plan.binding, ways_out=(*plan.binding.ways_out, *tried)))
    told = tuple(map(told_of, measured))
    plan = replace(plan, workload=loaded.plain, calibrations=measured, assumptions=(*plan.assumptions, *told))
    if today and plan.feasible:
        plan = with_changes(plan, today)
        plan = replace(plan, warnings=(*plan.warnings, *change_warnings(plan)))
    if plan.feasible:
        progress("what the platform costs")
        plan = replace(plan, platform_costs=tuple(_platform_costs(answer, architectures, asking)))
    timelines = course(answer.question, answer.found.proposal.counts) if over_time and answer.evidence else ()
    return PlanOutcome(plan, {**NO_TIMINGS, **clock.timings()}, loaded.warnings, timelines)


def _written(answer: Answer) -> tuple[Answer, Plan]:
    """The answer judged where it was verified, and its document."""
    if answer.holds or answer.found.verified:
        found = answer.found
        answer = replace(answer, evidence=judge(answer.question, found.proposal, found.rounds, answer.asked.seed))
    return answer, plan_document(answer, answer.evidence) if answer.evidence else infeasible_plan(answer)


def _changes_less(one: Plan, other: Plan, today: tuple[NodeNow, ...]) -> bool:
    """Whether a plan is cheaper by more than what keeping GPUs is worth, or as cheap and cuts fewer of today's."""
    if one.monthly_usd is None or other.monthly_usd is None or not (one.feasible and other.feasible):
        return one.feasible and not other.feasible
    ratio = one.monthly_usd.value / other.monthly_usd.value if other.monthly_usd.value else 1.0
    if abs(ratio - 1.0) > WORTH_KEEPING:
        return ratio < 1.0
    cut, instead = (made.gpus_cut if (made := with_changes(plan, today).changes) else 0 for plan in (one, other))
    return cut < instead


Architectures = Mapping[str, Architecture | None]


@dataclass(frozen=True, slots=True)
class Asking:
    """What is the same for every variant of a workload."""

    traces: Mapping[str, Trace]
    seed: int
    risk: float
    measured: tuple[Calibrated, ...]
    today: tuple[NodeNow, ...]
    clock: Clock


def answered(workload: Workload, asking: Asking, progress: Callable[[str], None]) -> tuple[Answer, Architectures]:
    """The cheapest answer over every choice of the workload, and the architectures that it is for."""
    with asking.clock.running("read_s"):
        wanted = choices(workload)
        known: list[Architectures] = [architectures_of(variant) for variant in wanted]
    found: list[tuple[Answer, Architectures]] = []
    for variant, architectures in zip(wanted, known, strict=True):
        found += [
            (decide(asked, progress), architectures) for asked in _asked(variant, architectures, asking, progress)
        ]
    answer = cheapest([one for one, _ in found])
    return answer, next(architectures for one, architectures in found if one.workload is answer.workload)


def _asked(
    workload: Workload, architectures: Architectures, asking: Asking, progress: Callable[[str], None]
) -> Iterator[Asked]:
    """The workload as it is, then with models on shared GPUs where that is expected to be cheaper."""

    def ask(variant: Workload) -> Asked:
        progress("candidates")
        with asking.clock.running("candidates_cpu_s"):
            question, rejections = _question(variant, architectures, asking)
        return Asked(variant, question, rejections, asking.seed, asking.risk, _engines(variant))

    asked = ask(workload)
    yield asked
    with asking.clock.running("pack_cpu_s"):
        shared = shared_workload(asked)
    if shared:
        yield replace(ask(shared), written=workload)


def _platform_costs(answer: Answer, architectures: Architectures, asking: Asking) -> Iterator[PlatformCost]:
    """For each platform in use that cannot make every layout: what the workload costs with the GPU Operator.

    Planned in full where the packing expects a saving.
    """
    written = answer.asked.written or answer.workload
    for provider in sorted({offer.machine.provider for offer in answer.used}):
        platform = answer.question.market.platform_of[provider]
        instead = with_operator(platform)
        if not instead:
            continue
        named = {**answer.asked.question.market.platform_of, provider: instead}
        wider = written.model_copy(update={"fleet": written.fleet.model_copy(update={"platform": named})})
        asked = list(_asked(wider, architectures, asking, _silent))
        if min(map(least_usd_per_hour, asked)) >= least_usd_per_hour(answer.asked) * (1 - NEAR_ENOUGH):
            continue
        best = cheapest([decide(one, _silent) for one in asked])
        saved = answer.monthly_usd - best.monthly_usd
        if best.holds and saved > 0.5:
            yield PlatformCost(provider, platform, instead, best.monthly_usd, saved)


def _retry(architectures: Architectures, asking: Asking) -> Retry:
    def attempt(workload: Workload) -> tuple[float, str] | None:
        question, rejections = _question(workload, architectures, asking)
        asked = Asked(workload, question, rejections, asking.seed, asking.risk, _engines(workload))
        budget = workload.budget.monthly
        if budget is not None and least_usd_per_hour(asked) * hours_per_month(workload.hours) > budget:
            return None
        answer = decide(asked, _silent)
        if not answer.holds or not affordable(answer):
            return None
        return answer.monthly_usd, describe(answer.found)

    return attempt


def architectures_of(workload: Workload) -> dict[str, Architecture | None]:
    """Model name -> architecture of its first source; None for measured stages and models of given memory."""
    return {model.name: _architecture(model) for model in workload.models}


def _architecture(model: Model) -> Architecture | None:
    _check_engine(model)
    if model.memory or model.profile:
        return None
    if model.task != "generate":
        message = f'model "{model.name}": no law predicts task {model.task} yet'
        hint = "measure it and add profile: {memory, streams, latency}"
        raise BadInputError(Diagnostic("RS0311", message, hint=hint))
    architecture = _with_draft(model, find_model(model.source[0]))
    _check_context(model, architecture)
    return architecture


def _with_draft(model: Model, architecture: Architecture) -> Architecture:
    """The model with what drafts its tokens. Raises BadInputError RS0204 where its method cannot."""
    wanted = model.speculative
    if wanted is None:
        return architecture
    found = replace(architecture, draft=find_model(wanted.model)) if wanted.model else architecture
    if problem := speculation_problem(found, PLANNED_ENGINES[0], wanted.method):
        raise BadInputError(Diagnostic("RS0204", f'model "{model.name}", speculative: {problem}'))
    return found


def _check_engine(model: Model) -> None:
    """Raises BadInputError RS0204 where an engine has no switch for what it is told."""
    if model.engine.prefix_caching is None:
        return
    if model.profile or model.memory:
        message = f'model "{model.name}": engine belongs to models that an engine serves'
        raise BadInputError(Diagnostic("RS0204", message))
    for name in PLANNED_ENGINES:
        if "prefix_caching" not in engine(name).flags:
            raise BadInputError(Diagnostic("RS0204", f'model "{model.name}": {name} has no switch for prefix_caching'))


def _check_context(model: Model, architecture: Architecture) -> None:
    """A context beyond the model's own, or below its mean request, is a mistake in the file."""
    given, longest = model.max_context, architecture.context_max
    if given is None:
        return
    found = []
    if longest is not None and given > longest:
        message = f'model "{model.name}": max_context {given:,} is beyond the {longest:,} tokens that it was made for'
        found.append(Diagnostic("RS2002", message, hint=f"max_context: {longest} or less"))
    for traffic in model.traffic:
        mean = sum(side.mean for side in (traffic.input_tokens, traffic.output_tokens) if side)
        mean += (traffic.prefix.tokens or 0) if traffic.prefix else 0
        if mean > given:
            message = (
                f'model "{model.name}": class "{traffic.name}" has {mean:,} tokens a request, max_context is {given:,}'
            )
            found.append(Diagnostic("RS2002", message, hint=f"max_context: {mean} or more"))
    if found:
        raise BadInputError(found)


def traces_of(workload: Workload, folder: Path) -> dict[str, Trace]:
    """Trace name in the workload -> its rows; names are relative to `folder`."""
    names = {c.trace for model in workload.models for c in model.traffic if c.trace}
    return {name: read_trace(folder / name) for name in sorted(names)}


def _platforms(workload: Workload, providers: Sequence[str]) -> dict[str, str]:
    given = workload.fleet.platform
    if isinstance(given, str):
        return dict.fromkeys(providers, given)
    return {provider: (given or {}).get(provider, default_platform(provider)) for provider in providers}


def _question(
    workload: Workload,
    architectures: Architectures,
    asking: Asking,
) -> tuple[Question, tuple[Rejection, ...]]:
    traces, seed, clock = asking.traces, asking.seed, asking.clock
    known = of_models(asking.measured, architectures)
    wanted = tuple(replace(n, calibrated=known.get(n.name, ())) for n in needs(workload, architectures, traces))
    interruptible = any(model.interruptible for model in workload.models)
    offered, refused = offers(workload.fleet, interruptible=interruptible)
    providers = sorted({offer.machine.provider for offer in offered} | {ON_PREMISES})
    market = Market(
        offered, _platforms(workload, providers), quota_limits(workload.fleet), _effort(len(wanted)), asking.today
    )
    found = candidates(wanted, sites(offered, market.platform_of), _engines(workload))
    network = planned_network(workload)
    loads = tuple(replace(load, network=network) for load in draw_loads(workload, wanted, traces, seed))
    question = Question(wanted, {option.key: option for option in found.options}, market, loads, traces, clock, {})
    return question, (*refused, *found.rejections)


def _effort(models: int) -> Effort:
    """Solver nodes per proposal: the gap closes slowly with many models, and there are many proposals."""
    return Effort(nodes=max(LEAST_NODES, MOST_NODES // models**2), relative_gap=NEAR_ENOUGH)


def _engines(workload: Workload) -> tuple[str, ...]:
    planned = tuple(name for name in workload.fleet.engines if name in PLANNED_ENGINES)
    if not planned:
        message = f"no performance model for {', '.join(workload.fleet.engines)}"
        raise BadInputError(Diagnostic("RS0315", message, hint=f"engines: [{', '.join(PLANNED_ENGINES)}]"))
    return planned


def write_plan(plan: Plan, folder: Path, *, emit: bool = True, timelines: Sequence[Timeline] = ()) -> tuple[str, ...]:
    """Write plan.json, report.html and kubernetes/ (unless not `emit` or infeasible); returns relative paths.

    `timelines`: of its verification, for the report. All files are written before the first takes its place, so that a
    full disk leaves the old ones. Manifests of the plan that was there before, and that nobody has changed since, are
    removed. Raises BadInputError when the folder cannot be written.
    """
    files = {"plan.json": to_json(plan), "report.html": plan_html(plan, timelines)}
    if emit and plan.feasible:
        files.update(_manifests(plan))
    check_folder(folder)
    outdated = _written_before(folder)
    write_together(folder, files)
    for name, text in outdated.items():
        if name not in files:
            _remove_unchanged(folder, name, text)
    return tuple(files)


def _manifests(plan: Plan) -> dict[str, str]:
    return {f"kubernetes/{name}": text for name, text in render(plan).items()}


def _written_before(folder: Path) -> dict[str, str]:
    """What the plan in that folder had us write; nothing when there is none that we can read."""
    try:
        plan = load_plan(folder / "plan.json")
        return _manifests(plan) if plan.feasible else {}
    except RightsliceError:
        return {}


def _remove_unchanged(folder: Path, name: str, text: str) -> None:
    path = folder / name
    if path.is_file() and not path.is_symlink() and path.read_bytes() == text.encode():
        path.unlink()
        with suppress(OSError):
            path.parent.rmdir()
