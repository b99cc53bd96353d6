"""What changes from today's GPUs or from another plan, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rightslice.core.changes import Changes, ChangeStep
from rightslice.core.difference import ModelDifference, PlanDifference
from rightslice.core.quantities import format_usd
from rightslice.core.text import plural
from rightslice.reporting.canvas import Canvas, Column, Style
from rightslice.reporting.text import percent

_MOST_STEPS = 20
_VERBS = {"add": "add", "cut": "drain, cut", "remove": "drain, remove"}


def summary_text(changes: Changes) -> str:
    """`6 of 8 GPUs stay as they are, 2 are cut anew, 1 is added`."""
    parts = [f"{changes.gpus_kept:,} of {plural(changes.gpus_today, 'GPU')} stay as they are"]
    for count, what in (
        (changes.gpus_cut, "cut anew"),
        (changes.gpus_added, "added"),
        (changes.gpus_removed, "given up"),
    ):
        if count:
            parts.append(f"{count:,} {'is' if count == 1 else 'are'} {what}")
    return ", ".join(parts)


def write_changes(canvas: Canvas, changes: Changes) -> None:
    """The summary and the steps in their order; equal neighbours together."""
    canvas.line(summary_text(changes), indent=2)
    rows = []
    for number, (_, group) in enumerate(groupby(changes.steps, key=_alike), start=1):
        steps = list(group)
        if number > _MOST_STEPS:
            break
        names = ", ".join(_name(step) for step in steps if step.node) or f"{len(steps)} × {steps[0].machine_type}"
        rows.append([f"{number}.", _VERBS[steps[0].action], names, _detail(steps[0])])
    canvas.rows(rows, indent=4)
    shown = sum(1 for _ in groupby(changes.steps, key=_alike))
    if shown > _MOST_STEPS:
        canvas.line((f"… and {shown - _MOST_STEPS} more in the plan document", "dim"), indent=4)


def _alike(step: ChangeStep) -> object:
    return step.action, step.pool, step.gpus, sorted(step.evicts.items()), step.stops


def _name(step: ChangeStep) -> str:
    """The node's own name; nodes of a plan are numbered within their pool."""
    number = step.node.removeprefix(f"{step.pool}/")
    return step.node if number == step.node else f"{step.machine_type} node {number}"


def _detail(step: ChangeStep) -> str:
    parts = [f"GPU {gpu.gpu}: {cut_text(gpu.before)} → {cut_text(gpu.after)}" for gpu in step.gpus]
    if step.evicts:
        parts.append("evicts " + ", ".join(f"{count} × {model}" for model, count in step.evicts.items()))
    if step.stops:
        parts.append(f"nobody else serves {', '.join(step.stops)} meanwhile")
    return "; ".join(parts)


def cut_text(cut: Mapping[str, int]) -> str:
    """`2 × 3g.40gb`, `whole`."""
    return " + ".join(f"{count} × {partition}" for partition, count in sorted(cut.items())) or "whole"


def difference_text(found: PlanDifference, style: Style) -> str:
    """The whole answer of `diff`."""
    canvas = Canvas(style)
    canvas.line(f"From {found.old} to {found.new}")
    canvas.blank()
    canvas.rows([["COST", _cost(found)], ["SLO", _chance(found)]])
    canvas.blank()
    rows = [
        [a.accelerator, f"{a.gpus_old:,}", f"{a.gpus_new:,}", _signed(a.gpus_new - a.gpus_old)]
        for a in found.accelerators
    ]
    numbers: Sequence[Column] = [Column("old", "right"), Column("new", "right"), Column("", "right")]
    canvas.table([Column("GPUs"), *numbers], rows)
    canvas.blank()
    canvas.table([Column("replicas"), *numbers, Column("where")], [_model_row(model) for model in found.models])
    canvas.blank()
    canvas.line(("GPUs that change", "bold"), indent=2)
    write_changes(canvas, found.changes)
    return canvas.render()


def _cost(found: PlanDifference) -> str:
    old, new, more = found.monthly_usd.old, found.monthly_usd.new, found.monthly_usd.difference
    if old is None or new is None or more is None:
        return "–"
    sign = "−" if more < 0 else "+"
    share = "" if found.increase is None else f" ({sign}{percent(abs(found.increase))})"
    changed = "no change" if abs(more) < 1.0 else f"{sign}{format_usd(abs(more))}{share}"
    dates = " and ".join(dict.fromkeys(date for date in found.price_dates if date))
    priced = f" (prices of {dates})" if dates else ""
    return f"{format_usd(old)} → {format_usd(new)} a month: {changed}{priced}"


def _chance(found: PlanDifference) -> str:
    old, new = found.slo_probability.old, found.slo_probability.new
    if old is None or new is None:
        return "–"
    return f"chance that every objective holds: {percent(old, 0)} → {percent(new, 0)}"


def _signed(difference: int) -> str:
    return f"{difference:+,}".replace("-", "−") if difference else ""


def _model_row(model: ModelDifference) -> list[str]:
    old, new = (", ".join(places) for places in (model.where_old, model.where_new))
    where = new if old == new or not old else old if not new else f"{old} → {new}"
    more = _signed(model.replicas_new - model.replicas_old)
    return [model.name, f"{model.replicas_old:,}", f"{model.replicas_new:,}", more, where]
