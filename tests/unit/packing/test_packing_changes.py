"""A tenth of a per cent of a GPU's price keeps nearly every GPU as it is when demand moves by ten per cent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from packing_helpers import WHOLE_GPU, check, option
from rightslice.catalogue.mig import layouts
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, PoolSpec, Problem
from rightslice.packing.solve import solve

ACCELERATORS = {"A100-SXM-80GB": 1.0, "H100-SXM-80GB": 1.7}
CHAINS = (
    ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"), ("1g.20gb", "2g.20gb", "3g.40gb"), ("2g.20gb", "3g.40gb"),
    ("3g.40gb", "4g.40gb"), ("4g.40gb", "whole"), ("whole",),
)  # fmt: skip


def fleet(seed: int) -> Problem:
    random = np.random.default_rng(seed)
    pools = tuple(
        PoolSpec(name, name, 1, usd, (WHOLE_GPU, *(GpuLayout(x.name, x.profiles, x.placements) for x in layouts(name))))
        for name, usd in ACCELERATORS.items()
    )
    options: list[OptionSpec] = []
    demands = []
    for number in range(60):
        chain = CHAINS[int(random.integers(len(CHAINS)))]
        demands.append(Demand(f"m{number}", 0.0, int(random.integers(1, 30)), spare=False))
        options += [option(f"m{number}", part, 0.0, accelerator=name) for name in ACCELERATORS for part in chain]
    return Problem(pools, tuple(options), tuple(demands))


@pytest.mark.parametrize("seed", range(3))
def test_few_gpus_change_after_a_shift_of_demand(seed: int) -> None:
    problem = fleet(seed)
    today = dict(solve(problem).layouts)
    random = np.random.default_rng(seed + 100)
    factors = random.uniform(0.9, 1.1, len(problem.demands)).tolist()
    moved = replace(
        problem,
        demands=tuple(
            replace(demand, min_replicas=max(1, round(demand.min_replicas * factor)))
            for demand, factor in zip(problem.demands, factors, strict=True)
        ),
        current=today,
    )
    held = solve(replace(moved, change_penalty=0.001))
    check(moved, held)
    cheapest = solve(replace(moved, current={}))
    assert held.changed_gpus <= 0.03 * sum(today.values())
    assert held.changed_gpus <= solve(moved).changed_gpus
    assert held.usd_per_hour <= cheapest.usd_per_hour * 1.001 + 1e-9
    assert held.bound_usd_per_hour <= cheapest.usd_per_hour + 1e-9
