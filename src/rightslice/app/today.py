"""What runs today, read from a plan or a layout file, and the steps from there to a new plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rightslice.app.knowledge import known_names
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import impossible
from rightslice.core.changes import Changes, ChangeStep, GpuChange
from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.core.plan import Placement, Plan
from rightslice.manifests.layout import node_cuts
from rightslice.optimization.today import GpuNow, NodeNow, matched, reordered
from rightslice.spec.layout import LayoutNode, load_layout
from rightslice.spec.plan_document import load_plan

OWNED = "owned"
PLAN_FILE = "plan.json"
Running = dict[int | tuple[int, str], frozenset[tuple[str, str]]]
"""Node of today by place, or (place, "new") in the plan -> the replicas that it serves with."""


def read_today(path: Path) -> tuple[NodeNow, ...]:
    """The nodes of a `plan.json`, of the folder that holds one, or of a `kind: Layout` file.

    Raises BadInputError for a file that is neither, and for an infeasible plan, which has no nodes.
    """
    if path.is_dir() or path.suffix == ".json":
        return nodes_of(read_plan(path))
    nodes = load_layout(path, known_names()).nodes
    wrong = [Diagnostic(*problem, Location(str(path))) for node in nodes for problem in _problems(node)]
    if wrong:
        raise BadInputError(wrong)
    return tuple(_node(node) for node in nodes)


def _problems(node: LayoutNode) -> Iterator[tuple[str, str]]:
    """(rule, message) where the node has other GPUs than its machine type, or slots that cannot be together."""
    sold = {(m.accelerator, m.accelerator_count) for m in machines() if m.machine_type == node.machine_type}
    for accelerator, count in sorted(sold):
        if (accelerator, count) != (node.gpus[0].accelerator if node.gpus else "", len(node.gpus)) and len(sold) == 1:
            yield "RS0204", f"{node.name}: {node.machine_type} has {count:g} x {accelerator}"
    for number, gpu in enumerate(node.gpus):
        slots = [(slot.partition, slot.start) for slot in gpu.slots]
        if reason := impossible(gpu.accelerator, slots):
            yield "RS4015", f"{node.name}, GPU {number}: {reason}"


def read_plan(path: Path) -> Plan:
    """A feasible plan from its file or folder. Raises BadInputError otherwise."""
    file = path / PLAN_FILE if path.is_dir() else path
    plan = load_plan(file)
    if not plan.feasible:
        message = f"{plan.name} found no deployment: there is nothing to compare with"
        raise BadInputError(Diagnostic("RS0204", message, Location(str(file)), hint="a plan with feasible: true"))
    return plan


def nodes_of(plan: Plan) -> tuple[NodeNow, ...]:
    """The nodes of a plan, named `pool/number`."""
    tenants = {
        (p.pool, p.node, p.gpu): tuple((slot.model, f"{slot.deployment}/{slot.replica}") for slot in p.slots)
        for p in plan.placements
    }
    return tuple(
        NodeNow(
            f"{pool.name}/{number}",
            pool.machine_type,
            pool.name,
            tuple(GpuNow(cut, tenants.get((pool.name, number, gpu), ())) for gpu, cut in enumerate(cuts)),
        )
        for pool in plan.pools
        for number, cuts in enumerate(node_cuts(plan, pool))
    )


def _node(node: LayoutNode) -> NodeNow:
    """A slot of a cut or shared GPU is a replica; whole GPUs of one node with one replica number are one."""
    gpus = []
    for number, gpu in enumerate(node.gpus):
        cut = Counter(slot.partition for slot in gpu.slots if slot.partition != WHOLE)
        partial = not set(cut) & set(ON_ONE_GPU)
        names = (slot.replica if slot.partition == WHOLE else f"{number}/{slot.start}" for slot in gpu.slots)
        replicas = zip((slot.model for slot in gpu.slots), (f"{node.name}/{name}" for name in names), strict=True)
        gpus.append(GpuNow(dict(sorted(cut.items())), tuple(replicas), partial))
    return NodeNow(node.name, node.machine_type, "", tuple(gpus))


def with_changes(plan: Plan, today: Sequence[NodeNow]) -> Plan:
    """The plan with its GPUs numbered so that those of today that keep their cut keep their place, and the steps."""
    nodes = nodes_of(plan)
    orders = {
        (nodes[new].pool, _number(nodes[new])): reordered(today[old], nodes[new]) for old, new in matched(today, nodes)
    }
    kept = replace(plan, placements=tuple(_renumbered(plan.placements, orders)))
    return replace(kept, changes=changes(today, kept))


def _number(node: NodeNow) -> int:
    return int(node.name.rpartition("/")[2])


def _renumbered(placements: Sequence[Placement], orders: Mapping[tuple[str, int], tuple[int, ...]]) -> list[Placement]:
    moved = []
    for placement in placements:
        order = orders.get((placement.pool, placement.node))
        moved.append(placement if order is None else replace(placement, gpu=order.index(placement.gpu)))
    return sorted(moved, key=lambda p: (p.pool, p.node, p.gpu))


def changes(today: Sequence[NodeNow], plan: Plan) -> Changes:
    """The steps from today's nodes to the plan's, GPU by GPU as both number them.

    New nodes come first, so that what is drained finds a place; machines that are owned change hands last. Nodes are
    cut anew by rising number of replicas that this evicts.
    """
    nodes = nodes_of(plan)
    pairs = matched(today, nodes)
    owned = {pool.name for pool in plan.pools if pool.purchase.capacity == OWNED}
    cut = sorted(
        (pair for pair in pairs if _cut(today[pair[0]], nodes[pair[1]])),
        key=lambda pair: (len(today[pair[0]].replicas), pair),
    )
    gone = [old for old in range(len(today)) if old not in {old for old, _ in pairs}]
    new = [place for place in range(len(nodes)) if place not in {new for _, new in pairs}]
    bought = [place for place in new if nodes[place].pool not in owned]
    order: list[tuple[int | None, int | None]] = [(None, place) for place in bought]
    order += [*cut, *((old, None) for old in gone), *((None, place) for place in new if place not in bought)]
    running: Running = {old: node.replicas for old, node in enumerate(today)}
    running |= {old: nodes[place].replicas for old, place in pairs if (old, place) not in cut}
    steps = tuple(_steps(order, today, nodes, running))
    gpus_cut = sum(len(step.gpus) for step in steps)
    total = sum(len(node.gpus) for node in today)
    removed = sum(len(today[old].gpus) for old in gone)
    added = sum(len(nodes[place].gpus) for place in new)
    return Changes(total, total - removed - gpus_cut, gpus_cut, added, removed, steps)


def _steps(
    order: Sequence[tuple[int | None, int | None]],
    today: Sequence[NodeNow],
    nodes: Sequence[NodeNow],
    running: Running,
) -> Iterator[ChangeStep]:
    """`running` changes as the steps are done."""
    for old, new in order:
        key = (new or 0, "new") if old is None else old
        before = running.pop(key, frozenset())
        elsewhere = {model for replicas in running.values() for model, _ in replicas - before}
        if new is not None:
            running[key] = nodes[new].replicas
        node = nodes[new] if new is not None else today[old or 0]
        yield ChangeStep(
            action="add" if old is None else "remove" if new is None else "cut",
            pool=node.pool,
            machine_type=node.machine_type,
            node="" if old is None else today[old].name,
            gpus=tuple(_cut(today[old], nodes[new])) if old is not None and new is not None else (),
            evicts=dict(sorted(Counter(model for model, _ in before).items())),
            stops=tuple(sorted({model for model, _ in before} - elsewhere)),
        )


def _cut(old: NodeNow, new: NodeNow) -> list[GpuChange]:
    return [
        GpuChange(gpu, dict(before.cut), dict(after.cut))
        for gpu, (before, after) in enumerate(zip(old.gpus, new.gpus, strict=True))
        if not before.is_cut_as(after)
    ]
