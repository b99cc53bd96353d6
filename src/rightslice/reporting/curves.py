"""Curves over measured loads as inline SVG: the load to the right on a logarithmic axis, values up from nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from rightslice.reporting import svg
from rightslice.reporting.charts import ChartView, across, height, scale, time_axis, upright
from rightslice.reporting.text import figure

HEIGHT: Final = 190
_MOST_LABELS: Final = 7


@dataclass(frozen=True, slots=True)
class Dot:
    """A measured value at a load; `sure` false where it should not be relied upon."""

    load: float
    value: float
    title: str
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """Dots in the order of their loads. `css`: its colour."""

    name: str
    dots: tuple[Dot, ...]
    css: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Lines over one axis of loads in `of`. `level`: an objective drawn across; `knee`: a load marked upright."""

    title: str
    unit: str
    of: str
    lines: tuple[Line, ...]
    level: float | None = None
    level_name: str = ""
    knee: float | None = None


def curve(asked: Curve) -> ChartView:
    """Draw it; at least one line has a dot."""
    dots = [dot for line in asked.lines for dot in line.dots]
    loads = sorted({dot.load for dot in dots})
    top = svg.nice_ticks(max([*(dot.value for dot in dots), *([asked.level] if asked.level else [])]), 4)
    parts = [across(height(tick, 0.0, top[-1], HEIGHT), "grid") for tick in top]
    parts += [upright(_share(load, loads), "grid", HEIGHT) for load in loads]
    if asked.knee is not None and loads[0] <= asked.knee <= loads[-1]:
        parts.append(upright(_share(asked.knee, loads), "fault", HEIGHT, f"knee at {asked.knee:g} {asked.of}"))
    if asked.level is not None:
        parts.append(across(height(asked.level, 0.0, top[-1], HEIGHT), "level"))
    for line in asked.lines:
        parts += _drawn(line, loads, top[-1])
    rows = tuple(_in_numbers(line) for line in asked.lines)
    described = "; ".join(f"{line.name}: " + ", ".join(dot.title for dot in line.dots) for line in asked.lines)
    keys = [(line.name, line.css) for line in asked.lines]
    keys += [(asked.level_name, "level")] if asked.level is not None else []
    keys += [("knee", "fault")] if asked.knee is not None else []
    return ChartView(
        title=asked.title,
        unit=f"{asked.unit}, by {asked.of}",
        keys=tuple(keys),
        scale=scale(top, 0.0, asked.unit, HEIGHT),
        plot=svg.figure(f"{asked.title}, {asked.unit}", described, HEIGHT, *parts, css="plot"),
        axis=time_axis([(_share(load, loads), f"{load:.3g}") for load in _labelled(loads)]),
        rows=rows,
    )


def _share(load: float, loads: Sequence[float]) -> float:
    """Of the width: nothing for the least load, all for the largest."""
    if loads[-1] <= loads[0]:
        return 0.5
    return math.log(load / loads[0]) / math.log(loads[-1] / loads[0])


def _labelled(loads: Sequence[float]) -> list[float]:
    """Loads whose figures do not run into each other."""
    found: list[float] = []
    for load in loads:
        if not found or _share(load, loads) - _share(found[-1], loads) >= 1.0 / _MOST_LABELS:
            found.append(load)
    if found[-1] != loads[-1] and len(found) > 1 and 1.0 - _share(found[-1], loads) < 1.0 / _MOST_LABELS:
        found.pop()
    return found if found[-1] == loads[-1] else [*found, loads[-1]]


def _drawn(line: Line, loads: Sequence[float], top: float) -> list[Markup]:
    places = [(svg.at(_share(d.load, loads)), f"{height(d.value, 0.0, top, HEIGHT):.1f}") for d in line.dots]
    found = [
        svg.tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"line {line.css}")
        for (x1, y1), (x2, y2) in pairwise(places)
    ]
    for dot, (x, y) in zip(line.dots, places, strict=True):
        css = line.css if dot.sure else "mark unverified"
        found.append(svg.tag("circle", svg.tag("title", dot.title), cx=x, cy=y, r=4, class_=css))
    return found


def _in_numbers(line: Line) -> tuple[str, str, str, str]:
    values = [dot.value for dot in line.dots]
    mean = sum(values) / len(values) if values else 0.0
    return line.name, figure(min(values, default=0.0)), figure(mean), figure(max(values, default=0.0))
