"""A trace for a terminal: one table of figures and the course of its rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rightslice.core.quantities import format_seconds
from rightslice.core.text import plural
from rightslice.reporting.canvas import Canvas, Column, Style, sparkline
from rightslice.reporting.text import percent
from rightslice.traffic.describe import TraceSummary

_MOST_NAMES: Final = 4
_NARROW: Final = 60
_ALL: Final = ("mean", "p50", "p90", "p95", "p99", "max")
_FEW: Final = ("mean", "p50", "p99", "max")
_WINDOWS: Final = {1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 600.0: "10 min", 3600.0: "1 h"}


def trace_text(
    title: str,
    summary: TraceSummary,
    skipped: Mapping[str, int],
    notes: Sequence[str],
    style: Style,
) -> str:
    """Requests, rates, burstiness, lengths, repetition, and the rate over time."""
    canvas = Canvas(style)
    canvas.line((title, "bold"))
    canvas.rows(_facts(summary, skipped))
    canvas.blank()
    shown = _FEW if style.width < _NARROW else _ALL
    columns = [Column("tokens"), *(Column(name, "right") for name in shown)]
    sides = (("input", summary.input_tokens), ("output", summary.output_tokens))
    canvas.table(columns, [(side, *(f"{getattr(tokens, name):,.0f}" for name in shown)) for side, tokens in sides])
    canvas.blank()
    canvas.line(f"Requests per second, 0 to {max(summary.rates_per_s):,.4g}", indent=2)
    canvas.line(sparkline(summary.rates_per_s, style), indent=2)
    for note in notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _facts(summary: TraceSummary, skipped: Mapping[str, int]) -> list[tuple[str, str]]:
    rows = [("requests", f"{summary.requests:,} in {format_seconds(summary.span_s)}")]
    if skipped:
        rows.append(("skipped", ", ".join(f"{count:,} with {reason}" for reason, count in skipped.items())))
    rows.append(("rate", f"{summary.requests_per_s:,.4g}/s"))
    if summary.peaks:
        peaks = (f"{peak.requests_per_s:,.3g}/s in {_WINDOWS[peak.window_s]}" for peak in summary.peaks)
        rows.append(("peak", ", ".join(peaks)))
    if summary.gap_cv is not None:
        rows.append(("burstiness", f"CV of the gaps {summary.gap_cv:.3g} (Poisson 1)"))
    if summary.sessions:
        turns = f"{summary.turns_per_session or 0.0:.3g} turns each"
        rows.append(("sessions", f"{plural(summary.sessions, 'conversation')}, {turns}"))
    rows += [
        (name, _named(counts)) for name, counts in (("models", summary.models), ("classes", summary.classes)) if counts
    ]
    if summary.prefix is not None:
        found = summary.prefix
        seen = f"{percent(found.seen_share)} of {found.blocks:,} blocks of {found.block_tokens} tokens came before"
        rows.append(("prefixes", f"{seen}: the most that any cache can hit"))
    return rows


def _named(counts: Mapping[str, int]) -> str:
    shown = [f"{name or 'none'} {count:,}" for name, count in list(counts.items())[:_MOST_NAMES]]
    more = len(counts) - len(shown)
    return ", ".join([*shown, f"{more} more"] if more > 0 else shown)
