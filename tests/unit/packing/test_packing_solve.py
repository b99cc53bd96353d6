"""What `solve` decides in cases that a person can check by hand."""

from __future__ import annotations

import dataclasses

import pytest

from packing_helpers import HALVES, MENU, SEVEN, WHOLE_GPU, check, option, pool
from rightslice.packing.columns import Block
from rightslice.packing.covers import with_covers
from rightslice.packing.model import build
from rightslice.packing.place import node_spread, place
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, Problem
from rightslice.packing.reduce import cheapest_homes, reduce
from rightslice.packing.solve import solve
from rightslice.packing.solver import Effort, relaxation


def need(model: str, rate: float, *, replicas: int = 1, spare: bool = False, nodes: int = 1) -> Demand:
    return Demand(model, rate, replicas, spare, nodes)


def test_one_speech_stage_pair_shares_a_gpu() -> None:
    problem = Problem(
        (pool("a", 1, 3.0, layouts=MENU),),
        (option("asr", "3g", 5.0), option("tts", "3g", 5.0), option("asr", "whole", 9.0)),
        (need("asr", 4.0), need("tts", 4.0)),
    )
    found = solve(problem)
    assert found.nodes == {"a": 1}
    assert found.layouts == {("a", "3g*2"): 1}
    assert found.usd_per_hour == found.bound_usd_per_hour == 3.0
    check(problem, found)


def test_equal_price_takes_fewer_nodes_and_keeps_gpus_whole() -> None:
    problem = Problem(
        (pool("one", 1, 1.0, layouts=MENU), pool("four", 4, 4.0, layouts=MENU)),
        (option("chat", "whole", 1.0), option("tiny", "3g", 1.0), option("tiny", "whole", 1.0)),
        (need("chat", 3.0), need("tiny", 1.0)),
    )
    found = solve(problem)
    assert found.nodes == {"four": 1}
    assert found.layouts == {("four", "whole"): 4}


def test_owned_machines_come_first_and_no_more_of_them_than_needed() -> None:
    problem = Problem(
        (pool("owned", 2, 0.0, max_nodes=3), pool("bought", 1, 1.0)),
        (option("chat", "whole", 1.0),),
        (need("chat", 3.0),),
    )
    found = solve(problem)
    assert found.nodes == {"owned": 2}
    assert found.usd_per_hour == 0.0
    more = dataclasses.replace(problem, demands=(need("chat", 8.0),))
    assert solve(more).nodes == {"bought": 2, "owned": 3}


@pytest.mark.parametrize(("spare", "nodes", "gpus"), [(False, 1, 3), (True, 1, 4), (True, 2, 4)])
def test_spare_is_one_more_of_the_largest(spare: bool, nodes: int, gpus: int) -> None:
    problem = Problem(
        (pool("four", 4, 4.0), pool("one", 1, 1.1)),
        (option("chat", "whole", 2.0),),
        (need("chat", 6.0, spare=spare, nodes=nodes),),
    )
    found = solve(problem)
    placed = check(problem, found)
    assert sum(found.replicas.values()) == gpus
    assert node_spread(problem, placed)["chat"] >= nodes


def test_models_without_load_run_their_floor() -> None:
    problem = Problem(
        (pool("a", 1, 1.0), pool("b", 4, 5.0, accelerator="B")),
        (option("big", "whole", 0.0, gpus=4, accelerator="B"), option("idle", "whole", 0.0)),
        (need("big", 0.0), need("idle", 0.0, replicas=2), need("off", 0.0, replicas=0)),
    )
    found = solve(problem)
    assert found.replicas == {("a", "idle/A/whole/x1"): 2, ("b", "big/B/whole/x4"): 1}
    check(problem, found)


