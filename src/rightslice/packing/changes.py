"""Which GPUs of today have to be cut or shared anew: counted, and per pool."""

from __future__ import annotations

from rightslice.packing.packing import Packing
from rightslice.packing.problem import Problem


def changed_gpus(problem: Problem, packing: Packing) -> int:
    """GPUs of today's nodes whose layout changes; those of added nodes take new layouts without a drain."""
    return sum(_changed(problem, packing, pool) for pool in sorted({pool for pool, _ in problem.current}))


def _changed(problem: Problem, packing: Packing, pool: str) -> int:
    today = {name: gpus for (where, name), gpus in problem.current.items() if where == pool}
    wanted = {name: gpus for (where, name), gpus in packing.layouts.items() if where == pool}
    fresh = sum(max(0, gpus - today.get(name, 0)) for name, gpus in wanted.items())
    added = packing.nodes.get(pool, 0) * problem.pool_of[pool].gpus_per_node - sum(today.values())
    return max(0, fresh - max(0, added))
