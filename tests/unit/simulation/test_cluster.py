"""Runs with a control plane: scaling, cold starts, drains, lost nodes; nothing is lost silently."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.catalogue.disruptions import provisioners
from rightslice.core.spread import Spread
from rightslice.performance.costs import StepCosts
from rightslice.simulation.cluster import play_cluster
from rightslice.simulation.cluster_spec import Cluster, ClusterLog, Pool, Scaled
from rightslice.simulation.control.cold_start import ColdStart, Phase
from rightslice.simulation.control.faults import FailureRates, Fault, Notice, zone_loss
from rightslice.simulation.control.hpa_spec import HpaSpec, Metric
from rightslice.simulation.control.nodes import NodePool
from rightslice.simulation.control.policies import Fixed, Hpa, Policy
from rightslice.simulation.control.rollout import Rollout
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


def nodes_of(gpus: int, replicas: int, faults: tuple[Fault, ...] = (), most: int = 4) -> Cluster:
    """Replicas of one GPU each on nodes of several, all of them taken."""
    asked = cluster(Fixed(replicas), replicas, faults)
    (pool,) = asked.pools
    nodes = replace(pool.nodes, capacity={GPU: gpus}, max_nodes=most)
    return replace(asked, pools=(replace(pool, nodes=nodes, standing=-(-replicas // gpus), gpus_per_node=gpus),))


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


def test_an_evicted_pod_finishes_what_it_has_and_its_node_waits_for_it() -> None:
    """Consolidation takes nodes away under the replicas that stay; answers of a second end within the grace."""
    times = [*np.arange(0.0, 900.0, 1 / 24), *np.arange(900.0, 5400.0, 1 / 4)]
    asked = nodes_of(2, 6)
    scaled = replace(asked.deployments[0], policy=hpa(), pre_stop_s=10.0)
    for provisioner in ("karpenter", "cluster-autoscaler"):
        pool = replace(asked.pools[0], provisioner=provisioners()[provisioner])
        played, log = play_cluster(scenario(times, 12, 5400.0), replace(asked, pools=(pool,), deployments=(scaled,)))
        assert played.requeued == 0
        assert log.preemptions == ()
        assert log.node_hours["p"] < 4.0  # 4.5 with three nodes all the time
        assert every_request_is_accounted_for(played, log)


@pytest.mark.parametrize(("grace_s", "cut"), [(0.5, True), (30.0, False)])
def test_what_the_grace_cuts_off_is_counted(grace_s: float, cut: bool) -> None:
    """Answers take a second."""
    times = [*np.arange(0.0, 900.0, 1 / 12), *np.arange(900.0, 3600.0, 1 / 4)]
    played, log = play_cluster(scenario(times, 8), cluster(hpa(), 4, grace_s=grace_s))
    assert (played.requeued > 0) == cut
    assert {event.cause for event in log.preemptions} == ({"grace"} if cut else set())
    assert sum(event.requests_requeued for event in log.preemptions) == played.requeued


def test_a_failed_gpu_takes_its_replicas_and_leaves_the_rest_of_the_node() -> None:
    """Two nodes of four GPUs, eight replicas. One GPU fails: one replica stops, its place is on a third node."""
    times = np.arange(0.0, 3600.0, 1 / 10).tolist()
    fault = Fault(1000.0, "gpu-failure", node="p-0", gpu=2)
    played, log = play_cluster(scenario(times, 12), nodes_of(4, 8, (fault,)))
    (event,) = log.preemptions
    assert (event.cause, event.node, event.gpu, event.replicas) == ("gpu", "p-0", 2, ("chat-2",))
    missing = [moment for moment in log.timeline if moment.ready < 8]
    assert {moment.ready for moment in missing} == {7}
    assert max(m.time_s for m in missing) == 1170.0  # 1,000 + 120 + 40 + 20 s is ready at 1,180
    assert every_request_is_accounted_for(played, log)
    assert event.requests_requeued == played.requeued > 0


def test_slices_of_one_gpu_fail_together() -> None:
    """Two slices on each of two GPUs: the failure of one GPU stops two replicas, and nothing comes back to it."""
    mig = "nvidia.com/mig-3g.40gb"
    asked = nodes_of(2, 4, (Fault(1000.0, "gpu-failure", node="p-0", gpu=0),), most=1)
    pool = replace(
        asked.pools[0],
        nodes=replace(asked.pools[0].nodes, capacity={mig: 4}),
        devices=({mig: 2}, {mig: 2}),
        standing=1,
        owned=True,
    )
    scaled = replace(asked.deployments[0], resource=mig)
    asked = replace(asked, pools=(pool,), deployments=(scaled,))
    _, log = play_cluster(scenario(np.arange(0.0, 3600.0, 0.5).tolist(), 8), asked)
    assert log.preemptions[0].replicas == ("chat-0", "chat-1")
    assert log.timeline[-1].ready == 2


@pytest.mark.parametrize(("mps", "stopped"), [(False, ("chat-1",)), (True, ("chat-0", "chat-1"))])
def test_clients_of_mps_crash_together(mps: bool, stopped: tuple[str, ...]) -> None:
    """Two shares of each of two GPUs. Engines start again where they are: no node, no image."""
    fault = Fault(1000.0, "engine-crash", replica="chat-1")
    asked = nodes_of(2, 4, (fault,))
    pool = replace(asked.pools[0], nodes=replace(asked.pools[0].nodes, capacity={GPU: 4}), standing=1)
    asked = replace(asked, pools=(pool,), deployments=(replace(asked.deployments[0], mps=mps),))
    played, log = play_cluster(scenario(np.arange(0.0, 1800.0, 0.2).tolist(), 8, 1800.0), asked)
    (event,) = log.preemptions
    assert (event.cause, event.replicas) == ("pod", stopped)
    down = [moment.time_s for moment in log.timeline if moment.ready < 4]
    assert (min(down), max(down)) == (1005.0, 1005.0)  # ready again at 1,020
    assert every_request_is_accounted_for(played, log)


ROLLED_S = 600.0


def rolled(asked: Cluster, rollout: Rollout) -> Cluster:
    return replace(asked, rollouts={"chat": rollout})


def test_a_rolling_update_replaces_every_pod_and_keeps_the_size() -> None:
    """With room for one more: old pods go only when new ones are ready, and nothing is computed twice."""
    times = np.arange(0.0, 3600.0, 1 / 8).tolist()
    played, log = play_cluster(scenario(times, 8), rolled(cluster(Fixed(3), 3), Rollout(ROLLED_S)))
    (result,) = log.rollouts
    assert result.done_s is not None
    assert result.stuck_s is None
    assert result.done_s >= ROLLED_S + 3 * (IMAGE_S + WEIGHTS_S)
    assert min(moment.ready for moment in log.timeline) == 3
    assert played.requeued == 0
    assert (played.finish_ps >= 0).mean() > 0.99


def test_a_full_pool_without_unavailable_pods_is_stuck_as_kubernetes_says() -> None:
    """Machines of one's own, all GPUs taken: the new pod stays Pending, and the deadline of ten minutes passes."""
    asked = cluster(Fixed(2), 2)
    full = replace(asked, pools=(replace(asked.pools[0], owned=True),))
    played, log = play_cluster(scenario(np.arange(0.0, 3600.0, 0.5).tolist(), 6), rolled(full, Rollout(ROLLED_S)))
    (result,) = log.rollouts
    assert (result.done_s, result.stuck_s) == (None, ROLLED_S + 600.0)
    assert result.message == f"ProgressDeadlineExceeded: 0/2 nodes are available: 2 Insufficient {GPU}"
    assert min(moment.ready for moment in log.timeline) == 2
    assert (played.finish_ps >= 0).mean() > 0.99


