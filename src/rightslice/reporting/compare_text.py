"""A plan beside hosted APIs, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.core.quantities import format_usd
from rightslice.procurement.api_prices import Comparison, ModelComparison
from rightslice.reporting.canvas import Canvas, Column, Style


def compare_text(found: Comparison, style: Style) -> str:
    """One row for each model and API, then what it means."""
    canvas = Canvas(style)
    priced = f", machines at prices of {found.price_date}, {found.price_quality}" if found.price_date else ""
    canvas.line((f"{found.plan} beside hosted APIs", "bold"), priced)
    columns = ("model", "API", "tokens a month", "own", "API", "own a million", "API a million", "prices of")
    rows = [
        (
            row.model,
            row.api,
            _count(row.tokens.total),
            format_usd(row.own_usd),
            format_usd(row.api_usd),
            format_usd(row.own_usd_per_million),
            format_usd(row.api_usd_per_million),
            row.price_date,
        )
        for row in found.models
    ]
    if rows:
        left = (0, 1, len(columns) - 1)
        canvas.table([Column(name, "left" if i in left else "right") for i, name in enumerate(columns)], rows)
    for row in found.models:
        for line in _verdict(row):
            canvas.line(line, indent=2)
    for row in found.models:
        if row.source:
            canvas.line((f"{row.api}: {row.source}", "dim"))
    for note in found.notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _verdict(row: ModelComparison) -> Iterator[str]:
    """Which is cheaper now, and from which traffic on the other is."""
    cheaper, dearer = ("own", "the API") if row.own_usd < row.api_usd else ("the API", "own")
    saved = abs(row.own_usd - row.api_usd)
    yield f"{row.model} / {row.api}: {cheaper} is cheaper than {dearer}, by {format_usd(saved)} a month"
    if row.crossover_tokens is None:
        return
    at = f"both cost the same at {_count(row.crossover_tokens)} tokens a month of this mix"
    if row.carried_tokens is not None and row.crossover_tokens > row.carried_tokens:
        at += f", more than the {_count(row.carried_tokens)} that the planned replicas carry: own never pays as planned"
    yield at


def _count(tokens: float) -> str:
    """`3.2 billion`, `410 million`."""
    return f"{tokens / 1e9:,.3g} billion" if tokens >= 1e9 else f"{tokens / 1e6:,.3g} million"
