"""What the page of a simulation shows, as text and figures; the template only arranges it."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from rightslice.core.plan import SloResult
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.replay import Confidence, Preemption, Replay
from rightslice.core.results import Distribution, SloOutcome, percentile
from rightslice.core.text import plural
from rightslice.reporting import svg
from rightslice.reporting.text import figure, milliseconds, percent

MOST_EVENTS = 20
"""Changes of size, and lost nodes, that the page lists; replay.json has them all."""
_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "End to end"}
_OPTIONS = {
    "trace": "--trace", "rate": "--rate", "users": "--users", "changes": "--set", "seed": "--seed",
    "horizon_s": "--horizon", "autoscaler": "--autoscaler", "faults": "--fault",
}  # fmt: skip

Times = dict[str, Distribution | None]


def objectives(replay: Replay) -> tuple[SloResult, ...]:
    """Every objective of every class and population of which something was measured, with its percentile."""
    found = []
    for subject, times, outcomes in _subjects(replay):
        for outcome in (found for found in outcomes if found.judged):
            seen = times[outcome.slo.metric]
            reached_ms = percentile(seen, outcome.slo.share) if seen else 0.0
            found.append(SloResult(subject, outcome.slo, reached_ms, outcome.achieved_share, outcome.met))
    return tuple(found)


def _subjects(replay: Replay) -> Iterator[tuple[str, Times, tuple[SloOutcome, ...]]]:
    """Classes and populations with their times, by metric, and their objectives."""
    for result in replay.results:
        for c in result.per_class:
            yield f"{c.model}/{c.traffic_class}", {"ttft": c.ttft_ms, "tpot": c.tpot_ms, "e2e": c.e2e_ms}, c.outcomes
        for p in result.pipelines:
            yield f"{p.name}/{p.users}", {"ttft": None, "tpot": None, "e2e": p.e2e_ms}, p.outcomes


def time_rows(replay: Replay) -> list[list[str]]:
    """Subject, metric, mean, p50, p95, p99; each with its confidence interval where there is one."""
    known = {(c.subject, c.metric, c.statistic): c for c in replay.confidence}
    rows = []
    for subject, times, _ in _subjects(replay):
        for metric, seen in times.items():
            if seen:
                figures = {"mean": seen.mean, "p50": seen.p50, "p95": seen.p95, "p99": seen.p99}
                cells = [_sure(value, known.get((subject, f"{metric}_ms", name))) for name, value in figures.items()]
                rows.append([subject, _NAMES[metric], *cells])
    return rows


def _sure(value_ms: float, interval: Confidence | None) -> str:
    if interval is None:
        return milliseconds(value_ms)
    return f"{milliseconds(value_ms)} ± {milliseconds((interval.high - interval.low) / 2.0)}"


def requests_rows(replay: Replay) -> list[tuple[str, str]]:
    """What became of the requests."""
    total = replay.totals
    why = replay.failed_why
    rows = [
        ("Requests", f"{total['requests']:,}"),
        ("Answered", f"{total['completed']:,}"),
        ("Under way at the end", f"{total['unfinished']:,}"),
        ("Failed", f"{total['failed']:,}"),
    ]
    names = {"refused": "too long, or nobody serves them", "timed_out": "waited too long", "lost": "lost with a node"}
    if total["answered"] != total["completed"]:
        rows.insert(2, ("Answered in that time, whenever they came", f"{total['answered']:,}"))
    rows += [(f"… {text}", f"{why[name]:,}") for name, text in names.items() if why[name]]
    if total["shed"]:
        rows.append(("Shed by the gateway", f"{total['shed']:,}"))
    if total["requeued"]:
        rows.append(("Computed again elsewhere", f"{total['requeued']:,}"))
    rows += [(f"{name}: no ready replica", format_seconds(dark_s)) for name, dark_s in replay.dark_s.items()]
    return rows


def hours_bars(replay: Replay) -> tuple[tuple[str, str, Markup], ...]:
    """GPU-hours of this run beside the bounds of all deployments that are scaled: name, amount, bar."""
    if not replay.bounds:
        return ()
    peak = plural(sum(bound.peak_replicas for bound in replay.bounds), "replica")
    pairs = (
        ("this run, all nodes", replay.gpu_hours, "chosen"),
        ("perfect autoscaler", sum(bound.perfect for bound in replay.bounds), "other"),
        (f"{peak} of the peak, always", sum(bound.peak for bound in replay.bounds), "other"),
    )
    most = max(hours for _, hours, _ in pairs) or 1.0
    return tuple(
        (name, f"{figure(h)} h", svg.stacked_bar(f"{name}: {figure(h)} GPU-hours", [svg.Part(h / most, css, name)], 8))
        for name, h, css in pairs
    )


def deployment_rows(replay: Replay) -> list[list[str]]:
    """Deployment, replicas at most, busy, batch, KV use, preemptions; over all runs."""
    rows = []
    for name, replicas in replay.by_deployment.items():
        n = len(replicas)
        rows.append(
            [
                name,
                f"{len({r.replica for r in replicas}):,}",
                percent(sum(r.busy_share for r in replicas) / n, 0),
                f"{sum(r.batch_mean for r in replicas) / n:.1f}",
                percent(sum(r.kv_use_mean for r in replicas) / n),
                percent(max(r.kv_use_peak for r in replicas)),
                f"{sum(r.preemptions for r in replicas):,}",
            ]
        )
    return rows


def event_rows(replay: Replay) -> list[list[str]]:
    """When, what, why: changes of size and lost nodes in order of time, the first MOST_EVENTS of each."""
    found = [
        (e.time_s, e.deployment, f"{e.before:,} → {e.after:,} replicas", e.reason)
        for e in replay.scale_events[:MOST_EVENTS]
    ]
    found += [
        (e.time_s, e.pool, what_ended(e), f"{e.requests_requeued:,} computed again, {e.requests_lost:,} lost")
        for e in replay.preemptions[:MOST_EVENTS]
    ]
    return [[format_seconds(time_s), *rest] for time_s, *rest in sorted(found, key=lambda e: e[0])]


def what_ended(event: Preemption) -> str:
    """A lost node, a failed GPU, a crash, or a grace that was too short."""
    if event.cause == "node":
        return f"node {event.node} lost"
    if event.cause == "gpu":
        return f"GPU {event.gpu} of {event.node} failed"
    return f"{', '.join(event.replicas)} {'crashed' if event.cause == 'pod' else 'cut off by its grace'}"


def asked_rows(replay: Replay) -> list[tuple[str, str]]:
    """The options as they were given, and the seed."""
    given = [(name, one) for name, v in replay.asked.items() for one in (v if isinstance(v, tuple) else (v,))]
    shown = [(name, format_seconds(one) if name == "horizon_s" else str(one)) for name, one in given]
    rows = [(_OPTIONS.get(name, f"--{name}"), text) for name, text in shown]
    return [*rows, ("Seed of the traffic", f"{replay.seed}")]


def bins_text(replay: Replay) -> str:
    """`5 min`, `5 s and 10 s`: how long the bins are."""
    return " and ".join(dict.fromkeys(_round_s(timeline.widths_s[0]) for timeline in replay.timelines))


def _round_s(amount_s: float) -> str:
    unit_s, unit = (3600.0, "h") if amount_s >= 3600.0 else (60.0, "min") if amount_s >= 60.0 else (1.0, "s")
    return f"{amount_s / unit_s:.3g} {unit}"


def cost_text(replay: Replay) -> str:
    """`$427`, or that there is no price."""
    return format_usd(replay.usd) if replay.usd is not None else "no price"
