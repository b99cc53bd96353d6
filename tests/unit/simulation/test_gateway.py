"""Shedding and flow control before a saturated pool, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.core.slo import Slo
from rightslice.performance.costs import StepCosts
from rightslice.simulation import Gateway, LlmServer, OpenClass, Scenario, simulate
from rightslice.simulation.layout import SHED
from rightslice.simulation.play import SteppedRun, play
from simulation_cases import arrivals

COSTS = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 1000, 0, 0.4, "first-principles")


def one_at_a_time(*classes: OpenClass, gateway: Gateway | None, kv_blocks: int = 100, seqs: int = 1) -> Scenario:
    """One replica whose steps take 1,000 ps."""
    server = LlmServer("d", "m", 1, COSTS, kv_blocks, 1, seqs, 64, 1000)
    return Scenario((server,), classes, horizon_s=1e-6, gateways={"m": gateway} if gateway else {})


def asked(name: str, times: list[int], priority: int = 1) -> OpenClass:
    """Requests that take 10 steps each."""
    return OpenClass("m", name, arrivals(times, [10] * len(times), [10] * len(times)), (Slo("ttft", 1.0),), priority)


def test_who_is_sheddable_is_refused_while_more_wait_than_the_threshold() -> None:
    """At 0 one runs, at 1 and 2 two wait: the second is one more than allowed, so the sheddable one at 3 goes."""
    scenario = one_at_a_time(asked("main", [0, 1, 2]), asked("spare", [3, 25_000], -1), gateway=Gateway(1, 1.0))
    result = simulate(scenario)
    main, spare = result.per_class
    assert play(scenario).finish_ps.tolist() == [10_000, 20_000, 30_000, SHED, 40_000]
    assert (main.shed, spare.shed, result.shed) == (0, 1, 1)
    assert (spare.requests, spare.completed, spare.failed, spare.unfinished) == (2, 1, 0, 0)
    assert spare.slo_attainment == 0.5


def test_a_full_cache_saturates_too() -> None:
    """The first request holds 10 of 20 blocks and more with each step, which is over 40 %."""
    gateway = Gateway(5, 0.4)
    scenario = one_at_a_time(asked("main", [0]), asked("spare", [1_500], -1), gateway=gateway, kv_blocks=20, seqs=2)
    assert play(scenario).finish_ps.tolist() == [10_000, SHED]


@pytest.mark.parametrize(
    ("flow_control", "held", "finished"), [(True, 2, [10, 20, 40, 30]), (False, 0, [10, 30, 40, 20])]
)
def test_flow_control_orders_in_the_gateway(flow_control: bool, held: int, finished: list[int]) -> None:
    """The second is in the engine's queue already when the high one comes, which is held back and then goes before the
    third; without flow control the high one goes to the engine and before the second."""
    low, high = asked("low", [0, 1, 2], 0), asked("high", [3], 5)
    scenario = one_at_a_time(low, high, gateway=Gateway(0, 1.0, flow_control))
    assert play(scenario).finish_ps.tolist() == [1_000 * end for end in finished]
    run = SteppedRun(scenario)
    run.advance(5e-9)
    assert run.look().queued.tolist() == [held]


def test_thresholds_are_checked() -> None:
    with pytest.raises(ValueError, match="KV use 2"):
        Gateway(kv_use=2.0)
