"""Tables as CSV: a run over time, and the trials of an autoscaler. Figures keep nine significant digits."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from rightslice.core.documents import rounded
from rightslice.core.replay import Tuning
from rightslice.core.timeline import Timeline, Track

Value = str | float | int | None
TIMELINE_COLUMNS = (
    "run", "kind", "name", "begin_s", "end_s", "offered", "completed", "failed", "refused", "timed_out", "lost",
    "shed", "in_flight", "offered_per_s", "completed_per_s", "slo_attainment", "waiting", "running", "kv_use",
    "replicas_wanted", "replicas_ready", "replicas_starting", "nodes", "nodes_ready", "usd",
)  # fmt: skip
TRIAL_COLUMNS = (
    "target_share", "min_replicas", "gpu_hours", "usd", "holds", "tightest_slo", "achieved_share", "size_changes",
    "on_frontier", "down_window_s", "up_window_s",
)  # fmt: skip


def timeline_csv(timelines: Sequence[Timeline]) -> str:
    """One row for each track and bin; empty where a track has no such figure (core/timeline.py says what they are).

    `nodes` and `usd` are of the whole run and stand in each of its tracks.
    """
    rows = (row for timeline in timelines for track in timeline.tracks for row in _of_track(timeline, track))
    return _written(TIMELINE_COLUMNS, rows)


def trials_csv(tuning: Tuning) -> str:
    """One row for each setting."""
    frontier = tuning.frontier
    rows = (
        (t.share, t.min_replicas, t.gpu_hours, t.usd, _yes(t.holds), t.objective, t.achieved, t.changes,
         _yes(t in frontier), t.down_window_s, t.up_window_s)
        for t in tuning.trials
    )  # fmt: skip
    return _written(TRIAL_COLUMNS, rows)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _of_track(timeline: Timeline, track: Track) -> Iterator[Sequence[Value]]:
    came, servers, widths_s = track.requests, track.servers, timeline.widths_s
    none: Sequence[Value] = (None,) * len(widths_s)
    counts: list[Sequence[Value]] = [none] * 11
    if came:
        rates = [[n / w for n, w in zip(found, widths_s, strict=True)] for found in (came.offered, came.completed)]
        counts = [came.offered, came.completed, came.failed, came.refused, came.timed_out, came.lost]
        counts += [came.shed, came.in_flight, *rates, came.attainment]
    sizes: list[Sequence[Value]] = [none] * 6
    if servers:
        sizes = [servers.waiting, servers.running, servers.kv_use or none]
        sizes += [servers.wanted, servers.ready, servers.starting]
    fleet = [timeline.nodes, timeline.nodes_ready or none, timeline.usd or none]
    columns = [timeline.edges_s[:-1], timeline.edges_s[1:], *counts, *sizes, *fleet]
    for row in zip(*columns, strict=True):
        yield (timeline.run, track.kind, track.name, *row)


def _written(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([rounded(value) if isinstance(value, float) else value for value in row] for row in rows)
    return buffer.getvalue()
