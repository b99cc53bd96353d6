"""What both reports say about a plan, computed once: headlines, GPUs alike, objectives, trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rightslice.core.estimate import Estimate, Provenance, least_trusted
from rightslice.core.plan import Deployment, Placement, Plan, PlannedModel, Pool, Purchase, SloResult, Slot
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.slo import SloMetric
from rightslice.core.text import plural
from rightslice.reporting.text import figure, interval_ms, milliseconds, percent, prefix_hits_text, ranges

_CAPACITY: Mapping[str, str] = {
    "on_demand": "on demand",
    "reservation": "reservation",
    "future_reservation": "future reservation",
    "capacity_block": "capacity block",
    "flex_start": "flex-start",
    "spot": "spot",
    "owned": "owned",
}
_PRICE: Mapping[str, str] = {
    "list": "list price",
    "commitment_1y": "1-year commitment",
    "commitment_3y": "3-year commitment",
    "savings_plan": "savings plan",
    "negotiated": "negotiated price",
    "spot": "spot price",
    "flex": "flex-start price",
    "owned": "own hardware",
}
TRUST: tuple[Provenance, ...] = ("measured", "calibrated", "interpolated", "first-principles", "unvalidated")
"""From most to least trusted: the order of the strip."""

_SHARED_MEMORY = frozenset({"time-slicing", "mps"})
_SMALLEST_FREE_SHARE = 0.01
"""Rounding between slices and visible memory is not called free space."""
_LEAST_GAP = 0.005
"""Closer than this, a plan is as cheap as its lower bound."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one GPU's memory: a tenant's slot, or free when `slot` is None. Shares are of the whole GPU."""

    slot: Slot | None
    share: float
    used_share: float


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs of one pool whose tenants are the same; `numbers` counts GPUs through the plan from 0."""

    pool: Pool
    first: Placement
    numbers: tuple[int, ...]
    nodes: tuple[int, ...]
    segments: tuple[Segment, ...]

    @property
    def label(self) -> str:
        """`GPU 0`, `GPU 0–23`."""
        return f"GPU {ranges(self.numbers)}"

    @property
    def used_bytes(self) -> int:
        """What the tenants of one of these GPUs use."""
        return sum(slot.used_bytes for slot in self.first.slots)


def segments(placement: Placement) -> tuple[Segment, ...]:
    """The GPU from left to right: slots by start, then what is free."""
    total = max(placement.memory_bytes, sum(_extent_bytes(slot) for slot in placement.slots), 1)
    ordered = sorted(placement.slots, key=lambda slot: (slot.start, slot.model, slot.replica))
    taken = [Segment(slot, _extent_bytes(slot) / total, slot.used_bytes / total) for slot in ordered]
    free = 1.0 - sum(segment.share for segment in taken)
    return (*taken, Segment(None, free, 0.0)) if free > _SMALLEST_FREE_SHARE else tuple(taken)


def _extent_bytes(slot: Slot) -> int:
    """Memory that no other tenant can have: the slice, or what is used where the GPU's memory is shared."""
    return slot.used_bytes if slot.partition in _SHARED_MEMORY else max(slot.memory_bytes, slot.used_bytes)


def gpu_groups(plan: Plan) -> tuple[GpuGroup, ...]:
    """GPUs with equal tenants together, in order of first appearance."""
    found: dict[tuple[object, ...], list[tuple[int, Placement]]] = {}
    for number, placement in enumerate(plan.placements):
        tenants = tuple(
            (s.partition, s.start, s.model, s.deployment, s.memory_bytes, s.used_bytes) for s in placement.slots
        )
        found.setdefault((placement.pool, placement.memory_bytes, tenants), []).append((number, placement))
    return tuple(
        GpuGroup(
            plan.pool(members[0][1].pool),
            members[0][1],
            tuple(number for number, _ in members),
            tuple(sorted({placement.node for _, placement in members})),
            segments(members[0][1]),
        )
        for members in found.values()
    )


def counts_text(plan: Plan) -> str:
    """`3 models, 1 pipeline, 50 users`; users only where there is one population."""
    parts = [plural(len(plan.models), "model")]
    if plan.pipelines:
        parts.append(plural(len({p.name for p in plan.pipelines}), "pipeline"))
    if len(plan.pipelines) == 1:
        parts.append(plural(plan.pipelines[0].concurrent_users, "user"))
    return ", ".join(parts)


