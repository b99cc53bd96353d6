"""The part of a memory answer about a precision other than the published one."""

from __future__ import annotations

from typing import Final

from rightslice.memory.advice import FormatReport, PrecisionReport
from rightslice.reporting.canvas import Canvas, Cell

_LEVELS: Final = ("native", "stored", "refused")
_MOST_NAMES: Final = 6


def precision_part(canvas: Canvas, report: PrecisionReport) -> None:
    """Who runs the formats, their accuracy risk with its sources, and what to do."""
    canvas.blank()
    canvas.line(("Precision", "bold"), (f" with {report.engine}", "dim"), indent=2)
    for name, part in (("weights", report.weights), ("KV cache", report.kv)):
        if part is not None:
            canvas.line(f"{part.dtype} {name} instead of {part.published}", indent=4)
            canvas.rows([*_support(part), *_risk(part)], indent=6)
    canvas.rows([["-", line] for line in report.advice], indent=4)


def _support(part: FormatReport) -> list[list[Cell]]:
    """A row for each level, with the reason of its first accelerator; the others' differ in the name."""
    rows: list[list[Cell]] = []
    for level in _LEVELS:
        here = [seen for seen in part.support if seen.level == level]
        if not here:
            continue
        names = ", ".join(seen.accelerator for seen in here[:_MOST_NAMES])
        more = f" and {len(here) - _MOST_NAMES} more" if len(here) > _MOST_NAMES else ""
        rows.append([level, f"{names}{more}" + (f" ({here[0].reason})" if level != "native" else "")])
    return rows


def _risk(part: FormatReport) -> list[list[Cell]]:
    risk = part.risk
    note = f"; {risk.note}" if risk.note else ""
    rows: list[list[Cell]] = [["risk", f"{risk.risk}: {risk.method}{note}"]]
    rows += [["", f"{figure.text} ({figure.source}, {figure.date})"] for figure in risk.figures]
    return rows
