"""Sharing groups, changes of today's layouts, shadow prices and first fit, in cases that a person can check by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from packing_helpers import HALVES, MENU, MIXED, SEVEN, check, option, pool
from rightslice.packing import sift as sift_module
from rightslice.packing.clients import CONTEXT_BYTES, MOST_DUTY, Tenant, legal_groups
from rightslice.packing.first_fit import first_fit
from rightslice.packing.problem import Client, Demand, PoolSpec, Problem, SharingGroup
from rightslice.packing.solve import solve
from rightslice.packing.solver import Builder, SolverError
from rightslice.packing.solver import solve as solve_program

GIB = 2**30


def group(key: str, rates: dict[str, float], accelerator: str = "A") -> SharingGroup:
    clients = tuple(Client(f"{model}/mps", model, rate) for model, rate in rates.items())
    return SharingGroup(key, accelerator, "mps", clients)


def shared_pool(usd: float) -> PoolSpec:
    return replace(pool("shared", 1, usd), layouts=(), sharing="mps")


def test_two_models_share_a_gpu_where_that_is_cheaper() -> None:
    problem = Problem(
        (pool("own", 1, 1.0), shared_pool(1.0)),
        (option("asr", "whole", 4.0), option("tts", "whole", 4.0)),
        (Demand("asr", 3.0, 1, spare=False), Demand("tts", 3.0, 1, spare=False)),
        groups=(group("pair", {"asr": 3.0, "tts": 3.0}),),
    )
    found = solve(problem)
    assert found.layouts == {("shared", "pair"): 1}
    assert found.usd_per_hour == found.bound_usd_per_hour == 1.0
    check(problem, found)
    slower = replace(problem, groups=(group("pair", {"asr": 1.4, "tts": 3.0}),))
    assert solve(slower).nodes == {"own": 2}


def test_two_clients_on_one_gpu_are_no_spare_for_each_other() -> None:
    twice = SharingGroup("twice", "A", "mps", (Client("asr/mps", "asr", 2.0), Client("asr/mps", "asr", 2.0)))
    problem = Problem((shared_pool(1.0),), (), (Demand("asr", 2.0, 1, spare=True),), groups=(twice,))
    found = solve(problem)
    assert found.nodes == {"shared": 2}
    check(problem, found)
    floor = replace(problem, demands=(Demand("asr", 0.0, 1, spare=True),))
    assert solve(floor).nodes == {"shared": 2}


def test_a_shared_pool_has_no_layouts() -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        replace(pool("a", 1, 1.0, layouts=MENU), sharing="mps")


def test_legal_groups_equal_a_filter_over_all_multisets() -> None:
    random = np.random.default_rng(3)
    tenants = [
        Tenant(f"m{i}", f"m{i}", float(random.uniform(1, 12)) * GIB, float(random.uniform(0.05, 0.5)), "ab"[i % 2])
        for i in range(8)
    ]
    usable = 22 * GIB
    wanted = {
        tuple(sorted(t.option for t in members))
        for size in (2, 3, 4)
        for members in combinations_with_replacement(tenants, size)
        if sum(t.memory_bytes + CONTEXT_BYTES for t in members) <= usable
        and sum(t.duty for t in members) <= MOST_DUTY
        and len({t.isolation for t in members}) == 1
    }
    found = [tuple(sorted(t.option for t in members)) for members in legal_groups(tenants, usable)]
    assert len(found) == len(set(found)) > 20
    assert set(found) == wanted


def many_groups(models: int = 7) -> Problem:
    random = np.random.default_rng(1)
    names = [f"m{i}" for i in range(models)]
    groups = tuple(
        group("+".join(members), {m: float(random.uniform(0.5, 2.0)) for m in members})
        for members in combinations_with_replacement(names, 3)
        if len(set(members)) == 3
    )
    return Problem(
        (pool("own", 1, 1.0), shared_pool(1.1)),
        tuple(option(name, "whole", 2.0) for name in names),
        tuple(Demand(name, float(random.uniform(3, 9)), 1, spare=False) for name in names),
        groups=groups,
    )


def test_sifted_groups_give_a_valid_bound_and_hardly_a_dearer_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = many_groups()
    every = solve(problem)
    monkeypatch.setattr(sift_module, "FEW", 12)
    sifted = solve(problem)
    check(problem, sifted)
    assert sifted.bound_usd_per_hour <= every.usd_per_hour + 1e-9 <= sifted.usd_per_hour + 2e-9
    assert sifted.usd_per_hour <= every.usd_per_hour * 1.05
    assert sifted.gap >= 0.0


def test_a_small_penalty_keeps_todays_layouts() -> None:
    """Two equally cheap ways: today's one stays with a penalty, and only what has to change does."""
    base = Problem(
        (pool("a", 1, 1.0, layouts=MENU),),
        (option("x", "1g", 0.0), option("y", "3g", 0.0)),
        (Demand("x", 0.0, 8, spare=False), Demand("y", 0.0, 4, spare=False)),
    )
    kept = {("a", HALVES.name): 1, ("a", MIXED.name): 2}
    found = solve(replace(base, current=kept, change_penalty=0.001))
    assert found.layouts == kept
    assert found.changed_gpus == 0
    less = replace(base, demands=(base.demands[0], Demand("y", 0.0, 3, spare=False)))
    other = solve(replace(less, current={("a", SEVEN.name): 1, ("a", HALVES.name): 2}, change_penalty=0.001))
    assert other.usd_per_hour == solve(less).usd_per_hour == 3.0
    assert other.changed_gpus == 1


