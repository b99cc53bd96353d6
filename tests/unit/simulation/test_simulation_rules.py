"""One test per rule of order, routing and closed-loop behaviour."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.simulation import ClosedPipeline, LlmServer, OpenClass, Scenario, StageLengths, StageServer
from rightslice.simulation.compiling import source_digest
from rightslice.simulation.kernel import advance
from rightslice.simulation.layout import FAILED, NOT_YET
from rightslice.simulation.play import play as played
from rightslice.traffic.arrivals import Arrivals

PS = 10**12
STEP_PS = 1000


def server(name: str = "d", replicas: int = 1, *, blocks: int = 100, seqs: int = 8, model: str = "m") -> LlmServer:
    """Every step takes 1,000 ps, whatever is in it."""
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, STEP_PS, 0, 0.4, "first-principles")
    return LlmServer(name, model, replicas, costs, blocks, 4, seqs, 64, 1000)


def stage(name: str, *latencies_ps: int, replicas: int = 1) -> StageServer:
    return StageServer(name, name, replicas, StageCosts(np.array([0, *latencies_ps]), 0.4, "measured"))


def requests(
    times: list[int], inputs: list[int] | int = 4, outputs: list[int] | int = 1, model: str = "m"
) -> OpenClass:
    n = len(times)
    sizes = [np.full(n, x, dtype=np.int64) if isinstance(x, int) else np.array(x) for x in (inputs, outputs)]
    return OpenClass(model, "c", Arrivals(np.array(times), np.zeros(n, dtype=np.int32), sizes[0], sizes[1]))


def play(scenario: Scenario) -> tuple[list[int], list[int], np.ndarray, list[list[int]]]:
    first, finish, totals, passes, *_ = played(scenario)
    return first.tolist(), finish.tolist(), totals, passes.tolist()


def test_fewest_outstanding_then_lowest_index() -> None:
    """One sequence at a time: 5 requests at once over 3 replicas of 2 deployments go 0 1 2 0 1."""
    fleet = (server("a", 2, seqs=1), server("b", 1, seqs=1))
    _, finish, totals, _ = play(Scenario(fleet, (requests([0] * 5, outputs=[5, 1, 3, 1, 1]),), horizon_s=1.0))
    # 0 -> r0 (5 steps), 1 -> r1, 2 -> r2 (3 steps), 3 -> r0 behind 0, 4 -> r1 behind 1
    assert finish == [5000, 1000, 3000, 6000, 2000]
    assert totals[:, 0].tolist() == [6000.0, 2000.0, 3000.0]


def test_a_finished_job_counts_no_more_for_an_arrival_at_that_instant() -> None:
    _, _, totals, _ = play(Scenario((server(replicas=2),), (requests([0, STEP_PS, STEP_PS]),), horizon_s=1.0))
    assert totals[:, 0].tolist() == [2000.0, 1000.0]


def test_an_arrival_at_the_end_of_a_step_joins_the_next_one() -> None:
    first, _, _, _ = play(Scenario((server(),), (requests([0, STEP_PS, STEP_PS + 1], outputs=9),), horizon_s=1.0))
    assert first == [1000, 2000, 3000]


def test_a_stage_ends_before_arrivals_of_its_instant_and_hands_on_at_once() -> None:
    """The pipeline's job leaves s at 50 and is first in the queue of m, before the open request of time 50."""
    users = ClosedPipeline("p", "u", ("s", "m"), 1, 1.0, 0.0, 1e-9, 0.0, (), (None, _lengths(4, 2)))
    scenario = Scenario((stage("s", 50), server(seqs=1)), (requests([50]),), (users,), horizon_s=1e-6)
    _, finish, _, passes = play(scenario)
    assert passes[0][5:] == [0, 50, 50, 50, 50 + STEP_PS, 50 + 2 * STEP_PS]
    assert finish == [50 + 3 * STEP_PS]


def test_users_wake_before_arrivals_and_in_order() -> None:
    """Both users and the open request want the one stream at time 0: user 0, user 1, request."""
    users = ClosedPipeline("p", "u", ("s",), 2, 1.0, 0.0, 1e-9, 0.0)
    scenario = Scenario((stage("s", 10),), (requests([0], model="s"),), (users,), horizon_s=1e-6)
    _, finish, _, passes = play(scenario)
    assert [row[4] for row in passes] == [10, 20]
    assert finish == [30]


def test_lower_replica_ends_first() -> None:
    """Stages a and b end together; a's job reaches c first because its server comes first."""
    pipelines = tuple(
        ClosedPipeline(name, "u", (name, "c"), 1, 1.0, 0.0, 1e-9, 0.0) for name in ("b", "a")
    )  # the pipeline over b comes first, its server does not
    scenario = Scenario((stage("a", 10), stage("b", 10), stage("c", 7)), (), pipelines, horizon_s=1e-6)
    _, _, _, passes = play(scenario)
    assert {row[0]: row[4] for row in passes} == {0: 24, 1: 17}


