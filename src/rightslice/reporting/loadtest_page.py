"""What the page of a load test shows: curves over the loads, the knee, objectives, and whether it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rightslice.loadtesting.dialects import SOUND
from rightslice.loadtesting.results import LoadTest
from rightslice.loadtesting.statistics import Latency, Point
from rightslice.reporting import svg
from rightslice.reporting.charts import ChartView, height, scale, time_axis
from rightslice.reporting.curves import HEIGHT, Curve, Dot, Line, curve
from rightslice.reporting.loadtest_text import client_text, findings, server_cells, shape_text, troubles
from rightslice.reporting.text import milliseconds, percent

_PERCENTILES = (("p50", "s0"), ("p95", "s1"))
_NAMES = {"ttft": "Time to the first token", "tpot": "Time per output token", "e2e": "End to end"}


def curves(report: LoadTest) -> tuple[ChartView, ...]:
    """Throughput, and each latency with the strictest objective of it, over the loads that were answered."""
    found = []
    for of, points in _kinds(report.points):
        knee = float(report.knee.concurrency) if report.knee and of == "streams" else None
        sound = report.api in SOUND
        name, unit = ("Speed", "times real time") if sound else ("Throughput", "output tokens/s")
        if not any(p.output_tokens_per_s or p.rtfx for p in points):
            name, unit = "Throughput", "requests/s"
        speed = Line("measured", tuple(_throughput(p, unit) for p in points), "s0")
        found.append(curve(Curve(name, unit, of, (speed,), knee=knee)))
        for metric, title in _NAMES.items():
            lines = tuple(Line(part, tuple(_dots(points, metric, part)), css) for part, css in _PERCENTILES)
            if any(line.dots for line in lines):
                limit, said = _limit(report, metric)
                found.append(curve(Curve(title, "ms", of, lines, limit, said, knee)))
    return tuple(found)


def gaps(report: LoadTest) -> ChartView | None:
    """Histogram of the gaps between chunks, all loads together; None where there are few."""
    merged: dict[float, int] = {}
    for point in report.points:
        for upper, count in point.gap_histogram.items():
            merged[float(upper)] = merged.get(float(upper), 0) + count
    if len(merged) < 3:
        return None
    edges, total = sorted(merged), sum(merged.values())
    most = svg.nice_ticks(max(merged.values()) / total * 100.0, 3)
    bars = []
    for number, edge in enumerate(edges):
        share = merged[edge] / total * 100.0
        top = height(share, 0.0, most[-1], HEIGHT)
        title = f"up to {edge:.3g} ms: {merged[edge]:,} gaps, {share:.1f} %"
        bars.append(
            svg.tag(
                "rect", svg.tag("title", title), x=svg.at(number / len(edges)), y=f"{top:.1f}",
                width=svg.at(0.9 / len(edges)), height=f"{height(0.0, 0.0, most[-1], HEIGHT) - top:.1f}", class_="s0",
            )
        )  # fmt: skip
    quarters = [round(i * (len(edges) - 1) / 4) for i in range(5)]
    labels = [((i + 0.5) / len(edges), f"{edges[i]:.3g}") for i in dict.fromkeys(quarters)]
    described = f"{total:,} gaps between {edges[0]:.3g} and {edges[-1]:.3g} ms"
    return ChartView(
        title="Gaps between chunks",
        unit="% of gaps, by ms",
        keys=(),
        scale=scale(most, 0.0, "", HEIGHT),
        plot=svg.figure("Gaps between chunks", described, HEIGHT, *bars, css="plot"),
        axis=time_axis(labels),
        rows=(),
    )


def point_rows(report: LoadTest) -> list[list[str]]:
    """One row for each load."""
    return [
        [
            point.name,
            f"{point.completed:,} of {point.requests:,}",
            f"{point.requests_per_s:.3g}",
            f"{point.output_tokens_per_s:,.0f}" if point.rtfx is None else f"{point.rtfx:,.1f} x",
            *(_cell(latency) for latency in (point.ttft_ms, point.tpot_ms, point.e2e_ms)),
            "–" if point.goodput is None else percent(point.goodput.share),
            "yes" if point.valid else "no",
        ]
        for point in report.points
    ]


def asked_rows(report: LoadTest) -> list[tuple[str, str]]:
    """What was sent where."""
    rows = [("Model", report.model), ("Server", report.url), ("Requests", shape_text(report))]
    rows += [("Objective", f"{slo.name} <= {milliseconds(slo.at_most_s * 1e3)}") for slo in report.slos]
    return [*rows, *(("Note", note) for note in report.notes)]


def server_rows(report: LoadTest) -> list[list[str]]:
    """What the server said of itself, for each load."""
    return [[point.name, *server_cells(point.server)] for point in report.points if point.server is not None]


def trouble_rows(report: LoadTest) -> list[tuple[str, str]]:
    """What went wrong, load by load."""
    return [(point.name, text) for point in report.points for text in troubles(point)]


def verdict(report: LoadTest) -> str:
    """The finding in one sentence."""
    said = [head for head, _ in findings(report)]
    if report.stopped:
        said.append(f"stopped: {report.stopped}")
    return "; ".join(said) or f"{sum(p.completed for p in report.points):,} requests answered"


def trust(report: LoadTest) -> list[tuple[str, str]]:
    """Whether the client could be relied upon."""
    wrong = sum(not point.valid for point in report.points)
    rows = [("Valid loads", f"{len(report.points) - wrong} of {len(report.points)}")]
    delays = [p.dispatch_delay_ms.p99 for p in report.points if p.dispatch_delay_ms]
    if delays:
        rows.append(("Requests left late, p99", milliseconds(max(delays))))
    return [*rows, ("Client", client_text(report.client).removeprefix("Client: "))]


def _kinds(points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Loads by their kind, each in order; those that were answered, where there are two to compare."""
    loads: tuple[tuple[str, Callable[[Point], float | None]], ...] = (
        ("streams", lambda p: p.concurrency),
        ("requests/s offered", lambda p: p.rate),
    )
    for name, load in loads:
        kind = sorted((p for p in points if load(p) and p.completed), key=lambda p: load(p) or 0.0)
        if len({load(p) for p in kind}) > 1:
            yield name, kind


def _load(point: Point) -> float:
    return float(point.concurrency or point.rate or 0.0)


def _throughput(point: Point, unit: str) -> Dot:
    values = {"requests/s": point.requests_per_s, "times real time": point.rtfx or 0.0}
    value = values.get(unit, point.output_tokens_per_s)
    return Dot(_load(point), value, f"{point.name}: {value:,.4g} {unit}", point.valid)


def _dots(points: Sequence[Point], metric: str, part: str) -> Iterator[Dot]:
    for point in points:
        latency: Latency | None = getattr(point, f"{metric}_ms")
        if latency is not None:
            value: float = getattr(latency, part)
            yield Dot(_load(point), value, f"{point.name}: {part} {milliseconds(value)}", point.valid)


def _limit(report: LoadTest, metric: str) -> tuple[float | None, str]:
    limits = [slo for slo in report.slos if slo.metric == metric]
    if not limits:
        return None, ""
    strictest = min(limits, key=lambda slo: slo.at_most_s)
    return strictest.at_most_s * 1e3, f"{strictest.name} asked"


def _cell(latency: Latency | None) -> str:
    return "–" if latency is None else f"{milliseconds(latency.p50)} / {milliseconds(latency.p95)}"
