"""What the packing tests share: small layouts and pools, and an independent check of a packing and its placement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from rightslice.catalogue.hardware import WHOLE
from rightslice.packing.packing import Packing
from rightslice.packing.place import PlacedGpu, place
from rightslice.packing.problem import GpuLayout, OptionSpec, PoolSpec, Problem

WHOLE_GPU = GpuLayout(WHOLE, {WHOLE: 1}, ((WHOLE, 0),))
SEVEN = GpuLayout("1g*7", {"1g": 7}, tuple(("1g", start) for start in range(7)))
HALVES = GpuLayout("3g*2", {"3g": 2}, (("3g", 0), ("3g", 4)))
MIXED = GpuLayout("1g*4+3g", {"1g": 4, "3g": 1}, (("1g", 0), ("1g", 1), ("1g", 2), ("1g", 3), ("3g", 4)))
MENU = (WHOLE_GPU, SEVEN, HALVES, MIXED)


def pool(
    key: str,
    gpus: int,
    usd: float,
    *,
    accelerator: str = "A",
    layouts: tuple[GpuLayout, ...] = (WHOLE_GPU,),
    max_nodes: int | None = None,
    limits: tuple[str, ...] = (),
) -> PoolSpec:
    """A pool in one line."""
    return PoolSpec(key, accelerator, gpus, usd, layouts, max_nodes, limits)


def option(
    model: str, partition: str, rate: float, *, gpus: int = 1, accelerator: str = "A", node_gpus: int = 0
) -> OptionSpec:
    """An option in one line; its key names everything."""
    return OptionSpec(
        f"{model}/{accelerator}/{partition}/x{gpus}", model, accelerator, partition, gpus, rate, None, node_gpus
    )


def check(problem: Problem, packing: Packing) -> tuple[PlacedGpu, ...]:
    """Assert that `packing` meets every demand and limit and that its placement realises it; the placement."""
    placed = place(problem, packing)
    check_counts(problem, packing, placed)
    check_gpus(problem, placed)
    check_demands(problem, placed)
    check_limits(problem, packing)
    assert packing.bound_usd_per_hour <= packing.usd_per_hour
    cost = sum(problem.pool_of[key].usd_per_hour * nodes for key, nodes in packing.nodes.items())
    assert abs(cost - packing.usd_per_hour) < 1e-9
    return placed


def replica_gpus(placed: Iterable[PlacedGpu]) -> dict[tuple[str, str, int], list[PlacedGpu]]:
    """(pool, option, replica) -> its GPUs."""
    found: dict[tuple[str, str, int], list[PlacedGpu]] = defaultdict(list)
    for gpu in placed:
        for slot in gpu.slots:
            found[gpu.pool, slot.option, slot.replica].append(gpu)
    return dict(found)


def check_counts(problem: Problem, packing: Packing, placed: tuple[PlacedGpu, ...]) -> None:
    """Nodes, layouts and replicas appear exactly as often as the packing says."""
    assert Counter({key: len({g.node for g in placed if g.pool == key}) for key in packing.nodes}) == packing.nodes
    for key, nodes in packing.nodes.items():
        size = problem.pool_of[key].gpus_per_node
        mine = [(g.node, g.gpu) for g in placed if g.pool == key]
        assert mine == [(node, gpu) for node in range(nodes) for gpu in range(size)]
    assert Counter((g.pool, g.layout) for g in placed if g.layout) == packing.layouts
    assert Counter((where, key) for where, key, _ in replica_gpus(placed)) == packing.replicas


def check_gpus(problem: Problem, placed: tuple[PlacedGpu, ...]) -> None:
    """One layout or sharing group per GPU, no slot twice, large replicas side by side or alone on whole nodes."""
    for gpu in placed:
        spec = problem.pool_of[gpu.pool]
        taken = [(slot.partition, slot.start) for slot in gpu.slots]
        assert len(set(taken)) == len(taken)
        if spec.sharing:
            check_shared(problem, gpu)
            continue
        menu = {layout.name: layout for layout in spec.layouts}
        assert set(taken) <= set(menu[gpu.layout].placements if gpu.layout else ())
        for slot in gpu.slots:
            assert problem.option_of[slot.option].partition == slot.partition
            assert problem.option_of[slot.option].runs_in(spec)
    for (key, name, _), gpus in replica_gpus(placed).items():
        size = problem.pool_of[key].gpus_per_node
        wanted = problem.option_of[name].gpus
        assert len(gpus) == wanted
        if wanted <= size:
            numbers = [gpu.gpu for gpu in gpus]
            assert len({gpu.node for gpu in gpus}) == 1
            assert numbers == list(range(numbers[0], numbers[0] + wanted))
        else:
            assert len({gpu.node for gpu in gpus}) == wanted // size


def check_shared(problem: Problem, gpu: PlacedGpu) -> None:
    """A shared GPU holds exactly the clients of its group, or nobody."""
    spec = problem.pool_of[gpu.pool]
    if not gpu.layout:
        assert not gpu.slots
        return
    group = problem.group_of[gpu.layout]
    assert (group.accelerator, group.mode) == (spec.accelerator, spec.sharing)
    assert group.pools is None or gpu.pool in group.pools
    assert sorted(slot.option for slot in gpu.slots) == sorted(client.option for client in group.clients)


def lost_together(problem: Problem, placed: tuple[PlacedGpu, ...], model: str) -> list[float]:
    """Requests/s of what fails at once: each replica with GPUs or a slice of its own, each shared GPU."""
    alone = {key: problem.option_of[key[1]].requests_per_s for key in replica_gpus(placed)}
    rates = [
        rate
        for (where, name, _), rate in alone.items()
        if problem.option_of[name].model == model and not problem.pool_of[where].sharing
    ]
    for gpu in placed:
        if gpu.layout and problem.pool_of[gpu.pool].sharing:
            clients = problem.group_of[gpu.layout].clients
            if any(client.model == model for client in clients):
                rates.append(sum(client.requests_per_s for client in clients if client.model == model))
    return sorted(rates)


def check_demands(problem: Problem, placed: tuple[PlacedGpu, ...]) -> None:
    """Rates hold, with the largest replica or shared GPU lost where a spare is asked for; floors and nodes too."""
    replicas = replica_gpus(placed)
    for demand in problem.demands:
        mine = [(key, gpus) for key, gpus in replicas.items() if problem.option_of[key[1]].model == demand.model]
        rates = lost_together(problem, placed, demand.model)
        assert len(mine) >= max(demand.min_replicas, 2 if demand.spare else 0)
        left = rates[:-1] if demand.spare else rates
        assert sum(left) >= demand.requests_per_s * (1 - 1e-5)
        homes = {(gpus[0].pool, gpus[0].node) for _, gpus in mine}
        if demand.min_nodes > 1:
            assert len(homes) >= demand.min_nodes


def check_limits(problem: Problem, packing: Packing) -> None:
    """Pool sizes and GPU limits hold."""
    used: Counter[str] = Counter()
    for key, nodes in packing.nodes.items():
        spec = problem.pool_of[key]
        assert spec.max_nodes is None or nodes <= spec.max_nodes
        for limit in spec.limits:
            used[limit] += nodes * spec.gpus_per_node
    for limit, gpus in problem.limits.items():
        assert used[limit] <= gpus
