"""Round trips of the network in times, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.core.slo import Slo
from rightslice.performance.costs import StepCosts
from rightslice.simulation import LlmServer, Network, OpenClass, Routing, Scenario, simulate
from rightslice.simulation.play import play
from simulation_cases import arrivals

COSTS = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 10**9, 0, 0.4, "first-principles")
NETWORK = Network(("here", "there"), ("home", "away"), np.array([[0.0, 0.1], [0.1, 0.0]]))


def two_regions(times: list[int], clients: list[int], spill_queue: int = 0) -> Scenario:
    """A replica in each region, one request at a time, ten steps of 1 ms each."""
    home = LlmServer("home", "m", 1, COSTS, 100, 1, 1, 64, 1000)
    requests = arrivals(times, [10] * len(times), [10] * len(times))
    traffic = OpenClass("m", "c", requests, (Slo("ttft", 0.05),), clients=np.array(clients))
    routing = {"m": Routing("nearest", spill_queue=spill_queue)}
    servers = (home, replace(home, deployment="away", region=1))
    return Scenario(servers, (traffic,), horizon_s=1.0, routing=routing, network=NETWORK)


def test_near_replicas_first_then_those_with_room() -> None:
    """The third from here finds one running and one waiting at home, which is more than none."""
    scenario = two_regions([0, 1, 2, 3], [0, 0, 0, 1])
    assert play(scenario).served.tolist() == [0, 0, 1, 1]
    (found,) = simulate(scenario).per_class
    assert found.ttft_ms is not None
    assert found.e2e_ms is not None
    assert found.tpot_ms is not None
    assert found.ttft_ms.p99 == pytest.approx(101.0, abs=0.1)  # a step away and the way there
    assert found.e2e_ms.p50 == pytest.approx(20.0, abs=0.1)
    assert found.tpot_ms.mean == pytest.approx(1.0)
    assert found.outcomes[0].achieved_share == 0.75


def test_without_a_network_nobody_is_far() -> None:
    scenario = replace(two_regions([0, 1, 2], [0, 0, 0]), network=None)
    assert play(scenario).served.tolist() == [0, 1, 0]


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="from every place"):
        Network(("here",), ("home", "away"), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="2 clients for 1 requests"):
        OpenClass("m", "c", arrivals([0], [1], [1]), clients=np.zeros(2, dtype=np.int64))
