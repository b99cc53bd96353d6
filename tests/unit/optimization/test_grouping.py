"""Which models may share a GPU, and what each gives beside the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.core.plan import Memory
from rightslice.optimization.grouping import Lone, groups_of, slowdowns_beside, worth_it
from rightslice.optimization.options import Option
from rightslice.packing.problem import Client, SharingGroup
from rightslice.performance.sharing import Tenant, switch_cost

GIB = 2**30


class Needed:
    """As much of a need as a group looks at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_load = True


def lone(name: str, *, gib: float = 5.0, duty: float = 0.1, busy: float = 0.1, tolerance: float = 10.0) -> Lone:
    seen = device("L4", "time-slicing")
    option = Option(f"{name}/L4", name, seen, 1, "custom", "", None, Memory(seen.memory_bytes, 0, 0, 0, 0, 0, 1), None)
    need: Any = Needed(name)
    return Lone(need, option, Tenant(1.0, 1.0), gib * GIB, 10.0, duty, busy, tolerance)


def names(groups: list[SharingGroup]) -> set[str]:
    return {"+".join(client.model for client in group.clients) for group in groups}


def found(*members: Lone, mode: Any = "time-slicing", alone: bool = True) -> list[SharingGroup]:
    return list(groups_of(members, "L4", mode, {"pool": alone}))


def test_groups_of_different_models_that_fit_together() -> None:
    assert names(found(lone("a"), lone("b"), lone("c"))) == {"a+b", "a+c", "b+c", "a+b+c"}


def test_memory_and_duty_limit_a_group() -> None:
    assert names(found(lone("a", gib=12), lone("b", gib=12), lone("c"))) == {"c+a", "c+b"}
    assert names(found(lone("a", duty=0.5), lone("b", duty=0.5))) == set()


def test_where_the_plugin_chooses_any_of_the_group_must_fit_together() -> None:
    assert names(found(lone("a", gib=14), lone("b"), alone=False)) == set()
    assert names(found(lone("a"), lone("b"), alone=False)) == {"a+b"}


def test_mps_gives_each_client_its_part_of_the_memory() -> None:
    assert names(found(lone("a", gib=12), lone("b"), mode="mps")) == set()
    assert names(found(lone("a", gib=8), lone("b"), mode="mps")) == {"b+a"}


def test_a_model_that_cannot_bear_its_neighbours_shares_with_nobody() -> None:
    assert names(found(lone("a", tolerance=1.5), lone("b", busy=0.2))) == set()
    assert names(found(lone("a", tolerance=1.5), lone("b", busy=0.04))) == {"a+b"}


def test_the_mean_is_over_who_is_busy_and_the_worst_leaves_out_what_is_seldom() -> None:
    both = 2.0 * (1.0 + switch_cost())
    first = lone("a")
    mean, worst = slowdowns_beside(first, [first, lone("b", busy=0.3)], "time-slicing")
    assert mean == pytest.approx(0.7 + 0.3 * both)
    assert worst == pytest.approx(both)
    assert slowdowns_beside(first, [first, lone("b", busy=0.04)], "time-slicing")[1] == 1.0


def group(mode: str, *rates: float) -> SharingGroup:
    clients = tuple(Client(f"m{n}/{mode}", f"m{n}", rate) for n, rate in enumerate(rates))
    return SharingGroup(f"{mode}-{len(rates)}", "L4", mode, clients)


def test_mps_is_kept_only_where_it_carries_more() -> None:
    sliced = group("time-slicing", 5.0, 5.0)
    assert worth_it([sliced, group("mps", 5.0, 4.0)]) == (sliced,)
    better = group("mps", 5.0, 6.0)
    assert worth_it([sliced, better]) == (sliced, better)
    only = group("mps", 5.0, 4.0, 3.0)
    assert worth_it([sliced, only]) == (sliced, only)


def test_rates_fall_by_the_mean() -> None:
    one = lone("a")
    assert one.rate_beside(2.0, 3.0) == 5.0
    assert replace(one, tolerance=2.5).rate_beside(2.0, 3.0) == 0.0