def test_one_unavailable_pod_lets_a_full_pool_move() -> None:
    """Each pod holds its GPU for the 20 s in which load balancers forget it; then image and weights: 80 s a pod."""
    asked = cluster(Fixed(2), 2)
    scaled = replace(asked.deployments[0], pre_stop_s=20.0)
    full = replace(asked, pools=(replace(asked.pools[0], owned=True),), deployments=(scaled,))
    times = np.arange(0.0, 3600.0, 0.5).tolist()
    played, log = play_cluster(scenario(times, 6), rolled(full, Rollout(ROLLED_S, surge=0, unavailable=1)))
    assert log.rollouts[0].done_s == ROLLED_S + 2 * (20.0 + IMAGE_S + WEIGHTS_S)
    assert {moment.ready for moment in log.timeline} == {1, 2}
    assert played.requeued == 0


def test_two_deployments_of_a_model_count_each_waiting_request_once() -> None:
    """200 requests wait in the gateway while nothing is ready: both autoscalers together ask for what one would."""
    both = scenario(np.linspace(0.0, 10.0, 200).tolist(), 8, 900.0)
    (server,) = both.servers
    assert isinstance(server, LlmServer)
    both = replace(both, servers=(replace(server, deployment="one"), replace(server, deployment="two")))
    asked = cluster(Fixed(1), 1)
    (scaled,) = asked.deployments
    halves = tuple(
        replace(scaled, deployment=name, policy=hpa(10.0, 40), start=replace(START)) for name in ("one", "two")
    )
    empty = replace(asked.pools[0], standing=0)
    _, log = play_cluster(both, replace(asked, pools=(empty,), deployments=halves))
    at_15 = [moment for moment in log.timeline if moment.time_s == 15.0]
    assert [moment.in_flight for moment in at_15] == [100.0, 100.0]


def test_nodes_are_cut_anew_one_after_the_other_and_nothing_is_lost() -> None:
    """Two nodes of two slices; each is away for its drain and 200 s, and its pods start again when it is back."""
    mig = "nvidia.com/mig-3g.40gb"
    asked = nodes_of(1, 4, (Fault(600.0, "repartition"),), most=2)
    nodes = replace(asked.pools[0].nodes, capacity={mig: 2}, max_nodes=2)
    pool = replace(
        asked.pools[0],
        nodes=nodes,
        standing=2,
        devices=({mig: 2},),
        owned=True,
        repartition_s=Spread.fixed(200.0),
    )
    scaled = replace(asked.deployments[0], resource=mig, pre_stop_s=10.0)
    asked = replace(asked, pools=(pool,), deployments=(scaled,))
    played, log = play_cluster(scenario(np.arange(0.0, 3600.0, 0.5).tolist(), 8), asked)
    away = [moment.time_s for moment in log.timeline if moment.ready < 4]
    assert {moment.ready for moment in log.timeline} == {2, 4}
    assert (min(away), max(away)) == (600.0, 1050.0)  # twice 10 s to drain, 200 s to cut, 20 s of weights: 1,060
    assert played.requeued == 0
    assert log.preemptions == ()
    assert log.timeline[-1].ready == 4
