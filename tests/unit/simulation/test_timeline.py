"""A run over time: bins that add up to the results, looks that change nothing, sizes and cost as the log has them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from test_cluster import GPU, START, cluster, hpa, scenario

from rightslice.core.slo import Slo
from rightslice.core.timeline import MOST_BINS, NodeCount, Requests, edges_s, standing
from rightslice.simulation.cluster import play_cluster
from rightslice.simulation.cluster_spec import Cluster
from rightslice.simulation.confidence import BATCHES, half_width
from rightslice.simulation.control.faults import zone_loss
from rightslice.simulation.control.policies import Fixed
from rightslice.simulation.layout import LOST
from rightslice.simulation.run import Watched, simulate, watch, watch_cluster
from rightslice.simulation.scenario import OpenClass, Scenario
from rightslice.traffic.arrivals import Arrivals

WEEK_S = 7 * 86_400.0


def watched(asked: Scenario, replicas: int) -> Watched:
    return watch(asked, standing({"chat": replicas}, {"p": replicas}, {"p": 2.0}))


def requests_of(found: Watched) -> Requests:
    (track,) = found.timeline.tracks
    assert track.requests is not None
    return track.requests


def with_objective(asked: Scenario, **changes: object) -> Scenario:
    (only,) = asked.classes
    return replace(asked, classes=(replace(only, slos=(Slo("e2e", 1.5),), **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begin_s", "end_s", "width_s", "bins"),
    [
        (0.0, 86_400.0, 300.0, 288),
        (0.0, WEEK_S, 3600.0, 168),
        (0.0, 90 * 86_400.0, 43_200.0, 180),
        (60.0, 600.0, 5.0, 108),
        (0.0, 61.5, 5.0, 13),
        (0.0, 40.0, 1.0, 40),
        (0.0, 1e-8, 1e-8, 1),
    ],
)
def test_bins_are_round_and_few(begin_s: float, end_s: float, width_s: float, bins: int) -> None:
    edges = edges_s(begin_s, end_s)
    assert (edges[0], edges[-1]) == (begin_s, end_s)
    assert len(edges) - 1 == bins <= MOST_BINS <= 400
    assert edges[1] - edges[0] == pytest.approx(width_s)
    assert all(b > a for a, b in pairwise(edges))


def test_an_empty_span_has_no_bins() -> None:
    with pytest.raises(ValueError, match="bins from"):
        edges_s(5.0, 5.0)


def test_one_request_is_in_its_bins() -> None:
    found = watched(with_objective(scenario([12.0], 1, 60.0)), 1)
    came = requests_of(found)
    assert found.timeline.widths_s == (5.0,) * 12
    assert [i for i, n in enumerate(came.offered) if n] == [2]
    assert [i for i, n in enumerate(came.completed) if n] == [2]  # 20 steps of 50 ms
    assert came.attainment[2] == 1.0
    assert came.attainment[3] is None
    assert came.totals == {
        "offered": 1, "completed": 1, "failed": 0, "refused": 0, "timed_out": 0, "lost": 0, "shed": 0,
        "in_flight_at_begin": 0, "in_flight_at_end": 0,
    }  # fmt: skip
    servers = found.timeline.tracks[0].servers
    assert servers is not None
    assert servers.running[2] == pytest.approx(0.2)  # 1 s of 5
    assert sum(servers.waiting) == 0.0
    assert servers.ready == (1.0,) * 12
    assert found.timeline.usd == pytest.approx([2.0 * 5.0 * (n + 1) / 3600.0 for n in range(12)])
    assert found.confidence == ()


def test_a_run_without_requests_is_a_course_of_nothing() -> None:
    found = watched(scenario([], 2, 600.0), 2)
    came = requests_of(found)
    assert set(came.offered) == set(came.completed) == {0}
    assert came.attainment == (None,) * len(came.offered)
    assert found.result.requests == 0


def test_what_waits_is_seen_and_what_cannot_be_judged_is_left_out() -> None:
    found = watched(with_objective(scenario([1.0] * 400, 1, 60.0)), 1)  # 4 at once, 4 a second: 100 s of work
    came, servers = requests_of(found), found.timeline.tracks[0].servers
    assert servers is not None
    assert servers.waiting[1] > 300.0
    assert servers.running[1] == 4.0
    assert came.in_flight[-1] == found.result.requests - found.result.completed > 0
    assert came.met[0] + came.missed[0] == 400  # those that still wait miss already
    assert 0.0 < max(servers.kv_use) <= 1.0


def test_reasons_of_failure_are_told_apart() -> None:
    (only,) = scenario([0.5] * 40, 1, 60.0).classes
    arrivals = only.arrivals
    long = np.where(np.arange(40) < 3, 5000, arrivals.input_tokens)  # beyond the model's 1,000 tokens
    lengths = Arrivals(arrivals.arrival_ps, arrivals.class_index, long, arrivals.output_tokens)
    asked = replace(scenario([], 1, 60.0), classes=(OpenClass("chat", "c", lengths, timeout_s=2.0),))
    found = watched(asked, 1)
    totals = requests_of(found).totals
    assert totals["refused"] == 3
    assert totals["timed_out"] == found.result.per_class[0].timed_out > 0
    assert totals["failed"] == found.result.failed == totals["refused"] + totals["timed_out"]


def test_bins_begin_behind_the_warm_up() -> None:
    times = np.arange(0.5, 600.0, 1.0).tolist()
    found = watched(replace(scenario(times, 2, 600.0), warmup_s=60.0), 2)
    assert found.timeline.edges_s[0] == 60.0
    assert requests_of(found).totals["offered"] == found.result.requests == 540
    assert found.timeline.usd is not None
    assert found.timeline.usd[-1] == pytest.approx(2 * 2.0 * 600.0 / 3600.0)  # the warm-up is paid, too


def test_looking_changes_nothing() -> None:
    times = np.sort(np.random.default_rng(3).uniform(0.0, 3600.0, 12_000)).tolist()
    asked = with_objective(scenario(times, 8))
    assert watched(asked, 8).result == simulate(asked)
    watched_run, log = watch_cluster(asked, cluster(hpa(), 1), standing({"chat": 1}, {"p": 1}, {"p": 2.0}))
    played, plain = play_cluster(asked, cluster(hpa(), 1))
    assert watched_run.result.completed == int((played.finish_ps >= 0).sum())
    assert log == plain


def test_sizes_nodes_and_cost_are_those_of_the_log() -> None:
    times = np.sort(np.random.default_rng(4).uniform(600.0, 3000.0, 14_000)).tolist()
    fault = zone_loss("a", 2000.0, 600.0)
    asked: Cluster = cluster(hpa(), 2, faults=(fault,), grace_s=0.0)
    found, log = watch_cluster(with_objective(scenario(times, 10)), asked, standing({}, {}, {"p": 2.0}))
    timeline = found.timeline
    servers, came = timeline.tracks[0].servers, requests_of(found)
    assert servers is not None
    assert timeline.usd is not None
    assert timeline.usd[-1] == pytest.approx(2.0 * log.node_hours["p"])
    assert found.fleet.node_hours(timeline.edges_s[-1]) == pytest.approx(log.node_hours)
    lost = next(i for i, edge_s in enumerate(timeline.edges_s) if edge_s > 2000.0)
    assert timeline.nodes_ready[lost] < timeline.nodes_ready[lost - 2]  # gone, though others are paid already
    assert all(there <= paid + 1e-9 for there, paid in zip(timeline.nodes_ready, timeline.nodes, strict=True))
    lost_s = tuple(event.time_s for event in log.preemptions if event.cause == "node")
    assert timeline.lost_nodes_s == lost_s != ()
    assert max(servers.wanted) > min(servers.wanted)
    assert max(servers.starting) > 0.0
    hours = sum(n * w for n, w in zip(timeline.nodes, timeline.widths_s, strict=True)) / 3600.0
    assert hours == pytest.approx(log.node_hours["p"])
    ready = [count.ready for count in log.replicas]
    assert min(ready) - 1e-9 <= min(servers.ready) <= max(servers.ready) <= max(ready) + 1e-9
    assert came.totals["lost"] == found.result.lost
    assert sum(came.offered) == sum(came.completed) + sum(came.failed) + came.in_flight[-1]


def test_lost_requests_are_those_that_lost_their_replica_once_too_often() -> None:
    times = np.arange(1.0, 1200.0, 0.5).tolist()
    fault = zone_loss("a", 600.0, 300.0)
    asked = scenario(times, 6, 1800.0, retries=0)
    found, _ = watch_cluster(asked, cluster(Fixed(2), 2, faults=(fault,)), standing({}, {}, None))
    played, _ = play_cluster(asked, cluster(Fixed(2), 2, faults=(fault,)))
    assert requests_of(found).totals["lost"] == int((played.finish_ps == LOST).sum()) > 0
    assert found.timeline.usd is None


def test_pools_without_a_control_plane_keep_their_nodes() -> None:
    fleet = standing({"chat": 1, "own": 3}, {"p": 1, "q": 5}, {"p": 2.0, "q": 1.0})
    moved = fleet.with_log([], [NodeCount(0.0, "p", 4, 4), NodeCount(1800.0, "p", 2, 1)], [])
    assert moved.nodes[:2] == (NodeCount(0.0, "q", 5, 5), NodeCount(0.0, "p", 4, 4))
    assert moved.node_hours(3600.0) == pytest.approx({"q": 5.0, "p": 3.0})
    assert moved.node_hours(900.0) == pytest.approx({"q": 1.25, "p": 1.0})
    assert moved.replicas == fleet.replicas
    assert GPU in cluster(Fixed(1), 1).pools[0].nodes.capacity
    assert START.phases


# --- confidence ------------------------------------------------------------------------------------------------------


def test_batch_means_cover_the_mean_of_independent_values() -> None:
    """95 % intervals over 400 samples of known mean: between 91 and 98 % hold it (three standard errors)."""
    numbers = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        sample = numbers.exponential(1.0, 2000)
        half = half_width(sample, lambda batch: float(batch.mean()), 1)
        assert half is not None
        held += abs(float(sample.mean()) - 1.0) <= half
    assert 0.91 <= held / 400 <= 0.985


def test_too_few_values_have_no_interval_and_equal_ones_a_width_of_zero() -> None:
    assert half_width(np.ones(BATCHES - 1), lambda batch: float(batch.mean()), 1) is None
    assert half_width(np.ones(BATCHES * 19), lambda batch: float(batch.max()), 20) is None
    assert half_width(np.ones(BATCHES * 20), lambda batch: float(batch.max()), 20) == 0.0
    assert half_width(np.zeros(0), lambda batch: float(batch.mean()), 1) is None


def test_a_percentile_needs_a_value_beyond_it_in_each_batch() -> None:
    times = np.sort(np.random.default_rng(5).uniform(0.0, 3600.0, 1000)).tolist()
    found = watched(with_objective(scenario(times, 2)), 2)
    statistics = {(c.metric, c.statistic) for c in found.confidence}
    assert ("e2e_ms", "p95") in statistics  # batches of 50
    assert ("e2e_ms", "p99") not in statistics
    seen = found.result.per_class[0].e2e_ms
    assert seen is not None
    (interval,) = (c for c in found.confidence if (c.metric, c.statistic) == ("e2e_ms", "p95"))
    assert interval.low <= seen.p95 <= interval.high
