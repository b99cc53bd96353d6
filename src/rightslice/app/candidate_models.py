"""`rightslice compare WORKLOAD --models A,B`: the same traffic and objectives on several models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rightslice.app.clock import Clock
from rightslice.app.explain import infeasible_plan, plan_document
from rightslice.app.judge import judge
from rightslice.app.knowledge import known_names
from rightslice.app.planning import Asking, answered, traces_of
from rightslice.core.candidates import Candidate, Candidates
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.plan import Plan
from rightslice.core.rng import checked_seed
from rightslice.optimization.needs import Need
from rightslice.spec.loader import load_workload
from rightslice.spec.scores import Score, load_scores
from rightslice.spec.workload import Model, Workload

MOST_MODELS: Final = 12


def compare_models(
    path: Path,
    sources: Sequence[str],
    *,
    name: str = "",
    scores: Path | None = None,
    seed: int = 0,
    risk: float = 0.05,
    progress: Callable[[str], None],
) -> Candidates:
    """Plan the workload once for each source of its model `name` (by default the one that generates text).

    Raises BadInputError: a bad file, more than MOST_MODELS sources, a workload with several such models and no name.
    """
    if not 1 <= len(sources) <= MOST_MODELS or len(set(sources)) != len(sources):
        message = f"--models names {len(sources)} models"
        raise BadInputError(Diagnostic("RS0501", message, hint=f"1 to {MOST_MODELS} different ones: A,B,C"))
    workload = load_workload(path, known_names()).workload
    listed = load_scores(scores).scores if scores else ()
    chosen = _chosen(workload, name)
    asking = Asking(traces_of(workload, path.parent), checked_seed(seed), risk, (), (), Clock())
    found, dates = [], []
    for source in sources:
        progress(source)
        models = tuple(
            model.model_copy(update={"source": (source,)}) if model is chosen else model for model in workload.models
        )
        plan, need = _planned(workload.model_copy(update={"models": models}), asking, chosen.name)
        found.append(_candidate(source, plan, need, chosen, listed))
        if plan.monthly_usd:
            dates.append((plan.monthly_usd.price_date, plan.monthly_usd.quality))
    first = listed[0].name if listed else ""
    ordered = sorted(found, key=lambda one: (not one.holds, one.monthly_usd or 0.0, one.model))
    told = dict.fromkeys(f"{score.name}: {score.source}, {score.date}" for score in listed if score.model in sources)
    date, quality = min(dates, default=("", ""))
    return Candidates(
        workload.metadata.name, chosen.task, date, quality, tuple(_marked(ordered, first)), first, tuple(told)
    )


def _chosen(workload: Workload, name: str) -> Model:
    if name:
        found = [model for model in workload.models if model.name == name]
        if not found:
            names = [model.name for model in workload.models]
            hint = did_you_mean(name, names) or ", ".join(names)
            raise BadInputError(Diagnostic("RS0310", f'the workload has no model "{name[:60]}"', hint=hint))
        return found[0]
    texts = [model for model in workload.models if model.source]
    if len(texts) != 1:
        hint = f"--for {texts[0].name}" if texts else "a workload with a model that has a source"
        message = f"{len(texts)} models of the workload have a source: which is to be replaced?"
        raise BadInputError(Diagnostic("RS0502", message, hint=hint))
    return texts[0]


def _planned(workload: Workload, asking: Asking, name: str) -> tuple[Plan, Need]:
    answer, _ = answered(workload, asking, lambda _: None)
    if answer.holds or answer.found.verified:
        evidence = judge(answer.question, answer.found.proposal, answer.found.rounds, asking.seed)
        answer = replace(answer, evidence=evidence)
    plan = plan_document(answer, answer.evidence) if answer.evidence else infeasible_plan(answer)
    return plan, next(need for need in answer.question.needs if need.name == name)


def _candidate(source: str, plan: Plan, need: Need, chosen: Model, listed: Sequence[Score]) -> Candidate:
    architecture = need.architecture
    planned = next((model for model in plan.models if model.name == chosen.name), None)
    deployments = planned.deployments if planned else ()
    settings = deployments[0].engine.settings if deployments else None
    expected = planned.expected if planned else None
    bought = "; ".join(f"{pool.nodes} x {pool.machine_type} ({pool.accelerator})" for pool in plan.pools)
    binding = plan.binding.what if plan.binding else "nothing holds"
    cost = plan.monthly_usd.value if plan.feasible and plan.monthly_usd else None
    return Candidate(
        model=source,
        parameters=architecture.parameters if architecture else 0,
        active_parameters=architecture.active_parameters if architecture else 0,
        dtype=settings.weight_dtype if settings else architecture.published_dtype if architecture else "",
        context_max=architecture.context_max if architecture else None,
        weights_bytes=architecture.published_weights_bytes if architecture else 0,
        holds=plan.feasible,
        where=bought if plan.feasible else binding,
        monthly_usd=cost,
        usd_per_million_input_tokens=plan.usd_per_million_input_tokens if plan.feasible else None,
        usd_per_million_output_tokens=plan.usd_per_million_output_tokens if plan.feasible else None,
        ttft_ms=expected.ttft_ms.value if expected and expected.ttft_ms else None,
        tpot_ms=expected.tpot_ms.value if expected and expected.tpot_ms else None,
        slo_probability=plan.slo_probability,
        scores={score.name: score.value for score in listed if score.model == source},
    )


def _marked(found: Sequence[Candidate], score: str) -> list[Candidate]:
    """Those that no other beats in both cost and the first score; without scores the cheapest."""
    marked: list[Candidate] = []
    best: float | None = None
    for one in found:
        value = one.scores.get(score) if score else 0.0
        wins = one.holds and value is not None and (best is None or value > best)
        best = value if wins else best
        marked.append(replace(one, frontier=wins))
    return marked
