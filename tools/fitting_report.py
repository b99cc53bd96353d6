"""What a fit is worth: tables for a terminal, and the document of errors that is shipped with the package."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, get_args

from fitting_cases import Case, Ratios, suspicion

from rightslice.app.scoring import METRICS, WITHIN, MetricName

VERSION = "2026-12-01"
SHARE, ONE_SIDED = 0.8, 0.95
BESIDE = 32.0
"""Bands are quantiles of a finer cell's rows, each weighing 1, then of its cell's and of all rows of open, or of other
loads, those of each further step together weighing at most this."""
FEW_GROUPS, LEAST_FEW, LEAST = 3, 0.4, 0.05
"""Plans take at least LEAST_FEW for cells of fewer groups than FEW_GROUPS, and no band is narrower than LEAST."""
SOURCE = (
    "Published rows of deployed language models (quality A to C): NVIDIA TensorRT-LLM performance overviews v0.9 to "
    "v1.0, SemiAnalysis InferenceX sweeps and NVIDIA measurements shipped with AIConfigurator, Argonne "
    "LLM-Inference-Bench, MLPerf Inference v5.1, AccelMark, Splitwise profiles, dstack, BLIS training traces, "
    "llama.cpp by XiongjieDai and smaller ones, each replayed step by step in the simulator."
)
SELECTION = (
    "Errors of cells, groups and peers are those of rows whose whole group (model family, accelerator) was left out "
    "when the constants of the engines' eras were fitted, in five parts; `sources` leaves out all rows of a source. "
    "The laws' structure (which constants an era has, prompts in steps of their own, the padding of experts' tiles, "
    "how evenly experts are chosen, what is taken to be known of the sources' harnesses) was chosen, and their "
    "coefficients were refined, on all these rows. relative_error and the "
    "bands hold 80 % of |log(predicted / measured)| of the finer cell's rows, shrunk towards its cell and all rows."
)
SILICON = {
    "ampere": "datacentre", "hopper": "datacentre", "blackwell": "datacentre", "ada": "workstation",
    "blackwell-workstation": "workstation", "cdna2": "amd", "cdna3": "amd",
}  # fmt: skip
UNVALIDATED = {"dense": 0.5, "moe": 0.8, "other": 1.0, "ttft": 1.5, "least": 0.4}
OBJECTIVES_MS: Mapping[MetricName, Sequence[float]] = {
    "tpot": (10, 15, 20, 25, 30, 40, 50),
    "ttft": (100, 200, 500, 1000, 2000),
}
_PRECISIONS = {
    "fp8": "fp8",
    "bf16": "16bit",
    "fp16": "16bit",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "int8": "w8",
    "int4": "w4",
}
Found = Sequence[tuple[Case, float]]
"""Cases and log(predicted / measured)."""


def items(every: Sequence[Case], ratios: Mapping[str, Ratios], metric: MetricName) -> list[tuple[Case, float]]:
    """The rows with a ratio of that metric."""
    found = ((case, ratios.get(case.row["id"], {}).get(metric)) for case in every)
    return [(case, ratio) for case, ratio in found if ratio is not None]


def total(found: Sequence[tuple[Case, float]]) -> dict[str, Any]:
    """Rows, groups, medians over rows and over groups, share within 20 %."""
    groups: dict[str, list[float]] = defaultdict(list)
    for case, ratio in found:
        groups[case.group].append(abs(math.expm1(ratio)))
    errors = [abs(math.expm1(ratio)) for _, ratio in found]
    return {
        "rows": len(found),
        "groups": len(groups),
        "median_ape": round(median(errors), 4),
        "macro_median_ape": round(fmean(median(group) for group in groups.values()), 4),
        "within_20pct": round(fmean(error <= WITHIN for error in errors), 4),
    }


def quantile(found: Iterable[tuple[float, float]], share: float) -> float:
    """Of (value, weight) pairs."""
    ordered = sorted(found)
    wanted, seen = share * sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        seen += weight
        if seen >= wanted:
            return value
    return math.inf


def steps(found: Found, of: Case, *, finer: bool) -> list[list[float]]:
    """Ratios of the rows of the finer cell of `of`, then the further ones of its cell and of its kind of load."""
    nested: list[Callable[[Case], bool]] = [
        lambda case: case.cell == of.cell,
        lambda case: (case.load.kind == "open") == (of.load.kind == "open"),
    ]
    if finer:
        nested.insert(0, lambda case: case.finer == of.finer)
    result: list[list[float]] = [[] for _ in nested]
    for case, ratio in found:
        at = next((at for at, belongs in enumerate(nested) if belongs(case)), None)
        if at is not None:
            result[at].append(ratio)
    return result


def weighted(nested: Sequence[Sequence[float]], value: Callable[[float], float]) -> list[tuple[float, float]]:
    """(value of the ratio, weight)."""
    result: list[tuple[float, float]] = []
    for ratios in nested:
        weight = min(1.0, BESIDE / len(ratios)) if result and ratios else 1.0
        result += [(value(ratio), weight) for ratio in ratios]
    return result


def half_width(nested: Sequence[Sequence[float]]) -> float:
    """Factor minus 1 that holds SHARE of the rows."""
    return max(LEAST, round(math.expm1(quantile(weighted(nested, abs), SHARE)), 3))


def upper(nested: Sequence[Sequence[float]]) -> float:
    """Factor minus 1 that measured over predicted stays below in ONE_SIDED of the rows."""
    return max(LEAST, round(math.expm1(quantile(weighted(nested, lambda ratio: -ratio), ONE_SIDED)), 3))


def cells(every: Sequence[Case], left_out: Mapping[str, Ratios], *, finer: bool) -> dict[str, dict[str, Any]]:
    """Bands and errors of every cell, or of every finer cell with FEW_GROUPS groups."""
    all_items = {metric: items(every, left_out, metric) for metric in METRICS}
    both = [item for metric in ("throughput", "tpot") for item in all_items[metric]]
    members: dict[str, list[Case]] = defaultdict(list)
    for case in every:
        members[case.finer if finer else case.cell].append(case)
    result: dict[str, dict[str, Any]] = {}
    for name, mine in sorted(members.items()):
        groups = len({case.group for case in mine})
        if finer and groups < FEW_GROUPS:
            continue
        error = half_width(steps(both, mine[0], finer=finer))
        result[name] = {
            "relative_error": max(error, LEAST_FEW) if groups < FEW_GROUPS else error,
            "rows": len(mine),
            "groups": groups,
        }
        for metric in METRICS:
            own = [i for i in all_items[metric] if (i[0].finer if finer else i[0].cell) == name]
            if own:
                nested = steps(all_items[metric], mine[0], finer=finer)
                result[name][metric] = {
                    "rows": len(own),
                    "median_ape": total(own)["median_ape"],
                    "band": half_width(nested),
                    "band95": upper(nested),
                }
    return result


def coverage(every: Sequence[Case], left_out: Mapping[str, Ratios], metric: MetricName) -> tuple[float, float]:
    """Shares of rows that the 80 % bands and the 95 % bounds of the other groups hold."""
    found = items(every, left_out, metric)
    known = cells(every, left_out, finer=True)
    held: list[bool] = []
    below: list[bool] = []
    for group, finer in sorted({(case.group, case.finer) for case, _ in found}):
        mine = [(case, ratio) for case, ratio in found if case.group == group and case.finer == finer]
        nested = steps([i for i in found if i[0].group != group], mine[0][0], finer=finer in known)
        width, bound = math.log1p(half_width(nested)), math.log1p(upper(nested))
        held += [abs(ratio) <= width for _, ratio in mine]
        below += [-ratio <= bound for _, ratio in mine]
    return round(fmean(held), 4), round(fmean(below), 4)


def decisions(every: Sequence[Case], left_out: Mapping[str, Ratios]) -> list[dict[str, Any]]:
    """Among the measured configurations of one model, accelerator and lengths: the fastest whose upper 95 % bound
    keeps the objective. How often it breaks it in truth, and its throughput over the best that keeps it.
    """
    bounds = cells(every, left_out, finer=False) | cells(every, left_out, finer=True)
    result = []
    for metric, limits in OBJECTIVES_MS.items():
        choices: dict[tuple[str, ...], list[tuple[float, float, float, float]]] = defaultdict(list)
        for case in every:
            ratios = left_out.get(case.row["id"], {})
            if case.load.kind != "closed" or not {"tpot", "ttft"} <= set(ratios):
                continue
            truth = case.truth
            tpot, ttft = truth["tpot"] * math.exp(ratios["tpot"]), truth["ttft"] * math.exp(ratios["ttft"])
            bound = (tpot if metric == "tpot" else ttft) * (
                1.0 + bounds.get(case.finer, bounds[case.cell])[metric]["band95"]
            )
            row, count = case.row, case.load.requests / case.deployment.accelerators
            rates = [
                count / (t + p * (case.output_tokens - 1)) for t, p in ((ttft, tpot), (truth["ttft"], truth["tpot"]))
            ]
            choices[row["model"], row["hw"], row["isl"], row["osl"]].append((bound, truth[metric], rates[0], rates[1]))
        picks = [pick for options in choices.values() for limit in limits if (pick := _pick(options, limit))]
        result.append(
            {
                "metric": metric,
                "picks": len(picks),
                "broken": round(fmean(broken for broken, _ in picks), 4),
                "kept": round(fmean(kept for broken, kept in picks if not broken), 4),
            }
        )
    return result


def _pick(options: Sequence[tuple[float, float, float, float]], limit: float) -> tuple[bool, float] | None:
    allowed = [o for o in options if o[0] <= limit]
    best = max((o[3] for o in options if o[1] <= limit), default=0.0)
    if len(options) < 2 or not allowed or best <= 0.0:
        return None
    chosen = max(allowed, key=lambda o: o[2])
    return chosen[1] > limit, chosen[3] / best


def peers(every: Sequence[Case], left_out: Mapping[str, Ratios], path: Path) -> list[dict[str, Any]]:
    """The published comparison's cells with our error on all their rows."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in json.loads(path.read_text("utf-8"))["cells"]:
        if entry["metric"] not in METRICS or "@" in entry["peer"]:
            continue
        cell = found.setdefault((entry["cell"], entry["metric"]), {"peers": {}})
        cell["peers"][entry["peer"]] = entry["median_ape"]
    ours: dict[tuple[str, str], list[float]] = defaultdict(list)
    for metric in METRICS:
        for case, ratio in items(every, left_out, metric):
            ours[_peer_cell(case), metric].append(abs(math.expm1(ratio)))
    return [
        {
            "cell": cell,
            "metric": metric,
            "rows": len(ours[cell, metric]),
            "ours": round(median(ours[cell, metric]), 4),
            **entry,
        }
        for (cell, metric), entry in sorted(found.items())
        if ours.get((cell, metric))
    ]


