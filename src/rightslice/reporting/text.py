"""Words and figures as people read them, shared by the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterable

from rightslice.core.estimate import Estimate
from rightslice.core.quantities import format_seconds, format_usd

_ASCII = str.maketrans(
    {
        "×": "x", "–": "-", "—": "-", "−": "-", "·": "|", "≤": "<=", "≥": ">=", "→": "->", "…": "...", "±": "+-",
        "█": "#", "░": ".", "▐": "[", "▌": "]", "○": "o", "●": "*", "≈": "~", "µ": "u",
    }
)  # fmt: skip


def to_ascii(text: str) -> str:
    """The same with plain characters only, for terminals that can show no others."""
    plain = text.translate(_ASCII)
    return plain if plain.isascii() else plain.encode("ascii", "replace").decode()


def percent(share: float, digits: int = 1) -> str:
    """`98.7 %`; never rounds a miss up to `100 %`."""
    shown = f"{share * 100:.{digits}f}"
    if share < 1.0 and float(shown) >= 100.0:
        shown = "> 99.9" if digits else "> 99"
    return f"{shown.removesuffix('.0')} %"


def figure(value: float) -> str:
    """`0.25`, `12.1`, `1,240`: three digits, or whole."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def prefix_hits_text(realised: float, ceiling: float) -> str:
    """What prefix caches found, and what one without limit would have found."""
    return f"{percent(realised)} of prompt tokens from prefix caches, {percent(ceiling)} with one without limit"


def milliseconds(amount_ms: float) -> str:
    """`612 ms`, `2.31 s`."""
    return format_seconds(amount_ms / 1e3)


def interval_ms(estimate: Estimate) -> str:
    """`540–705 ms` or `2.08–2.59 s`: the 80 % interval, the unit once where it is the same."""
    low, high = milliseconds(estimate.low), milliseconds(estimate.high)
    same_unit = low.rpartition(" ")[2] == high.rpartition(" ")[2] and low.count(" ") == 1
    return f"{low.rpartition(' ')[0] if same_unit else low}–{high}"


def difference_usd(amount_usd: float) -> str:
    """`+$489`, `−$691`."""
    return f"{'−' if amount_usd < 0 else '+'}{format_usd(abs(amount_usd))}"


def ranges(numbers: Iterable[int]) -> str:
    """`0–3, 8`: sorted whole numbers with runs joined."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def priced_text(date: str, quality: str) -> str:
    """`prices of 2026-08-03, exact`; empty for machines of one's own."""
    return f"prices of {date}, {quality.replace('_', ' ')}" if date else ""
