"""A memory answer for a terminal: where memory goes, what it fits on, what to know."""

from __future__ import annotations

from rightslice.core.quantities import format_bytes
from rightslice.memory.advice import PrecisionReport
from rightslice.memory.sizing import SizeReport
from rightslice.memory.startup import StartupReport
from rightslice.reporting.canvas import Canvas, Cell, Column, Style
from rightslice.reporting.precision_text import precision_part

_BESIDE_BAR = 30
"""Cells for the name and the amount of a part: the narrowest canvas leaves ten for its bar."""
_MOST_REFUSED = 8
_LEAST_BILLION, _LEAST_THOUSAND_BILLION = 999.5e6, 999.5e9
"""Where three digits carry over."""
_ROUNDING = 0.05
"""Whole blocks add up to this share to short sequences."""
_SPLITS = {"tensor": "tensor parallel", "replicas": "DP attention + EP", "given": "as given"}


def size_text(
    report: SizeReport,
    verdict: StartupReport | None = None,
    *,
    precision: PrecisionReport | None = None,
    width: int = 80,
    color: bool = False,
    ascii_only: bool = False,
) -> str:
    """Parameters, a bar for each part of the memory, the accelerators that hold it and those that do not, notes.

    `verdict`: what an engine would say at start-up, shown first. `precision`: what differs from the published one.
    """
    canvas = Canvas(Style(width, color, ascii_only))
    active = report.active_parameters
    facts = [f"{_billions(report.parameters)} parameters"]
    if 0 < active < report.parameters:
        facts.append(f"{_billions(active)} active")
    facts.append(f"{report.dtype} weights, {report.kv_dtype} KV cache")
    if report.context_max:
        facts.append(f"context up to {report.context_max:,} tokens")
    canvas.line((report.model, "bold"), f": {', '.join(facts)}")
    canvas.blank()
    if verdict is not None:
        _start_up(canvas, verdict)
        canvas.blank()
    _parts(canvas, report)
    _reserved(canvas, report)
    canvas.blank()
    _fits(canvas, report)
    _just_fits(canvas, report)
    _refused(canvas, report)
    if precision is not None:
        precision_part(canvas, precision)
    for title, lines in (("Notes", report.notes), ("Not counted", report.not_modeled)):
        if lines:
            canvas.blank()
            canvas.line((title, "bold"), indent=2)
            canvas.rows([["-", line] for line in lines], indent=4)
    return canvas.render()


def _start_up(canvas: Canvas, verdict: StartupReport) -> None:
    words = {
        "starts": "It starts",
        "does_not_start": "It does not start",
        "refused": "It is refused before anything loads",
        "uncertain": "It is too close to call",
    }
    canvas.line((words[verdict.verdict], "bold"), f": {verdict.reason}" if verdict.reason else "", indent=2)
    rows: list[list[Cell]] = []
    if verdict.kv_tokens:
        rows.append(["KV cache", f"{verdict.kv_tokens:,} tokens"])
    rows += _as_logged(verdict)
    if verdict.max_model_len_that_fits:
        rows.append(["longest context", f"{verdict.max_model_len_that_fits:,} tokens"])
    if verdict.fix:
        rows.append(["fix", verdict.fix])
    if verdict.not_considered:
        rows.append(["not considered", " ".join(verdict.not_considered)])
    rows += [["note", note] for note in verdict.notes]
    canvas.rows(rows, indent=4)


def _billions(parameters: float) -> str:
    if parameters >= _LEAST_THOUSAND_BILLION:
        return f"{parameters / 1e9:,.0f} B"
    return f"{parameters / 1e9:.3g} B" if parameters >= _LEAST_BILLION else f"{parameters / 1e6:.3g} M"


