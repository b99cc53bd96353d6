"""A plan for a terminal: what to deploy, cost, objectives, trust, then the GPUs, the models and the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from rightslice.core.plan import Plan, PlannedModel, Rejection
from rightslice.core.quantities import format_usd
from rightslice.core.slo import SloMetric
from rightslice.core.text import cells, plural, visible
from rightslice.reporting.autoscaling_text import scaled_day_text, scaling_rows
from rightslice.reporting.bars import Bar, bar_lines
from rightslice.reporting.canvas import Canvas, Cell, Column, Style
from rightslice.reporting.changes_text import write_changes
from rightslice.reporting.reasons_text import partition_row, platform_text, saving_text
from rightslice.reporting.summary import (
    GpuGroup,
    attainment_text,
    baseline_text,
    bound_text,
    chance_text,
    cost_text,
    counts_text,
    day_text,
    expected_of,
    gpu_groups,
    metric_text,
    objectives,
    pool_text,
    prefix_hits,
    price_text,
    tightest_text,
    trust_texts,
    where,
)
from rightslice.reporting.text import interval_ms, milliseconds, to_ascii

_MOST_GPU_BARS = 12
_RULED_OUT = ("RS4009", "RS4010")
"""What the workload or this version leaves out on purpose: in the document, not on the screen."""
_MOST_DEARER = 3
_MOST_REASONS = 6
_METRICS: tuple[SloMetric, ...] = ("ttft", "tpot", "e2e")
_GIB = 2.0**30
_ANSWER_INDENT = 10


def plan_text(plan: Plan, *, width: int = 80, color: bool = False, ascii_only: bool = False) -> str:
    """The whole answer as text of at most `width` cells a line; `ascii_only` uses no block characters."""
    canvas = Canvas(Style(width, color, ascii_only))
    if plan.feasible:
        _feasible(canvas, plan)
    else:
        _honest_no(canvas, plan)
    return canvas.render()


def plan_brief(plan: Plan, *, ascii_only: bool = False) -> str:
    """Three lines DEPLOY, COST, SLO, not wrapped: for pipes and CI."""
    if plan.feasible:
        deploy = "; ".join(pool_text(pool) for pool in plan.pools)
        cost = ", ".join(filter(None, (cost_text(plan), price_text(plan))))
        slo = "; ".join(filter(None, (attainment_text(plan), chance_text(plan))))
    else:
        deploy = "no deployment meets this workload"
        cost = plan.binding.ways_out[0] if plan.binding and plan.binding.ways_out else "–"
        slo = plan.binding.what if plan.binding else "not met"
    text = "".join(f"{name:<8}{visible(value)}\n" for name, value in (("DEPLOY", deploy), ("COST", cost), ("SLO", slo)))
    return to_ascii(text) if ascii_only else text


def _feasible(canvas: Canvas, plan: Plan) -> None:
    canvas.line("Planned ", (plan.name, "bold"), f": {counts_text(plan)}")
    canvas.blank()
    _answers(canvas, plan)
    canvas.blank()
    _gpus(canvas, plan)
    canvas.blank()
    _models(canvas, plan)
    _pipelines(canvas, plan)
    _autoscaling(canvas, plan)
    _changes(canvas, plan)
    _partitions(canvas, plan)
    _rejected(canvas, plan.rejected)
    _requests(canvas, plan)
    _warnings(canvas, plan)


def _answers(canvas: Canvas, plan: Plan) -> None:
    cost = [
        cost_text(plan),
        price_text(plan),
        baseline_text(plan),
        bound_text(plan),
        day_text(plan),
        *_per_token_texts(plan),
    ]
    answers = (
        ("DEPLOY", [pool_text(pool) for pool in plan.pools]),
        ("COST", _joined(cost, canvas.style.width)),
        ("SLO", _joined([attainment_text(plan), chance_text(plan), tightest_text(plan)], canvas.style.width)),
        ("SURE?", _joined(trust_texts(plan), canvas.style.width)),
    )
    canvas.rows(
        [(("" if number else name, "bold"), line) for name, lines in answers for number, line in enumerate(lines)]
    )


def _joined(parts: Sequence[str], width: int) -> list[str]:
    """As many parts on a line, with dots between, as fit beside the names of the answers."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and cells(lines[-1]) + 3 + cells(part) <= width - _ANSWER_INDENT:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def _per_token_texts(plan: Plan) -> list[str]:
    prices = (("input", plan.usd_per_million_input_tokens), ("output", plan.usd_per_million_output_tokens))
    return [f"{format_usd(usd)} per million {kind} tokens" for kind, usd in prices if usd is not None]


def _gpus(canvas: Canvas, plan: Plan) -> None:
    groups = gpu_groups(plan)
    several = len({group.pool.name for group in groups}) > 1
    shown = groups[:_MOST_GPU_BARS]
    label_width = min(max((len(_gpu_label(group)) for group in shown), default=0), 18)
    pool = ""
    for group in shown:
        if several and group.pool.name != pool:
            pool = group.pool.name
            canvas.line((f"{group.pool.machine_type} ({group.pool.accelerator})", "dim"), indent=2)
        amount = f"{group.used_bytes / _GIB:.1f} / {group.first.memory_bytes / _GIB:.1f} GiB"
        if len(group.numbers) > 1:
            amount += " each"
        for pieces in bar_lines(Bar(_gpu_label(group), label_width, group.segments, amount), canvas.style):
            canvas.line(*pieces, indent=2)
    hidden = sum(len(group.numbers) for group in groups[_MOST_GPU_BARS:])
    if hidden:
        canvas.line((f"… and {hidden} more GPUs", "dim"), indent=2)


