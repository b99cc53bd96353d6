"""A block of styled text of a fixed width, built line by line; the only place that talks to rich."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rightslice.reporting.text import clean, to_ascii

MIN_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Style:
    """How a text is to look: its width in cells, whether in colour, and whether block characters may be used."""

    width: int = 80
    color: bool = False
    ascii_only: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. Numbers stand right and never wrap."""

    title: str
    align: Literal["left", "right"] = "left"
    wrap: bool = True
    style: str = ""


@dataclass(slots=True)
class Canvas:
    """Collects lines and tables, then renders them. Every string given to it is cleaned first."""

    style: Style
    _parts: list[RenderableType] = field(default_factory=list)

    def text(self, content: str, style: str = "") -> Text:
        """Cleaned text that may be put beside others; rich markup in it has no meaning."""
        safe = clean(content)
        return Text(to_ascii(safe) if self.style.ascii_only else safe, style=style, overflow="fold")

    def line(self, *pieces: str | tuple[str, str], indent: int = 0) -> None:
        """One paragraph from plain and (text, style) pieces; wraps under itself."""
        joined = Text(overflow="fold")
        for piece in pieces:
            joined.append_text(self.text(piece) if isinstance(piece, str) else self.text(*piece))
        self._parts.append(Padding(joined, (0, 0, 0, indent)))

    def blank(self) -> None:
        """An empty line."""
        self._parts.append(Text(""))

    def rows(self, rows: Sequence[Sequence[str | tuple[str, str]]], *, indent: int = 2, gap: int = 2) -> None:
        """A borderless grid without a header: all but the last column as wide as their content."""
        grid = Table.grid(padding=(0, gap, 0, 0))
        columns = max((len(row) for row in rows), default=0)
        for number in range(columns):
            last = number == columns - 1
            grid.add_column(no_wrap=False, overflow="fold", max_width=None if last else self.style.width // 3)
        for row in rows:
            grid.add_row(*(self.text(cell) if isinstance(cell, str) else self.text(*cell) for cell in row))
        self._parts.append(Padding(grid, (0, 0, 0, indent)))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: int = 2) -> None:
        """A borderless table with a dim header."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for column in columns:
            table.add_column(
                self.text(column.title), justify=column.align, no_wrap=not column.wrap, overflow="fold", style=column.style
            )
        for row in rows:
            table.add_row(*(self.text(cell) for cell in row))
        self._parts.append(Padding(table, (0, 0, 0, indent)))

    def render(self) -> str:
        """All of it, without trailing spaces and with one final newline."""
        buffer = io.StringIO()
        console = Console(
            file=buffer,
            width=max(self.style.width, MIN_WIDTH),
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