def test_large_replicas_take_whole_nodes_only_where_their_parts_fit() -> None:
    pools = (pool("one", 1, 1.0), pool("eight", 8, 12.0))
    across = Problem(pools, (option("huge", "whole", 1.0, gpus=16, node_gpus=8),), (need("huge", 1.0),))
    found = solve(across)
    assert found.nodes == {"eight": 2}
    check(across, found)
    inside = Problem(pools, (option("huge", "whole", 1.0, gpus=16),), (need("huge", 1.0),))
    assert solve(inside).status == "infeasible"
    pair = Problem(pools, (option("pair", "whole", 1.0, gpus=2),), (need("pair", 1.0),))
    assert solve(pair).nodes == {"eight": 1}


def test_sizes_that_do_not_divide_a_node_are_packed_by_patterns() -> None:
    problem = Problem(
        (pool("eight", 8, 8.0),),
        (option("three", "whole", 1.0, gpus=3), option("one", "whole", 1.0)),
        (need("three", 5.0), need("one", 9.0)),
    )
    found = solve(problem)
    assert found.nodes == {"eight": 3}
    check(problem, found)
    more = dataclasses.replace(problem, demands=(need("three", 7.0), need("one", 0.0, replicas=0)))
    assert solve(more).nodes == {"eight": 4}  # 21 GPUs would be three nodes if only the sum counted


def test_redundancy_counts_nodes_and_not_slices() -> None:
    """Two slices of one GPU are one failure domain: the second node is bought even where one GPU has room."""
    problem = Problem(
        (pool("a", 1, 3.0, layouts=(WHOLE_GPU, HALVES)),),
        (option("asr", "3g", 5.0), option("tts", "3g", 5.0)),
        (need("asr", 4.0, replicas=2, nodes=2), need("tts", 4.0, replicas=2, nodes=2)),
    )
    found = solve(problem)
    assert found.nodes == {"a": 2}
    placed = check(problem, found)
    assert [sorted(slot.option for slot in gpu.slots) for gpu in placed] == [["asr/A/3g/x1", "tts/A/3g/x1"]] * 2


def test_a_node_filled_by_others_is_no_home() -> None:
    """Three nodes, two of them full: both replicas of the small model would share the third."""
    problem = Problem(
        (pool("four", 4, 4.0), pool("one", 1, 1.5)),
        (option("large", "whole", 1.0, gpus=4), option("small", "whole", 1.0)),
        (need("large", 2.0), need("small", 3.0, nodes=2)),
    )
    found = solve(problem)
    check(problem, found)
    assert found.nodes == {"four": 2, "one": 3}


@pytest.mark.parametrize(
    ("limits", "most", "binding", "shortfall"),
    [
        ({"quota": 2}, None, ("model:chat", "limit:quota"), {"limit:quota": 1}),
        ({}, 2, ("model:chat", "pool:a"), {"pool:a": 1}),
        ({"quota": 3}, None, (), {}),
    ],
)
def test_infeasible_names_what_binds(
    limits: dict[str, int], most: int | None, binding: tuple[str, ...], shortfall: dict[str, int]
) -> None:
    problem = Problem(
        (pool("a", 1, 1.0, max_nodes=most, limits=("quota",)),),
        (option("chat", "whole", 1.0),),
        (need("chat", 3.0),),
        limits,
    )
    found = solve(problem)
    assert (found.binding, found.shortfall) == (binding, shortfall)
    assert (found.status == "infeasible") == bool(binding)


def test_models_that_only_fail_together_are_all_named() -> None:
    problem = Problem(
        (pool("a", 1, 1.0, limits=("quota",)),),
        (option("one", "whole", 1.0), option("two", "whole", 1.0)),
        (need("one", 2.0), need("two", 2.0)),
        {"quota": 3},
    )
    found = solve(problem)
    assert found.binding == ("model:one", "model:two", "limit:quota")
    assert found.shortfall == {"limit:quota": 1}


def test_a_model_without_any_option_is_named() -> None:
    problem = Problem((pool("a", 1, 1.0),), (option("one", "whole", 1.0),), (need("one", 1.0), need("lost", 1.0)))
    assert solve(problem).binding == ("model:lost",)


