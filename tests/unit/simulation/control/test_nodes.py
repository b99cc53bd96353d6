"""Nodes: pods wait for room, provisioners add nodes and take unneeded ones away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.catalogue.disruptions import provisioners
from rightslice.core.spread import Spread
from rightslice.simulation.control.nodes import NEVER, NodePool, Nodes, Pod, bind, next_scan_s, scan, standing

GPU = "nvidia.com/gpu"
POOL = NodePool("l4", {GPU: 4}, Spread(100.0, 200.0, 300.0), max_nodes=3, zones=("a", "b"))
AUTOSCALER = provisioners()["cluster-autoscaler"]
KARPENTER = provisioners()["karpenter"]


def _pods(count: int, size: int = 1, node: str = "", name: str = "p") -> list[Pod]:
    return [Pod(f"{name}{i}", GPU, size, node) for i in range(count)]


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_a_pod_waits_until_a_node_is_ready() -> None:
    pods = _pods(2)
    done = scan(0.0, POOL, AUTOSCALER, Nodes(), pods, _rng())
    (node,) = done.added
    assert 100.0 <= node.ready_s <= 300.0
    assert bind(node.ready_s - 1.0, POOL, done.state, pods) == ()
    assert bind(node.ready_s, POOL, done.state, pods) == (("p0", "l4-0"), ("p1", "l4-0"))
    again = scan(10.0, POOL, AUTOSCALER, done.state, pods, _rng())
    assert again.added == ()


def test_as_many_nodes_as_pods_need_within_the_limit() -> None:
    done = scan(0.0, POOL, AUTOSCALER, Nodes(), _pods(9), _rng())
    assert [node.zone for node in done.added] == ["a", "b", "a"]
    more = scan(0.0, POOL, AUTOSCALER, Nodes(), _pods(90), _rng())
    assert len(more.added) == POOL.max_nodes
    large_first = scan(0.0, POOL, AUTOSCALER, Nodes(), [*_pods(2), *_pods(2, 3, name="q")], _rng())
    assert len(large_first.added) == 2


def test_a_pod_that_fits_on_no_node_asks_for_none() -> None:
    done = scan(0.0, POOL, AUTOSCALER, Nodes(), [Pod("big", GPU, 8), Pod("slice", "nvidia.com/mig-1g.10gb", 1)], _rng())
    assert (done.added, set(done.unplaceable)) == ((), {"big", "slice"})


def test_a_full_pool_adds_nothing_and_a_pod_may_fill_a_node() -> None:
    full = [
        *_pods(4, node="l4-0"),
        *_pods(4, node="l4-1", name="q"),
        *_pods(4, node="l4-2", name="r"),
        *_pods(1, name="s"),
    ]
    assert scan(0.0, POOL, AUTOSCALER, standing(POOL, 3), full, _rng()).added == ()
    whole = scan(0.0, POOL, AUTOSCALER, Nodes(), _pods(1, 4), _rng())
    assert (len(whole.added), whole.unplaceable) == (1, ())


def test_a_node_is_used_as_much_as_its_most_used_resource() -> None:
    pool = replace(POOL, capacity={GPU: 4, "nvidia.com/mig-1g.10gb": 4})
    state = replace(standing(pool, 2), unneeded=(("l4-0", 0.0), ("l4-1", 0.0)))
    pods = [Pod("a", "nvidia.com/mig-1g.10gb", 3, "l4-0"), Pod("b", GPU, 1, "l4-1"), Pod("c", GPU, 2, "l4-0")]
    assert scan(600.0, pool, AUTOSCALER, state, pods, _rng()).removed == ("l4-1",)
    busy = [Pod("a", "nvidia.com/mig-1g.10gb", 2, "l4-0"), Pod("b", "nvidia.com/mig-1g.10gb", 2, "l4-1")]
    assert scan(600.0, pool, AUTOSCALER, state, busy, _rng()).removed == ()


def test_pods_fill_one_node_before_the_next() -> None:
    state = standing(POOL, 2)
    pods = [Pod("old", GPU, 1, "l4-1"), *_pods(4)]
    assert bind(0.0, POOL, state, pods) == (("p0", "l4-1"), ("p1", "l4-1"), ("p2", "l4-1"), ("p3", "l4-0"))


def test_an_empty_node_goes_after_the_unneeded_time() -> None:
    state = standing(POOL, 2)
    pods = _pods(3, node="l4-0")
    removed = {}
    for t in range(0, 700, 10):
        done = scan(float(t), POOL, AUTOSCALER, state, pods, _rng())
        state = done.state
        removed.update(dict.fromkeys(done.removed, t))
    assert removed == {"l4-1": 600}


def test_pending_pods_start_the_wait_again() -> None:
    state = standing(POOL, 2)
    bound = _pods(3, node="l4-0")
    state = scan(0.0, POOL, AUTOSCALER, state, bound, _rng()).state
    state = scan(590.0, POOL, AUTOSCALER, state, [*bound, Pod("new", GPU, 4)], _rng()).state
    assert scan(610.0, POOL, AUTOSCALER, state, bound, _rng()).removed == ()


def test_a_pod_that_nobody_can_help_does_not_keep_an_empty_node() -> None:
    state = replace(standing(POOL, 3), unneeded=(("l4-2", 0.0),))
    pods = [*_pods(4, node="l4-0"), *_pods(3, node="l4-1", name="q"), Pod("big", GPU, 8)]
    done = scan(600.0, POOL, AUTOSCALER, state, pods, _rng())
    assert (done.removed, done.unplaceable) == (("l4-2",), ("big",))


def test_a_node_that_comes_ends_the_growth_of_the_pauses() -> None:
    state = replace(standing(POOL, 1), backoff_until_s=-10.0, next_backoff_s=600.0)
    assert scan(0.0, POOL, AUTOSCALER, state, (), _rng()).state.next_backoff_s == 0.0


def test_nothing_goes_soon_after_a_node_was_added() -> None:
    state = replace(standing(POOL, 2), last_added_s=500.0, unneeded=(("l4-1", 0.0),))
    bound = _pods(3, node="l4-0")
    assert scan(1090.0, POOL, AUTOSCALER, state, bound, _rng()).removed == ()
    assert scan(1100.0, POOL, AUTOSCALER, state, bound, _rng()).removed == ("l4-1",)


def test_an_underused_node_is_drained_where_its_pods_fit_elsewhere() -> None:
    state = replace(standing(POOL, 2), unneeded=(("l4-1", 0.0),))
    pods = [*_pods(3, node="l4-0"), Pod("moved", GPU, 1, "l4-1")]
    done = scan(600.0, POOL, AUTOSCALER, state, pods, _rng())
    assert (done.removed, done.evicted) == (("l4-1",), ("moved",))
    full = [*_pods(4, node="l4-0"), Pod("stays", GPU, 1, "l4-1")]
    assert scan(600.0, POOL, AUTOSCALER, state, full, _rng()).removed == ()
    only_empty = replace(AUTOSCALER, underused_share=0.0)
    assert scan(600.0, POOL, only_empty, state, pods, _rng()).removed == ()


def test_the_minimum_stays_and_is_restored() -> None:
    pool = replace(POOL, min_nodes=2)
    idle = replace(standing(pool, 2), unneeded=(("l4-0", 0.0), ("l4-1", 0.0)))
    assert scan(900.0, pool, AUTOSCALER, idle, (), _rng()).removed == ()
    lost = standing(pool, 2).without({"l4-0"})
    assert [node.name for node in scan(0.0, pool, AUTOSCALER, lost, (), _rng()).added] == ["l4-2"]


def test_a_request_that_is_never_served_is_given_up_with_growing_pauses() -> None:
    pool = replace(POOL, out_of_stock=1.0)
    pods, state = _pods(1), Nodes()
    asked, failed = [], []
    for t in range(0, 4000, 10):
        done = scan(float(t), pool, AUTOSCALER, state, pods, _rng())
        state = done.state
        asked += [t for _ in done.added]
        failed += [t for _ in done.failed]
        assert all(node.ready_s == NEVER for node in done.added)
    assert asked == [0, 1200, 2700]
    assert failed == [900, 2100, 3600]


def test_when_the_provisioner_looks() -> None:
    assert next_scan_s(AUTOSCALER, 21.0, []) == 30.0
    assert next_scan_s(AUTOSCALER, 30.0, []) == 30.0
    assert next_scan_s(KARPENTER, 0.0, []) == NEVER
    assert next_scan_s(KARPENTER, 5.0, [5.0]) == 6.0
    assert next_scan_s(KARPENTER, 5.0, [5.0, 5.5, 6.4, 9.0]) == pytest.approx(7.4)
    steady = [0.5 * i for i in range(100)]
    assert next_scan_s(KARPENTER, 0.0, steady) == 10.0


def test_karpenter_removes_an_empty_node_at_once() -> None:
    assert scan(1.0, POOL, KARPENTER, standing(POOL, 1), (), _rng()).removed == ("l4-0",)


def test_bad_pools() -> None:
    for wrong in ({"min_nodes": 4}, {"zones": ()}, {"out_of_stock": 1.5}):
        with pytest.raises(ValueError, match="l4"):
            replace(POOL, **wrong)
