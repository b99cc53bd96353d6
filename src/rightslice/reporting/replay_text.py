"""A simulation for a terminal: what came, what was answered, which objectives hold, what the machines did."""

from __future__ import annotations

from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.replay import Preemption, Replay, Tuning
from rightslice.core.results import ClassResult, Distribution, SloOutcome
from rightslice.core.text import plural
from rightslice.reporting.canvas import Canvas, Cell, Column, Style
from rightslice.reporting.course_text import course
from rightslice.reporting.replay_words import STATED_COLUMNS, stated_rows, unmeasured_text, verdict_text
from rightslice.reporting.text import prefix_hits_text, priced_text

_MOST_REPLICAS = 12
_CAUSES = {"node": ("node", "lost"), "gpu": ("GPU", "failed"), "pod": ("pod", "crashed"), "grace": ("pod", "cut off")}
_MOST_BOUNDS = 3
"""With more scaled deployments their hours are added up."""
_FINE_BLOCK = 64
"""Tokens of a block in which prompts are compared; larger ones hide short prefixes, which is said."""


def replay_text(replay: Replay, *, width: int = 80, color: bool = False, ascii_only: bool = False) -> str:
    """The whole answer."""
    canvas = Canvas(Style(width, color, ascii_only))
    canvas.line((replay.plan, "bold"), f": {verdict_text(replay)}")
    if unmeasured := unmeasured_text(replay):
        canvas.line((unmeasured, "bold"))
    cost = f" · {format_usd(replay.usd)}" if replay.usd is not None else ""
    priced = priced_text(replay.price_date, replay.price_quality)
    bill = f"{replay.gpu_hours:.3g} GPU hours{cost} in {format_seconds(replay.horizon_s)}"
    bill += f" ({priced})" if cost and priced else ""
    canvas.line((f"{bill} · {replay.cpu_s:.2f} CPU s · seed {replay.seed}", "dim"))
    canvas.blank()
    _classes(canvas, replay)
    _pipelines(canvas, replay)
    _objectives(canvas, replay)
    course(canvas, replay.timelines)
    if replay.timeline:
        _scaling(canvas, replay)
        _rollouts(canvas, replay)
        _disruptions(canvas, replay)
    else:
        _replicas(canvas, replay)
    if rows := stated_rows(replay):
        canvas.blank()
        canvas.line(("Against what was stated", "bold"), f" ({replay.stated_source})")
        canvas.table([Column(name, "left" if i < 2 else "right") for i, name in enumerate(STATED_COLUMNS)], rows)
    for note in replay.notes:
        canvas.line((note, "dim"))
    if replay.apart:
        canvas.line((f"no autoscaler and no fault reaches {', '.join(replay.apart)}", "dim"))
    return canvas.render()


def trials_text(tuning: Tuning, *, width: int = 80, color: bool = False, ascii_only: bool = False) -> str:
    """Settings of an autoscaler: the cheapest that holds first."""
    canvas, trials = Canvas(Style(width, color, ascii_only)), tuning.trials
    holding = sum(t.holds for t in trials)
    canvas.line((f"{holding} of {len(trials)} settings hold", "bold"), " over the same day; the cheapest first")
    canvas.blank()
    names = ("holds", "load", "least", "windows", "GPU hours", "cost", "tightest objective", "changes")
    columns = [Column(name, "right" if number else "left") for number, name in enumerate(names)]
    rows = [
        [
            "yes" if t.holds else "no",
            f"{t.share:.0%}" if t.share is not None else "-",
            f"{t.min_replicas:,}",
            t.windows,
            f"{t.gpu_hours:,.1f}",
            format_usd(t.usd) if t.usd is not None else "-",
            f"{t.objective} {t.achieved:.1%}",
            f"{t.changes:,}",
        ]
        for t in trials
    ]
    canvas.table(columns, rows)
    canvas.line(
        ("load: aimed at, of what a replica carries; windows: up / down; the others as the autoscaler has it", "dim")
    )
    if any(t.usd is not None for t in trials) and (priced := priced_text(tuning.price_date, tuning.price_quality)):
        canvas.line((f"cost: {priced}", "dim"))
    return canvas.render()


