"""A calibration for a terminal: the law, how far off it is, and each point as predicted without it."""

from __future__ import annotations

from rightslice.loadtesting.calibration import Calibration, Errors
from rightslice.reporting.canvas import Canvas, Column, Style
from rightslice.reporting.text import percent


def calibration_text(found: Calibration, style: Style) -> str:
    """The whole answer."""
    canvas = Canvas(style)
    subject = " on ".join(part for part in (found.model, found.accelerator) if part)
    canvas.line((f"Iteration time of {subject or 'the engine'}, from {found.points} points", "bold"))
    law = found.coefficients
    canvas.rows(
        [
            ("constant", f"{law.step_ms:.4g} ms"),
            ("per token computed", f"{law.token_ms * 1e3:.4g} µs"),
            ("per context token read", f"{law.context_token_ms * 1e6:.4g} ns"),
            ("per prompt token and context", f"{law.attention_ms * 1e6:.4g} ns"),
            ("per request, outside", f"{law.request_ms:.4g} ms"),
        ]
    )
    canvas.blank()
    rows = (
        ("from the points alone", found.before),
        ("through the scheduler", found.after),
        ("each point left out", found.leave_one_out),
    )
    columns = [Column("median error"), Column("TPOT", "right"), Column("TTFT", "right"), Column("e2e", "right")]
    canvas.table(columns, [(name, *_shown(errors)) for name, errors in rows])
    if found.repeat_spread is not None:
        canvas.line(f"Repeats of one load differ by {percent(found.repeat_spread)}: no fit can be better", indent=2)
    canvas.blank()
    titles = ("TPOT ms", "predicted", "e2e ms", "predicted")
    checks = [
        (c.source, f"{c.tpot_ms:.1f}", f"{c.predicted_tpot_ms:.1f}", f"{c.e2e_ms:,.0f}", f"{c.predicted_e2e_ms:,.0f}")
        for c in found.checks
    ]
    canvas.table([Column("point, left out of its fit"), *(Column(title, "right") for title in titles)], checks)
    for reason in found.reasons:
        canvas.line((f"NOT ACCEPTED: {reason}", "red"))
    for note in found.notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _shown(errors: Errors) -> tuple[str, str, str]:
    ttft = "–" if errors.ttft is None else percent(errors.ttft)
    return percent(errors.tpot), ttft, percent(errors.e2e)
