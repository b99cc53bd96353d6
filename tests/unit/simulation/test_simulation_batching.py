"""Stages that serve in batches: when a batch starts, how long it takes, what is counted."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.performance.costs import StageCosts
from rightslice.simulation import OpenClass, Scenario, StageServer
from rightslice.simulation.layout import TIMED_OUT
from rightslice.simulation.play import Played, SteppedRun, play
from simulation_cases import arrivals

PS = 10**12


def server(delay_ps: int, most: int = 4) -> StageServer:
    """A batch of n takes 100 + 10 n ps."""
    times = np.array([0, *(100 + 10 * n for n in range(1, most + 1))])
    return StageServer("s", "s", 1, StageCosts(times, 0.4, "measured"), delay_ps / PS)


def served(times: list[int], delay_ps: int) -> Played:
    traffic = OpenClass("s", "c", arrivals(times, [1] * len(times), [1] * len(times)))
    return play(Scenario((server(delay_ps),), (traffic,), horizon_s=1e-6))


@pytest.mark.parametrize(
    ("times", "delay_ps", "ends"),
    [
        ([0, 0, 0], 0, [130] * 3),  # no delay: what is there
        ([0, 5, 20], 0, [110, 230, 230]),  # the others wait for the server
        ([0, 5, 20], 50, [180] * 3),  # the first waits for company
        ([0, 5, 20, 30], 50, [170] * 4),  # a full batch starts at once
        ([0, 5, 20, 30, 40], 50, [170] * 4 + [280]),  # the fifth has waited long enough when the server is free
        ([0, 165], 50, [160, 325]),  # the delay counts from its own arrival
        ([0, 50], 50, [170, 170]),  # an arrival at the end of the delay joins
    ],
)
def test_batches_start_when_full_or_when_the_first_has_waited(times: list[int], delay_ps: int, ends: list[int]) -> None:
    played = served(times, delay_ps)
    assert played.finish_ps.tolist() == ends
    assert played.first_ps.tolist() == ends


def test_busy_time_and_batch_size_are_counted() -> None:
    totals = served([0, 5, 20, 30, 40], 50).totals[0].tolist()
    assert totals[:3] == [140 + 110, 0, 140 * 4 + 110]


def test_a_batch_keeps_its_time_and_a_lost_one_comes_to_nothing() -> None:
    traffic = OpenClass("s", "c", arrivals([0, 10], [1, 1], [1, 1]))
    run = SteppedRun(Scenario((server(0),), (traffic,), horizon_s=1e-6))
    run.advance(50 / PS)
    run.slow_down(0, 2.0)
    run.advance(150 / PS)
    assert run.look().finished.tolist() == [1]
    run.order(0, "gone")
    run.advance(200 / PS)
    run.order(0, "ready")
    played = run.finish()
    assert played.finish_ps.tolist() == [110, 200 + 220]
    assert played.totals[0, 0] == 110 + 40 + 220


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(ValueError, match="delay"):
        server(-5)


def test_an_order_to_a_server_that_waits_for_company_drops_who_waited_too_long() -> None:
    traffic = OpenClass("s", "c", arrivals([0, 10], [1, 1], [1, 1]), timeout_s=100 / PS)
    run = SteppedRun(Scenario((server(500),), (traffic,), horizon_s=1e-6))
    run.advance(200 / PS)
    assert run.look().waiting.tolist() == [2]
    run.slow_down(0, 2.0)
    run.advance(201 / PS)
    assert run.look().waiting.tolist() == [0]
    assert run.finish().finish_ps.tolist() == [TIMED_OUT] * 2
