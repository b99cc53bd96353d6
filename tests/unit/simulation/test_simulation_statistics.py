"""What is counted: percentiles, objectives of unfinished requests, warm-up, replicas."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.core.results import Distribution
from rightslice.core.slo import Slo
from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.simulation import ClosedPipeline, LlmServer, OpenClass, Scenario, StageLengths, StageServer, simulate
from rightslice.simulation.layout import FAILED, NOT_YET
from rightslice.simulation.statistics import Times, distribution, judged
from rightslice.traffic.arrivals import Arrivals

PS = 10**12
MS = 10**9


def times(*rows: tuple[int, int, int, int]) -> Times:
    """(start, first, finish, answer) in ms; NOT_YET and FAILED as they are; the run ends at 1,000 ms."""
    scaled = [[value * MS if value >= 0 and i < 3 else value for i, value in enumerate(row)] for row in rows]
    start, first, finish, answer = (np.array(column) for column in zip(*scaled, strict=True))
    return Times(start, first, finish, answer, 1000 * MS)


def test_percentile_is_the_value_that_the_share_does_not_exceed() -> None:
    values = np.arange(20, 0, -1, dtype=np.float64)
    assert distribution(values) == Distribution(10.5, 10.0, 19.0, 20.0)
    assert distribution(values[:1]) == Distribution(20.0, 20.0, 20.0, 20.0)
    assert distribution(values[:0]) is None


CASES = {
    "completed": (0, 100, 300, 11),  # TTFT 100, TPOT 20, e2e 300
    "refused": (0, NOT_YET, FAILED, 11),
    "waiting, young": (950, NOT_YET, NOT_YET, 11),
    "waiting, old": (0, NOT_YET, NOT_YET, 11),
    "answering, young": (900, 950, NOT_YET, 11),
    "answering, slow": (400, 450, NOT_YET, 11),  # 550 ms for at most 10 gaps
    "one token": (0, 100, 100, 1),
}


@pytest.mark.parametrize(
    ("slo", "met", "missed"),
    [
        (
            Slo("ttft", 0.2),
            {"completed", "answering, young", "answering, slow", "one token"},
            {"refused", "waiting, old"},
        ),
        (Slo("tpot", 0.04), {"completed", "one token"}, {"refused", "answering, slow"}),
        (Slo("e2e", 0.5), {"completed", "one token"}, {"refused", "waiting, old", "answering, slow"}),
    ],
)
def test_each_objective_judges_what_can_be_judged(slo: Slo, met: set[str], missed: set[str]) -> None:
    for name, row in CASES.items():
        (outcome,), attainment = judged(times(row, CASES["completed"], CASES["refused"]), (slo,))
        expected = {True: 2 / 3, False: 1 / 3, None: 1 / 2}[name in met if name in met | missed else None]
        assert outcome.achieved_share == pytest.approx(expected), name
        assert attainment == pytest.approx(expected), name


def test_attainment_is_all_objectives_at_once() -> None:
    slos = (Slo("ttft", 0.15), Slo("e2e", 0.35))
    rows = times((0, 100, 300, 11), (0, 100, 400, 11), (0, 200, 300, 11), (900, 950, NOT_YET, 11))
    outcomes, attainment = judged(rows, slos)
    assert [o.achieved_share for o in outcomes] == [pytest.approx(3 / 4), pytest.approx(2 / 3)]
    assert attainment == pytest.approx(1 / 3)  # the last one has met its TTFT only: left out
    assert judged(rows, ())[1] == 1.0
    assert judged(times(CASES["waiting, young"]), slos) == (judged(times(CASES["waiting, young"]), slos)[0], 1.0)


def engine(blocks: int = 40) -> LlmServer:
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 10 * MS, 0, 0.4, "first-principles")
    return LlmServer("engine", "llm", 1, costs, blocks, 4, 8, 64, 1000)


def test_result_of_one_request_by_hand() -> None:
    """Prompt 8, answer 5, steps of 10 ms: TTFT 10, e2e 50, TPOT 10; 2 blocks, then 3 of 40 for 4 steps."""
    one = Arrivals(np.array([0]), np.zeros(1, dtype=np.int32), np.array([8]), np.array([5]))
    result = simulate(Scenario((engine(),), (OpenClass("llm", "chat", one, (Slo("tpot", 0.01),)),), horizon_s=0.1))
    chat, replica = result.per_class[0], result.replicas[0]
    assert (chat.requests, chat.completed, chat.failed, chat.unfinished) == (1, 1, 0, 0)
    assert chat.ttft_ms == Distribution(10.0, 10.0, 10.0, 10.0)
    assert chat.tpot_ms == Distribution(10.0, 10.0, 10.0, 10.0)
    assert chat.e2e_ms == Distribution(50.0, 50.0, 50.0, 50.0)
    assert [chat.requests_per_s, chat.output_tokens_per_s] == pytest.approx([10.0, 50.0])
    assert result.slos_met
    assert replica.busy_share == pytest.approx(0.5)
    assert replica.kv_use_peak == pytest.approx(3 / 40)
    assert replica.kv_use_mean == pytest.approx((2 * 10 + 3 * 40) / 100 / 40)
    assert replica.batch_mean == pytest.approx(1.0)
    assert replica.preemptions == 0


def test_warm_up_is_simulated_and_not_counted() -> None:
    four = Arrivals(np.arange(4) * 100 * MS, np.zeros(4, dtype=np.int32), np.full(4, 8), np.full(4, 5))
    users = ClosedPipeline(
        "p", "u", ("llm",), 1, 0.05, 0.0, 0.4, 0.0, (), (StageLengths(np.array([8]), np.array([5])),)
    )
    scenario = Scenario((engine(),), (OpenClass("llm", "chat", four),), (users,), 0.5, 7, warmup_s=0.2)
    result = simulate(scenario)
    assert (result.per_class[0].requests, result.pipelines[0].requests) == (2, 2)
    assert result.requests == result.completed == 4
    assert result.per_class[0].requests_per_s == pytest.approx(2 / 0.3)
    assert result.pipelines[0].requests_per_s == pytest.approx(2 / 0.2)
    assert result.replicas[0].busy_share == pytest.approx(0.4)
    assert result.seed == 7


def test_pipeline_end_to_end_and_by_stage() -> None:
    """ASR 30 ms, LLM 10 ms to the first token and 50 in all; the objectives are those of the whole way."""
    asr = StageServer("asr", "asr", 1, StageCosts(np.array([0, 30 * MS]), 0.4, "measured"))
    drawn = StageLengths(np.array([8]), np.array([5]))
    slos = (Slo("e2e", 0.08), Slo("ttft", 0.039))
    users = ClosedPipeline("voice", "light", ("asr", "llm"), 1, 0.02, 0.0, 1.0, 0.0, slos, (None, drawn))
    result = simulate(Scenario((asr, engine()), pipelines=(users,), horizon_s=1.0)).pipelines[0]
    assert (result.requests, result.completed) == (10, 10)
    assert result.e2e_ms == Distribution(80.0, 80.0, 80.0, 80.0)
    assert [s.e2e_ms.mean for s in result.per_stage if s.e2e_ms] == [30.0, 50.0]
    assert [s.ttft_ms and s.ttft_ms.mean for s in result.per_stage] == [None, 10.0]
    assert [o.achieved_share for o in result.outcomes] == [1.0, 0.0]
    assert result.slo_attainment == 0.0


def test_measured_stage_has_a_ttft_and_no_tpot() -> None:
    asr = StageServer("asr", "asr", 1, StageCosts(np.array([0, 30 * MS]), 0.4, "measured"))
    one = Arrivals(np.array([0]), np.zeros(1, dtype=np.int32), np.array([1]), np.array([7]))
    result = simulate(Scenario((asr,), (OpenClass("asr", "c", one, (Slo("ttft", 0.03),)),), horizon_s=1.0)).per_class[0]
    assert result.ttft_ms == result.e2e_ms == Distribution(30.0, 30.0, 30.0, 30.0)
    assert result.tpot_ms is None
    assert result.output_tokens_per_s == 0.0
    assert result.slo_attainment == 1.0
