"""Runs with a control plane: scaling, cold starts, drains, lost nodes; nothing is lost silently."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.catalogue.disruptions import provisioners
from rightslice.core.spread import Spread
from rightslice.performance.costs import StepCosts
from rightslice.simulation.cluster import Cluster, ClusterLog, Pool, Scaled, play_cluster
from rightslice.simulation.control.cold_start import ColdStart, Phase
from rightslice.simulation.control.faults import FailureRates, Fault, Notice, zone_loss
from rightslice.simulation.control.hpa_spec import HpaSpec, Metric
from rightslice.simulation.control.nodes import NodePool
from rightslice.simulation.control.policies import Fixed, Hpa, Policy
from rightslice.simulation.layout import FAILED, LOST, NOT_YET
from rightslice.simulation.play import Played, play
from rightslice.simulation.scenario import LlmServer, OpenClass, Scenario
from rightslice.traffic.arrivals import Arrivals

GPU = "nvidia.com/gpu"
NODE_S, IMAGE_S, WEIGHTS_S = 120.0, 40.0, 20.0
START = ColdStart(
    (
        Phase("node", Spread.fixed(NODE_S)),
        Phase("image_pull", Spread.fixed(IMAGE_S)),
        Phase("weights", Spread.fixed(WEIGHTS_S)),
    )
)
STEP_PS = 50_000_000_000  # 50 ms, whatever the batch: 4 sequences of 20 tokens are 4 requests/s


def scenario(times_s: list[float], slots: int, horizon_s: float = 3600.0, retries: int = 3) -> Scenario:
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, STEP_PS, 0, 0.4, "first-principles")
    server = LlmServer("chat", "chat", slots, costs, 1000, 16, 4, 64, 1000)
    n = len(times_s)
    arrivals = Arrivals(
        np.rint(np.array(times_s) * 1e12).astype(np.int64),
        np.zeros(n, dtype=np.int32),
        np.full(n, 8, dtype=np.int64),
        np.full(n, 20, dtype=np.int64),
    )
    return Scenario((server,), (OpenClass("chat", "c", arrivals),), horizon_s=horizon_s, retries=retries)


def cluster(policy: Policy, replicas: int, faults: tuple[Fault, ...] = (), grace_s: float = 30.0) -> Cluster:
    pool = NodePool("p", {GPU: 1}, Spread.fixed(NODE_S), max_nodes=8, zones=("a", "b"))
    by = provisioners()["cluster-autoscaler"]
    scaled = Scaled("chat", "chat", "p", GPU, 1, replicas, policy, START, grace_s=grace_s)
    return Cluster((Pool(pool, replicas, 1, by, 2.0, "spot"),), (scaled,), faults)


def hpa(target: float = 6.0, most: int = 8) -> Hpa:
    return Hpa(HpaSpec(most, (Metric("in-flight", "External", target),)), {"in-flight": "in_flight"})


def every_request_is_accounted_for(played: Played, log: ClusterLog) -> bool:
    finish = played.finish_ps
    known = (finish >= 0) | (finish == FAILED) | (finish == LOST) | (finish == NOT_YET)
    lost = sum(event.requests_lost for event in log.preemptions)
    return bool(known.all()) and int((finish == LOST).sum()) == lost


def test_a_fixed_fleet_is_the_run_without_a_control_plane() -> None:
    times = np.sort(np.random.default_rng(3).uniform(0.0, 3600.0, 20_000)).tolist()
    plain = play(scenario(times, 2))
    played, log = play_cluster(scenario(times, 2), cluster(Fixed(2), 2))
    assert np.array_equal(plain.first_ps, played.first_ps)
    assert np.array_equal(plain.finish_ps, played.finish_ps)
    assert not log.scale_events
    assert not log.preemptions
    assert log.node_hours == {"p": pytest.approx(2.0)}


def test_a_new_replica_waits_for_its_node_its_image_and_its_weights() -> None:
    """3 requests/s need one replica, 12 need three and more; none is ready before 10 + 120 + 40 + 20 s."""
    times = [*np.arange(0.0, 600.0, 1 / 3), *np.arange(600.0, 2400.0, 1 / 12), *np.arange(2400.0, 3600.0, 1 / 3)]
    played, log = play_cluster(scenario(times, 8), cluster(hpa(), 1))
    first = log.scale_events[0]
    assert (first.before, first.time_s) == (1, 615.0)
    ready = [moment for moment in log.timeline if moment.ready > 1]
    assert first.time_s + NODE_S + IMAGE_S + WEIGHTS_S <= ready[0].time_s <= first.time_s + 210.0
    assert log.timeline[-1].replicas < max(moment.replicas for moment in log.timeline)
    assert (played.finish_ps >= 0).mean() > 0.99
    assert every_request_is_accounted_for(played, log)
    alone, _ = play_cluster(scenario(times, 1), cluster(Fixed(1), 1))
    assert (alone.finish_ps >= 0).mean() < 0.6
    assert 1.0 < log.node_hours["p"] < 8.0


def test_a_drained_replica_finishes_what_it_has() -> None:
    times = [*np.arange(0.0, 900.0, 1 / 12), *np.arange(900.0, 3600.0, 1.0)]
    played, log = play_cluster(scenario(times, 8), cluster(hpa(), 4))
    assert any(event.after < event.before for event in log.scale_events)
    assert (played.finish_ps >= 0).all() or (played.finish_ps[played.finish_ps < 0] == NOT_YET).all()
    assert played.requeued == 0


def test_without_grace_requests_are_computed_again_and_none_is_lost() -> None:
    times = [*np.arange(0.0, 900.0, 1 / 12), *np.arange(900.0, 3600.0, 1 / 4)]
    played, log = play_cluster(scenario(times, 8), cluster(hpa(), 4, grace_s=0.0))
    assert played.requeued > 0
    assert not (played.finish_ps == LOST).any()
    assert every_request_is_accounted_for(played, log)


@pytest.mark.parametrize(("retries", "lost"), [(3, False), (0, True)])
def test_a_lost_zone_requeues_or_counts_every_request(retries: int, lost: bool) -> None:
    times = np.arange(0.0, 3600.0, 1 / 10).tolist()
    faults = (zone_loss("a", 1000.5, 600.0),)
    played, log = play_cluster(scenario(times, 8, retries=retries), cluster(Fixed(4), 4, faults=faults))
    assert {event.node for event in log.preemptions} == {"p-0", "p-2"}
    assert every_request_is_accounted_for(played, log)
    taken = sum(event.requests_requeued + event.requests_lost for event in log.preemptions)
    assert taken > 0
    assert (played.finish_ps == LOST).any() == lost
    if not lost:
        assert sum(event.requests_requeued for event in log.preemptions) == played.requeued


def test_the_notice_of_a_reclaim_lets_running_requests_finish() -> None:
    """Answers take a second; with 15 s to drain nothing is computed again."""
    times = np.arange(0.0, 1800.0, 1 / 5).tolist()
    fault = Fault(700.0, "spot-reclaim", zone="a", pool="p", notice=Notice(30.0, 15.0))
    asked = scenario(times, 6, 1800.0)
    _, kind = play_cluster(asked, cluster(Fixed(4), 4, faults=(fault,)))
    assert {(event.time_s, event.requests_requeued) for event in kind.preemptions} == {(730.0, 0)}
    sudden = replace(fault, notice=Notice())
    _, hard = play_cluster(asked, cluster(Fixed(4), 4, faults=(sudden,)))
    assert sum(event.requests_requeued for event in hard.preemptions) > 0


def test_a_replaced_node_takes_a_cold_start() -> None:
    times = np.arange(0.0, 1800.0, 1 / 5).tolist()
    fault = Fault(700.0, "node-failure", node="p-0")
    _, log = play_cluster(scenario(times, 6, 1800.0), cluster(Fixed(2), 2, faults=(fault,)))
    missing = [moment.time_s for moment in log.timeline if moment.ready < 2]
    assert min(missing) == 705.0
    assert max(missing) == 870.0  # 700 + 120 + 40 + 20 s is ready at 880


def test_the_same_seed_gives_the_same_run() -> None:
    times = np.sort(np.random.default_rng(1).uniform(0.0, 1800.0, 15_000)).tolist()
    runs = [play_cluster(scenario(times, 8, 1800.0), cluster(hpa(), 1)) for _ in range(2)]
    assert runs[0][1] == runs[1][1]
    assert np.array_equal(runs[0][0].finish_ps, runs[1][0].finish_ps)


def test_a_flex_start_node_ends_at_its_time_and_is_replaced() -> None:
    times = np.arange(0.0, 7200.0, 1.0).tolist()
    asked = cluster(Fixed(1), 1)
    pool = replace(asked.pools[0], capacity="flex_start", notice=Notice(60.0, 30.0))
    _, log = play_cluster(scenario(times, 3, 8 * 86_400.0), replace(asked, pools=(pool,)))
    assert [round(event.time_s / 86_400.0, 3) for event in log.preemptions] == [7.0]
    assert log.preemptions[0].requests_lost == 0


def test_hardware_fails_at_its_rate() -> None:
    """One failure an hour and node: about ten in ten hours, each replaced."""
    asked = cluster(Fixed(1), 1)
    pool = replace(asked.pools[0], failures=FailureRates(0.0, 1.0))
    _, log = play_cluster(scenario([1.0], 3, 36_000.0), replace(asked, pools=(pool,)))
    assert 4 <= len(log.preemptions) <= 18
    assert len({event.node for event in log.preemptions}) == len(log.preemptions)


def test_a_lost_zone_gives_no_node_until_it_is_back() -> None:
    """Fixed(4) on zones a and b; zone a is away for ten minutes, so that what replaces its nodes stands in b."""
    times = np.arange(0.0, 3600.0, 1 / 10).tolist()
    faults = (zone_loss("a", 1000.5, 1200.0), Fault(1700.0, "zone-loss", zone="b", back_s=2900.0))
    _, log = play_cluster(scenario(times, 8), cluster(Fixed(4), 4, faults=faults))
    gone = {event.node for event in log.preemptions if event.time_s == 1700.0}
    assert len(gone) == 4  # the two of b and the two that came in place of those of a
    dark = [moment.ready for moment in log.timeline if 1700.0 < moment.time_s < 2200.0]
    assert max(dark) == 0  # both zones are away until 2,200.5 s
    assert log.timeline[-1].ready == 4


def test_karpenter_takes_nodes_away_that_nobody_needs() -> None:
    times = [*np.arange(0.0, 900.0, 1 / 12), *np.arange(900.0, 7200.0, 2.0)]
    asked = cluster(hpa(), 4)
    pool = replace(asked.pools[0], provisioner=provisioners()["karpenter"])
    _, log = play_cluster(scenario(times, 8, 7200.0), replace(asked, pools=(pool,)))
    assert log.timeline[-1].ready == 1
    assert log.node_hours["p"] < 5.0  # eight with four nodes all the time


def test_machines_of_ones_own_are_not_replaced_and_come_back_with_their_zone() -> None:
    times = np.arange(0.0, 7200.0, 1.0).tolist()
    asked = cluster(Fixed(1), 1, faults=(zone_loss("a", 600.0, 3600.0),))
    played, log = play_cluster(scenario(times, 3, 7200.0), replace(asked, pools=(replace(asked.pools[0], owned=True),)))
    dark = [moment.time_s for moment in log.timeline if moment.ready == 0]
    assert min(dark) == 600.0
    assert 4200.0 <= max(dark) <= 4200.0 + IMAGE_S + WEIGHTS_S + 15.0
    assert (played.finish_ps >= 0).mean() > 0.9
