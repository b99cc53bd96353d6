"""A memory answer for a terminal: where memory goes, what it fits on, what to know."""

from __future__ import annotations

from rightslice.core.quantities import format_bytes
from rightslice.memory.sizing import SizeReport
from rightslice.reporting.canvas import Canvas, Cell, Column, Style
from rightslice.reporting.text import plural

_NARROWEST_BAR = 10


def size_text(report: SizeReport, *, width: int = 80, color: bool = False, ascii_only: bool = False) -> str:
    """Parameters, a bar for each part of the memory, the accelerators that hold it, notes."""
    canvas = Canvas(Style(width, color, ascii_only))
    active = report.active_parameters
    some = f", {_billions(active)} active" if active and active < report.parameters else ""
    canvas.line((report.model, "bold"), f": {_billions(report.parameters)} parameters{some}")
    canvas.blank()
    _parts(canvas, report)
    canvas.blank()
    _fits(canvas, report)
    if report.notes:
        canvas.blank()
        canvas.line(("Notes", "bold"), indent=2)
        canvas.rows([["-", note] for note in report.notes], indent=4)
    return canvas.render()


def _billions(parameters: float) -> str:
    return f"{parameters / 1e9:.3g} B" if parameters >= 1e9 else f"{parameters / 1e6:.3g} M"


def _parts(canvas: Canvas, report: SizeReport) -> None:
    parts = (
        ("weights", report.weights_bytes),
        ("KV cache", report.kv_cache_bytes),
        ("activations", report.activation_bytes),
        ("overhead", report.overhead_bytes),
    )
    room = max(canvas.style.width - 30, _NARROWEST_BAR)
    most = max(report.total_bytes, 1)
    rows: list[list[Cell]] = []
    for name, amount in parts:
        filled = max(round(room * amount / most), 1 if amount else 0)
        rows.append([name, f"{format_bytes(amount):>8}", ("█" * filled, "cyan")])
    rows.append([("total", "bold"), (f"{format_bytes(report.total_bytes):>8}", "bold"), ""])
    canvas.rows(rows)


def _fits(canvas: Canvas, report: SizeReport) -> None:
    if not report.fits:
        canvas.line(("Fits on no accelerator of the catalogue, in any number.", "bold"), indent=2)
        return
    canvas.line((f"Fits on {plural(len(report.fits), 'accelerator')}", "bold"), indent=2)
    columns = (Column("accelerator"), Column("how many", "right"), Column("sequences at once", "right"))
    rows = [[fit.accelerator, f"{fit.count}", f"{fit.max_sequences:,}"] for fit in report.fits]
    canvas.table(columns, rows, indent=4)
