"""A run over time for a terminal: a few sparklines for each model and each population of users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rightslice.core.quantities import format_seconds
from rightslice.core.text import cells
from rightslice.core.timeline import Timeline, Track
from rightslice.reporting.canvas import Canvas, Fold, Style, mean, sparkline
from rightslice.reporting.text import figure, percent

_WIDEST = 60
"""Cells of a sparkline at most: what is wider is harder to take in at a glance."""
_LEAST = 8
_MOST_LINES = 24
_NO_QUEUE = 1.0
"""Where never more requests wait in a bin, on average, nothing queues."""


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    values: Sequence[float | None]
    range: str
    low: float = 0.0
    fold: Fold = mean


def course(canvas: Canvas, timelines: Sequence[Timeline]) -> None:
    """Load, queue, replicas and SLO attainment over time, each line with its lowest and highest bin."""
    blocks = [block for timeline in timelines for block in _blocks(timeline)]
    room = _MOST_LINES
    for name, span_s, lines in blocks:
        if room < len(lines):
            canvas.line(("… and more in the report that -o writes", "dim"))
            break
        room -= len(lines)
        canvas.line((name, "bold"), (f" over {format_seconds(span_s)}", "dim"))
        _block(canvas, lines)
    if blocks:
        canvas.blank()


def _block(canvas: Canvas, lines: Sequence[_Line]) -> None:
    names = max(cells(line.name) for line in lines)
    room = canvas.style.width - 2 - names - 2 - 2 - max(cells(line.range) for line in lines)
    style = Style(min(max(room, _LEAST), _WIDEST) + 2, canvas.style.color, canvas.style.ascii_only)
    for line in lines:
        spark = sparkline(line.values, style, line.low, line.fold)
        name = line.name + " " * (names - cells(line.name))
        canvas.line((f"{name}  ", "dim"), f"{spark}  ", (line.range, "dim"), indent=2)


def _blocks(timeline: Timeline) -> Iterator[tuple[str, float, list[_Line]]]:
    """One block for whatever requests come to; the models behind the users of a pipeline stand in theirs."""
    span_s = timeline.edges_s[-1] - timeline.edges_s[0]
    behind = [line for track in timeline.tracks if track.requests is None for line in _of_servers(track, track.name)]
    for track in timeline.tracks:
        if track.requests is not None:
            lines = [*_of_requests(timeline, track), *_of_servers(track)]
            yield track.name, span_s, [*lines, *(behind if track.kind == "users" else ())]


def _of_requests(timeline: Timeline, track: Track) -> Iterator[_Line]:
    came = track.requests
    if came is None:
        return
    offered = [n / width for n, width in zip(came.offered, timeline.widths_s, strict=True)]
    yield _Line("load", offered, _range(figure(min(offered)), figure(max(offered)), "/s"))
    known = [share for share in came.attainment if share is not None]
    if came.asked_share is not None and known:
        low, high = min(known), max(known)
        yield _Line("SLO", came.attainment, _range(percent(low), percent(high)), low if low < high else 0.0, min)


def _of_servers(track: Track, name: str = "") -> Iterator[_Line]:
    servers = track.servers
    if servers is None:
        return
    most = max(servers.waiting)
    if most > _NO_QUEUE:
        yield _Line(f"queue {name}".strip(), servers.waiting, _range("0", figure(most), "wait"), fold=max)
    if len(set(servers.ready)) > 1:
        low, high = figure(min(servers.ready)), figure(max(servers.ready))
        yield _Line(f"replicas {name}".strip(), servers.ready, _range(low, high, "ready"))


def _range(low: str, high: str, unit: str = "") -> str:
    """`0.9 to 12.1 /s`."""
    return (high if low == high else f"{low} to {high}") + f" {unit}".rstrip()
