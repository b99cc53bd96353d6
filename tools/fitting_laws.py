"""Refinements of the laws' coefficients by published measurements of whole servers (data/refinements.yaml)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from fitting_cases import Case, Floats, sampled, weight_of
from fitting_descent import Bounds, descend

from rightslice.performance import coefficients

DATA = Path(__file__).parent.parent / "src/rightslice/performance/data"
FAMILIES: Final = ("ampere", "hopper", "blackwell", "blackwell-workstation", "ada")
"""Those with operator tables of their own."""
PER_GROUP: Final = 7
ROUNDS: Final = 3
PENALTY: Final = 0.004
"""Of one squared logarithm of a factor."""
SLIGHT: Final = 0.02
"""Factors nearer to 1 are left out."""
LAYER: Final = {
    "small_kernel_us": (0.5, 6.0),
    "decode_attention_us": (2.0, 20.0),
    "experts_floor_us": (4.0, 60.0),
    "expert_padding_rows": (4.0, 128.0),
    "routing_evenness": (0.5, 8.0),
}
"""Bounds of what is refined; shares of datasheets stay below 1 times the largest that an era may add."""


def refined() -> dict[str, tuple[float, float, float]]:
    """Path -> value of the operator tables, least and largest value."""
    raw = yaml.safe_load((DATA / "coefficients.yaml").read_text("utf-8"))
    found = {f"layer/{name}": (raw["layer"][name], *bounds) for name, bounds in LAYER.items()}
    for family in FAMILIES:
        entry, path = raw["families"][family], f"families/{family}"
        for mode, (compute, _) in entry["gemm"]["efficiency"].items():
            found[f"{path}/gemm/efficiency/{mode}/0"] = compute, 0.1, 0.88
        for mode, (compute, bandwidth) in entry["experts"].items():
            found[f"{path}/experts/{mode}/0"] = compute, 0.05, 0.72
            found[f"{path}/experts/{mode}/1"] = bandwidth, 0.1, 0.98
        found[f"{path}/attention/prefill"] = entry["attention"]["prefill"], 0.1, 0.8
        for bits, share in entry["attention"]["decode"].items():
            found[f"{path}/attention/decode/{bits}"] = share, 0.3, 0.97
        found[f"{path}/gemm/norm"] = entry["gemm"]["norm"], 1.1, 5.0
    return found


def fitted_factors(every: Sequence[Case]) -> dict[str, float]:
    """Factors that fit closed loops and batches best, with the eras in force."""
    found = sampled([case for case in every if case.fits and case.load.kind != "open"], PER_GROUP)
    paths = refined()
    values, low, high = (np.log([bounds[at] for bounds in paths.values()]) for at in range(3))
    shares = np.array([weight_of(case, name) for case in found for name in case.truth])

    def ratios(point: Floats) -> Floats:
        coefficients.use_factors(dict(zip(paths, np.exp(point).tolist(), strict=True)))
        by_case = [case.ratios() for case in found]
        return np.array([ratio.get(n, 0.0) for case, ratio in zip(found, by_case, strict=True) for n in case.truth])

    start = np.zeros(len(paths))
    bounds = Bounds(np.minimum(low - values, 0.0), high - values)
    point = descend(ratios, start, bounds, shares / shares.sum(), PENALTY, ROUNDS)
    factors = {path: float(f"{math.exp(x):.3g}") for path, x in zip(paths, point, strict=True)}
    return {path: factor for path, factor in factors.items() if abs(factor - 1.0) >= SLIGHT}


def write_factors(factors: Mapping[str, float]) -> None:
    """The factors as data."""
    path = DATA / "refinements.yaml"
    head = path.read_text("utf-8").split("factors:")[0]
    content: dict[str, Any] = {"factors": dict(factors)}
    path.write_text(head + yaml.safe_dump(content, sort_keys=False, width=118), "utf-8")
