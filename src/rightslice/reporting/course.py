"""A run over time as charts: for users and models what came, what waited, what stood ready; for the fleet its cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rightslice.core.timeline import Timeline, Track
from rightslice.reporting.charts import Chart, ChartView, Series, chart


@dataclass(frozen=True, slots=True)
class TrackView:
    """The charts of one model, of one population of users, or of the fleet."""

    name: str
    charts: tuple[ChartView, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. `name` is empty where there is only one."""

    name: str
    tracks: tuple[TrackView, ...]


def run_views(timelines: Sequence[Timeline], *, everything: bool = False) -> tuple[RunView, ...]:
    """One view for each run; sizes, nodes and cost only where they change, or `everything`."""
    return tuple(
        RunView(
            timeline.run if len(timelines) > 1 else "",
            tuple(TrackView(name, tuple(map(chart, found))) for name, found in _tracks(timeline, everything) if found),
        )
        for timeline in timelines
    )


def _tracks(timeline: Timeline, everything: bool) -> Iterator[tuple[str, list[Chart]]]:
    for track in timeline.tracks:
        yield track.name, list(_of_track(timeline, track, everything))
    if everything or _moves(timeline.nodes, timeline.nodes_ready):
        yield "Fleet", list(_of_fleet(timeline))


def _of_track(timeline: Timeline, track: Track, everything: bool) -> Iterator[Chart]:
    edges, came, servers = timeline.edges_s, track.requests, track.servers
    if came:
        offered, completed = (
            [n / width for n, width in zip(counts, timeline.widths_s, strict=True)]
            for counts in (came.offered, came.completed)
        )
        load = [Series("came", offered, "s0 area"), Series("answered", completed, "s1")]
        if any(came.failed):
            failed = [n / width for n, width in zip(came.failed, timeline.widths_s, strict=True)]
            load.append(Series("failed later", failed, "bad"))
        yield Chart("Load", "requests/s", edges, tuple(load))
        if came.asked_share is not None:
            met = Series("meet their objectives", came.attainment, "s0")
            yield Chart("SLO attainment", "%", edges, (met,), came.asked_share, timeline.lost_nodes_s)
    if servers is None:
        return
    queue = (Series("run", servers.running, "s0 area"), Series("wait", servers.waiting, "s1"))
    yield Chart("Queue", "requests", edges, queue)
    if servers.kv_use:
        yield Chart("KV cache in use", "%", edges, (Series("of ready replicas", servers.kv_use, "s0 area"),))
    if everything or _moves(servers.wanted, servers.ready):
        sizes = [Series("ready", servers.ready, "s0 area")]
        sizes += [Series("starting", servers.starting, "s1")] if any(servers.starting) else []
        sizes.append(Series("wanted", servers.wanted, "dashed"))
        yield Chart("Replicas", "", edges, tuple(sizes), marks_s=timeline.lost_nodes_s)


def _moves(*values: Sequence[float]) -> bool:
    return len({value for found in values for value in found}) > 1


def _of_fleet(timeline: Timeline) -> Iterator[Chart]:
    nodes: tuple[Series, ...] = (Series("paid", timeline.nodes, "s0 area"),)
    if timeline.nodes_ready != timeline.nodes:
        nodes = (Series("there", timeline.nodes_ready, "s0 area"), Series("paid", timeline.nodes, "dashed"))
    yield Chart("Nodes", "", timeline.edges_s, nodes, marks_s=timeline.lost_nodes_s)
    if timeline.usd:
        yield Chart("Cost so far", "USD", timeline.edges_s, (Series("since the start", timeline.usd, "s0 area"),))