def _scaling(canvas: Canvas, replay: Replay) -> None:
    """What each autoscaler did, beside what none beats."""
    each = [(bound.deployment, [bound]) for bound in replay.bounds]
    if len(each) > _MOST_BOUNDS:
        each = [(f"{len(each)} deployments", list(replay.bounds))]
    for name, bounds in each:
        names = {bound.deployment for bound in bounds}
        changes = sum(event.deployment in names for event in replay.scale_events)
        text = (
            f": {plural(changes, 'change')} of size. {sum(b.perfect for b in bounds):.3g} GPU hours with replicas that "
            f"are there at once when needed, {sum(b.peak for b in bounds):.3g} with the "
            f"{sum(b.peak_replicas for b in bounds):,} of the peak all the time"
        )
        canvas.line((name, "bold"), (text, "dim"))
    if replay.unknown_phases:
        canvas.line((f"counted as 0 s, for nobody published them: {', '.join(replay.unknown_phases)}", "dim"))


def _disruptions(canvas: Canvas, replay: Replay) -> None:
    for name, dark_s in replay.dark_s.items():
        canvas.line((f"{name}: requests waited {format_seconds(dark_s)} without any ready replica", "bold"))
    faults = [event for event in replay.preemptions if event.cause != "grace"]
    if replay.faults and not faults:
        canvas.line((f"nothing was lost to {', '.join(replay.faults)}", "dim"))
    if not replay.preemptions:
        return
    canvas.blank()
    requeued = sum(event.requests_requeued for event in replay.preemptions)
    lost = sum(event.requests_lost for event in replay.preemptions)
    counts = {cause: sum(event.cause == cause for event in replay.preemptions) for cause in _CAUSES}
    what = [f"{plural(counts[cause], noun)} {end}" for cause, (noun, end) in _CAUSES.items() if counts[cause]]
    canvas.line(
        (f"{', '.join(what)}", "bold"),
        f": {plural(requeued, 'request')} computed again, {plural(lost, 'request')} lost",
    )
    rows = [[format_seconds(e.time_s), _where(e), f"{e.requests_requeued:,} again"] for e in replay.preemptions]
    canvas.rows(rows[:_MOST_REPLICAS], indent=2)


def _where(event: Preemption) -> str:
    if event.cause == "gpu":
        return f"GPU {event.gpu} of {event.node}"
    return event.node if event.cause == "node" else ", ".join(event.replicas)


def _rollouts(canvas: Canvas, replay: Replay) -> None:
    """How each rolling update went, and what its requests met."""
    for found in replay.rollouts:
        how = f"rolling update at {format_seconds(found.at_s)} (surge {found.surge}, unavailable {found.unavailable})"
        if found.done_s is not None:
            canvas.line((found.deployment, "bold"), f": {how} took {format_seconds(found.done_s - found.at_s)}")
        else:
            canvas.line((found.deployment, "bold"), f": {how} has not ended")
        if found.stuck_s is not None:
            waited = format_seconds(found.stuck_s - found.at_s)
            canvas.line((f"after {waited} {found.message}", "bold"), indent=2)
        for c in found.during:
            met = f"{c.slo_attainment:.1%} of {plural(c.requests, 'request')} met every objective"
            canvas.line((f"{c.traffic_class}: {met} meanwhile", "dim"), indent=2)


