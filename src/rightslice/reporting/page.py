"""What the page shows, as text and figures; the template only arranges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rightslice.core.plan import Alternative, Deployment, Memory, Plan, SloResult
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.text import plural
from rightslice.reporting import summary, svg
from rightslice.reporting.text import difference_usd, milliseconds, percent

_GIB = 2.0**30
_MOST_GAUGES = 6
_PALETTE = 8
_NARROW_SHARE = 0.3

_METRICS: Mapping[str, str] = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "End to end"}


@dataclass(frozen=True, slots=True)
class Label:
    """Text over a stretch of a bar; `width` is a CSS percentage."""

    text: str
    width: str


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU, or several alike."""

    name: str
    amount: str
    labels: tuple[Label, ...]
    bar: Markup


@dataclass(frozen=True, slots=True)
class PoolView:
    """One card: equal machines and their GPUs."""

    count: int
    machine_type: str
    facts: tuple[str, ...]
    gpus: tuple[GpuView, ...]


@dataclass(frozen=True, slots=True)
class GaugeView:
    """One objective: what, by how much, and the gauge."""

    subject: str
    limit: str
    achieved: str
    required: str
    met: bool
    figure: Markup


@dataclass(frozen=True, slots=True)
class TrustView:
    """One step of the trust strip and the models on it."""

    level: str
    names: tuple[str, ...]
    css: str


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The memory of one device of one replica."""

    name: str
    place: str
    bar: Markup
    parts: tuple[tuple[str, str, str], ...]
    room: str


@dataclass(frozen=True, slots=True)
class DotView:
    """One row of the cost comparison."""

    option: str
    detail: str
    amount: str
    kind: str
    figure: Markup


def model_colors(plan: Plan) -> dict[str, str]:
    """Model -> CSS class, in the plan's order."""
    return {model.name: f"s{number % _PALETTE}" for number, model in enumerate(plan.models)}


def pools(plan: Plan) -> tuple[PoolView, ...]:
    """One card per pool with its GPUs."""
    colors = model_colors(plan)
    groups = summary.gpu_groups(plan)
    spread = {deployment.id: deployment.gpus_per_replica for model in plan.models for deployment in model.deployments}
    views = []
    for pool in plan.pools:
        gpus = tuple(_gpu(group, colors, spread) for group in groups if group.pool.name == pool.name)
        devices = f"{pool.gpus_per_node} × {pool.accelerator}" if pool.gpus_per_node > 1 else pool.accelerator
        place = " ".join(dict.fromkeys(filter(None, (pool.provider, pool.region))))
        bought = f"{summary.purchase_text(pool.purchase)}, {format_usd(pool.hourly_usd)} an hour each"
        more = f", up to {pool.nodes_max} when scaled out" if pool.nodes_max > pool.nodes else ""
        facts = (", ".join(filter(None, (devices, place))), bought + more)
        views.append(PoolView(pool.nodes, pool.machine_type, facts, gpus))
    return tuple(views)


def colors_to_explain(plan: Plan) -> dict[str, str]:
    """Model -> CSS class where a slice is too narrow to be sure of its label; empty otherwise."""
    tenants = [segment for group in summary.gpu_groups(plan) for segment in group.segments if segment.slot]
    return model_colors(plan) if any(segment.share < _NARROW_SHARE for segment in tenants) else {}


def _gpu(group: summary.GpuGroup, colors: Mapping[str, str], gpus: Mapping[str, int]) -> GpuView:
    parts, labels = [], []
    for segment in group.segments:
        slot = segment.slot
        width = svg.at(segment.share)
        if slot is None:
            free = segment.share * group.first.memory_bytes / _GIB
            parts.append(svg.Part(segment.share, "free", f"free {free:.1f} GiB"))
            labels.append(Label("free", width))
            continue
        filled = segment.used_share / segment.share if segment.share else 0.0
        extent = segment.share * group.first.memory_bytes / _GIB
        title = f"{slot.model}, {slot.partition}: {slot.used_bytes / _GIB:.1f} of {extent:.1f} GiB"
        parts.append(svg.Part(segment.share, colors.get(slot.model, "s0"), title, min(filled, 1.0)))
        spread = gpus.get(slot.deployment, 1)
        more = f" · {slot.partition}{f', {spread} per replica' if spread > 1 else ''}"
        labels.append(Label(slot.model if segment.share < _NARROW_SHARE else slot.model + more, width))
    several = len(group.numbers) > 1
    name = f"{len(group.numbers)} GPUs alike" if several else group.label
    amount = f"{group.used_bytes / _GIB:.1f} of {group.first.memory_bytes / _GIB:.1f} GiB{' each' if several else ''}"
    return GpuView(name, amount, tuple(labels), svg.stacked_bar(f"Memory of {group.label}", parts, 26))


