"""A prediction for a terminal: the figures with their intervals, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rightslice.core.estimate import Metric
from rightslice.reporting.canvas import Canvas, Column, Style

_NARROW: Final = 70


def predict_text(title: str, times: Mapping[str, Metric], rates: Mapping[str, Metric], basis: str, style: Style) -> str:
    """Times in milliseconds with percentiles, rates with their intervals only."""
    canvas = Canvas(style)
    canvas.line((title, "bold"))
    percentiles = style.width >= _NARROW
    columns = [Column(""), Column("mean", "right"), Column("80 % interval", "right")]
    columns += [Column(name, "right") for name in ("p50", "p95", "p99") if percentiles]
    rows = []
    for name, figure in times.items():
        row = [name, _number(figure.mean), f"{_number(figure.low)}–{_number(figure.high)}"]
        rows.append([*row, *(_number(v) for v in (figure.p50, figure.p95, figure.p99) if percentiles)])
    for name, figure in rates.items():
        row = [name, _number(figure.mean), f"{_number(figure.low)}–{_number(figure.high)}"]
        rows.append([*row, *("" for _ in range(3) if percentiles)])
    canvas.table(columns, rows)
    canvas.line((basis, "dim"))
    return canvas.render()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
