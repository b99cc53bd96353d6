"""A block of styled text of a fixed width, built line by line; the only place that talks to rich."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rightslice.core.text import cells, visible
from rightslice.reporting.text import to_ascii

Cell = str | tuple[str, str]
"""Text, or text with a rich style."""

MIN_WIDTH = 40
GAP = 2
LONGEST_WORD = 32


@dataclass(frozen=True, slots=True)
class Style:
    """How a text is to look: its width in cells, whether in colour, and whether block characters may be used."""

    width: int = 80
    color: bool = False
    ascii_only: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its title, and on which side its content stands."""

    title: str
    align: Literal["left", "right"] = "left"


_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.-=+*%#"


Fold = Callable[[Sequence[float]], float]
"""Two neighbouring values -> the one that stands for both."""


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return sum(values) / len(values)


def sparkline(values: Sequence[float | None], style: Style, low: float = 0.0, fold: Fold = mean) -> str:
    """One character per value, in halves as many as there is room for; the highest is full, `low` is lowest.

    A space where there is none.
    """
    while len(values) > style.width - 2 and len(values) > 1:
        values = [_folded(values[i : i + 2], fold) for i in range(0, len(values), 2)]
    levels = _ASCII_LEVELS if style.ascii_only else _LEVELS
    top = max((value for value in values if value is not None), default=low)
    span = top - low if top > low else 1.0
    shares = [None if value is None else (value - low) / span for value in values]
    last = len(levels) - 1
    return "".join(" " if share is None else levels[min(int(share * len(levels)), last)] for share in shares)


def _folded(values: Sequence[float | None], fold: Fold) -> float | None:
    known = [value for value in values if value is not None]
    return fold(known) if known else None


@dataclass(slots=True)
class Canvas:
    """Collects lines and tables, then renders them, never narrower than MIN_WIDTH. Every string given to it is made
    harmless first.
    """

    style: Style
    _parts: list[RenderableType] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.style = replace(self.style, width=max(self.style.width, MIN_WIDTH))

    def text(self, content: str, style: str = "") -> Text:
        """Text without escapes, in the style's characters; rich markup in it has no meaning."""
        return Text(self._shown(content), style=style, overflow="fold")

    def _shown(self, content: str) -> str:
        safe = visible(content)
        return to_ascii(safe) if self.style.ascii_only else safe

    def line(self, *pieces: Cell, indent: int = 0) -> None:
        """One paragraph from plain and (text, style) pieces; wraps under itself."""
        joined = Text(overflow="fold")
        for piece in pieces:
            joined.append_text(self.text(piece) if isinstance(piece, str) else self.text(*piece))
        self._parts.append(Padding(joined, (0, 0, 0, indent)))

    def blank(self) -> None:
        """An empty line."""
        self._parts.append(Text(""))

    def rows(self, rows: Sequence[Sequence[Cell]], *, indent: int = 2) -> None:
        """A borderless grid without a header; the last column takes what is left and wraps first."""
        plain = [[self._shown(cell if isinstance(cell, str) else cell[0]) for cell in row] for row in rows]
        room = self.style.width - indent
        widths = _leaving_room(column_widths(plain, room), plain, room) if rows else []
        grid = Table.grid(padding=(0, GAP, 0, 0))
        for width in widths:
            grid.add_column(width=width, overflow="fold")
        for row in rows:
            grid.add_row(*(self.text(cell) if isinstance(cell, str) else self.text(*cell) for cell in row))
        self._parts.append(Padding(grid, (0, 0, 0, indent)))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: int = 2) -> None:
        """A borderless table with a dim header."""
        plain = [[self._shown(cell) for cell in row] for row in [[c.title for c in columns], *rows]]
        widths = column_widths(plain, self.style.width - indent)
        table = Table(box=None, padding=(0, GAP, 0, 0), header_style="dim", pad_edge=False)
        for column, width in zip(columns, widths, strict=True):
            title = self.text(column.title)
            table.add_column(title, justify=column.align, width=width, overflow="fold", vertical="top")
        for row in rows:
            table.add_row(*(self.text(cell) for cell in row))
        self._parts.append(Padding(table, (0, 0, 0, indent)))

    def render(self) -> str:
        """All of it, without trailing spaces and with one final newline."""
        buffer = io.StringIO()
        console = Console(
            file=buffer,
            width=self.style.width,
            force_terminal=self.style.color,
            color_system="standard" if self.style.color else None,
            no_color=not self.style.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )
        for part in self._parts:
            console.print(part)
        return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")) + "\n"


def _leaving_room(widths: list[int], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Columns before the last take a third of `room` at most, never breaking a word: the last then wraps less."""
    kept = [min(width, max(floor, room // 3)) for width, floor in zip(widths[:-1], _floors(rows)[:-1], strict=True)]
    left = room - sum(kept) - GAP * len(kept)
    return [*kept, max(min(left, max(cells(row[-1]) for row in rows)), 1)]


def _floors(rows: Sequence[Sequence[str]]) -> list[int]:
    """The narrowest each column may become before a word is broken; words over LONGEST_WORD cells may be."""
    columns = zip(*rows, strict=True)
    return [
        max(min(max((cells(word) for word in cell.split()), default=1), LONGEST_WORD) for cell in column)
        for column in columns
    ]


def column_widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Widths that fit `room` with GAP cells between: natural where possible; else the widest column narrows first,
    to its longest word; only when that is not enough are words broken.
    """
    widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
    floors = _floors(rows)
    excess = sum(widths) + GAP * (len(widths) - 1) - room
    while excess > 0:
        movable = [i for i, width in enumerate(widths) if width > floors[i]]
        if movable:
            widest = max(movable, key=lambda i: (widths[i], i))
            widths[widest] -= 1
            excess -= 1
        elif all(floor == 1 for floor in floors):
            break
        else:
            floors = [1] * len(widths)
    return widths
