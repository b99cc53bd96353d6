"""Candidate models side by side, for a terminal."""

from __future__ import annotations

from rightslice.core.candidates import Candidate, Candidates
from rightslice.core.quantities import format_bytes, format_usd
from rightslice.reporting.canvas import Canvas, Column, Style
from rightslice.reporting.text import figure, milliseconds, percent, priced_text


def candidates_text(found: Candidates, style: Style) -> str:
    """One row for each, the cheapest first; then where each runs."""
    canvas = Canvas(style)
    priced = priced_text(found.price_date, found.price_quality)
    canvas.line((f"Models for {found.workload} ({found.task})", "bold"), f", {priced}" if priced else "")
    names = list(dict.fromkeys(name for one in found.models for name in one.scores))
    columns = ["model", "parameters", "weights", "context", "a month", "in / out a million", "TTFT", "TPOT", *names, ""]
    aligned = [Column(name, "left" if i in (0, len(columns) - 1) else "right") for i, name in enumerate(columns)]
    canvas.table(aligned, [_row(one, names) for one in found.models])
    canvas.blank()
    for one in found.models:
        sure = f", chance {percent(one.slo_probability, 0)}" if one.holds and one.slo_probability is not None else ""
        canvas.line((one.model, "bold" if one.holds else "dim"), f": {one.where}{sure}")
    best = f"frontier of cost and {found.score}" if found.score else "the cheapest that keeps the objectives"
    canvas.line((f"* {best}; latencies are p95 at the planned load", "dim"))
    for source in found.sources:
        canvas.line((source, "dim"))
    return canvas.render()


def _row(one: Candidate, names: list[str]) -> list[str]:
    active = f" ({one.active_parameters / 1e9:.3g} active)" if one.active_parameters < one.parameters else ""
    prices = (one.usd_per_million_input_tokens, one.usd_per_million_output_tokens)
    a_million = " / ".join(format_usd(price) for price in prices if price is not None) or "–"
    return [
        one.model,
        f"{one.parameters / 1e9:.3g} B{active}",
        f"{format_bytes(one.weights_bytes)} {one.dtype}",
        "–" if one.context_max is None else f"{one.context_max:,}",
        "no" if one.monthly_usd is None else format_usd(one.monthly_usd),
        a_million,
        "–" if one.ttft_ms is None else milliseconds(one.ttft_ms),
        "–" if one.tpot_ms is None else milliseconds(one.tpot_ms),
        *("–" if name not in one.scores else figure(one.scores[name]) for name in names),
        "*" if one.frontier else "",
    ]
