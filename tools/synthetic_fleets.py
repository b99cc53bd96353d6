"""Synthetic fleets to pack: models of 3 to 70 GB in several copies, list-like prices, A100 and H100 with MIG.

An option exists where a model's memory fits the slice and the slice has the SMs that the model asks for. Prices are
relative (an A100 costs 1.0 an hour, an H100 1.7): the shape of public list prices, not a quotation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.hardware import WHOLE
from rightslice.catalogue.mig import layouts, uniform_layouts
from rightslice.packing.problem import Demand, GpuLayout, OptionSpec, PoolSpec, Problem

GB = 10**9
SMALLEST_GB, LARGEST_GB = 3.0, 70.0
COPIES = 20
"""A model has 1 to this many replicas."""
PRICES = {"A100-SXM-80GB": 1.0, "H100-SXM-80GB": 1.7}
SM_NEEDS = (0, 14, 20, 30, 40, 60)
"""Multiprocessors that a model asks for; drawn with equal chance."""
Menu = Callable[[str], tuple[GpuLayout, ...]]
"""Accelerator -> layouts that its GPUs may carry."""
WHOLE_GPU = GpuLayout(WHOLE, {WHOLE: 1}, ((WHOLE, 0),))


def sliced_menu(accelerator: str) -> tuple[GpuLayout, ...]:
    """The undivided GPU and every MIG layout that no other contains, without the slice that is the whole GPU."""
    made = [x for x in layouts(accelerator) if not x.whole_gpu]
    return (WHOLE_GPU, *(GpuLayout(x.name, x.profiles, x.placements) for x in made))


def uniform_menu(accelerator: str) -> tuple[GpuLayout, ...]:
    """One profile per GPU, as many as fit: what the GPU operator ships as all-PROFILE."""
    made = [x for x in uniform_layouts(accelerator) if not x.whole_gpu]
    return (WHOLE_GPU, *(GpuLayout(x.name, x.profiles, x.placements) for x in made))


def four_menu(accelerator: str) -> tuple[GpuLayout, ...]:
    """The four geometries that HAMi shipped for 80 GB cards (knownMigGeometries): 7 x 1g, 3 x 2g + 1g, 2 x 3g, 7g."""
    wanted = ({"1g.10gb": 7}, {"2g.20gb": 3, "1g.10gb": 1}, {"3g.40gb": 2})
    made = [x for x in layouts(accelerator) if any(dict(x.profiles) == w for w in wanted)]
    return (WHOLE_GPU, *(GpuLayout(x.name, x.profiles, x.placements) for x in made))


def mig_fleet(replicas: int, seed: int, menu: Menu = sliced_menu, *, most_copies: int = COPIES) -> Problem:
    """`replicas` replicas of models that run whole or on MIG slices of A100 and H100, one pool of single GPUs each."""
    random = np.random.default_rng(seed)
    menus = {name: menu(name) for name in PRICES}
    pools = tuple(PoolSpec(name, name, 1, usd, menus[name]) for name, usd in PRICES.items())
    options: list[OptionSpec] = []
    demands: list[Demand] = []
    left = replicas
    while left:
        copies = min(left, int(random.integers(1, most_copies + 1)))
        left -= copies
        model = f"m{len(demands)}"
        memory = float(np.exp(random.uniform(np.log(SMALLEST_GB), np.log(LARGEST_GB)))) * GB
        multiprocessors = int(random.choice(SM_NEEDS))
        demands.append(Demand(model, 0.0, copies, spare=False))
        for name, layouts_here in menus.items():
            for partition in dict.fromkeys(p for layout in layouts_here for p in layout.profiles):
                seen = device(name, partition)
                if memory <= seen.memory_bytes and multiprocessors <= (seen.sm_count or 0):
                    options.append(OptionSpec(f"{model}/{name}/{partition}", model, name, partition, 1, 0.0))
    return Problem(pools, tuple(options), tuple(demands))
