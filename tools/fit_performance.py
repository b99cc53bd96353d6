"""Fit the eras of engines on published measurements, validate the fit on what was left out, and write both.

    python tools/fit_performance.py --data DIR                       errors of the constants in force, cell by cell
    python tools/fit_performance.py --data DIR --laws --fit --validate
                                                write refinements.yaml, eras.yaml, then accuracy.json

DIR holds `truth/calibration.csv` (columns as in its README). A fit starts from START, never from earlier results, so
that the same data give the same constants. An era's constants go towards a smaller damped error (fitting_cases.damped)
plus a penalty on the distance from START; the laws are refined alike (fitting_laws). Validation leaves out whole
groups (model family, accelerator), in FOLDS parts, and then whole sources, and predicts what was left out by constants
fitted on the rest; an era without other rows keeps START.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from fitting_cases import Case, Floats, Key, Ratios, cases, sampled, weight_of
from fitting_descent import Bounds, descend
from fitting_laws import fitted_factors, write_factors
from fitting_report import accuracy_document, print_cells, print_totals

from rightslice.performance import coefficients

DATA = Path(__file__).parent.parent / "src/rightslice/performance/data"
FOLDS = 5
PER_GROUP, PER_GROUP_LEFT_OUT = 10, 7
ROUNDS = 6
PENALTY, FAMILY_PENALTY = 0.006, 0.02
"""Of one squared logarithm of a constant over its start, which is the engine's of all families for those of one."""
FIXED = ("since", "before", "shares_heads", "compiles")
"""What is no constant."""


@dataclass(frozen=True)
class Constant:
    """Start, bounds, and what is added before the logarithm is taken, so that constants may start at or reach 0."""

    start: float
    low: float
    high: float
    offset: float = 0.0


START: Mapping[str, Constant] = {
    "step_us": Constant(800.0, 0.0, 20_000.0, 100.0),
    "sequence_us": Constant(5.0, 0.0, 400.0, 2.0),
    "launch": Constant(1.1, 0.3, 2.0),
    "quantise_us": Constant(3.0, 0.0, 12.0, 2.0),
    "compute": Constant(1.0, 0.02, 1.1),
    "quantised_compute": Constant(1.0, 0.02, 1.1),
    "bandwidth": Constant(1.0, 0.1, 1.02),
    "cache_bandwidth": Constant(1.0, 0.05, 1.03),
    "prefill_layer_us": Constant(120.0, 0.0, 3000.0, 100.0),
    "request_us": Constant(3000.0, 0.0, 300_000.0, 20_000.0),
    "expert_compute": Constant(1.0, 0.1, 1.37),
    "expert_weight_only": Constant(1.0, 0.1, 1.37),
    "prefill_expert_layer_us": Constant(40.0, 0.0, 6000.0, 200.0),
    "expert_prefill": Constant(1.4, 1.0, 4.0),
}
"""Bounds keep every rate below the datasheet's: the families' shares times these stay below 1."""
OF_FIRST_TOKENS = ("prefill_layer_us", "request_us", "prefill_expert_layer_us", "expert_prefill")
OF_EXPERTS = ("expert_compute", "expert_weight_only", "prefill_expert_layer_us", "expert_prefill")
STARTS: Mapping[Key, Mapping[str, float]] = {
    ("vllm", 0): {"step_us": 10_000.0, "launch": 2.0},
    ("vllm", 2): {"prefill_expert_layer_us": 150.0, "expert_prefill": 1.7},
    ("sglang", 0): {"prefill_expert_layer_us": 150.0, "expert_prefill": 1.7},
    ("vllm/cdna3", 0): {
        "step_us": 6000.0,
        "compute": 0.07,
        "quantised_compute": 0.07,
        "bandwidth": 0.6,
        "cache_bandwidth": 0.4,
        "expert_compute": 0.2,
    },
}
"""Where the search would not find the valley from START."""

Document = dict[str, list[dict[str, Any]]]
"""Engine -> eras -> constants."""
Job = tuple[str, tuple[Key, ...], frozenset[str]]
"""An engine, its eras that are to be fitted, and the groups and sources to be left out."""