def purchase_text(purchase: Purchase) -> str:
    """`on demand`, `reservation, 1-year commitment`: the price is named where the capacity does not imply it."""
    capacity, price = _CAPACITY[purchase.capacity], _PRICE[purchase.price]
    implied = {"on_demand": "list", "spot": "spot", "flex_start": "flex", "owned": "owned"}.get(purchase.capacity)
    return capacity if implied == purchase.price else f"{capacity}, {price}"


def pool_text(pool: Pool) -> str:
    """`2 × a2-ultragpu-1g (A100-SXM-80GB), gcp us-central1, on demand`."""
    gpus = f"{pool.gpus_per_node} × " if pool.gpus_per_node > 1 else ""
    place = " ".join(dict.fromkeys(filter(None, (pool.provider, pool.region))))
    shared = f", shared by {pool.sharing}" if pool.sharing in _SHARED_MEMORY else ""
    return (
        f"{pool.nodes} × {pool.machine_type} ({gpus}{pool.accelerator}{shared}), {place}, "
        f"{purchase_text(pool.purchase)}"
    )


def cost_text(plan: Plan) -> str:
    """`$7,401 / month (6,930–7,880)`; an empty string when the plan is infeasible."""
    cost = plan.monthly_usd
    if cost is None:
        return ""
    return f"{format_usd(cost.value)} / month ({cost.low:,.0f}–{cost.high:,.0f})"


def price_text(plan: Plan) -> str:
    """`prices of 2026-08-03, exact`."""
    cost = plan.monthly_usd
    if cost is None:
        return ""
    dated = f"prices of {cost.price_date}" if cost.price_date else ""
    return ", ".join(filter(None, (dated, cost.quality)))


def saving_text(plan: Plan) -> str:
    """`−33 %`, `+5 %`, `no change` against the usual practice; empty without a baseline."""
    if plan.baseline is None or plan.monthly_usd is None or plan.baseline.monthly_usd <= 0:
        return ""
    change = round((plan.monthly_usd.value / plan.baseline.monthly_usd - 1.0) * 100)
    return f"{'−' if change < 0 else '+'}{abs(change)} %" if change else "no change"


def baseline_text(plan: Plan) -> str:
    """`−33 % against one whole GPU per model ($11,102)`; empty without a baseline."""
    saving = saving_text(plan)
    if not saving or plan.baseline is None:
        return ""
    return f"{saving} against {plan.baseline.description} ({format_usd(plan.baseline.monthly_usd)})"


def bound_text(plan: Plan) -> str:
    """`no plan costs less than $3,700 (this one 200 % more)`; empty where the plan meets its bound or has none."""
    if plan.bound is None or plan.bound.gap < _LEAST_GAP:
        return ""
    more = percent(plan.bound.gap, 0 if plan.bound.gap > 0.1 else 1)
    return f"no plan costs less than {format_usd(plan.bound.monthly_usd)} (this one: {more} more)"


def day_text(plan: Plan) -> str:
    """`GPU-hours of a day: 768 planned, 384 for the peak alone, 176 with a perfect autoscaler`; empty where the traffic
    does not follow the hours of a day."""
    bound = plan.bound
    if bound is None or bound.planned_gpu_hours is None:
        return ""
    least = (bound.peak_gpu_hours or 0.0, bound.perfect_autoscaler_gpu_hours or 0.0)
    peak, perfect = map(figure, least)
    planned = figure(bound.planned_gpu_hours)
    return f"GPU-hours of a day: {planned} planned, {peak} for the peak alone, {perfect} with a perfect autoscaler"


def objectives(plan: Plan) -> tuple[SloResult, ...]:
    """Every objective of every model, then of every pipeline."""
    of_models = tuple(result for model in plan.models for result in model.slos)
    return of_models + tuple(result for pipeline in plan.pipelines for result in pipeline.slos)


def prefix_hits(plan: Plan) -> list[tuple[str, str]]:
    """(class, what its prefix caches found) of every class with something to find."""
    return [
        (f"{model.name}/{found.traffic_class}", prefix_hits_text(found.realised, found.ceiling))
        for model in plan.models
        for found in model.prefix_hits
        if found.ceiling > 0.0
    ]


def attainment_text(plan: Plan) -> str:
    """`98.7 % of requests meet theirs (needs 95 %)`; the need is named where all objectives share it."""
    if plan.verification is None:
        return "not verified"
    needs = {result.slo.share for result in objectives(plan)}
    if not needs:
        return "none asked for"
    need = f" (needs {percent(next(iter(needs)))})" if len(needs) == 1 else ""
    return f"{percent(plan.verification.slo_attainment)} of requests meet theirs{need}"