def _classes(canvas: Canvas, replay: Replay) -> None:
    found = [c for result in replay.results for c in result.per_class]
    if not found:
        return
    columns = [Column("model"), Column("class"), Column("requests", "right"), Column("failed", "right")]
    columns += [Column(f"{name} p50 / p95", "right") for name in ("TTFT", "TPOT", "E2E")]
    columns.append(Column("tokens/s", "right"))
    canvas.table(columns, [_class_row(c) for c in found])
    for c in found:
        if c.prefix_hit_rate is not None and c.prefix_hit_ceiling:
            text = prefix_hits_text(c.prefix_hit_rate, c.prefix_hit_ceiling)
            coarse = f", compared in blocks of {c.prefix_block_tokens:,}" if c.prefix_block_tokens > _FINE_BLOCK else ""
            canvas.line((f"{c.model}/{c.traffic_class}: {text}{coarse}", "dim"))
        if c.timed_out:
            canvas.line((f"{c.model}/{c.traffic_class}: {plural(c.timed_out, 'request')} waited too long", "dim"))
        if c.shed:
            text = f"{plural(c.shed, 'request')} shed by the gateway ({c.shed / c.requests:.1%})"
            canvas.line((f"{c.model}/{c.traffic_class}: {text}", "dim"))
    canvas.blank()


def _class_row(found: ClassResult) -> list[str]:
    times = [_shown(found.ttft_ms), _shown(found.tpot_ms), _shown(found.e2e_ms)]
    counts = [f"{found.requests:,}", f"{found.failed:,}"]
    return [found.model, found.traffic_class, *counts, *times, f"{found.output_tokens_per_s:,.0f}"]


def _shown(found: Distribution | None) -> str:
    return f"{format_seconds(found.p50 / 1e3)} / {format_seconds(found.p95 / 1e3)}" if found else "-"


def _pipelines(canvas: Canvas, replay: Replay) -> None:
    for result in replay.results:
        for pipeline in result.pipelines:
            canvas.line(
                (f"{pipeline.name}/{pipeline.users}", "bold"),
                f": {pipeline.requests:,} requests, {pipeline.requests_per_s:.3g}/s, e2e {_shown(pipeline.e2e_ms)}",
            )
            rows: list[list[Cell]] = [[stage.model, _shown(stage.e2e_ms)] for stage in pipeline.per_stage]
            canvas.rows(rows, indent=2)
            canvas.blank()


def _objectives(canvas: Canvas, replay: Replay) -> None:
    rows: list[list[Cell]] = []
    for result in replay.results:
        for found in result.per_class:
            rows += [_objective(f"{found.model}/{found.traffic_class}", outcome) for outcome in found.outcomes]
        for pipeline in result.pipelines:
            rows += [_objective(f"{pipeline.name}/{pipeline.users}", outcome) for outcome in pipeline.outcomes]
    if rows:
        canvas.line(("Objectives", "bold"))
        canvas.rows(rows, indent=2)
        canvas.blank()


def _objective(subject: str, outcome: SloOutcome) -> list[Cell]:
    verdict: Cell = ("holds", "green") if outcome.met else ("missed", "bold")
    limit = f"{outcome.slo.name} <= {format_seconds(outcome.slo.at_most_s)}"
    if not outcome.judged:
        return ["not measured", subject, limit, f"{outcome.slo.share:.0%} are asked"]
    return [verdict, subject, limit, f"{outcome.achieved_share:.1%} of requests, {outcome.slo.share:.0%} are asked"]


def _replicas(canvas: Canvas, replay: Replay) -> None:
    found = [replica for result in replay.results for replica in result.replicas]
    if not found:
        return
    columns = [Column("replica"), Column("busy", "right"), Column("batch", "right"), Column("KV mean / peak", "right")]
    columns.append(Column("preemptions", "right"))
    rows = [
        [
            f"{r.deployment}-{r.replica}",
            f"{r.busy_share:.0%}",
            f"{r.batch_mean:.1f}",
            f"{r.kv_use_mean:.0%} / {r.kv_use_peak:.0%}",
            f"{r.preemptions:,}",
        ]
        for r in found[:_MOST_REPLICAS]
    ]
    canvas.table(columns, rows)
    if len(found) > _MOST_REPLICAS:
        canvas.line((f"… and {len(found) - _MOST_REPLICAS} more replicas", "dim"))
