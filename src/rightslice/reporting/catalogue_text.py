"""A table of the catalogue for a terminal: as many columns as fit, the rest named."""

from __future__ import annotations

from collections.abc import Sequence

from rightslice.catalogue.tables import CatalogueTable
from rightslice.core.text import cells, plural
from rightslice.reporting.canvas import GAP, LONGEST_WORD, Canvas, Column, Style

_SEVERAL = 3


def table_text(table: CatalogueTable, *, width: int = 80, color: bool = False, ascii_only: bool = False) -> str:
    """The table, how many rows it has, its notes.

    A column whose value is the same in every row is said once; columns that do not fit are dropped from the right and
    named.
    """
    canvas = Canvas(Style(width, color, ascii_only))
    same = _same_everywhere(table)
    names = [name for name in table.columns if name not in same]
    titles = [name.replace("_", " ") for name in names]
    rows = [[_shown(row[name]) for name in names] for row in table.rows]
    kept = _fitting(titles, rows, width)
    columns = [
        Column(title, "right" if _numeric([row[name] for row in table.rows]) else "left")
        for title, name in zip(titles[:kept], names, strict=False)
    ]
    canvas.table(columns, [row[:kept] for row in rows], indent=0)
    canvas.blank()
    canvas.line((plural(len(rows), "row"), "dim"))
    if same:
        said = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in same.items())
        canvas.line((f"In every row: {said}", "dim"))
    if kept < len(titles):
        canvas.line((f"Not shown for lack of room: {', '.join(titles[kept:])}; --json has them all", "dim"))
    for note in table.notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _same_everywhere(table: CatalogueTable) -> dict[str, object]:
    """Columns with one value in all of several rows."""
    if len(table.rows) < _SEVERAL:
        return {}
    found = {name: {row[name] for row in table.rows} for name in table.columns}
    return {name: next(iter(values)) for name, values in found.items() if len(values) == 1}


def _fitting(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """How many columns have room: titles may wrap, values only beyond LONGEST_WORD cells."""
    room = width + GAP
    for number, title in enumerate(titles):
        widest = max((cells(row[number]) for row in rows), default=0)
        room -= max(min(widest, LONGEST_WORD), *(cells(word) for word in title.split())) + GAP
        if room < 0 and number:
            return number
    return len(titles)


def _numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _shown(value: object) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.5g}" if isinstance(value, float) else str(value)