def test_what_one_more_gpu_of_a_limit_saves() -> None:
    problem = Problem(
        (pool("cheap", 1, 1.0, limits=("quota",)), pool("dear", 1, 3.0, accelerator="B")),
        (option("chat", "whole", 1.0), option("chat", "whole", 1.0, accelerator="B")),
        (Demand("chat", 5.0, 1, spare=False),),
        {"quota": 2},
    )
    found = solve(problem)
    assert found.shadow_usd_per_hour == {"limit:quota": pytest.approx(2.0)}
    more = solve(replace(problem, limits={"quota": 3}))
    assert found.usd_per_hour - more.usd_per_hour == pytest.approx(2.0)
    assert solve(replace(problem, limits={"quota": 9})).shadow_usd_per_hour == {}
    owned = replace(problem, pools=(pool("cheap", 1, 1.0, max_nodes=2), problem.pools[1]), limits={})
    assert solve(owned).shadow_usd_per_hour == {"pool:cheap": pytest.approx(2.0)}


def test_no_demand_and_a_model_larger_than_any_node_are_named() -> None:
    nothing = Problem((pool("a", 1, 1.0),), (option("x", "whole", 1.0),), (Demand("x", 0.0, 0, spare=False),))
    assert solve(nothing).status == "empty"
    huge = Problem((pool("a", 8, 1.0),), (option("x", "whole", 1.0, gpus=16),), (Demand("x", 1.0, 1, spare=False),))
    found = solve(huge)
    assert (found.status, found.binding) == ("infeasible", ("model:x",))
    assert found.reasons == {"x": "needs 16 GPUs in one node; the largest node has 8"}


@pytest.mark.parametrize("usd", [-1.0, float("nan"), float("inf")])
def test_prices_that_would_make_a_packing_free_are_refused(usd: float) -> None:
    with pytest.raises(ValueError, match="USD per hour"):
        pool("a", 1, usd)


def test_an_unbounded_model_is_an_error_and_not_a_price() -> None:
    builder = Builder()
    column = builder.column("x", -1.0)
    builder.row("some", [(column, 1.0)], 1.0)
    with pytest.raises(SolverError, match="unbounded"):
        solve_program(builder.program())


def test_first_fit_fills_the_first_gpu_with_room_and_says_so() -> None:
    problem = Problem(
        (pool("a", 1, 1.0, layouts=MENU),),
        (option("large", "3g", 1.0), option("small", "1g", 1.0)),
        (Demand("small", 5.0, 1, spare=False), Demand("large", 1.0, 1, spare=False)),
    )
    found = first_fit(problem)
    assert found is not None
    assert [(step.model, step.replicas, step.bought) for step in found.steps] == [
        ("large", 1, {"a": 1}),
        ("small", 5, {"a": 1}),
    ]
    check(problem, found.packing)
    assert solve(problem).usd_per_hour <= found.packing.usd_per_hour