def test_merged_models_get_their_own_replicas_back() -> None:
    """Forty models that each fill a seventh of a GPU are one kind of thing to the solver."""
    names = [f"m{i}" for i in range(40)]
    problem = Problem(
        (pool("a", 2, 2.0, layouts=(WHOLE_GPU, SEVEN)),),
        tuple(option(name, "1g", 1.0 + index) for index, name in enumerate(names)),
        tuple(need(name, 0.5, replicas=2, nodes=2) for name in names),
    )
    assert len(reduce(problem).problem.demands) == 1
    found = solve(problem)
    assert found.nodes == {"a": 6}
    check(problem, found)


def test_reduction_drops_what_is_dominated() -> None:
    detail = GpuLayout("1g*3+3g", {"1g": 3, "3g": 1}, (("1g", 0), ("1g", 1), ("1g", 2), ("3g", 4)))
    problem = Problem(
        (
            pool("dear", 1, 2.0, layouts=(*MENU, detail)),
            pool("cheap", 1, 1.0, layouts=(*MENU, detail)),
            pool("few", 1, 0.5, layouts=(*MENU, detail), max_nodes=1),
            pool("split", 2, 2.5, layouts=(*MENU, detail)),
        ),
        (
            option("chat", "whole", 4.0),
            OptionSpec("slower", "chat", "A", "whole", 1, 3.0),
            option("chat", "whole", 7.9, gpus=2),
            option("chat", "3g", 1.5),
        ),
        (need("chat", 20.0),),
    )
    smaller = reduce(problem).problem
    assert [p.key for p in smaller.pools] == ["cheap", "few"]
    assert [o.key for o in smaller.options] == ["chat/A/whole/x1", "chat/A/3g/x1"]
    assert [layout.name for layout in smaller.pools[0].layouts] == ["whole", "3g*2"]


def test_what_costs_more_than_private_nodes_is_left_out() -> None:
    problem = Problem(
        (pool("small", 1, 1.0), pool("box", 8, 40.0, accelerator="B"), pool("linear", 4, 4.0)),
        (option("chat", "whole", 1.0), option("chat", "whole", 2.0, accelerator="B")),
        (need("chat", 6.0),),
    )
    lean = cheapest_homes(reduce(problem).problem)
    assert [p.key for p in lean.pools] == ["small"]


def test_cover_rows_lift_the_bound_and_keep_the_optimum() -> None:
    problem = Problem(
        (pool("a", 1, 3.0), pool("b", 1, 2.0, accelerator="B")),
        (option("chat", "whole", 1.5), option("chat", "whole", 0.9, accelerator="B")),
        (need("chat", 2.0, spare=True),),
    )
    model = build(problem, [Block(p, None) for p in problem.pools])
    before = relaxation(model.program)
    after = relaxation(with_covers(model, problem))
    best = solve(problem)
    assert before is not None
    assert after is not None
    assert before[0] < after[0] <= best.usd_per_hour + 1e-9
    assert best.usd_per_hour == 8.0


def test_same_problem_same_packing_and_a_stop_is_still_valid() -> None:
    problem = Problem(
        (pool("one", 1, 1.03, layouts=MENU), pool("eight", 8, 8.0, layouts=MENU)),
        tuple(option(f"m{i}", kind, rate * (1 + 0.07 * i)) for i in range(6) for kind, rate in RATES),
        tuple(need(f"m{i}", 9.0 + 3.1 * i, spare=True, nodes=2) for i in range(6)),
    )
    first, second = solve(problem), solve(problem)
    assert first == second
    assert place(problem, first) == place(problem, second)
    stopped = solve(problem, Effort(nodes=1))
    check(problem, stopped)
    assert stopped.bound_usd_per_hour <= first.usd_per_hour <= stopped.usd_per_hour + 1e-9


RATES = (("1g", 0.7), ("3g", 2.2), ("whole", 5.0))
