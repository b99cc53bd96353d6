"""Bars of block characters: one GPU or one memory budget on a line, its tenants named below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rightslice.core.plan import Slot
from rightslice.core.text import cells, visible
from rightslice.reporting.canvas import Cell, Style
from rightslice.reporting.summary import Segment

_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """One GPU: its label in `label_width` cells, its tenants, and what stands right of the bar."""

    label: str
    label_width: int
    segments: Sequence[Segment]
    amount: str


def whole_cells(shares: Sequence[float], total: int) -> tuple[int, ...]:
    """Whole cells for shares that add up to 1, by largest remainder; a share above 0 gets at least one cell."""
    exact = [share * total for share in shares]
    found = [max(int(amount), 1 if amount > 0 else 0) for amount in exact]
    order = sorted(range(len(exact)), key=lambda i: (int(exact[i]) - exact[i], i))
    for index in order[: max(total - sum(found), 0)]:
        found[index] += 1
    while sum(found) > total and max(found) > 1:
        found[found.index(max(found))] -= 1
    return tuple(found)


def bar_lines(bar: Bar, style: Style) -> list[list[Cell]]:
    """The bar and, below it, who lives in each stretch."""
    width = max(style.width - 2 - bar.label_width - 1 - 2 - len(bar.amount), _NARROWEST)
    widths = whole_cells([segment.share for segment in bar.segments], width)
    top: list[Cell] = [f"{bar.label[: bar.label_width]:<{bar.label_width}} "]
    below: list[Cell] = [" " * (bar.label_width + 1)]
    tenants = 0
    for segment, size in zip(bar.segments, widths, strict=True):
        if segment.slot is None:
            top.append(("░" * size, "dim"))
            below.append((f"{'free':<{size}}" if size > len("free") else " " * size, "dim"))
            continue
        color = _COLORS[tenants % len(_COLORS)]
        tenants += 1
        top += _slot_pieces(segment, size, color)
        below.append((_caption(segment.slot, size), color))
    top.append(f"  {bar.amount}")
    return [top, below]


def _slot_pieces(segment: Segment, size: int, color: str) -> list[Cell]:
    if size < 3:
        return [("█" * size, color)]
    used = segment.used_share / segment.share if segment.share else 0.0
    inner = size - 2
    filled = min(inner, round(used * inner))
    return [("▐" + "█" * filled, color), ("░" * (inner - filled), "dim"), ("▌", color)]


def _caption(slot: Slot, size: int) -> str:
    """The longest name of the tenant that leaves a space before the next one, as wide as the stretch."""
    name = visible(slot.model)
    choices = [f"{name} {slot.partition}", name, *(name[:length] for length in range(len(name) - 1, -1, -1))]
    fitting = next(choice for choice in choices if not choice or cells(choice) < size)
    return fitting + " " * (size - cells(fitting))
