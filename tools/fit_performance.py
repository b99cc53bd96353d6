"""Fit the eras of engines on published measurements, validate the fit on what was left out, and write both.

    python tools/fit_performance.py --data DIR                       errors of the constants in force, cell by cell
    python tools/fit_performance.py --data DIR --fit --validate      write eras.yaml, then accuracy.yaml

DIR holds `truth/calibration.csv` (columns as in its README). A fit starts from START, never from earlier results, so
that the same data give the same constants. An era's constants are moved one at a time, in steps that shrink, towards a
smaller damped error (fitting_cases.loss) plus a penalty on the distance from START. Validation leaves out whole
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

import yaml
from fitting_cases import Case, Key, Ratios, cases, loss, sampled
from fitting_report import accuracy_document, print_cells, print_totals

from rightslice.performance import coefficients

DATA = Path(__file__).parent.parent / "src/rightslice/performance/data"
FOLDS = 5
PER_GROUP, PER_GROUP_LEFT_OUT = 10, 7
PASSES = 6
FIRST_STEP, LAST_STEP, SHRINK = 0.4, 0.03, 2.5
PENALTY = 0.015
"""Of one squared logarithm of a constant over its start."""


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
    "quantise_us": Constant(0.5, 0.0, 12.0, 2.0),
    "compute": Constant(1.0, 0.02, 1.1),
    "bandwidth": Constant(1.0, 0.1, 1.02),
    "cache_bandwidth": Constant(1.0, 0.05, 1.03),
    "prefill_layer_us": Constant(200.0, 0.0, 3000.0, 100.0),
    "request_us": Constant(3000.0, 0.0, 300_000.0, 20_000.0),
    "expert_compute": Constant(1.0, 0.1, 1.37),
    "prefill_expert_layer_us": Constant(40.0, 0.0, 6000.0, 200.0),
    "expert_prefill": Constant(1.4, 1.0, 4.0),
}
"""Bounds keep every rate below the datasheet's: the families' shares times these stay below 1."""
OF_FIRST_TOKENS = ("prefill_layer_us", "request_us", "prefill_expert_layer_us", "expert_prefill")
OF_EXPERTS = ("expert_compute", "prefill_expert_layer_us", "expert_prefill")
STARTS: Mapping[Key, Mapping[str, float]] = {
    ("vllm/cdna3", 0): {
        "step_us": 6000.0,
        "compute": 0.07,
        "bandwidth": 0.6,
        "cache_bandwidth": 0.4,
        "expert_compute": 0.2,
    }
}
"""Where the search would not find the valley from START."""

Document = dict[str, list[dict[str, Any]]]
"""Engine -> eras -> constants."""


def structure() -> Document:
    """The eras in force with every constant at its start."""
    raw = yaml.safe_load((DATA / "eras.yaml").read_text("utf-8"))["eras"]
    fixed = ("before", "shares_heads")
    starts = {name: constant.start for name, constant in START.items()}
    return {
        engine: [
            {k: v for k, v in era.items() if k in fixed} | starts | dict(STARTS.get((engine, at), {}))
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
        left_out.add("quantise_us")
    return tuple(name for name in START if name not in left_out)


def fitted(key: Key, found: Sequence[Case], document: Document) -> dict[str, Any]:
    """The era's constants that fit `found` best."""
    engine, at = key
    era = dict(document[engine][at])
    starts = dict(era)
    names = constants_of(found)
    steps = dict.fromkeys(names, FIRST_STEP)

    def cost() -> float:
        eras = [*document[engine][:at], era, *document[engine][at + 1 :]]
        coefficients.use_eras({**document, engine: eras})
        away = (math.log((era[n] + START[n].offset) / (starts[n] + START[n].offset)) for n in names)
        return loss(found) + PENALTY * sum(x * x for x in away)

    best = cost()
    for _ in range(PASSES):
        if max(steps.values()) < LAST_STEP:
            break
        for name in names:
            moved = _moved(era, name, steps[name], best, cost) if steps[name] >= LAST_STEP else best
            steps[name] /= 1.0 if moved < best else SHRINK
            best = moved
    return {**era, **{name: float(f"{era[name]:.3g}") for name in names}}


def _moved(era: dict[str, Any], name: str, step: float, best: float, cost: Any) -> float:
    """Move one constant as long as that helps; the cost then."""
    constant = START[name]
    for sign in (1.0, -1.0):
        better = False
        while True:
            before = era[name]
            after = (before + constant.offset) * math.exp(sign * step) - constant.offset
            era[name] = min(constant.high, max(constant.low, after))
            now = cost() if era[name] != before else math.inf
            if now >= best - 1e-6:
                era[name] = before
                break
            best, better = now, True
        if better:
            break
    return best


def _task(job: tuple[Key, frozenset[str]], *, every: Sequence[Case], document: Document, most: int) -> dict[str, Any]:
    """The era fitted without the rows whose group or source is named."""
    key, without = job
    kept = [c for c in every if c.key == key and c.group not in without and c.source not in without]
    return fitted(key, sampled(kept, most), document) if kept else dict(document[key[0]][key[1]])


def fit(
    jobs: Sequence[tuple[Key, frozenset[str]]], every: Sequence[Case], most: int, workers: int
) -> list[dict[str, Any]]:
    """One era for every job, in order."""
    task = partial(_task, every=every, document=structure(), most=most)
    with get_context("fork").Pool(workers) as pool:
        return pool.map(task, jobs, chunksize=1)


def left_out(parts: Iterable[frozenset[str]], every: Sequence[Case], workers: int) -> dict[str, Ratios]:
    """Row -> ratios by constants that were fitted without its part."""
    jobs = [
        (key, part) for part in parts for key in sorted({c.key for c in every if c.group in part or c.source in part})
    ]
    results = dict(zip(jobs, fit(jobs, every, PER_GROUP_LEFT_OUT, workers), strict=True))
    found: dict[str, Ratios] = {}
    for (key, part), era in results.items():
        document = structure()
        document[key[0]][key[1]] = era
        coefficients.use_eras(document)
        for case in every:
            if case.key == key and (case.group in part or case.source in part):
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
    parser.add_argument("--fit", action="store_true", help="fit and write eras.yaml")
    parser.add_argument("--validate", action="store_true", help="fit without what is left out, write accuracy.yaml")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    every = cases(options.data / "truth" / "calibration.csv")
    if options.fit:
        document = structure()
        keys = sorted({case.key for case in every})
        none: frozenset[str] = frozenset()
        found = fit([(key, none) for key in keys], every, PER_GROUP, options.workers)
        for (engine, at), era in zip(keys, found, strict=True):
            document[engine][at] = era
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
        (DATA / "accuracy.yaml").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
