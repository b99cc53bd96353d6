"""What holds of a cluster under any faults, scaling and rollouts: no request vanishes."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rightslice.catalogue.disruptions import provisioners
from rightslice.core.spread import Spread
from rightslice.performance.costs import StepCosts
from rightslice.simulation.cluster import control
from rightslice.simulation.cluster_spec import Cluster, Pool, Scaled
from rightslice.simulation.control.cold_start import ColdStart, Phase
from rightslice.simulation.control.faults import FailureRates, Fault, Notice, merged, zone_loss
from rightslice.simulation.control.hpa_spec import HpaSpec, Metric
from rightslice.simulation.control.nodes import NodePool
from rightslice.simulation.control.policies import Hpa
from rightslice.simulation.control.rollout import Pods, Rollout, step
from rightslice.simulation.layout import FAILED, LOST, NOT_YET, TIMED_OUT
from rightslice.simulation.scenario import LlmServer, OpenClass, Scenario
from rightslice.traffic.arrivals import Arrivals

GPU = "nvidia.com/gpu"
HORIZON_S = 1200.0
START = ColdStart((Phase("node", Spread.fixed(60.0)), Phase("weights", Spread.fixed(20.0))))
TIMES = st.floats(1.0, HORIZON_S - 1.0)
NOTICE = st.sampled_from([Notice(), Notice(30.0, 15.0), Notice(120.0, 120.0)])
FAULT = (
    st.builds(lambda at: Fault(at, "gpu-failure"), TIMES)
    | st.builds(lambda at: Fault(at, "engine-crash"), TIMES)
    | st.builds(lambda at: zone_loss("a", at, 300.0), TIMES)
    | st.builds(lambda at, notice: Fault(at, "spot-reclaim", zone="b", notice=notice, within_s=60.0), TIMES, NOTICE)
    | st.builds(lambda at, node: Fault(at, "node-failure", node=f"p-{node}"), TIMES, st.integers(0, 2))
)


def scenario(seed: int, retries: int, slots: int) -> Scenario:
    """Two classes, one of which gives up after a while; answers of one to ten seconds."""
    rng = np.random.default_rng(seed)
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 50_000_000_000, 0, 0.4, "first-principles")
    server = LlmServer("chat", "chat", slots, costs, 200, 16, 4, 64, 1000)
    classes = []
    for name in ("fast", "slow"):
        n = 800
        arrivals = Arrivals(
            np.sort(rng.integers(0, int(HORIZON_S * 1e12), n)),
            np.zeros(n, dtype=np.int32),
            rng.integers(1, 64, n),
            rng.integers(20, 200, n),
        )
        classes.append(OpenClass("chat", name, arrivals, timeout_s=30.0 if name == "fast" else None))
    return Scenario((server,), tuple(classes), horizon_s=HORIZON_S, retries=retries)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(FAULT, max_size=6),
    st.integers(0, 2**31),
    st.integers(0, 3),
    st.sampled_from([0.0, 2.0, 30.0]),
    st.sampled_from([0.0, 5.0]),
    st.none() | st.builds(lambda at, surge: Rollout(at, surge, 1 - surge), TIMES, st.integers(0, 1)),
    st.sampled_from(["karpenter", "cluster-autoscaler"]),
)
def test_offered_is_completed_aborted_refused_or_in_flight(
    faults: list[Fault],
    seed: int,
    retries: int,
    grace_s: float,
    pre_stop_s: float,
    rollout: Rollout | None,
    provisioner: str,
) -> None:
    asked = scenario(seed, retries, 10)
    policy = Hpa(HpaSpec(6, (Metric("in-flight", "External", 6.0),), 2), {"in-flight": "in_flight"})
    nodes = NodePool("p", {GPU: 2}, Spread.fixed(60.0), max_nodes=4, zones=("a", "b"))
    pool = Pool(nodes, 2, 2, provisioners()[provisioner], 2.0, "spot", FailureRates(0.2, 0.2, 0.5))
    scaled = Scaled("chat", "chat", "p", GPU, 1, 3, policy, START, grace_s=grace_s, pre_stop_s=pre_stop_s)
    rollouts = {"chat": rollout} if rollout else None
    run, log = control(asked, Cluster((pool,), (scaled,), merged(faults), seed, rollouts))
    seen = run.look()
    held = int(seen.running.sum() + seen.waiting.sum() + seen.queued.sum())
    finish = run.finish().finish_ps
    for index in range(2):
        mine = finish[run.requests.class_index == index]
        ended = sum(int((mine == code).sum()) for code in (FAILED, LOST, TIMED_OUT))
        assert len(mine) == int((mine >= 0).sum()) + ended + int((mine == NOT_YET).sum()) == 800
    assert int((finish == NOT_YET).sum()) == held
    assert sum(event.requests_lost for event in log.preemptions) == int((finish == LOST).sum())
    assert sum(event.requests_requeued for event in log.preemptions) == run.finish().requeued


SIZE = st.integers(0, 8)


@given(st.integers(0, 8), st.integers(0, 3), st.integers(0, 3), SIZE, SIZE, SIZE, SIZE)
def test_a_rolling_update_keeps_its_limits(
    wanted: int, surge: int, unavailable: int, old_ready: int, old_rest: int, new_ready: int, new_rest: int
) -> None:
    rollout = Rollout(0.0, surge, max(unavailable, 1 - surge))
    pods = Pods(old_ready + old_rest, old_ready, new_ready + new_rest, new_ready)
    made, unready, ready = step(wanted, rollout, pods)
    assert made == 0 or pods.old + pods.new + made <= wanted + surge
    assert pods.new + made <= max(wanted, pods.new)
    assert ready == 0 or pods.old_ready + pods.new_ready - ready >= wanted - rollout.unavailable
    assert unready + ready <= pods.old
    if pods.old and not (made or unready or ready):  # nothing moves: it waits for new pods to become ready
        assert pods.new_ready < pods.new or wanted == 0 or pods.old_ready < pods.old