def cost_bars(plan: Plan) -> tuple[tuple[str, str, Markup], ...]:
    """This plan beside the usual practice: name, amount, bar; empty without a baseline."""
    if plan.monthly_usd is None or plan.baseline is None:
        return ()
    pairs = (
        ("this plan", plan.monthly_usd.value, "chosen"),
        (plan.baseline.description, plan.baseline.monthly_usd, "other"),
    )
    most = max(usd for _, usd, _ in pairs) or 1.0
    return tuple(
        (name, format_usd(usd), svg.stacked_bar(f"{name}: {format_usd(usd)}", [svg.Part(usd / most, css, name)], 8))
        for name, usd, css in pairs
    )


def limit_text(result: SloResult) -> str:
    """`TTFT p95 ≤ 800 ms`."""
    name = f"{_METRICS[result.slo.metric]} p{result.slo.share * 100:g}"
    return f"{name} ≤ {format_seconds(result.slo.at_most_s)}"


def gauges(results: Sequence[SloResult]) -> tuple[tuple[GaugeView, ...], float, int]:
    """The tightest objectives with their gauges, where the common rail begins, and how many more there are."""
    floor = svg.gauge_floor([share for r in results for share in (r.achieved_share, r.slo.share)])
    ordered = sorted(range(len(results)), key=lambda i: (results[i].achieved_share - results[i].slo.share, i))
    kept = sorted(ordered[:_MOST_GAUGES])
    views = tuple(_gauge(results[i], floor) for i in kept)
    return views, floor, len(results) - len(views)


def _gauge(result: SloResult, floor: float) -> GaugeView:
    limit = limit_text(result)
    figure = svg.gauge(f"{result.subject}: {limit}", result.achieved_share, result.slo.share, floor)
    return GaugeView(
        result.subject, limit, percent(result.achieved_share), percent(result.slo.share), result.met, figure
    )


def trust(plan: Plan) -> tuple[TrustView, ...]:
    """All five levels, most trusted first; `names` is empty where no model stands on it."""
    groups = summary.trust_groups(plan)
    return tuple(TrustView(level, groups.get(level, ()), f"t{n}") for n, level in enumerate(summary.TRUST))


def objective_rows(plan: Plan) -> list[list[str]]:
    """Subject, objective, predicted, interval, achieved, required, met."""
    return [
        [
            result.subject,
            limit_text(result),
            milliseconds(result.predicted_ms),
            summary.interval_of(plan, result) or "–",
            percent(result.achieved_share),
            percent(result.slo.share),
            "met" if result.met else "missed",
        ]
        for result in summary.objectives(plan)
    ]


def model_rows(plan: Plan) -> list[list[str]]:
    """One row per deployment: model, source, replicas, where, engine, precision, context, rates."""
    rows = []
    for model in plan.models:
        for deployment in model.deployments:
            settings = deployment.engine.settings
            precision = f"{settings.weight_dtype}, KV {settings.kv_dtype}" if settings else "–"
            rate = deployment.max_rate
            rows.append(
                [
                    model.name,
                    model.source or "–",
                    str(deployment.replicas.steady),
                    summary.where(deployment),
                    " ".join(filter(None, (deployment.engine.name, deployment.engine.version))),
                    precision,
                    f"{settings.max_model_len:,}" if settings else "–",
                    f"{model.rate_per_s:.3g} /s",
                    f"{rate.value:.3g} /s ({rate.low:.3g}–{rate.high:.3g})" if rate else "–",
                ]
            )
    return rows


def memories(plan: Plan) -> tuple[MemoryView, ...]:
    """One bar per deployment that has a memory budget."""
    return tuple(
        _memory(model.name, deployment, deployment.memory)
        for model in plan.models
        for deployment in model.deployments
        if deployment.memory is not None
    )


