"""Bars of block characters: one GPU or one memory budget on a line, its tenants named below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rightslice.reporting.canvas import Style
from rightslice.reporting.summary import Segment

_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")
_NARROWEST = 8

Piece = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class Bar:
    """One GPU: its label in `label_width` cells, its tenants, and what stands right of the bar."""

    label: str
    label_width: int
    segments: Sequence[Segment]
    amount: str


def cells(shares: Sequence[float], total: int) -> tuple[int, ...]:
    """Whole cells for shares that add up to 1, by largest remainder; a share above 0 gets at least one cell."""
    exact = [share * total for share in shares]
    found = [max(int(amount), 1 if amount > 0 else 0) for amount in exact]
    order = sorted(range(len(exact)), key=lambda i: (int(exact[i]) - exact[i], i))
    for index in order[: max(total - sum(found), 0)]:
        found[index] += 1
    while sum(found) > total and max(found) > 1:
        found[found.index(max(found))] -= 1
    return tuple(found)


def bar_lines(bar: Bar, style: Style) -> list[list[Piece]]:
    """The bar and, below it, who lives in each stretch."""
    width = max(style.width - 2 - bar.label_width - 1 - 2 - len(bar.amount), _NARROWEST)
    widths = cells([segment.share for segment in bar.segments], width)
    top: list[Piece] = [f"{bar.label[: bar.label_width]:<{bar.label_width}} "]
    below: list[Piece] = [" " * (bar.label_width + 1)]
    tenants = 0
    for segment, size in zip(bar.segments, widths, strict=True):
        if segment.slot is None:
            top.append(("░" * size, "dim"))
            below.append(" " * size)
            continue
        color = _COLORS[tenants % len(_COLORS)]
        tenants += 1
        top += _slot_pieces(segment, size, color)
        below.append((_caption(segment, size), color))
    top.append(f"  {bar.amount}")
    return [top, below]


def _slot_pieces(segment: Segment, size: int, color: str) -> list[Piece]:
    if size < 3:
        return [("█" * size, color)]
    used = segment.used_share / segment.share if segment.share else 0.0
    inner = size - 2
    filled = min(inner, round(used * inner))
    return [("▐" + "█" * filled, color), ("░" * (inner - filled), "dim"), ("▌", color)]


def _caption(segment: Segment, size: int) -> str:
    slot = segment.slot
    if slot is None or size < 2:
        return " " * size
    choices = [f"{slot.model} {slot.partition}", slot.model]
    fitting = next((name for name in choices if len(name) < size), slot.model[: size - 1])
    return f"{fitting:<{size}}"