def tightest_text(plan: Plan) -> str:
    """`tightest: voice e2e_p95 2.31 s ≤ 3.00 s`; empty when no objective is named."""
    if not plan.binding_slo:
        return ""
    for result in objectives(plan):
        if f"{result.subject} {result.slo.name}" == plan.binding_slo:
            relation = "≤" if result.predicted_ms <= result.slo.at_most_s * 1e3 else ">"
            found = f"{milliseconds(result.predicted_ms)} {relation} {format_seconds(result.slo.at_most_s)}"
            return f"tightest: {plan.binding_slo} {found}"
    return f"tightest: {plan.binding_slo}"


def chance_text(plan: Plan) -> str:
    """`chance that it holds: 97 %`; empty when nothing was drawn."""
    return "" if plan.slo_probability is None else f"chance that it holds: {percent(plan.slo_probability, 0)}"


def where(deployment: Deployment) -> str:
    """`A100-SXM-80GB`, `4 × H100-SXM-80GB`, `3g.40gb of A100-SXM-80GB`, `time-slicing on A100-SXM-80GB`."""
    devices = f"{deployment.gpus_per_replica} × " if deployment.gpus_per_replica > 1 else ""
    joint = "on" if deployment.partition in _SHARED_MEMORY else "of"
    part = "" if deployment.partition == "whole" else f"{deployment.partition} {joint} "
    return f"{devices}{part}{deployment.accelerator}"


def model_provenance(model: PlannedModel) -> Provenance | None:
    """The weakest source behind any figure of the model; None when it has none."""
    expected = model.expected
    estimates = [expected.ttft_ms, expected.tpot_ms, expected.e2e_ms, expected.requests_per_s_at_slo]
    estimates += [deployment.max_rate for deployment in model.deployments]
    sources = [estimate.provenance for estimate in estimates if estimate is not None]
    return least_trusted(*sources) if sources else None


def trust_groups(plan: Plan) -> dict[Provenance, tuple[str, ...]]:
    """Models by the weakest source of their figures, most trusted first."""
    found = [(model_provenance(model), model.name) for model in plan.models]
    groups = {level: tuple(name for source, name in found if source == level) for level in TRUST}
    return {level: names for level, names in groups.items() if names}


def trust_texts(plan: Plan) -> list[str]:
    """`llm: calibrated`, `asr, tts: measured`; models without a figure to predict come last."""
    groups = trust_groups(plan)
    found = [f"{', '.join(names)}: {level}" for level, names in groups.items()]
    silent = [model.name for model in plan.models if model_provenance(model) is None]
    return [*found, f"{', '.join(silent)}: sized by memory only"] if silent else found


def expected_of(model: PlannedModel, metric: SloMetric) -> Estimate | None:
    """The predicted p95 of that metric in milliseconds."""
    found: dict[SloMetric, Estimate | None] = {
        "ttft": model.expected.ttft_ms,
        "tpot": model.expected.tpot_ms,
        "e2e": model.expected.e2e_ms,
    }
    return found[metric]


def metric_text(model: PlannedModel, metric: SloMetric) -> str:
    """`612 ms (800)`: the class with the tightest limit, and that limit; the share when it is not 95 %.

    ` !` when any class misses its own. Without objectives the p95 of the slowest class.
    """
    estimate = expected_of(model, metric)
    results = [result for result in model.slos if result.slo.metric == metric]
    if estimate is None:
        return "–"
    if not results:
        return milliseconds(estimate.value)
    judged = min(results, key=lambda result: (result.slo.at_most_s, -result.slo.share))
    shown, tightest = milliseconds(judged.predicted_ms), judged.slo
    limit = format_seconds(tightest.at_most_s)
    number, _, unit = limit.rpartition(" ")
    limit = number if unit == shown.rpartition(" ")[2] and limit.count(" ") == 1 else limit
    share = "" if tightest.share == 0.95 else f" p{tightest.share * 100:g}"
    missed = "" if all(result.met for result in results) else " !"
    return f"{shown} ({limit}{share}){missed}"


def estimate_of(plan: Plan, result: SloResult) -> Estimate | None:
    """The estimate whose value the objective was judged by; None when the prediction is another percentile."""
    metric = result.slo.metric
    candidates = [expected_of(model, metric) for model in plan.models if result in model.slos]
    candidates += [pipeline.e2e_ms for pipeline in plan.pipelines if metric == "e2e" and result in pipeline.slos]
    return next((e for e in candidates if e is not None and e.value == result.predicted_ms), None)


def interval_of(plan: Plan, result: SloResult) -> str:
    """`540–705 ms`, or an empty string."""
    estimate = estimate_of(plan, result)
    return interval_ms(estimate) if estimate else ""
