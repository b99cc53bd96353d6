"""Placement: side by side, spread out, and an error instead of a wrong answer."""

from __future__ import annotations

import pytest

from packing_helpers import MENU, check_counts, check_gpus, option, pool
from rightslice.core.errors import RightsliceError
from rightslice.packing.packing import Packing
from rightslice.packing.place import node_spread, place
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, Problem

POOLS = (pool("p", 8, 8.0, layouts=MENU),)
OPTIONS = (
    option("a", "whole", 1.0, gpus=4),
    option("b", "whole", 1.0, gpus=2),
    option("c", "3g", 1.0),
    option("d", "1g", 1.0),
    option("e", "whole", 1.0, gpus=16, node_gpus=8),
)
DEMANDS = tuple(Demand(model, 1.0, 1, spare=False) for model in "abcde")
PROBLEM = Problem(POOLS, OPTIONS, DEMANDS)
KEY = {o.model: o.key for o in OPTIONS}


def packing(nodes: int, layouts: dict[str, int], replicas: dict[str, int]) -> Packing:
    return Packing(
        "optimal",
        8.0 * nodes,
        8.0 * nodes,
        {"p": nodes},
        {("p", name): count for name, count in layouts.items()},
        {("p", KEY[model]): count for model, count in replicas.items()},
    )


def test_largest_first_side_by_side_and_spread_over_nodes_then_gpus() -> None:
    found = packing(2, {"whole": 12, "1g*4+3g": 2, "3g*2": 1}, {"a": 2, "b": 2, "c": 3, "d": 4})
    placed = place(PROBLEM, found)
    check_counts(PROBLEM, found, placed)
    check_gpus(PROBLEM, placed)
    assert node_spread(PROBLEM, placed) == {"a": 2, "b": 2, "c": 2, "d": 2}
    first = [(gpu.layout, [slot.option for slot in gpu.slots]) for gpu in placed if gpu.node == 0]
    assert first[:6] == [("whole", [KEY["a"]])] * 4 + [("whole", [KEY["b"]])] * 2
    assert placed[-1].layout == ""
    assert placed[-1].slots == ()


def test_a_replica_of_two_nodes_has_both_to_itself() -> None:
    found = packing(3, {"whole": 20}, {"a": 1, "e": 1})
    placed = place(PROBLEM, found)
    check_counts(PROBLEM, found, placed)
    assert {slot.option for gpu in placed if gpu.node < 2 for slot in gpu.slots} == {KEY["e"]}
    assert node_spread(PROBLEM, placed)["e"] == 1


@pytest.mark.parametrize(
    ("layouts", "replicas", "what"),
    [
        ({"whole": 12}, {"a": 3}, "a/A/whole/x4"),
        ({"3g*2": 9}, {}, "layout 3g"),
        ({"3g*2": 1}, {"c": 3}, "c/A/3g/x1"),
        ({"whole": 16}, {"e": 1}, "e/A/whole/x16"),
    ],
)
def test_counts_that_do_not_fit_raise(layouts: dict[str, int], replicas: dict[str, int], what: str) -> None:
    with pytest.raises(RightsliceError, match=what) as caught:
        place(PROBLEM, packing(1, layouts, replicas))
    assert caught.value.code == "RS9001"


def test_value_types_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="placements do not match"):
        GpuLayout("3g*2", {"3g": 2}, (("3g", 0),))
    with pytest.raises(ValueError, match="not a replica"):
        OptionSpec("x", "m", "A", "3g", 2, 1.0)
    with pytest.raises(ValueError, match="two of kind pool"):
        Problem((*POOLS, *POOLS), (), ())
