"""Load tests of one engine in simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.performance.costs import StepCosts
from rightslice.simulation.loadtest import closed_test, open_test
from rightslice.simulation.scenario import LlmServer, StageLengths

STEP_PS = 10**9
COSTS = StepCosts(np.arange(0, 513, dtype=np.int64) * 10**6, 0, 0, 0, STEP_PS, 0, 0.1, "measured")


def server(blocks: int = 1000) -> LlmServer:
    """An engine whose steps take 1 ms and 1 us per token."""
    return LlmServer("one", "one", 1, COSTS, blocks, 16, 64, 512, 4096)


def lengths(count: int, prompt: int = 99, answer: int = 11) -> StageLengths:
    """Equal requests."""
    return StageLengths(np.full(count, prompt), np.full(count, answer))


def test_one_client_after_another() -> None:
    found = closed_test(server(), lengths(5), in_flight=1)
    assert found is not None
    assert found.tpot_ms is not None
    assert found.ttft_ms.mean == pytest.approx(1.099)
    assert found.tpot_ms.mean == pytest.approx(1.001)
    assert found.e2e_ms.mean == pytest.approx(1.099 + 10 * 1.001)
    assert found.requests_per_s == pytest.approx(1e3 / found.e2e_ms.mean)
    assert found.output_tokens_per_s == pytest.approx(11 * found.requests_per_s)


def test_turning_round_takes_time() -> None:
    found = closed_test(server(), lengths(5), in_flight=1, turn_round_s=0.010)
    assert found is not None
    assert found.requests_per_s == pytest.approx(5e3 / (5 * found.e2e_ms.mean + 4 * 10))


def test_all_at_once_and_no_more_than_were_asked_for() -> None:
    found = closed_test(server(), lengths(20), in_flight=20)
    assert found is not None
    assert found.requests_per_s * found.e2e_ms.p99 / 1e3 == pytest.approx(20)


def test_prompts_first_keep_those_who_decode_waiting() -> None:
    one_prompt_a_step = replace(server(), max_num_batched_tokens=99, prefill_first=True)
    found = closed_test(one_prompt_a_step, lengths(4), in_flight=4)
    assert found is not None
    assert found.ttft_ms.mean == pytest.approx(1.099 * (1 + 2 + 3 + 4) / 4)
    assert found.e2e_ms.p50 == found.e2e_ms.p99 == pytest.approx(4 * 1.099 + 10 * 1.004)


def test_open_requests_come_when_they_come() -> None:
    found = open_test(server(), np.arange(10, dtype=np.float64), lengths(10))
    assert found is not None
    assert found.ttft_ms.p99 == pytest.approx(1.099)
    assert found.requests_per_s == pytest.approx(10 / (9.0 + found.e2e_ms.mean / 1e3))


def test_a_request_beyond_the_cache_has_no_result() -> None:
    assert closed_test(server(blocks=2), lengths(1), in_flight=1) is None
    assert open_test(server(blocks=2), np.zeros(1), lengths(1)) is None


def test_answers_of_one_token_have_no_tpot() -> None:
    found = closed_test(server(), lengths(3, answer=1), in_flight=1)
    assert found is not None
    assert found.tpot_ms is None
