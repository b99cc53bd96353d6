"""A load test for a terminal: one row per load, the knee, what was kept, and whether the client can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rightslice.loadtesting.dialects import SOUND
from rightslice.loadtesting.results import Client, LoadTest
from rightslice.loadtesting.search import Best
from rightslice.loadtesting.server_metrics import ServerView
from rightslice.loadtesting.statistics import Latency, Point
from rightslice.reporting.canvas import Canvas, Column, Style, sparkline
from rightslice.reporting.text import percent

SERVER_COLUMNS: Final = ("running", "max", "waiting", "KV in use", "max", "preempted", "prefix hits")
_NARROW: Final = 70


def loadtest_text(report: LoadTest, style: Style) -> str:
    """The whole answer."""
    canvas = Canvas(style)
    canvas.line((f"{report.model} at {report.url}: {shape_text(report)}", "bold"))
    canvas.blank()
    rate = "RTFX" if report.api in SOUND else "tokens/s"
    columns = [_kind(report.points), "req/s", rate, "TTFT p50", "p99", "TPOT p50", "p99", "e2e p50", "p99"]
    shown = [0, 1, 2, 3, 5, 7] if style.width < _NARROW else list(range(len(columns)))
    aligned = [Column(columns[i], "left" if i == 0 else "right") for i in shown]
    canvas.table(aligned, [tuple(_row(point)[i] for i in shown) for point in report.points])
    canvas.line(("TTFT, TPOT, e2e in milliseconds", "dim"), indent=2)
    _server(canvas, report.points, style)
    _peers(canvas, report)
    for point in report.points:
        for line in troubles(point):
            canvas.line((f"{point.name}: {line}", "yellow"), indent=2)
    canvas.blank()
    if gaps := _gaps(report.points, style):
        canvas.line(gaps, indent=2)
    for head, rest in findings(report):
        canvas.line((head, "bold"), rest)
    canvas.line(client_text(report.client))
    if report.stopped:
        canvas.line((f"STOPPED: {report.stopped}; what was measured until then is above", "red"))
    for note in report.notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _peers(canvas: Canvas, report: LoadTest) -> None:
    """The means of the same loads as another tool saw them, beside ours."""
    if not report.peers:
        return
    titles = ("req/s", "TTFT mean", "TPOT mean", "e2e mean")
    rows = []
    for peer in report.peers:
        own = next(point for point in report.points if point.name == peer.name)
        means = [latency.mean if latency else None for latency in (own.ttft_ms, own.tpot_ms, own.e2e_ms)]
        rows.append((f"{peer.name}: ours", f"{own.requests_per_s:.3g}", *(_some(mean, ",.1f") for mean in means)))
        seen = peer.measured
        cells = (_some(value, ",.1f") for value in (seen.ttft_ms, seen.tpot_ms, seen.e2e_ms))
        rows.append((f"{peer.name}: {peer.tool}", f"{seen.requests_per_s:.3g}", *cells))
    canvas.blank()
    canvas.line(("The same loads by another tool, milliseconds", "bold"))
    canvas.table([Column("load"), *(Column(title, "right") for title in titles)], rows)


def shape_text(report: LoadTest) -> str:
    """Interface and lengths of the requests."""
    if report.api in SOUND:
        total, done = sum(p.audio_s for p in report.points), sum(p.completed for p in report.points)
        return f"{report.api}, {total / done:.1f} s of sound a request" if done else report.api
    done, counted = sum(p.completed for p in report.points), sum(p.counted for p in report.points)
    inputs = sum(p.input_tokens for p in report.points) / done if counted and counted == done else report.input_tokens
    return f"{report.api}, {inputs:,.0f} tokens in, {report.output_tokens:,} out"


def _server(canvas: Canvas, points: Sequence[Point], style: Style) -> None:
    """What the server said of itself meanwhile."""
    told = [(point, point.server) for point in points if point.server is not None]
    if not told:
        return
    columns = [_kind(points), *SERVER_COLUMNS]
    shown = [0, 1, 3, 5, 6] if style.width < _NARROW else list(range(len(columns)))
    rows = []
    for point, seen in told:
        row = (_load(point), *server_cells(seen))
        rows.append(tuple(row[i] for i in shown))
    canvas.blank()
    canvas.line(("The server's own metrics", "bold"))
    canvas.table([Column(columns[i], "left" if i == 0 else "right") for i in shown], rows)


def server_cells(seen: ServerView) -> tuple[str, ...]:
    """The cells below SERVER_COLUMNS."""
    return (
        _some(seen.running, ".1f"),
        _some(seen.running_max, ",.0f"),
        _some(seen.waiting_max, ",.0f"),
        _some(seen.kv_use, ".0%"),
        _some(seen.kv_use_max, ".0%"),
        _some(seen.preemptions, ",d"),
        _some(seen.prefix_hit_rate, ".0%"),
    )


def _some(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def findings(report: LoadTest) -> Iterator[tuple[str, str]]:
    """Knee, largest rate and goodput: what was found, and what there is to say of it."""
    if (knee := report.knee) is not None:
        ttft = f", TTFT p50 {knee.ttft_ms:,.0f} ms" if knee.ttft_ms is not None else ""
        yield f"Knee at {knee.concurrency} streams", f": {knee.output_tokens_per_s:,.0f} tokens/s{ttft} ({knee.reason})"
    if (best := report.largest_rate) is not None:
        yield f"Largest rate that keeps the objectives: {best.requests_per_s:.3g} requests/s", _broken(best)
    if (good := report.goodput) is not None:
        interval = f"95 %: {percent(good.low)} to {percent(good.high)}"
        share = f"{percent(good.share)} of requests met all objectives ({interval})"
        yield f"Goodput at best {good.requests_per_s:.3g} requests/s", f"; there {share}"


def _row(point: Point) -> tuple[str, ...]:
    latencies = (point.ttft_ms, point.tpot_ms, point.e2e_ms)
    cells = [cell for latency in latencies for cell in (_ms(latency), _ms(latency, "p99"))]
    made = f"{point.output_tokens_per_s:,.0f}" if point.rtfx is None else f"{point.rtfx:,.1f}"
    return (_load(point), f"{point.requests_per_s:.3g}", made, *cells)


def _load(point: Point) -> str:
    return f"{point.rate:.3g}/s" if point.rate is not None else f"{point.concurrency:,}"


def _kind(points: Sequence[Point]) -> str:
    kinds = {point.rate is None for point in points}
    return "streams or rate" if len(kinds) > 1 else "streams" if True in kinds else "rate"


def _ms(latency: Latency | None, part: str = "p50") -> str:
    if latency is None:
        return "–"
    value: float = getattr(latency, part)
    return f"{value:,.1f}" if value < 100.0 else f"{value:,.0f}"


def troubles(point: Point) -> Iterator[str]:
    """What went wrong at a load, and which objectives it misses."""
    if point.failed or point.unfinished:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in point.errors.items())
        left = [f"{point.unfinished:,} unfinished"] if point.unfinished else []
        yield f"{point.completed:,} of {point.requests:,} answered; " + ", ".join([*([kinds] if kinds else []), *left])
    for detail in point.error_details[:1]:
        yield f"the server said: {detail}"
    if point.oversaturated:
        yield "first tokens came ever later: more was sent than can be served"
    for reason in point.reasons:
        yield f"NOT VALID: {reason}"
    if point.goodput:
        missed = [name for name, met in point.goodput.met.items() if not met]
        if missed:
            yield f"misses {', '.join(missed)}"


def _gaps(points: Sequence[Point], style: Style) -> str:
    merged: dict[float, int] = {}
    for point in points:
        _add(merged, point.gap_histogram)
    if len(merged) < 3:
        return ""
    edges = sorted(merged)
    line = sparkline([float(merged[edge]) for edge in edges], style)
    return f"gaps between chunks, {edges[0]:.3g} to {edges[-1]:.3g} ms: {line}"


def _add(merged: dict[float, int], histogram: Mapping[str, int]) -> None:
    for edge, count in histogram.items():
        merged[float(edge)] = merged.get(float(edge), 0) + count


def _broken(best: Best) -> str:
    if best.broken_at is None and not best.broken:
        return " (none broke: it may be higher)"
    at = f" at {best.broken_at:.3g}/s" if best.broken_at is not None else ""
    return f"; {', '.join(best.broken) or 'an objective'} broke{at}"


def client_text(client: Client) -> str:
    """What the client had left, and how true its times were."""
    core = "core" if client.processes == 1 else f"{client.processes} cores"
    left = f"{percent(client.headroom, 0)} of its {core} was left"
    check = client.self_check
    if check is None:
        return f"Client: {left}; not checked against a server with known times"
    delay = f"first tokens {check.first_token_ms.p50:.1f} ms, last {check.last_token_ms.p50:.1f} ms late (p50)"
    failed = "" if check.passed else ": THE CLIENT IS TOO SLOW HERE"
    return f"Client: {left}; against a server with known times at {check.streams} streams: {delay}{failed}"