def _gpu_label(group: GpuGroup) -> str:
    label = group.label
    return label if len(label) <= 18 else f"{len(group.numbers)} GPUs"


def _models(canvas: Canvas, plan: Plan) -> None:
    columns = [Column("model"), Column("replicas", "right"), Column("where")]
    metrics = [m for m in _METRICS if any(expected_of(model, m) for model in plan.models)]
    columns += [Column(f"{m.upper()} p95 (SLO)", "right") for m in metrics]
    columns.append(Column("max rate", "right"))
    canvas.table(columns, [_model_row(model, metrics) for model in plan.models])
    for subject, text in prefix_hits(plan):
        canvas.line((f"{subject}: {text}", "dim"))


def _model_row(model: PlannedModel, metrics: list[SloMetric]) -> list[str]:
    places = ", ".join(dict.fromkeys(where(deployment) for deployment in model.deployments))
    rate = model.expected.requests_per_s_at_slo
    cells = [metric_text(model, metric) for metric in metrics]
    return [model.name, str(model.replicas), places, *cells, f"{rate.value:.3g} /s" if rate else "–"]


def _pipelines(canvas: Canvas, plan: Plan) -> None:
    rows: list[list[Cell]] = []
    for pipeline in plan.pipelines:
        population = f"{plural(pipeline.concurrent_users, 'user')} ({pipeline.users})"
        load = f"{' → '.join(pipeline.stages)}: {population}, {pipeline.requests_per_s:.3g} requests/s"
        rows.append([(pipeline.name, "bold"), load])
        if pipeline.e2e_ms:
            predicted = f"e2e p95 {milliseconds(pipeline.e2e_ms.value)}, 80 % interval {interval_ms(pipeline.e2e_ms)}"
            rows.append(["", predicted])
    if rows:
        canvas.blank()
        canvas.rows(rows)
    missed = [result for result in objectives(plan) if not result.met]
    for result in missed:
        canvas.line((f"! {result.subject} misses {result.slo.name}", "bold"), indent=2)


def _autoscaling(canvas: Canvas, plan: Plan) -> None:
    if plan.autoscaling:
        _heading(canvas, "Autoscaling")
        canvas.rows([[name, how] for name, how in scaling_rows(plan)], indent=2)
        canvas.line(scaled_day_text(plan), indent=2)


def _partitions(canvas: Canvas, plan: Plan) -> None:
    """Of whole GPUs only `explain` tells the reason."""
    parts = [found for found in plan.partitions if found.partition != "whole"]
    if parts:
        _heading(canvas, "Why slices or shared GPUs (times over those on a GPU alone)")
        canvas.rows([partition_row(found) for found in parts], indent=4)
    limits = [*map(platform_text, plan.platform_costs), *map(saving_text, plan.savings)]
    if limits:
        _heading(canvas, "What limits cost")
        canvas.rows([[text] for text in limits], indent=4)


def _changes(canvas: Canvas, plan: Plan) -> None:
    if plan.changes:
        _heading(canvas, "From what runs now")
        write_changes(canvas, plan.changes)


def _heading(canvas: Canvas, title: str) -> None:
    canvas.blank()
    canvas.line((title, "bold"), indent=2)


def _rejected(canvas: Canvas, rejected: tuple[Rejection, ...]) -> None:
    dearer = sorted((r for r in rejected if r.monthly_usd is not None), key=lambda r: not r.model)  # own sources first
    dearer = dearer[: _MOST_DEARER + sum(bool(r.model) for r in dearer)]
    other = [r for r in rejected if r.monthly_usd is None and r.code not in _RULED_OUT]
    near = [*dearer, *other[:_MOST_REASONS]]
    if not near:
        return
    _heading(canvas, "Not chosen")
    rows: list[list[Cell]] = [
        [(r.code, "dim"), r.option, f"{r.reason}; allow it with {r.relaxation}" if r.relaxation else r.reason]
        for r in near
    ]
    canvas.rows(rows, indent=4)
    if len(rejected) > len(near):
        canvas.line((f"… and {len(rejected) - len(near)} more in the plan document", "dim"), indent=4)


def _requests(canvas: Canvas, plan: Plan) -> None:
    if not plan.requests_to_make:
        return
    _heading(canvas, "Ask for first")
    canvas.rows([[r.kind, f"{r.amount}: {r.subject} ({r.reason})"] for r in plan.requests_to_make], indent=4)


def _warnings(canvas: Canvas, plan: Plan) -> None:
    if not plan.warnings:
        return
    _heading(canvas, "Watch out")
    canvas.rows([[(w.code, "dim"), f"{w.subject}: {w.message}"] for w in plan.warnings], indent=4)


def _honest_no(canvas: Canvas, plan: Plan) -> None:
    canvas.line(("No deployment meets this workload.", "bold"), f"  ({plan.name})")
    if plan.binding:
        canvas.rows([["What binds", plan.binding.what]])
        if plan.binding.ways_out:
            canvas.line("Cheapest way out, one change each", indent=2)
            canvas.rows([_way_out(way) for way in plan.binding.ways_out], indent=4)
    if plan.pools:
        _heading(canvas, "The closest that was found")
        _answers(canvas, plan)
    _rejected(canvas, plan.rejected)
    _warnings(canvas, plan)


def _way_out(way: str) -> list[str]:
    change, arrow, effect = way.partition(" → ")
    return [change, f"→ {effect}"] if arrow else [way, ""]
