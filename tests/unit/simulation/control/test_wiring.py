"""All parts in one small loop, as the package's docstring tells: load, autoscaler, nodes, cold starts, faults."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rightslice.catalogue.disruptions import provisioners
from rightslice.core.rng import generator
from rightslice.core.spread import Spread
from rightslice.simulation.control.bounds import bounds, demand
from rightslice.simulation.control.cold_start import ON_NODE, PULL, StartRequest, cold_start
from rightslice.simulation.control.faults import NodeRef, Placement, affected, spot_notice, spot_reclaims, struck
from rightslice.simulation.control.hpa_spec import Behavior, HpaSpec, Metric, ScalingPolicy, ScalingRules
from rightslice.simulation.control.keda import ScaledObject, Trigger
from rightslice.simulation.control.nodes import NodePool, Pod, bind, scan, standing
from rightslice.simulation.control.policies import Fixed, Hpa, Keda, Lagged, ModelView, Perfect, Policy

GPU = "nvidia.com/gpu"
TICK_S = 5.0
HORIZON_S = 4 * 3600.0
RATE = 0.5
ARRIVALS_S = np.concatenate(
    [np.arange(0.0, 3600.0, 4.0), np.arange(3600.0, 7200.0, 0.4), np.arange(7200.0, 14400.0, 4.0)]
)
START = cold_start(StartRequest("gke", "vllm", 16.06e9, pull="streamed"))


@dataclass(frozen=True)
class Outcome:
    """What a run cost and how long its queue grew."""

    gpu_hours: float
    longest_queue: float
    sizes: tuple[int, ...]
    lost: int


def _run(policy: Policy, reclaims_per_hour: float = 0.0, seed: int = 1) -> Outcome:
    rng = generator(seed, "wiring")
    pool = NodePool("l4", {GPU: 2}, START.node_s, max_nodes=12, zones=("a", "b"))
    by = provisioners()["cluster-autoscaler"]
    state = standing(pool, 1)
    waves = list(spot_reclaims("l4", ("a", "b"), reclaims_per_hour, spot_notice("gke"), HORIZON_S, rng))
    offered = demand(ARRIVALS_S, HORIZON_S, TICK_S).requests
    pods: dict[str, str] = {}
    running_at: dict[str, float] = {}
    ready_at: dict[str, float] = {}
    images: set[str] = set()
    wanted, made, queue, hours, longest, lost = 1, 0, 0.0, 0.0, 0.0, 0
    sizes = []
    for tick, came in enumerate(offered):
        now_s = tick * TICK_S
        while waves and waves[0].at_s <= now_s:
            wave = waves.pop(0)
            alive = [NodeRef(n.name, "l4", n.zone, 2, "spot", n.ready_s) for n in state.nodes if n.ready_s <= now_s]
            gone = [name for name, _ in struck(wave, alive)]
            placed = [Placement(pod, node, (0,)) for pod, node in pods.items() if node]
            dead = affected(wave, placed, gone)
            state, lost = state.without(gone), lost + len(dead)
            pods = {pod: node for pod, node in pods.items() if pod not in dead}
        while len(pods) < wanted:
            pods[f"r{made}"], made = "", made + 1
        asked = [Pod(name, GPU, 1, node) for name, node in pods.items()]
        for name, node in bind(now_s, pool, state, asked):
            begun = START.draw(generator(seed, "start", name), skip=ON_NODE | (PULL if node in images else frozenset()))
            pods[name] = node
            images.add(node)
            running_at[name], ready_at[name] = now_s + begun.until_running_s, now_s + begun.total_s
        asked = [Pod(name, GPU, 1, node) for name, node in pods.items()]
        if now_s % by.scan_s == 0.0:
            done = scan(now_s, pool, by, state, asked, rng)
            state = done.state
            pods = {pod: "" if pod in done.evicted else node for pod, node in pods.items()}
        ready = sum(1 for name, node in pods.items() if node and ready_at[name] <= now_s)
        loading = sum(1 for name, node in pods.items() if node and running_at[name] <= now_s < ready_at[name])
        queue = max(0.0, queue + float(came) - ready * RATE * TICK_S)
        longest = max(longest, queue)
        hours += len(state.nodes) * 2 * TICK_S / 3600.0
        if now_s % policy.period_s == 0.0:
            view = ModelView(
                len(pods), ready, loading, len(pods) - ready - loading, float(came) / TICK_S, held=queue, running=came
            )
            wanted = policy.decide(now_s, view).replicas
            by_age = sorted(pods, key=lambda name: (not pods[name], int(name[1:])))
            pods = {name: pods[name] for name in by_age[:wanted]}
        sizes.append(len(pods))
    return Outcome(hours, longest, tuple(sizes), lost)


def _queue_hpa(behavior: Behavior | None = None) -> Hpa:
    return Hpa(HpaSpec(20, (Metric("queue", "External", 10),), behavior=behavior), {"queue": "held"})


def test_the_autoscaler_lies_between_the_perfect_one_and_the_peak() -> None:
    outcome = _run(Fixed(6))
    found = bounds(demand(ARRIVALS_S, HORIZON_S), RATE)
    assert found.peak_replicas == 5
    assert found.peak == pytest.approx(20.0)
    scaled = _run(_queue_hpa())
    assert found.perfect < scaled.gpu_hours
    assert outcome.longest_queue < scaled.longest_queue


def test_a_queue_metric_overshoots_what_the_load_needs_and_a_slow_policy_less() -> None:
    """Five replicas carry the peak. The queue grows for the minutes of a cold start, and each sync asks again."""
    slow = ScalingRules(policies=(ScalingPolicy("Pods", 2, 180),))
    wild, calm = _run(_queue_hpa()), _run(_queue_hpa(Behavior(up=slow)))
    assert max(wild.sizes) == 20
    assert max(wild.sizes) > max(calm.sizes) >= 5


def test_no_replica_is_ready_before_its_cold_start() -> None:
    fastest_s = START.draw(generator(1, "start", "r0"), skip=ON_NODE).total_s
    perfect = Perfect(demand(ARRIVALS_S, HORIZON_S), RATE, min_replicas=1)
    outcome = _run(perfect)
    assert outcome.longest_queue > (1 / 0.4 - RATE) * 60.0
    assert fastest_s > 60.0


def test_spot_reclaims_cost_replicas_that_come_back() -> None:
    outcome = _run(Fixed(6), reclaims_per_hour=1.0)
    assert outcome.lost > 0
    assert outcome.sizes[-1] == 6


def test_keda_takes_an_idle_model_to_zero_and_back() -> None:
    spec = ScaledObject((Trigger(Metric("queue", "External", 10), 0.5),), max_replicas=4, cooldown_s=60.0)
    policy = Keda(spec, {"queue": "held"})
    sizes, size = [], 1
    for tick in range(60):
        held = 6.0 if 30 <= tick < 34 else 0.0
        size = policy.decide(15.0 * tick, ModelView(size, size, held=held)).replicas
        sizes.append(size)
    assert sizes[:3] == [1, 1, 0]
    assert sizes[30] == 1
    assert sizes[-1] == 0


def test_a_late_metric_reacts_late() -> None:
    late = Lagged(_queue_hpa(), 60.0)
    sizes = [late.decide(15.0 * t, ModelView(2, 2, held=100.0 if t else 0.0)).replicas for t in range(7)]
    assert sizes == [2, 2, 2, 2, 2, 4, 4]


def test_the_same_seed_gives_the_same_run() -> None:
    assert _run(_queue_hpa(), 0.5, seed=3) == _run(_queue_hpa(), 0.5, seed=3)
    assert _run(_queue_hpa(), 0.5, seed=3) != _run(_queue_hpa(), 0.5, seed=4)


def test_ready_at_once_is_possible_by_giving_the_phases() -> None:
    instant = START
    for known in START.phases:
        instant = instant.with_phase(known.name, Spread.fixed(0.0))
    assert instant.draw(np.random.default_rng(0)).total_s == 0.0
    assert replace(instant.phases[0], name="node").note == "given"
