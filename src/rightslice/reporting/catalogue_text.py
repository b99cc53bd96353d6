"""A table of the catalogue for a terminal: as many columns as fit, the rest named."""

from __future__ import annotations

from collections.abc import Sequence

from rightslice.catalogue.tables import CatalogueTable
from rightslice.reporting.canvas import Canvas, Column, Style, least_width
from rightslice.reporting.text import plural


def table_text(table: CatalogueTable, *, width: int = 80, color: bool = False, ascii_only: bool = False) -> str:
    """The table, how many rows it has, its notes; columns that do not fit are dropped from the right and named."""
    canvas = Canvas(Style(width, color, ascii_only))
    titles = [column.replace("_", " ") for column in table.columns]
    rows = [[_shown(row[column]) for column in table.columns] for row in table.rows]
    kept = _fitting(titles, rows, width)
    columns = [
        Column(title, "right" if _numeric([row[name] for row in table.rows]) else "left")
        for title, name in zip(titles[:kept], table.columns, strict=False)
    ]
    canvas.table(columns, [row[:kept] for row in rows], indent=0)
    canvas.blank()
    canvas.line((plural(len(rows), "row"), "dim"))
    if kept < len(titles):
        canvas.line((f"Not shown for lack of room: {', '.join(titles[kept:])}; --json has them all", "dim"))
    for note in table.notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _fitting(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> int:
    kept = len(columns)
    while kept > 1 and least_width([columns[:kept], *(row[:kept] for row in cells)]) > width:
        kept -= 1
    return kept


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
