"""Policies in a small closed loop, and the bounds beside them."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.simulation.control.bounds import bounds, demand, replicas_needed
from rightslice.simulation.control.hpa_spec import HpaSpec, Metric
from rightslice.simulation.control.keda import ScaledObject, Trigger
from rightslice.simulation.control.policies import Fixed, Hpa, Keda, ModelView, Perfect, Policy

LOAD_S = 180.0
SLOTS = 15


def _run(policy: Policy, offered: float, start: int, ticks: int) -> list[int]:
    """`offered` requests in the system at once (closed), engines of SLOTS sequences, LOAD_S to become ready."""
    born = [-LOAD_S] * start
    sizes = [start]
    for tick in range(ticks):
        now_s = tick * policy.period_s
        ready = sum(now_s - at_s >= LOAD_S for at_s in born)
        running = min(offered, SLOTS * ready)
        view = ModelView(len(born), ready, len(born) - ready, waiting=offered - running, running=running)
        wanted = policy.decide(now_s, view).replicas
        born = born[:wanted] + [now_s] * (wanted - len(born))
        sizes.append(wanted)
    return sizes


def test_a_queue_metric_runs_away_while_new_pods_load() -> None:
    """The field case: 90 requests at once need 6 replicas of 15; the queue alone asks for more and more of them."""
    queue = Metric("waiting", "External", 5)
    policy = Hpa(HpaSpec(40, (queue,)), {"waiting": "waiting"})
    sizes = _run(policy, 90.0, 2, 13)
    assert max(sizes) == 12
    assert sizes[:4] == [2, 4, 8, 12]


def test_running_requests_saturate_and_do_not_run_away() -> None:
    running = Metric("running", "Pods", 10)
    policy = Hpa(HpaSpec(40, (running,)), {"running": "running"})
    sizes = _run(policy, 90.0, 2, 13)
    assert max(sizes[:12]) == 3


def test_a_growing_queue_doubles_until_the_maximum() -> None:
    """Open loop: the queue grows until the first new pod is ready, and every sync asks for it again."""
    queue = Metric("waiting", "External", 5)
    policy = Hpa(HpaSpec(30, (queue,)), {"waiting": "waiting"})
    size, sizes = 2, []
    for tick in range(8):
        view = ModelView(size, 2, size - 2, waiting=30.0 * tick, running=30.0)
        size = policy.decide(15.0 * tick, view).replicas
        sizes.append(size)
    assert sizes == [2, 4, 8, 16, 24, 30, 30, 30]


def test_engine_metrics_cannot_wake_a_workload_but_the_gateway_can() -> None:
    for signal, expected in (("waiting", 0), ("held", 1)):
        trigger = Trigger(Metric("queue", "External", 5))
        policy = Keda(ScaledObject((trigger,)), {"queue": signal})  # type: ignore[dict-item]
        assert policy.decide(0.0, ModelView(0, 0, held=3.0, waiting=0.0)).replicas == expected


def test_keda_polls_and_its_hpa_syncs_at_their_own_times() -> None:
    policy = Keda(ScaledObject((Trigger(Metric("queue", "External", 5)),), polling_interval_s=20.0), {"queue": "held"})
    assert policy.period_s == 5.0
    reasons = [policy.decide(t, ModelView(1, 1, held=20.0)) for t in (5.0, 15.0, 20.0)]
    assert [(d.replicas, d.reason) for d in reasons] == [(1, "NotDue"), (4, "DesiredWithinRange"), (1, "Active")]


def test_cache_use_is_a_mean_not_a_sum() -> None:
    metric = Metric("kv", "Pods", 0.5)
    policy = Hpa(HpaSpec(20, (metric,)), {"kv": "kv_use"})
    assert policy.decide(0.0, ModelView(4, 4, kv_use=0.75)).replicas == 6


def test_fixed_and_perfect() -> None:
    offered = demand(np.repeat(np.arange(0.0, 600.0, 60.0), [0, 60, 120, 240, 10, 0, 0, 60, 60, 0]), 600.0)
    assert Fixed(7).decide(0.0, ModelView(1, 1)).replicas == 7
    perfect = Perfect(offered, requests_per_s=0.5, min_replicas=1, max_replicas=6, period_s=60.0)
    seen = [perfect.decide(60.0 * i, ModelView(1, 1)).replicas for i in range(11)]
    assert seen == [1, 2, 4, 6, 1, 1, 1, 2, 2, 1, 1]
    two = Perfect(offered, requests_per_s=0.5, period_s=120.0)
    assert two.decide(60.0, ModelView(1, 1)).replicas == 4


def test_bounds_by_hand() -> None:
    offered = demand(np.array([0.0, 10.0, 59.9, 60.0, 130.0, 179.9, 500.0, -1.0]), 180.0)
    assert offered.requests.tolist() == [3, 1, 2]
    assert replicas_needed(offered, 1.0 / 60.0).tolist() == [3, 1, 2]
    found = bounds(offered, 1.0 / 60.0, gpus_per_replica=2.0)
    assert found.perfect == pytest.approx(6 * 2 / 60.0)
    assert found.fluid == pytest.approx(found.perfect)
    assert found.peak == pytest.approx(9 * 2 / 60.0)
    assert found.peak_replicas == 3
    assert bounds(offered, 1.0 / 60.0, min_replicas=2).perfect == pytest.approx(7 / 60.0)


def test_fluid_below_perfect_below_peak() -> None:
    rng = np.random.default_rng(3)
    arrivals_s = np.sort(rng.uniform(0.0, 86_400.0, 20_000) * rng.uniform(0.3, 1.0, 20_000))
    found = bounds(demand(arrivals_s, 86_400.0), 0.07)
    assert found.fluid < found.perfect < found.peak
    assert found.fluid == pytest.approx(20_000 / 0.07 / 3600.0)


def test_bad_bounds() -> None:
    with pytest.raises(ValueError, match="slices of 0"):
        demand(np.array([1.0]), 10.0, 0.0)
    with pytest.raises(ValueError, match="answers 0"):
        bounds(demand(np.array([1.0]), 10.0), 0.0)
