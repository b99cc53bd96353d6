"""How the packing scales: CPU seconds, proven gap and peak memory on synthetic fleets, beside simpler ways to pack.

First fit by falling size, the four layouts that HAMi shipped, and one profile per GPU are packed in the same run; how
much dearer each is, is its row. Every line is the worst of SEEDS. Peak memory is of a fresh process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from synthetic_fleets import Menu, four_menu, mig_fleet, uniform_menu
from synthetic_sharing import sharing_fleet

from rightslice.packing.first_fit import first_fit
from rightslice.packing.packing import Packing
from rightslice.packing.problem import Problem
from rightslice.packing.solve import solve
from rightslice.packing.solver import Effort

SEEDS = (0, 1, 2)
PENALTY, SHIFT = 0.001, 0.1
NEAR = Effort(relative_gap=2.5e-3)
"""For fleets with sharing groups."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One packing and the CPU seconds that it took."""

    packing: Packing
    cpu_s: float


def packed(problem: Problem, effort: Effort | None = None) -> Measured:
    """Pack and time."""
    start = time.process_time()
    packing = solve(problem, effort)
    return Measured(packing, time.process_time() - start)


def shifted(problem: Problem, seed: int) -> Problem:
    """Every demand times 1 +- SHIFT, at random."""
    random = np.random.default_rng(1000 + seed)
    factors = random.uniform(1.0 - SHIFT, 1.0 + SHIFT, len(problem.demands))
    demands = tuple(
        replace(d, min_replicas=max(1, round(d.min_replicas * f)), requests_per_s=d.requests_per_s * f)
        for d, f in zip(problem.demands, factors.tolist(), strict=True)
    )
    return replace(problem, demands=demands)


def changes(problem: Problem, seed: int) -> dict[str, float]:
    """After a shift: shares of today's GPUs cut anew without and with the penalty, and what the penalty costs."""
    today = solve(problem).layouts
    after = replace(shifted(problem, seed), current=today)
    free = solve(after)
    held = solve(replace(after, change_penalty=PENALTY))
    gpus = sum(today.values())
    return {
        "free_share": free.changed_gpus / gpus,
        "held_share": held.changed_gpus / gpus,
        "dearer": held.usd_per_hour / solve(replace(after, current={})).usd_per_hour - 1.0,
    }


def measured() -> dict[str, float]:
    """Every figure of this bench by name."""
    solve(mig_fleet(50, 99))  # loads the solver
    found: dict[str, float] = {}
    for replicas in (50, 500, 5000):
        runs = [packed(mig_fleet(replicas, seed)) for seed in SEEDS]
        found[f"mig_{replicas}_cpu_s"] = max(run.cpu_s for run in runs)
        found[f"mig_{replicas}_gap"] = max(run.packing.gap for run in runs)
    for name, menu in (("four", four_menu), ("uniform", uniform_menu)):
        pairs = [(mig_fleet(5000, s), replace_menus(mig_fleet(5000, s), menu)) for s in SEEDS]
        ratios = [solve(few).usd_per_hour / solve(full).usd_per_hour for full, few in pairs]
        found[f"{name}_dearer"] = float(np.mean(ratios)) - 1.0
    greedy = [(first_fit(mig_fleet(5000, s)), solve(mig_fleet(5000, s))) for s in SEEDS]
    ratios = [one.packing.usd_per_hour / best.usd_per_hour for one, best in greedy if one]
    found["first_fit_dearer"] = float(np.mean(ratios)) - 1.0
    for name, platform in (("shared", False), ("platform", True)):
        fleets = [sharing_fleet(40, 5000, seed, platform=platform) for seed in SEEDS]
        runs = [packed(fleet, NEAR) for fleet in fleets]
        found[f"{name}_groups"] = float(max(len(fleet.groups) for fleet in fleets))
        found[f"{name}_cpu_s"] = max(run.cpu_s for run in runs)
        found[f"{name}_gap"] = max(run.packing.gap for run in runs)
        alone = [solve(replace(f, groups=(), pools=tuple(p for p in f.pools if not p.sharing)), NEAR) for f in fleets]
        saved = [1 - r.packing.usd_per_hour / a.usd_per_hour for r, a in zip(runs, alone, strict=True)]
        found[f"{name}_saves"] = float(np.mean(saved))
    moved = [changes(mig_fleet(5000, seed), seed) for seed in SEEDS]
    found |= {f"change_{key}": max(row[key] for row in moved) for key in moved[0]}
    return found | {"mig_5000_mb": peak_mb()}


def replace_menus(problem: Problem, menu: Menu) -> Problem:
    """The same demand where GPUs carry fewer layouts; options without a slice left are dropped by the packing."""
    pools = tuple(replace(pool, layouts=menu(pool.accelerator)) for pool in problem.pools)
    return replace(problem, pools=pools)


def peak_mb() -> float:
    """Peak memory of a process that packs 5,000 replicas."""
    code = "import bench_packing as b; b.solve(b.mig_fleet(5000, 0)); print(b.rss())"
    folder = Path(__file__).resolve().parent
    done = subprocess.run((sys.executable, "-c", code), cwd=folder, check=True, capture_output=True, text=True)  # noqa: S603
    return float(done.stdout)


def rss() -> float:
    """Peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


if __name__ == "__main__":
    print(json.dumps(measured(), indent=2))