def _parts(canvas: Canvas, report: SizeReport) -> None:
    per_token = f"{format_bytes(report.kv_cache_bytes_per_token)} of KV cache per token"
    if report.kv_window_tokens:
        window = format_bytes(report.kv_bytes_per_token_windowed_layers)
        per_token += f", and {window} for the last {report.kv_window_tokens:,} tokens"
    canvas.line((per_token, "dim"), indent=2)
    parts = (
        ("weights", report.weights_bytes),
        ("KV cache", report.kv_cache_bytes),
        ("activations", report.activation_bytes),
        ("overhead", report.overhead_bytes),
    )
    room = canvas.style.width - _BESIDE_BAR
    most = max(report.total_bytes, 1)
    rows: list[list[Cell]] = []
    for name, amount in parts:
        filled = max(round(room * amount / most), 1 if amount else 0)
        rows.append([name, f"{format_bytes(amount):>8}", ("█" * filled, "cyan")])
    rows.append([("total", "bold"), (f"{format_bytes(report.total_bytes):>8}", "bold"), ""])
    canvas.rows(rows)


def _fits(canvas: Canvas, report: SizeReport) -> None:
    if report.too_long:
        canvas.line(("Requests of that length are refused", "bold"), f": {report.too_long}", indent=2)
        return
    if not report.fits:
        canvas.line(("Fits on none of the accelerators asked about.", "bold"), indent=2)
        return
    number = len({fit.accelerator for fit in report.fits})
    title = "Fits on" if number == 1 else f"Fits on {number} kinds of accelerators"
    canvas.line((title, "bold"), indent=2)
    columns = [Column("accelerator"), Column("how many", "right"), Column("sequences at once", "right")]
    rows = [[fit.accelerator, f"{fit.count}", f"{fit.max_sequences:,}"] for fit in report.fits]
    if any(fit.split != "tensor" for fit in report.fits):
        columns.append(Column("split"))
        for row, fit in zip(rows, report.fits, strict=True):
            row.append(_SPLITS[fit.split])
    canvas.table(tuple(columns), rows, indent=4)


def _as_logged(verdict: StartupReport) -> list[list[Cell]]:
    """What one sequence reserves, and the engine's own line where it says something else than the room suggests."""
    reserved = format_bytes(verdict.kv_bytes_reserved_per_sequence, binary=True)
    rows: list[list[Cell]] = (
        [["one sequence", f"{reserved} reserved"]] if verdict.kv_bytes_reserved_per_sequence else []
    )
    if verdict.logged_kv_tokens:
        line = f"{verdict.logged_kv_tokens:,} tokens, maximum concurrency {verdict.logged_max_concurrency:.2f}x"
        rows.append(["its log will say", line])
    return rows


def _reserved(canvas: Canvas, report: SizeReport) -> None:
    """The engine's reservation beside the architecture's bytes, where they differ by more than rounding."""
    needed, reserved = report.kv_bytes_per_sequence, report.kv_bytes_reserved_per_sequence
    if reserved and abs(reserved - needed) > _ROUNDING * needed:
        kept = f"{format_bytes(reserved)} are reserved by {report.reserved_by or 'vLLM'}"
        if report.kv_in_flight_tokens:
            kept += f" with {report.kv_in_flight_tokens:,} tokens in flight"
        canvas.line((f"one sequence needs {format_bytes(needed)} of KV cache, {kept}", "dim"), indent=2)


def _just_fits(canvas: Canvas, report: SizeReport) -> None:
    for fit in report.fits:
        if fit.verdict == "just fits":
            left = format_bytes(fit.margin_bytes, binary=True)
            canvas.line(
                (f"{fit.accelerator} just fits: {left} to spare, less than is known of the engine", "dim"), indent=4
            )


def _refused(canvas: Canvas, report: SizeReport) -> None:
    if not report.refused or report.too_long:
        return
    canvas.blank()
    canvas.line(("Does not fit on", "bold"), indent=2)
    canvas.rows([[no.accelerator, no.reason] for no in report.refused[:_MOST_REFUSED]], indent=4)
    if len(report.refused) > _MOST_REFUSED:
        canvas.line((f"… and {len(report.refused) - _MOST_REFUSED} more", "dim"), indent=4)
