"""A simulation for a terminal: what came, what was answered, which objectives hold, what the machines did."""

from __future__ import annotations

from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.replay import Replay
from rightslice.core.results import ClassResult, Distribution, SloOutcome
from rightslice.core.text import plural
from rightslice.reporting.canvas import Canvas, Cell, Column, Style

_MOST_REPLICAS = 12


def replay_text(replay: Replay, *, width: int = 80, color: bool = False, ascii_only: bool = False) -> str:
    """The whole answer."""
    canvas = Canvas(Style(width, color, ascii_only))
    verdict = "every objective holds" if replay.holds else "not everything holds"
    span = format_seconds(replay.horizon_s)
    canvas.line((replay.plan, "bold"), f": {plural(replay.requests, 'request')} in {span}: {verdict}")
    cost = f" · {format_usd(replay.usd)}" if replay.usd is not None else ""
    canvas.line((f"{replay.gpu_hours:.3g} GPU hours{cost} · {replay.cpu_s:.2f} CPU s · seed {replay.seed}", "dim"))
    canvas.blank()
    _classes(canvas, replay)
    _pipelines(canvas, replay)
    _objectives(canvas, replay)
    _replicas(canvas, replay)
    return canvas.render()


def _classes(canvas: Canvas, replay: Replay) -> None:
    found = [c for result in replay.results for c in result.per_class]
    if not found:
        return
    columns = [Column("model"), Column("class"), Column("requests", "right"), Column("failed", "right")]
    columns += [Column(f"{name} p50 / p95", "right") for name in ("TTFT", "TPOT", "E2E")]
    columns.append(Column("tokens/s", "right"))
    canvas.table(columns, [_class_row(c) for c in found])
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
