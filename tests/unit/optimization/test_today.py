"""Nodes that run today: as layouts of pools, and matched with the nodes of a plan."""

from __future__ import annotations

from rightslice.optimization.today import OTHER, GpuNow, NodeNow, current_layouts, matched, reordered
from rightslice.packing.problem import GpuLayout, PoolSpec

HALVES = GpuLayout("halves", {"3g.40gb": 2}, (("3g.40gb", 0), ("3g.40gb", 4)))
MIXED = GpuLayout("mixed", {"3g.40gb": 1, "1g.10gb": 1}, (("3g.40gb", 4), ("1g.10gb", 0)))
WHOLE = GpuLayout("whole", {"whole": 1}, (("whole", 0),))
PLACES = (("time-slicing a/x", 0), ("time-slicing a/y", 1))
TOGETHER = GpuLayout("time-slicing-a", {"time-slicing a/x": 1, "time-slicing a/y": 1}, PLACES)
CUT = PoolSpec("cut", "A100-SXM-80GB", 2, 10.0, (WHOLE, HALVES, MIXED))
SHARED = PoolSpec("shared", "A100-SXM-80GB", 2, 10.0, (TOGETHER,))
MACHINES = {"cut": "a2", "shared": "a2"}


def node(*cuts: dict[str, int], pool: str = "", name: str = "n", models: str = "", partial: bool = False) -> NodeNow:
    return NodeNow(name, "a2", pool, tuple(GpuNow(cut, tuple((m, m) for m in models), partial) for cut in cuts))


def test_gpus_count_as_the_layout_that_they_have() -> None:
    today = [node({"3g.40gb": 2}, {}, pool="cut"), node({"3g.40gb": 1}, {"7g.80gb": 1}, pool="cut")]
    expected = {("cut", "halves"): 2, ("cut", "whole"): 1, ("cut", OTHER): 1}
    assert current_layouts(today, [CUT, SHARED], MACHINES) == expected


def test_a_shared_gpu_is_known_by_its_models() -> None:
    both = node({"time-slicing": 2}, {"time-slicing": 2}, models="xy")
    assert current_layouts([both], [CUT, SHARED], MACHINES) == {("shared", "time-slicing-a"): 2}
    others = node({"time-slicing": 2}, {"time-slicing": 2}, models="xz")
    assert set(current_layouts([others], [SHARED], MACHINES)) == {("shared", OTHER)}


def test_nodes_that_are_not_offered_are_left_out() -> None:
    assert current_layouts([NodeNow("n", "other", "", (GpuNow({}),))], [CUT], MACHINES) == {}


def test_pools_take_no_more_nodes_than_they_have() -> None:
    one = PoolSpec("cut", "A100-SXM-80GB", 2, 10.0, (WHOLE, HALVES), max_nodes=1)
    found = current_layouts([node({}, {}), node({}, {})], [one, SHARED], MACHINES)
    assert found == {("cut", "whole"): 2, ("shared", "whole"): 2}


def test_each_node_is_matched_with_the_one_most_like_it() -> None:
    old = [node({"3g.40gb": 2}, {}), node({}, {})]
    new = [node({}, {"1g.10gb": 7}), node({}, {"3g.40gb": 2}), node({}, {})]
    assert matched(old, new) == [(0, 1), (1, 2)]


def test_pools_are_not_mixed() -> None:
    assert matched([node({}, pool="a")], [node({}, pool="b")]) == []


def test_gpus_that_keep_their_cut_keep_their_place() -> None:
    assert reordered(node({"3g.40gb": 2}, {}), node({}, {"3g.40gb": 2})) == (1, 0)
    assert reordered(node({}, {"7g.80gb": 1}), node({"3g.40gb": 2}, {})) == (1, 0)


def test_slots_that_a_layout_file_does_not_name_are_taken_to_be_there() -> None:
    used = GpuNow({"3g.40gb": 1}, partial=True)
    assert used.is_cut_as(GpuNow({"3g.40gb": 2}))
    assert not used.is_cut_as(GpuNow({"4g.40gb": 1}))
    assert not used.is_cut_as(GpuNow({}))
    assert not GpuNow({}, partial=True).is_cut_as(GpuNow({"3g.40gb": 2}))
