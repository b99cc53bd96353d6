"""Replicas that come, drain and vanish at boundaries, and the policies that spread requests over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.simulation import LlmServer, OpenClass, Routing, Scenario, StageServer
from rightslice.simulation.layout import LOST
from rightslice.simulation.play import Played, SteppedRun, play
from rightslice.simulation.statistics import result_of
from simulation_cases import arrivals

PS = 10**12
STEP_PS = 1000
STEP_S = STEP_PS / PS


def fleet(
    times: Sequence[int],
    outputs: Sequence[int],
    replicas: int = 2,
    *,
    routing: Routing | None = None,
    seqs: int = 8,
    retries: int = 1,
) -> Scenario:
    """Every step takes 1,000 ps; prompts of 4 tokens, blocks of 4 tokens."""
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, STEP_PS, 0, 0.4, "first-principles")
    server = LlmServer("d", "m", replicas, costs, 100, 4, seqs, 64, 1000)
    traffic = OpenClass("m", "c", arrivals(list(times), [4] * len(times), list(outputs)))
    routes = {"m": routing} if routing else {}
    return Scenario((server,), (traffic,), horizon_s=1e-6, routing=routes, retries=retries)


def busy_ps(played: Played) -> list[int]:
    return [int(ps) for ps in played.totals[:, 0]]


def test_requests_wait_for_the_first_replica_and_start_when_it_is_ready() -> None:
    run = SteppedRun(fleet([0, 100, 7_000], [3, 3, 3], 1))
    run.order(0, "absent")
    run.advance(5.5 * STEP_S)
    assert (run.look().queued.tolist(), run.look().arrived.tolist(), run.look().waiting.tolist()) == ([2], [2], [0])
    run.order(0, "ready")
    played = run.finish()
    assert played.first_ps.tolist() == [6_500, 6_500, 7_500 + STEP_PS]
    assert played.finish_ps.tolist() == [8_500, 8_500, 10_500]


def test_a_draining_replica_finishes_what_it_has_and_takes_nothing_new() -> None:
    run = SteppedRun(fleet([0, 0, 2_000, 2_000], [5, 5, 5, 5]))
    run.advance(1.5 * STEP_S)
    run.order(0, "draining")
    run.advance(3.5 * STEP_S)
    assert run.look().running.tolist() == [1, 3]
    with pytest.raises(ValueError, match="has requests"):
        run.order(0, "absent")
    run.advance(5 * STEP_S)
    assert run.look().finished.tolist() == [1, 1]
    run.order(0, "absent")
    assert run.finish().finish_ps.tolist() == [5_000, 5_000, 7_000, 7_000]


def test_a_run_does_not_go_back_in_time() -> None:
    run = SteppedRun(fleet([0], [10], 1))
    run.advance(5.5 * STEP_S)
    run.advance(2.0 * STEP_S)
    assert run.now_s == pytest.approx(5.5 * STEP_S)
    run.slow_down(0, 2.0)
    assert run.finish().finish_ps.tolist() == [6_000 + 4 * 2_000]


def test_requests_of_a_lost_replica_are_computed_again_elsewhere() -> None:
    """At 2,500 ps request 0 has 2 of 5 tokens; the third step is lost, prompt and answer so far come again."""
    run = SteppedRun(fleet([0, 2_100], [5, 5]))
    run.advance(2.5 * STEP_S)
    run.order(0, "gone")
    played = run.finish()
    assert played.first_ps.tolist() == [1_000, 3_100]
    assert played.finish_ps.tolist() == [3_100 + 3 * STEP_PS, 3_100 + 4 * STEP_PS]
    assert played.requeued == 1
    assert busy_ps(played) == [2_500, 5_000]


def test_requests_without_a_retry_left_are_lost_and_counted_as_failed() -> None:
    runs = [SteppedRun(fleet([0, 2_100], [5, 5], retries=0)) for _ in range(2)]
    for run in runs:
        run.advance(2.5 * STEP_S)
        run.order(0, "gone")
    assert runs[0].finish().finish_ps.tolist() == [LOST, 7_100]
    result = result_of(runs[1])
    assert (result.requests, result.completed, result.failed, result.lost, result.requeued) == (2, 1, 1, 1, 0)


def test_lost_requests_go_before_those_that_wait_for_a_replica() -> None:
    """Running first, then waiting, then those that came while nobody was there."""
    run = SteppedRun(fleet([0, 0, 3_000], [4, 4, 4], 1, seqs=1))
    run.advance(2.5 * STEP_S)
    run.order(0, "gone")
    run.advance(4 * STEP_S)
    assert run.look().queued.tolist() == [3]
    run.order(0, "starting")
    run.advance(6 * STEP_S)
    run.order(0, "ready")
    assert run.finish().finish_ps.tolist() == [8_000, 12_000, 16_000]


def test_a_slowdown_starts_with_the_next_step() -> None:
    run = SteppedRun(fleet([0], [10], 1))
    run.advance(2.5 * STEP_S)
    run.slow_down(0, 2.0)
    run.advance(6 * STEP_S)
    run.slow_down(0, 1.0)
    assert run.finish().finish_ps.tolist() == [3_000 + 2 * 2_000 + 5 * 1_000]
    with pytest.raises(ValueError, match="slowdown"):
        run.slow_down(0, 0.5)


def test_a_slowdown_stretches_the_rest_of_a_service() -> None:
    server = StageServer("s", "s", 1, StageCosts(np.array([0, 1_000]), 0.4, "measured"))
    run = SteppedRun(Scenario((server,), (OpenClass("s", "c", arrivals([0], [1], [1])),), horizon_s=1e-6))
    run.advance(400 / PS)
    run.slow_down(0, 3.0)
    assert run.finish().finish_ps.tolist() == [400 + 600 * 3]


def test_round_robin_takes_turns() -> None:
    played = play(fleet([0, 0, 0, 2_500], [4, 1, 1, 1], 3, routing=Routing("round-robin")))
    assert busy_ps(played) == [4_000, 1_000, 1_000]
    assert played.finish_ps.tolist() == [4_000, 1_000, 1_000, 4_000]


def test_two_choices_prefer_the_shorter_of_two() -> None:
    """Far more even than random, less than all choices; the same for the same seed."""
    n, replicas = 2_000, 10
    spreads = {}
    for policy in ("two-choices", "least-requests"):
        run = SteppedRun(fleet([0] * n, [5] * n, replicas, routing=Routing(policy, seed=3), seqs=1))
        run.advance(0.5 * STEP_S)
        counts = run.look().waiting + run.look().running
        spreads[policy] = int(counts.max() - counts.min())
    assert spreads["least-requests"] == 0
    assert 0 < spreads["two-choices"] <= 12  # a random choice would spread by about 45
    first, again, other = (
        busy_ps(play(fleet([0] * 50, [5] * 50, 5, routing=Routing("two-choices", seed=seed)))) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_score_weighs_queue_and_cache() -> None:
    """Replica 0 runs a long request (KV in use), replica 1 has none: KV weight sends the next one there."""
    by_kv = play(fleet([0, 1_500], [20, 1], routing=Routing("score", 0.0, 1.0)))
    assert busy_ps(by_kv) == [20_000, 1_000]
    by_queue = play(fleet([0, 1_500], [20, 1], routing=Routing("score", 1.0, 0.0)))
    assert busy_ps(by_queue) == [20_000, 0]


def test_stale_signals_send_all_to_the_same_replica() -> None:
    """Four requests within the age of one reading follow each other; with fresh figures they spread."""
    times = [0, 1_500, 2_500, 3_500]
    stale = play(fleet(times, [20] * 4, 4, routing=Routing("score", 1.0, 1.0, signal_age_s=4 * STEP_S)))
    assert [ps > 0 for ps in busy_ps(stale)] == [True, False, False, False]
    fresh = play(fleet(times, [20] * 4, 4, routing=Routing("score", 1.0, 1.0)))
    assert all(ps > 0 for ps in busy_ps(fresh))


def test_requests_that_nobody_ever_serves_stay_unfinished() -> None:
    run = SteppedRun(fleet([0], [3], 1))
    run.order(0, "starting")
    result = result_of(run).per_class[0]
    assert (result.requests, result.unfinished, result.completed, result.failed) == (1, 1, 0, 0)
