"""The steps from what runs to a plan: which nodes, in which order, and who is not served meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plans import memory, model, own_image, placed, plan, pool
from rightslice.app.today import changes, nodes_of, read_today, with_changes
from rightslice.core.errors import BadInputError
from rightslice.core.plan import LayoutUse, Plan
from rightslice.optimization.today import GpuNow, NodeNow

A100 = "A100-SXM-80GB"
HALVES = LayoutUse("halves", 2, {"3g.40gb": 2})
WHOLE = LayoutUse("whole", 2, {})
LAYOUT = """\
apiVersion: rightslice/v1
kind: Layout
nodes:
  - name: node-a
    machine_type: a2-ultragpu-1g
    gpus: [{accelerator: A100-SXM-80GB, slots: [SLOTS]}]
"""


def wanted(nodes: int = 2) -> Plan:
    """Nodes of two GPUs, the second cut in halves; `a` on both halves, `b` on the whole GPU."""
    home = pool(
        "a2-ultragpu-2g", A100, provider="gcp", region="us-central1", platform="gke+operator", gpus_per_node=2,
        nodes=nodes, layouts=(replace(WHOLE, gpus=nodes), replace(HALVES, gpus=nodes)),
    )  # fmt: skip
    small = model("a", home, own_image(), memory(A100, "3g.40gb", 10, 1), partition="3g.40gb", replicas=2 * nodes)
    large = model("b", home, own_image(), memory(A100, "whole", 40, 1), replicas=nodes)
    placements = []
    for n in range(nodes):
        placements.append(replace(placed(home, n, 0, (large, n, 0)), layout="whole"))
        placements.append(replace(placed(home, n, 1, (small, 2 * n, 0), (small, 2 * n + 1, 4)), layout="halves"))
    return plan("wanted", (home,), (small, large), tuple(placements))


def node(name: str, *gpus: tuple[dict[str, int], str]) -> NodeNow:
    return NodeNow(
        name,
        "a2-ultragpu-2g",
        "",
        tuple(GpuNow(cut, tuple((m, f"{name}/{m}") for m in models)) for cut, models in gpus),
    )


def test_a_plan_needs_nothing_from_itself() -> None:
    found = changes(nodes_of(wanted()), wanted())
    assert (found.gpus_today, found.gpus_kept, found.steps) == (4, 4, ())


def test_gpus_take_the_place_where_they_are_today() -> None:
    today = [node("x", ({"3g.40gb": 2}, "aa"), ({}, "b")), node("y", ({}, "b"), ({"3g.40gb": 2}, "a"))]
    moved = with_changes(wanted(), today)
    assert moved.changes is not None
    assert moved.changes.steps == ()
    on = {(p.node, p.gpu): {slot.model for slot in p.slots} for p in moved.placements}
    assert sorted(on.items()) == [((0, 0), {"a"}), ((0, 1), {"b"}), ((1, 0), {"b"}), ((1, 1), {"a"})]


def test_what_is_drained_finds_its_place_first_and_what_is_given_up_goes_last() -> None:
    gone = NodeNow("old", "g2-standard-4", "", (GpuNow({}, (("a", "old/a"),)),))
    busy = node("busy", ({}, "b"), ({"7g.80gb": 1}, "c"))
    calm = node("calm", ({}, ""), ({"4g.40gb": 1}, "a"))
    found = changes([gone, busy, calm], wanted(3))
    assert [(step.action, step.node) for step in found.steps] == [
        ("add", ""), ("cut", "calm"), ("cut", "busy"), ("remove", "old"),
    ]  # fmt: skip
    assert (found.gpus_today, found.gpus_kept, found.gpus_cut, found.gpus_added, found.gpus_removed) == (5, 2, 2, 2, 1)
    _, calm_step, busy_step, last = found.steps
    assert (calm_step.evicts, calm_step.stops) == ({"a": 1}, ())
    assert (busy_step.evicts, busy_step.stops) == ({"b": 1, "c": 1}, ("c",))
    (gpu,) = busy_step.gpus
    assert (gpu.gpu, gpu.before, gpu.after) == (1, {"7g.80gb": 1}, {"3g.40gb": 2})
    assert last.stops == ()


def test_a_node_that_serves_alone_is_told_of() -> None:
    (step,) = changes([node("x", ({}, "b"), ({"7g.80gb": 1}, ""))], wanted(1)).steps
    assert step.stops == ("b",)


def test_own_machines_change_hands_after_they_are_empty() -> None:
    after = wanted(1)
    owned = replace(after.pools[0], purchase=replace(after.pools[0].purchase, capacity="owned"), machine_type="dgx")
    after = replace(after, pools=(owned,))
    steps = changes([node("x", ({}, "b"), ({}, ""))], after).steps
    assert [step.action for step in steps] == ["remove", "add"]


def test_a_replica_of_several_gpus_is_evicted_once() -> None:
    home = pool("m", A100, provider="gcp", region="r", platform="gke", gpus_per_node=2)
    pair = model("p", home, own_image(), memory(A100, "whole", 40, 1), gpus=2)
    today = plan("p", (home,), (pair,), (placed(home, 0, 0, (pair, 0, 0)), placed(home, 0, 1, (pair, 0, 0))))
    other = replace(today, pools=(replace(home, name="other"),), placements=())
    removed = changes(nodes_of(today), other).steps[-1]
    assert (removed.action, removed.evicts) == ("remove", {"p": 1})


@pytest.mark.parametrize(
    ("slots", "rule", "says"),
    [
        ("{partition: 3g.40gb, start: 2, model: a}", "RS4015", "cannot start at 2, only at 0, 4"),
        ("{partition: 4g.40gb, start: 0, model: a}, {partition: 1g.10gb, start: 3, model: b}", "RS4015", "overlaps"),
        ("{partition: whole, start: 0, model: a}, {partition: mps, start: 1, model: b}", "RS4015", "together"),
        ("{partition: 1g.18gb, start: 0, model: a}", "RS4015", "no profile 1g.18gb"),
    ],
)
def test_layouts_that_no_gpu_can_have_are_refused(tmp_path: Path, slots: str, rule: str, says: str) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(LAYOUT.replace("SLOTS", slots))
    with pytest.raises(BadInputError) as error:
        read_today(path)
    (found,) = error.value.diagnostics
    assert (found.rule, says in found.message) == (rule, True), found.message


def test_nodes_have_the_gpus_of_their_machine_type(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(LAYOUT.replace("SLOTS", "").replace("1g\n", "2g\n"))
    with pytest.raises(BadInputError, match="has 2 x A100-SXM-80GB"):
        read_today(path)