def structure() -> Document:
    """The eras in force with every constant at its start."""
    raw = yaml.safe_load((DATA / "eras.yaml").read_text("utf-8"))["eras"]
    starts = {name: constant.start for name, constant in START.items()}
    return {
        engine: [
            {k: v for k, v in era.items() if k in FIXED} | starts | dict(STARTS.get((engine, at), {}))
            for at, era in enumerate(eras)
        ]
        for engine, eras in raw.items()
    }


def constants_of(found: Sequence[Case]) -> tuple[str, ...]:
    """What the rows of an era can tell."""
    left_out: set[str] = set()
    if not any("ttft" in case.truth for case in found):
        left_out |= set(OF_FIRST_TOKENS)
    with_experts = [case for case in found if case.deployment.architecture.moe]
    if not with_experts:
        left_out |= set(OF_EXPERTS)
    elif not any("ttft" in case.truth for case in with_experts):
        left_out |= set(OF_FIRST_TOKENS) & set(OF_EXPERTS)
    if all(case.deployment.settings.weight_dtype in ("bf16", "fp16", "fp32") for case in found):
        left_out |= {"quantise_us", "quantised_compute"}
    return tuple(name for name in START if name not in left_out)


def fitted(key: Key, found: Sequence[Case], document: Document, penalty: float) -> dict[str, Any]:
    """The era's constants that fit `found` best, from those in `document`."""
    engine, at = key
    era = dict(document[engine][at])
    names = constants_of(found)
    low, high = (np.log([getattr(START[n], end) + START[n].offset for n in names]) for end in ("low", "high"))
    start = np.log([era[n] + START[n].offset for n in names])
    shares = np.array([weight_of(case, name) for case in found for name in case.truth])

    def ratios(point: Floats) -> Floats:
        moved = era | {n: float(np.exp(x)) - START[n].offset for n, x in zip(names, point, strict=True)}
        coefficients.use_eras({**document, engine: [*document[engine][:at], moved, *document[engine][at + 1 :]]})
        by_case = [case.ratios() for case in found]
        return np.array([ratio.get(n, 0.0) for case, ratio in zip(found, by_case, strict=True) for n in case.truth])

    point = descend(ratios, start, Bounds(low, high), shares / shares.sum(), penalty, ROUNDS)
    return era | {n: float(f"{math.exp(x) - START[n].offset:.3g}") for n, x in zip(names, point, strict=True)}


def _task(job: Job, *, every: Sequence[Case], document: Document, most: int) -> dict[Key, dict[str, Any]]:
    """Eras of one engine, fitted without the rows whose group or source is named: the one of today on the rows of all
    families of devices, those of single families from there on.
    """
    engine, wanted, without = job
    kept = [c for c in every if c.fits and c.group not in without and c.source not in without]
    last = (engine, len(document[engine]) - 1)
    families = {name for name in document if name.startswith(f"{engine}/") and "since" in document[name][0]}
    found: dict[Key, dict[str, Any]] = {}
    begun, own = document, {last, *((name, 0) for name in families)}
    if own & set(wanted):
        rows = [c for c in kept if c.key in own]
        together = {name: eras for name, eras in document.items() if name not in families}
        found[last] = _fitted_or_start(last, rows, together, most)
        constants = {k: v for k, v in found[last].items() if k not in FIXED}
        begun = {**document, **{name: [document[name][0] | constants] for name in families}}
    for key in wanted:
        if key != last:
            penalty = FAMILY_PENALTY if key in own else PENALTY
            found[key] = _fitted_or_start(key, [c for c in kept if c.key == key], begun, most, penalty)
    return {key: found[key] for key in wanted}


def _fitted_or_start(
    key: Key, found: Sequence[Case], document: Document, most: int, penalty: float | None = None
) -> dict[str, Any]:
    start = document[key[0]][key[1]]
    return fitted(key, sampled(found, most), document, penalty or PENALTY) if found else dict(start)