def _peer_cell(case: Case) -> str:
    kind = "moe" if case.deployment.architecture.moe else "dense"
    weights = case.row["precision"].partition("/")[0]
    precision = _PRECISIONS.get(
        weights, {"w8a16": "w8", "w8a8-int8": "w8", "w4a16": "w4", "q4_k_m": "w4"}.get(weights, "")
    )
    return f"{case.row['hw']}|{case.row['engine']}|{kind}|{precision}"


def groups(every: Sequence[Case], left_out: Mapping[str, Ratios]) -> list[dict[str, Any]]:
    """Median error of every group and metric."""
    result = []
    for name in sorted({case.group for case in every}):
        mine = [case for case in every if case.group == name]
        line: dict[str, Any] = {"group": name, "rows": len(mine)}
        for metric in METRICS:
            found = items(mine, left_out, metric)
            if found:
                line[metric] = total(found)["median_ape"]
        result.append(line)
    return result


def suspicious(every: Sequence[Case]) -> list[dict[str, Any]]:
    """Rows that look wrong, by what they measure and why."""
    found: dict[tuple[str, ...], int] = defaultdict(int)
    for case in every:
        if reason := suspicion(case.row):
            found[case.source, case.row["engine"], case.row["model"], case.row["hw"], reason] += 1
    names = ("source", "engine", "model", "accelerator", "reason")
    return [{**dict(zip(names, key, strict=True)), "rows": rows} for key, rows in sorted(found.items())]


