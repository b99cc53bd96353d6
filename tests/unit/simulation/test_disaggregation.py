"""Prefill and decode on replicas of their own, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.simulation import LlmServer, OpenClass, Scenario, StageServer, simulate
from rightslice.simulation.play import play
from simulation_cases import arrivals

COSTS = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 1000, 0, 0.4, "first-principles")


def apart(times: list[int], answers: list[int], *, token_ps: int = 50, kv_blocks: int = 100) -> Scenario:
    """Prompts of 10 tokens, steps of 1,000 ps, one prefill and one decode replica."""
    prefill = LlmServer("p", "m", 1, COSTS, 100, 1, 8, 64, 1000, link="l")
    link = StageServer("l", "m/link", 1, StageCosts(np.array([0, 1]), 0.4, "measured"), 0.0, 0, token_ps, "m/decode")
    decode = replace(prefill, deployment="d", model="m/decode", link="", kv_blocks=kv_blocks)
    requests = arrivals(times, [10] * len(times), answers)
    return Scenario((prefill, link, decode), (OpenClass("m", "c", requests),), horizon_s=1e-6)


def test_one_request_goes_all_the_way() -> None:
    """A step for the prompt, 10 x 50 + 1 ps on the link, four steps for the other four tokens."""
    played = play(apart([0], [5]))
    assert played.first_ps.tolist() == [1_000]
    assert played.entered_ps.tolist() == [1_501]
    assert played.finish_ps.tolist() == [5_501]


def test_an_answer_of_one_token_stays_where_it_is() -> None:
    played = play(apart([0], [1]))
    assert (played.finish_ps.tolist(), played.served.tolist()) == ([1_000], [0])


def test_the_link_moves_one_prompt_after_the_other() -> None:
    result = simulate(apart([0, 0, 0], [2, 2, 2]))
    (found,) = result.per_class
    assert found.transfer_ms is not None
    assert found.transfer_ms.p99 == pytest.approx(3 * 501e-9)
    assert play(apart([0, 0, 0], [2, 2, 2])).entered_ps.tolist() == [1_501, 2_002, 2_503]
    busy = {r.deployment: r.busy_share for r in result.replicas}
    assert busy["l"] == pytest.approx(3 * 501 / 10**6)


def test_the_cache_of_the_decode_side_must_hold_it() -> None:
    """20 blocks hold one of them at a time: 10 tokens of the prompt and 4 of the answer."""
    finish = play(apart([0, 0], [5, 5], kv_blocks=20)).finish_ps
    assert finish.tolist() == [5_501, 9_501]
    assert play(apart([0, 0], [5, 5])).finish_ps.tolist() == [5_501, 6_501]
    assert play(apart([0], [5], kv_blocks=12)).finish_ps.tolist() == [-2]


def test_who_gives_prompts_away_takes_no_room_for_answers() -> None:
    with pytest.raises(ValueError, match="takes no room"):
        LlmServer("p", "m", 1, COSTS, 100, 1, 8, 64, 1000, "answer", link="l")
