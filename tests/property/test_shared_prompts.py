"""Laws of prefix caches and priorities that hold for any traffic: hits, tokens and waiting times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.results import ClassResult, SimulationResult
from rightslice.core.rng import generator
from rightslice.performance.costs import StepCosts
from rightslice.simulation import LlmServer, OpenClass, Routing, Scenario, simulate
from rightslice.simulation.play import play
from rightslice.simulation.scenario import Policy, Prefixes
from rightslice.spec.workload import TrafficClass
from rightslice.traffic.arrivals import Arrivals, open_loop

MS = 10**9
POLICIES: tuple[Policy, ...] = ("round-robin", "least-requests", "two-choices", "score")


def engine(replicas: int = 1, kv_blocks: int = 4000, max_num_seqs: int = 64) -> LlmServer:
    """A step takes 10 ms and 20 µs for every prompt token."""
    costs = StepCosts(np.arange(2049) * MS // 50, 10, 0, 0, 10 * MS, 0, 0.1, "measured")
    return LlmServer("d", "m", replicas, costs, kv_blocks, 16, max_num_seqs, 2048, 100_000, prefix_caching=True)


def asked(**fields: object) -> TrafficClass:
    tokens = {"input_tokens": {"mean": 200, "p95": 500}, "output_tokens": {"mean": 20, "p95": 40}}
    return TrafficClass.model_validate(tokens | fields)


def arrivals(traffic: TrafficClass, horizon_s: float, seed: int) -> Arrivals:
    return open_loop((traffic,), horizon_s, generator(seed, "law"))


def scenario(found: Arrivals, server: LlmServer, policy: Policy, horizon_s: float, signal_age_s: float) -> Scenario:
    assert found.sharing
    blocks = found.sharing.blocks
    traffic = OpenClass("m", "c", found, prefixes=Prefixes(blocks.block_tokens, blocks.offsets, blocks.ids))
    routing = Routing(policy, 1.0, 1.0, 1.0, signal_age_s)
    return Scenario((server,), (traffic,), (), horizon_s + 600.0, routing={"m": routing})


def only(result: SimulationResult) -> ClassResult:
    (found,) = result.per_class
    return found


SHARING = st.sampled_from(
    [
        {"sessions": {"turns": 5, "gap": "4s"}},
        {"prefix": {"tokens": 800, "distinct": 12}},
        {"prefix": {"tokens": 300, "distinct": 3}, "sessions": {"turns": 3, "gap": "9s"}},
        {"prefix_hit_rate": 0.4, "prefix": {"distinct": 30}},
        {"prefix_hit_rate": 0.2, "sessions": {"turns": 6, "gap": "2s"}},
    ]
)


@settings(max_examples=40, deadline=None)
@given(SHARING, st.sampled_from(POLICIES), st.integers(1, 6), st.integers(150, 4000), st.sampled_from([0.0, 1.0]),
       st.floats(2.0, 30.0), st.integers(0, 10**6))  # fmt: skip
def test_no_cache_and_no_router_finds_more_than_one_cache_without_limit(
    sharing: dict[str, object], policy: Policy, replicas: int, kv_blocks: int, age_s: float, rate: float, seed: int
) -> None:
    found = arrivals(asked(rate=f"{rate}/s", **sharing), 40.0, seed)
    result = only(simulate(scenario(found, engine(replicas, kv_blocks), policy, 40.0, age_s)))
    if result.prefix_hit_rate is not None:
        assert result.prefix_hit_ceiling is not None
        assert 0.0 <= result.prefix_hit_rate <= result.prefix_hit_ceiling


@settings(max_examples=15, deadline=None)
@given(SHARING, st.integers(0, 10**6))
def test_one_replica_with_room_for_everything_finds_all_there_is(sharing: dict[str, object], seed: int) -> None:
    found = arrivals(asked(rate="8/s", **sharing), 120.0, seed)
    result = only(simulate(scenario(found, engine(1, 400_000, 512), "round-robin", 120.0, 0.0)))
    assert result.prefix_hit_rate == pytest.approx(result.prefix_hit_ceiling, abs=0.002)


@settings(max_examples=20, deadline=None)
@given(SHARING, st.sampled_from(POLICIES), st.integers(1, 5), st.integers(200, 3000), st.integers(0, 10**6))
def test_caches_and_routers_lose_no_request_and_no_token(
    sharing: dict[str, object], policy: Policy, replicas: int, kv_blocks: int, seed: int
) -> None:
    """Every request that can be served is answered in full, and nothing is found that was not asked."""
    found = arrivals(asked(rate="6/s", **sharing), 30.0, seed)
    made = scenario(found, engine(replicas, kv_blocks), policy, 30.0, 0.0)
    result = only(simulate(made))
    servable = (found.input_tokens + found.output_tokens - 1 + 15) // 16 <= kv_blocks
    assert (result.completed, result.failed) == (int(servable.sum()), int((~servable).sum()))
    answered = result.output_tokens_per_s * made.horizon_s
    assert answered == pytest.approx(int(found.output_tokens[servable].sum()))
    hits = play(made).hit_tokens
    assert (hits[servable] < found.input_tokens[servable]).all()
    assert (hits[servable] >= 0).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.floats(1.3, 4.0), st.integers(0, 10**6))
def test_a_higher_priority_never_waits_longer_in_the_mean_under_overload(
    classes: int, overload: float, seed: int
) -> None:
    """One request at a time takes some 0.2 s: classes that together ask for more are served by rank."""
    rate = overload * 5.0 / classes
    one = asked(rate=f"{rate}/s", input_tokens=100, output_tokens=20)
    drawn = [
        OpenClass("m", str(priority), open_loop((one,), 200.0, generator(seed, priority)), priority=priority)
        for priority in range(classes)
    ]
    result = simulate(Scenario((replace(engine(), max_num_seqs=1),), tuple(drawn), (), 20_000.0))
    waits = [found.ttft_ms.mean for found in result.per_class if found.ttft_ms]
    assert len(waits) == classes
    assert waits == sorted(waits, reverse=True)