def test_evicted_job_returns_to_the_front() -> None:
    """Two answers outgrow 4 blocks: the later one is evicted and still starts before the request that waits."""
    scenario = Scenario((server(blocks=4, seqs=2),), (requests([0, 0, 0], 6, [8, 8, 1]),), horizon_s=1.0)
    first, finish, totals, _ = play(scenario)
    assert totals[0, 4] == 1.0
    assert first[:2] == [1000, 1000]
    assert finish[0] == 8000
    assert finish[1] < first[2]


def test_requests_that_can_never_run_are_refused_on_arrival() -> None:
    """max_model_len 1,000; 10 blocks of 4 tokens hold prompt + answer - 1 = 40 tokens and no more."""
    scenario = Scenario(
        (server(blocks=10),),
        (requests([0] * 3, [30, 30, 900], [11, 12, 101]), requests([0], model="nobody")),
        horizon_s=1.0,
    )
    _, finish, _, _ = play(scenario)
    assert finish == [11_000, FAILED, FAILED, FAILED]


def test_unfinished_at_the_horizon() -> None:
    first, finish, totals, _ = play(Scenario((server(),), (requests([0, 10_000_000], outputs=9),), horizon_s=5.5e-9))
    assert (first, finish) == ([1000], [NOT_YET])
    assert totals[0, 0] == 5500.0


def _lengths(prompt: int, answer: int) -> StageLengths:
    return StageLengths(np.array([prompt]), np.array([answer]))


def test_users_ramp_up_linearly_and_stop_at_the_end_of_the_hold() -> None:
    users = ClosedPipeline("p", "u", ("s",), 4, 30e-12, 400e-12, 600e-12, 50e-12)
    _, _, _, passes = play(Scenario((stage("s", 70, 70, 70, 70),), (), (users,), horizon_s=1e-6))
    starts = [[row[3] for row in passes if row[2] == user] for user in range(4)]
    assert [s[0] for s in starts] == [0, 100, 200, 300]
    assert all(b - a == 100 for s in starts for a, b in itertools.pairwise(s))
    assert max(max(s) for s in starts) == 900  # 1,000 is too late: the hold has ended
    assert all(row[4] == row[3] + 70 for row in passes)


def test_samples_are_used_in_order_of_start() -> None:
    drawn = StageLengths(np.array([4, 4, 4]), np.array([1, 2, 3]))
    users = ClosedPipeline("p", "u", ("m",), 1, 0.0, 0.0, 8e-9, 0.0, (), (drawn,))
    _, _, _, passes = play(Scenario((server(),), (), (users,), horizon_s=1e-6))
    assert [row[4] - row[3] for row in passes] == [1000, 2000, 3000, 1000, 2000]


@pytest.mark.parametrize(("think_s", "sent"), [(0.0, 1), (1e-9, 10)])
def test_refused_users_think_and_try_again_but_never_for_ever(think_s: float, sent: int) -> None:
    users = ClosedPipeline("p", "u", ("m",), 1, think_s, 0.0, 10e-9, 0.0, (), (_lengths(2000, 1),))
    _, _, _, passes = play(Scenario((server(),), (), (users,), horizon_s=1e-6))
    assert [row[4] for row in passes] == [FAILED] * sent


def test_rounding_does_not_grow_in_a_long_busy_period() -> None:
    """Two streams busy for 60,000 services without a pause: still exact to the picosecond."""
    latency = 300_000_000_007
    users = ClosedPipeline("p", "u", ("s",), 2, 0.0, 0.2, 9_000.0, 0.0)
    _, _, _, passes = play(Scenario((stage("s", latency // 3, latency),), (), (users,), horizon_s=8_000.0))
    steady = [row for row in passes if row[4] > 0 and row[3] > PS]
    assert len(steady) > 50_000
    assert {row[4] - row[3] for row in steady} == {latency}


def test_token_lengths_are_needed_for_an_llm_stage() -> None:
    users = ClosedPipeline("p", "u", ("m",), 1, 0.0, 0.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="needs token lengths"):
        play(Scenario((server(),), (), (users,), horizon_s=1.0))


def test_import_does_not_load_numba() -> None:
    code = "import sys, rightslice.simulation, rightslice.traffic.arrivals; print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_machine_code_is_kept_by_the_sources_of_all_parts_of_the_loop() -> None:
    """Machine code is cached by the loop's file and free variables: a change elsewhere must change one of these."""
    function = advance.py_func  # type: ignore[attr-defined]
    assert source_digest() in [cell.cell_contents for cell in function.__closure__]
    assert source_digest() > 0


def test_a_read_only_installation_still_runs() -> None:
    """Without a folder for compiled code the kernel is compiled in memory."""
    code = "import rightslice.simulation.kernel as k; print(type(k.advance._cache).__name__)"
    environment = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "NullCache\n"
