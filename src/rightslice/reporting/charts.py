"""Charts over time as inline SVG: bins as steps, one time axis, figures in their own column so that none shrinks.

The lines are drawn in a box of 1000 x 100 that is stretched to the place it gets; strokes and text are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rightslice.core.quantities import format_seconds
from rightslice.reporting import svg
from rightslice.reporting.text import figure, percent

HEIGHT, HEIGHT_OF_SCATTER = 112, 280
_TOP, _BOTTOM = 8, 6
"""Room above and below the lines, pixels."""
_MOST_TIMES = 6
_TIMES = (
    *((step, 1.0, "s") for step in (1, 2, 5, 10, 15, 30)),
    *((step * 60, 60.0, "min") for step in (1, 2, 5, 10, 15, 30)),
    *((step * 3600, 3600.0, "h") for step in (1, 2, 3, 6, 12)),
    *((step * 86_400, 86_400.0, "d") for step in (1, 2, 5, 10, 20)),
)
"""Steps of the time axis: seconds, seconds of the unit, unit."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a value for each bin, None where there is none. `css`: its colour, with `dashed` or `area`."""

    name: str
    values: Sequence[float | None]
    css: str

    @property
    def known(self) -> list[float]:
        """The values that are there."""
        return [value for value in self.values if value is not None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over bins with bounds `edges_s`. `unit` follows the figures; `%`: values are shares.

    `level`: what is asked for, drawn across. `marks_s`: when something went wrong, called `mark`.
    """

    title: str
    unit: str
    edges_s: Sequence[float]
    series: tuple[Series, ...]
    level: float | None = None
    marks_s: tuple[float, ...] = ()
    mark: str = "node lost"


@dataclass(frozen=True, slots=True)
class ChartView:
    """A chart as the page shows it: the column of figures, the plot, the time axis below, and the same in numbers."""

    title: str
    unit: str
    keys: tuple[tuple[str, str], ...]
    scale: Markup
    plot: Markup
    axis: Markup
    rows: tuple[tuple[str, str, str, str], ...]


def chart(asked: Chart) -> ChartView:
    """Draw it. A chart without any value shows its axes."""
    low, ticks = _value_ticks(asked)
    keys = [(series.name, series.css) for series in asked.series]
    keys += [(f"{percent(asked.level)} asked", "level")] if asked.level is not None else []
    keys += [(asked.mark, "fault")] if asked.marks_s else []
    rows = tuple(_in_numbers(series, asked.unit) for series in asked.series)
    description = "; ".join(f"{name}: lowest {least}, mean {mean}, highest {most}" for name, least, mean, most in rows)
    times = list(_time_ticks(asked.edges_s[0], asked.edges_s[-1]))
    parts = [
        *(across(height(t, low, ticks[-1]), "grid") for t in ticks),
        *(upright(share, "grid") for share, _ in times),
        _lines(asked, low, ticks[-1]),
    ]
    if asked.level is not None and asked.level >= low:
        parts.append(across(height(asked.level, low, ticks[-1]), "level"))
    parts += _marks(asked)
    plot = svg.figure(f"{asked.title}, {asked.unit}", description, HEIGHT, *parts, css="plot")
    figures = scale(ticks, low, asked.unit)
    return ChartView(asked.title, asked.unit, tuple(keys), figures, plot, time_axis(times), rows)


def _value_ticks(asked: Chart) -> tuple[float, list[float]]:
    """The lowest value of the axis, and its figures."""
    known = [value for series in asked.series for value in series.known]
    if asked.unit != "%":
        return 0.0, svg.nice_ticks(max(known, default=0.0), 3)
    if asked.level is None:  # a use, not a success: from nothing on
        return 0.0, svg.nice_ticks(max(known, default=0.0), 3)
    low = svg.gauge_floor([*known, asked.level])
    return low, [low, (low + 1.0) / 2.0, 1.0]


def height(value: float, low: float, top: float, whole: int = HEIGHT) -> float:
    """Pixels from above, of a value on an axis from `low` to `top` in a plot of `whole` pixels."""
    share = (value - low) / (top - low)
    return _TOP + (1.0 - min(max(share, 0.0), 1.0)) * (whole - _TOP - _BOTTOM)


def across(y: float, css: str) -> Markup:
    """A line from side to side, `y` pixels from above."""
    return svg.tag("line", x1="0%", y1=f"{y:.1f}", x2="100%", y2=f"{y:.1f}", class_=css)


def upright(share: float, css: str, whole: int = HEIGHT, title: str = "") -> Markup:
    """A line from top to bottom of a plot of `whole` pixels, at a share of its width."""
    x, inside = svg.at(share), (svg.tag("title", title),) if title else ()
    return svg.tag("line", *inside, x1=x, y1=_TOP, x2=x, y2=whole - _BOTTOM, class_=css)


def scale(ticks: Sequence[float], low: float, unit: str, whole: int = HEIGHT) -> Markup:
    """The figures to the left of a plot."""
    texts = [
        svg.tag("text", _tick(t, unit), x="100%", y=f"{height(t, low, ticks[-1], whole) + 4:.1f}", text_anchor="end")
        for t in ticks
    ]
    return svg.tag("svg", *texts, width="100%", height=whole, class_="figure axis", aria_hidden="true")


def _tick(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value * 100:.4g} %"
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def _lines(asked: Chart, low: float, top: float) -> Markup:
    """All series in the box that is stretched."""
    begin_s, span_s = asked.edges_s[0], asked.edges_s[-1] - asked.edges_s[0]
    xs = [(edge_s - begin_s) / span_s * 1000.0 for edge_s in asked.edges_s]
    shapes = []
    for series in asked.series:
        steps = [
            None if value is None else (1.0 - min(max((value - low) / (top - low), 0.0), 1.0)) * 100.0
            for value in series.values
        ]
        runs = list(_runs(steps))
        if "area" in series.css:
            below = "".join(f"{_steps(xs, steps, a, b)}V100H{xs[a]:.5g}Z" for a, b in runs)
            shapes.append(svg.tag("path", d=below, class_=f"filled {series.css}"))
        line = "".join(_steps(xs, steps, a, b) for a, b in runs)
        shapes.append(svg.tag("path", d=line, class_=f"line {series.css}"))
    return svg.tag(
        "svg", *shapes, x=0, y=_TOP, width="100%", height=HEIGHT - _TOP - _BOTTOM,
        viewBox="0 0 1000 100", preserveAspectRatio="none", class_="shape",
    )  # fmt: skip


def _runs(values: Sequence[float | None]) -> Iterator[tuple[int, int]]:
    """Stretches of values without a gap: the first bin, and the one behind the last."""
    begin = None
    for number, value in enumerate([*values, None]):
        if value is None and begin is not None:
            yield begin, number
            begin = None
        elif value is not None and begin is None:
            begin = number


def _steps(xs: Sequence[float], ys: Sequence[float | None], begin: int, end: int) -> str:
    """The path over bins `begin` to `end`; equal neighbours are one step."""
    path, before = f"M{xs[begin]:.5g} {ys[begin]:.4g}", ys[begin]
    for number in range(begin + 1, end):
        if ys[number] != before:
            path += f"H{xs[number]:.5g}V{ys[number]:.4g}"
            before = ys[number]
    return f"{path}H{xs[end]:.5g}"


def _marks(asked: Chart) -> list[Markup]:
    """An upright line for each time, one where several fall together."""
    begin_s, span_s = asked.edges_s[0], asked.edges_s[-1] - asked.edges_s[0]
    together: dict[str, list[float]] = {}
    for at_s in asked.marks_s:
        if at_s >= begin_s:
            together.setdefault(svg.at(round((at_s - begin_s) / span_s, 3)), []).append(at_s)
    found = []
    for times in together.values():
        title = f"{asked.mark}, {format_seconds(times[0])}" + (f" ({len(times)} times)" if len(times) > 1 else "")
        found.append(upright((times[0] - begin_s) / span_s, "fault", title=title))
    return found


def _time_ticks(begin_s: float, end_s: float) -> Iterator[tuple[float, str]]:
    """Round times: share of the width, and what stands there."""
    span_s = end_s - begin_s
    steps = [found for found in _TIMES if span_s / found[0] <= _MOST_TIMES]
    step_s, unit_s, unit = steps[0] if steps else (span_s / _MOST_TIMES, 86_400.0, "d")
    number = int(begin_s / step_s - 1e-9) + (begin_s > 0.0)
    while number * step_s <= end_s + 1e-9:
        yield (number * step_s - begin_s) / span_s, f"{number * step_s / unit_s:.3g} {unit}"
        number += 1


def time_axis(times: Sequence[tuple[float, str]]) -> Markup:
    """The labels below; the first and the last stay inside."""
    texts = [
        svg.tag(
            "text",
            label,
            x=svg.at(share),
            y=13,
            text_anchor="start" if share < 0.03 else "end" if share > 0.95 else "middle",
        )
        for share, label in times
    ]
    return svg.tag("svg", *texts, width="100%", height=18, class_="figure axis", aria_hidden="true")


def _in_numbers(series: Series, unit: str) -> tuple[str, str, str, str]:
    """Name, lowest, mean and highest of its bins."""
    known = series.known
    if not known:
        return series.name, "–", "–", "–"
    least, mean, most = (_amount(value, unit) for value in (min(known), sum(known) / len(known), max(known)))
    return series.name, least, mean, most


def _amount(value: float, unit: str) -> str:
    return percent(value) if unit == "%" else f"{figure(value)} {unit}".strip()