def _memory(model: str, deployment: Deployment, memory: Memory) -> MemoryView:
    free = max(memory.device_bytes - memory.used_bytes, 0)
    amounts = (
        ("weights", memory.weights_bytes, "m0"),
        ("activations", memory.activation_bytes, "m1"),
        ("overhead", memory.overhead_bytes, "m2"),
        ("KV cache", memory.kv_cache_bytes, "m3"),
        ("free", free, "free"),
    )
    total = max(memory.device_bytes, memory.used_bytes, 1)
    shown = [(name, f"{amount / _GIB:.1f}", css, amount) for name, amount, css in amounts if amount > 0]
    parts = [svg.Part(amount / total, css, f"{name} {text} GiB") for name, text, css, amount in shown]
    room = []
    if memory.kv_tokens:
        room.append(f"{memory.kv_tokens:,} tokens in the KV cache")
    if memory.max_sequences:
        room.append(f"{plural(memory.max_sequences, 'sequence')} at once")
    return MemoryView(
        model,
        f"{summary.where(deployment)} · {memory.device_bytes / _GIB:.1f} GiB each",
        svg.stacked_bar(f"Memory of one replica of {model}", parts, 26),
        tuple((name, text, css) for name, text, css, _ in shown),
        ", ".join(room),
    )


def cost_dots(plan: Plan) -> tuple[tuple[DotView, ...], Markup]:
    """The plan, its alternatives, what was rejected with a price, the usual practice: by cost; and the axis."""
    cost = plan.monthly_usd
    if cost is None:
        return (), Markup("")
    machines = ", ".join(f"{pool.nodes} × {pool.machine_type}" for pool in plan.pools)
    shown = {alternative.option for alternative in plan.alternatives}
    priced = [(no, no.monthly_usd) for no in plan.rejected if no.monthly_usd is not None and no.option not in shown]
    found = [
        (svg.Dot("chosen", cost.value, cost.low, cost.high), machines, "this plan"),
        *(
            (svg.Dot("verified" if a.verified else "unverified", a.monthly_usd), _option(a), a.detail)
            for a in plan.alternatives
        ),
        *((svg.Dot("rejected", usd), no.option, no.reason) for no, usd in priced),
    ]
    if plan.baseline:
        found.append((svg.Dot("baseline", plan.baseline.monthly_usd), plan.baseline.description, "usual practice"))
    found.sort(key=lambda item: (item[0].usd, item[1]))
    ticks = svg.nice_ticks(max(max(dot.usd, dot.high or 0.0) for dot, _, _ in found), 4)
    views = tuple(_dot(dot, option, detail, cost.value, ticks) for dot, option, detail in found)
    return views, svg.axis(ticks, [_compact_usd(t) for t in ticks])


def _option(choice: Alternative) -> str:
    named = choice.accelerator in choice.option
    return choice.option if named or not choice.accelerator else f"{choice.option} ({choice.accelerator})"


def _compact_usd(amount_usd: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if amount_usd >= size:
            return f"${amount_usd / size:g}{unit}"
    return f"${amount_usd:g}"


def _dot(dot: svg.Dot, option: str, detail: str, chosen_usd: float, ticks: Sequence[float]) -> DotView:
    amount = format_usd(dot.usd)
    if dot.kind != "chosen":
        amount += f" ({difference_usd(dot.usd - chosen_usd)})"
    figure = svg.dot_row(dot, f"{option}: {amount} / month. {detail}", ticks)
    return DotView(option, detail, amount, dot.kind, figure)


def verification_rows(plan: Plan) -> list[tuple[str, str]]:
    """Facts of the simulation that stands behind the plan."""
    found = plan.verification
    if found is None:
        return []
    rows = [
        ("Requests simulated", f"{found.requests:,}"),
        ("Completed", f"{found.completed:,}"),
        ("Failed", f"{found.failed:,}"),
        ("Meet all their objectives", percent(found.slo_attainment, 2)),
        ("Simulated time", format_seconds(found.horizon_s)),
        ("Seed", str(found.seed)),
        ("Draws from the error bands", f"{found.draws:,}"),
        ("Draws that met every objective", f"{found.draws_met:,}"),
        ("Rounds of tightening", f"{found.rounds:,}"),
        (
            "Reproducible",
            "yes: same input and seed, same plan" if plan.reproducible else "no: the search was stopped early",
        ),
    ]
    rows += [(f"Prefix cache, {subject}", text) for subject, text in summary.prefix_hits(plan)]
    if plan.bound:
        rows.append(("Cost bound of the model", f"{format_usd(plan.bound.monthly_usd)} / month"))
        rows.append(("Gap to the bound", percent(plan.bound.gap, 2)))
    return rows
