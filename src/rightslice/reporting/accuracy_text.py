"""Measured errors of predictions for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rightslice.core.results import Score
from rightslice.performance.accuracy import Document
from rightslice.reporting.canvas import Canvas, Column, Style

_METRICS: Final = {"throughput": "throughput", "tpot": "TPOT", "ttft": "TTFT", "e2e": "end to end"}
_LEFT_OUT: Final = {"groups": "groups out", "sources": "sources out", "fitted": "fitted"}


def percent(share: float | None) -> str:
    """One decimal below 100 %, a dash for nothing."""
    if share is None:
        return "-"
    return f"{100 * share:.1f} %" if share < 1.0 else f"{100 * share:,.0f} %"


def shipped_text(found: Document, style: Style) -> str:
    """Totals and groups of the shipped validation."""
    canvas = Canvas(style)
    canvas.line(("Errors of predictions on published measurements, version " + found.version, "bold"))
    canvas.line("By constants fitted without the groups (model family, accelerator) or the sources of the rows scored.")
    canvas.blank()
    rows = [
        [_LEFT_OUT[part], _METRICS[name], f"{t.rows:,}", percent(t.median_ape), percent(t.macro_median_ape),
         percent(t.within_20pct), percent(t.interval_coverage)]
        for part in _LEFT_OUT
        for name, t in found.totals.get(part, {}).items()
    ]  # fmt: skip
    titles = ("rows", "median", "of groups", "within 20 %", "in interval")
    canvas.table([Column(""), Column("metric"), *(Column(t, "right") for t in titles)], rows)
    canvas.blank()
    for decision in found.decisions:
        canvas.line(decision_line(decision.metric, decision.picks, decision.broken, decision.kept))
    canvas.blank()
    columns = [Column("group left out"), Column("rows", "right"), *(Column(t, "right") for t in _METRICS.values())]
    canvas.table(columns, [[g.group, f"{g.rows:,}", *(percent(getattr(g, m)) for m in _METRICS)] for g in found.groups])
    return canvas.render()


def decision_line(metric: str, picks: int, broken: float, kept: float) -> str:
    """What picking by prediction is worth."""
    return (
        f"Of {picks:,} picks under a {_METRICS[metric]} objective at 95 % confidence, {percent(broken)} break it in "
        f"truth; the others keep {percent(kept)} of the best throughput."
    )


def scored_text(
    totals: Mapping[str, Score | None],
    coverage: float,
    by_group: Iterable[Mapping[str, object]],
    missed: Sequence[str],
    style: Style,
) -> str:
    """Scores of one table, by metric and by group."""
    canvas = Canvas(style)
    rows = [
        [_METRICS[name], f"{t.rows:,}", percent(t.median_ape), percent(t.macro_median_ape), percent(t.within_20pct)]
        for name, t in totals.items()
        if t is not None
    ]
    titles = ("rows", "median", "of groups", "within 20 %")
    canvas.table([Column("metric"), *(Column(t, "right") for t in titles)], rows)
    canvas.line(f"Predicted: {percent(coverage)} of the rows")
    canvas.blank()
    columns = [Column("group"), *(Column(t, "right") for t in _METRICS.values())]
    canvas.table(columns, [[str(g["group"]), *(_median(g[m]) for m in _METRICS)] for g in by_group])
    for miss in missed:
        canvas.line((miss, "bold red"))
    return canvas.render()


def _median(score: object) -> str:
    found: float | None = getattr(score, "median_ape", None)
    return percent(found)