def jobs_of(keys: Iterable[Key], without: frozenset[str] = frozenset()) -> list[Job]:
    """The eras of each engine together."""
    engines: dict[str, list[Key]] = defaultdict(list)
    for key in sorted(keys):
        engines[key[0].partition("/")[0]].append(key)
    return [(engine, tuple(wanted), without) for engine, wanted in engines.items()]


def fit(jobs: Sequence[Job], every: Sequence[Case], most: int, workers: int) -> list[dict[Key, dict[str, Any]]]:
    """The eras of every job, in order."""
    task = partial(_task, every=every, document=structure(), most=most)
    with get_context("fork").Pool(workers) as pool:
        return pool.map(task, jobs, chunksize=1)


def with_eras(document: Document, found: Mapping[Key, dict[str, Any]]) -> Document:
    """The document with these eras in their places."""
    return {name: [found.get((name, at), era) for at, era in enumerate(eras)] for name, eras in document.items()}


def fitted_eras(every: Sequence[Case], workers: int) -> Document:
    """Every era that has rows, fitted on all of them."""
    document = structure()
    shared = {name.partition("/")[0] for name, eras in document.items() if "since" in eras[0]}
    keys = {case.key for case in every} | {(engine, len(document[engine]) - 1) for engine in shared}
    for eras in fit(jobs_of(keys), every, PER_GROUP, workers):
        document = with_eras(document, eras)
    return document


def left_out(parts: Iterable[frozenset[str]], every: Sequence[Case], workers: int) -> dict[str, Ratios]:
    """Row -> ratios by constants that were fitted without its part."""
    jobs = [
        job for part in parts for job in jobs_of({c.key for c in every if c.group in part or c.source in part}, part)
    ]
    found: dict[str, Ratios] = {}
    for (_, wanted, part), eras in zip(jobs, fit(jobs, every, PER_GROUP_LEFT_OUT, workers), strict=True):
        coefficients.use_eras(with_eras(structure(), eras))
        for case in every:
            if case.key in wanted and (case.group in part or case.source in part):
                found[case.row["id"]] = case.ratios()
    return found


def folds(every: Sequence[Case]) -> tuple[frozenset[str], ...]:
    """Groups in FOLDS parts of about as many rows each."""
    sizes: dict[str, int] = defaultdict(int)
    for case in every:
        sizes[case.group] += 1
    parts: list[set[str]] = [set() for _ in range(FOLDS)]
    rows = [0] * FOLDS
    for group, size in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])):
        at = rows.index(min(rows))
        parts[at].add(group)
        rows[at] += size
    return tuple(frozenset(part) for part in parts)


def write_eras(document: Document) -> None:
    """The fitted constants as data."""
    head = (DATA / "eras.yaml").read_text("utf-8").split("eras:")[0]
    body = yaml.safe_dump({"eras": document}, sort_keys=False, default_flow_style=None, width=200)
    (DATA / "eras.yaml").write_text(head + body, "utf-8")


def main() -> None:
    """Print the errors of the constants in force; before that fit, after it validate, where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--laws", action="store_true", help="refine the laws' coefficients, write refinements.yaml")
    parser.add_argument("--fit", action="store_true", help="fit and write eras.yaml")
    parser.add_argument("--validate", action="store_true", help="fit without what is left out, write accuracy.json")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    every = cases(options.data / "truth" / "calibration.csv")
    if options.laws:
        coefficients.use_factors({})
        coefficients.use_eras(fitted_eras(every, options.workers))
        factors = fitted_factors(every)
        write_factors(factors)
        coefficients.use_factors(factors)
    if options.fit:
        document = fitted_eras(every, options.workers)
        write_eras(document)
        coefficients.use_eras(document)
    in_force = {case.row["id"]: case.ratios() for case in every}
    print_cells(every, in_force)
    print_totals("fitted", every, in_force)
    if options.validate:
        by_group = left_out(folds(every), every, options.workers)
        print_totals("groups left out", every, by_group)
        by_source = left_out([frozenset({s}) for s in sorted({c.source for c in every})], every, options.workers)
        print_totals("sources left out", every, by_source)
        text = accuracy_document(every, in_force, by_group, by_source, options.data / "truth" / "peer_cells.json")
        (DATA / "accuracy.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
