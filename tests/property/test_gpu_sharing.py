"""Sharing a GPU: alone nobody is slowed, more work of a neighbour never helps, another slice does not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.performance.costs import StageCosts
from rightslice.performance.sharing import Mode, Tenant
from rightslice.simulation import OpenClass, Scenario, ShareGroup, StageServer
from rightslice.simulation.play import play
from simulation_cases import arrivals, random_scenario

MODES: st.SearchStrategy[Mode] = st.sampled_from(["time-slicing", "mps"])
TIMES = st.lists(st.integers(0, 20_000), max_size=12)
ROUNDING_PS = 50
"""Every change of speed rounds an end to a whole picosecond."""


@st.composite
def tenants(draw: st.DrawFn) -> Tenant:
    busy = draw(st.floats(0.0, 1.0))
    return Tenant(busy, busy * draw(st.floats(0.0, 1.0)), 0.0, draw(st.booleans()))


def server(name: str, latency_ps: int, streams: int) -> StageServer:
    return StageServer(name, name, 1, StageCosts(np.arange(streams + 1) * latency_ps, 0.2, "measured"))


def asked(model: str, times: list[int]) -> OpenClass:
    return OpenClass(model, "c", arrivals(sorted(times), [1] * len(times), [1] * len(times)))


def ends(scenario: Scenario) -> list[int]:
    """When the requests of the first class are answered, in their order."""
    count = len(scenario.classes[0].arrivals)
    times = np.concatenate([c.arrivals.arrival_ps for c in scenario.classes])
    order = np.argsort(times, kind="stable")
    finish = play(scenario).finish_ps
    return [int(finish[place]) for place, request in enumerate(order) if request < count]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 3_999), MODES, tenants())
def test_a_tenant_alone_on_its_gpu_is_never_slowed(seed: int, mode: Mode, tenant: Tenant) -> None:
    """Every replica in a group of its own: to the picosecond what they do on GPUs of their own."""
    scenario = random_scenario(seed)
    replicas = [(s.deployment, k) for s in scenario.servers for k in range(s.replicas)]
    groups = tuple(ShareGroup(mode, (replica,), (tenant,)) for replica in replicas)
    alone, shared = play(scenario), play(replace(scenario, sharing=groups))
    assert all(np.asarray(one).tolist() == np.asarray(other).tolist() for one, other in zip(alone, shared, strict=True))


@settings(max_examples=200, deadline=None)
@given(MODES, tenants(), tenants(), TIMES, TIMES, TIMES, st.integers(1, 3))
def test_the_busier_the_neighbour_the_slower(
    mode: Mode, one: Tenant, other: Tenant, mine: list[int], theirs: list[int], more: list[int], streams: int
) -> None:
    servers = (server("a", 700, streams), server("b", 400, streams))
    group = ShareGroup(mode, (("a", 0), ("b", 0)), (one, other))

    def answered(times: list[int]) -> list[int]:
        classes = (asked("a", mine), asked("b", times))
        return ends(Scenario(servers, classes, horizon_s=1e-6, sharing=(group,)))

    idle, some, busiest = answered([]), answered(theirs), answered([*theirs, *more])
    alone = ends(Scenario(servers, (asked("a", mine),), horizon_s=1e-6))
    assert idle == alone
    for quick, slow in ((idle, some), (some, busiest)):
        assert all(a <= b + ROUNDING_PS for a, b in zip(quick, slow, strict=True))


@settings(max_examples=100, deadline=None)
@given(TIMES, TIMES, tenants())
def test_what_runs_on_another_slice_does_not_matter(mine: list[int], theirs: list[int], tenant: Tenant) -> None:
    """A slice is a device of its own: only the members of its own group are felt there."""
    servers = (server("a", 700, 2), server("b", 400, 2), server("c", 900, 2))
    group = ShareGroup("time-slicing", (("b", 0), ("c", 0)), (tenant, tenant))
    alone = ends(Scenario(servers, (asked("a", mine),), horizon_s=1e-6))
    beside = Scenario(servers, (asked("a", mine), asked("b", theirs), asked("c", theirs)), (), 1e-6, sharing=(group,))
    assert ends(beside) == alone