def accuracy_document(
    every: Sequence[Case],
    in_force: Mapping[str, Ratios],
    by_group: Mapping[str, Ratios],
    by_source: Mapping[str, Ratios],
    peer_file: Path,
) -> str:
    """The text of accuracy.json: an entry of a section on each line."""
    totals: dict[str, dict[str, Any]] = {}
    for name, ratios in (("fitted", in_force), ("groups", by_group), ("sources", by_source)):
        totals[name] = {metric: total(items(every, ratios, metric)) for metric in get_args(MetricName)}
    for metric in METRICS:
        held, below = coverage(every, by_group, metric)
        totals["groups"][metric] |= {"interval_coverage": held, "bound_coverage": below}
    content = {
        "version": VERSION,
        "source": SOURCE,
        "selection": SELECTION,
        "silicon": SILICON,
        "unvalidated": UNVALIDATED,
        "totals": totals,
        "decisions": decisions(every, by_group),
        "cells": cells(every, by_group, finer=False),
        "finer": cells(every, by_group, finer=True),
        "peers": peers(every, by_group, peer_file),
        "groups": groups(every, by_group),
        "suspicious": suspicious(every),
    }
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_lines(part)}" for name, part in content.items()) + "\n}\n"


def _lines(part: object) -> str:
    if isinstance(part, dict):
        inner = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in part.items())
        return f"{{\n{inner}\n}}"
    if isinstance(part, list):
        return "[\n" + ",\n".join(f" {json.dumps(entry)}" for entry in part) + "\n]"
    return json.dumps(part)


def print_cells(every: Sequence[Case], ratios: Mapping[str, Ratios]) -> None:
    """One line per cell: rows, median error and bias of each metric."""
    print(f"{'cell':52}" + "".join(f"{metric + ': n, median, bias':>28}" for metric in METRICS))
    for name in sorted({case.cell for case in every}):
        mine, line = [case for case in every if case.cell == name], f"{name:52}"
        for metric in METRICS:
            found = items(mine, ratios, metric)
            if not found:
                line += f"{'-':>28}"
                continue
            bias = math.expm1(median(ratio for _, ratio in found))
            line += f"{len(found):12d} {100 * total(found)['median_ape']:6.1f}% {100 * bias:+6.1f}%"
        print(line)


def print_totals(title: str, every: Sequence[Case], ratios: Mapping[str, Ratios]) -> None:
    """One line per metric."""
    for metric in METRICS:
        found = items(every, ratios, metric)
        if found:
            t = total(found)
            print(
                f"{title:18} {metric:10} {t['rows']:5d} rows: median {100 * t['median_ape']:5.1f}%, of groups "
                f"{100 * t['macro_median_ape']:5.1f}%, within 20 % {100 * t['within_20pct']:.0f}%"
            )
