"""Published measurements as cases for fitting: a deployment, a load, what was measured, and the era it belongs to."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rightslice.app.predict import Deployment, Load, Room, metrics_of, room_of, simulated
from rightslice.app.predict_rows import Row, deployment_of, load_of, read_rows, states_median
from rightslice.app.scoring import MetricName, counts, measured
from rightslice.performance import coefficients
from rightslice.performance.accuracy import cell_name, finer_name

WEIGHTS: dict[MetricName, float] = {"throughput": 1.0, "tpot": 1.0, "ttft": 0.5, "e2e": 0.5}
OPEN_WEIGHT = 0.3
"""An open load near saturation turns small errors of capacity into large ones of waiting."""
CAREFUL, MOST = 0.3, 1.0
"""|log ratio| counts in full up to the first, beyond it at CAREFUL, and never more than the second: outliers among the
measurements do not steer the fit."""

SMALLEST = 0.03
"""Errors below it pull no harder."""
Floats = NDArray[np.float64]

Key = tuple[str, int]
"""Engine (or engine/family) and number of the era."""
Ratios = dict[MetricName, float]


LOOKS_WRONG = (
    (
        {"source": "inferencex.*", "engine": "sglang", "model": "DeepSeek-R1", "precision": "nvfp4/.*", "ep": "1?"},
        "first tokens take ten times as long as on the same servers with expert parallelism",
    ),
    (
        {"source": "inferencex.*", "engine": "vllm", "model": "gpt-oss-120b", "concurrency_or_batch": "512"},
        "first tokens take 20 to 460 s at 5 to 15 ms per further one: far fewer than 512 were served at once",
    ),
    (
        {"source": "inferencex.*", "model": "DeepSeek-R1", "engine_version": r"1\.2\.0rc6\.post3"},
        "tokens come 1.4 to 2 times as fast as from 1.2.0rc6.post2 on the same servers: several a step (drafts)",
    ),
    (
        {"engine_version": r"0\.5\.9.*", "model": "Qwen3.5.*", "precision": "fp8/.*", "tp": "4", "ep": "1?"},
        "four GPUs give tokens faster than eight, but first tokens later: several tokens a step (drafts)",
    ),
    (
        {"source": "aiconfigurator.*", "engine": "vllm", "model": "Qwen3-235B-A22B", "hw": "H200-SXM-141GB"},
        "52 ms a token on two GPUs, 35 on four, at 4 to 20 requests of 1,000 to 8,000 tokens: not the model's work",
    ),
    ({"engine": "1cat-vllm"}, "1.2 s per token, 35 times what the memory of the card explains"),
    (
        {"source": "accelmark", "model": r"Qwen2\.5-0\.5B", "load": "closed|open|static_batch"},
        "a model of half a billion weights takes 20 to 80 ms per token: the client or its host is measured",
    ),
)
"""Patterns of columns, and what speaks against rows that match them all."""


@dataclass(frozen=True)
class Case:
    """One row. `weight`: rows that it stands for over the square root of its group's."""

    row: Row
    deployment: Deployment
    load: Load
    input_tokens: float
    output_tokens: float
    truth: dict[MetricName, float]
    key: Key
    cell: str
    finer: str
    room: Room
    weight: float = 1.0

    @property
    def group(self) -> str:
        """Unit of splitting: model family and accelerator."""
        return self.row["group"]

    @property
    def source(self) -> str:
        """Who published it."""
        return self.row["source"]

    @property
    def fits(self) -> bool:
        """Whether a fit may use it."""
        return not suspicion(self.row)

    def ratios(self) -> Ratios:
        """log(predicted / measured) by metric, by the laws and constants now in force."""
        found, engines = simulated(self.deployment, self.load, self.input_tokens, self.output_tokens, self.room)
        guesses = metrics_of(found, engines)
        result: Ratios = {}
        for name, value in self.truth.items():
            if name in guesses:
                guess = guesses[name]
                result[name] = math.log((guess.p50 if states_median(self.row, name) else guess.mean) / value)
        return result


def suspicion(row: Row) -> str:
    """Why a row looks wrong, or nothing. Such rows are left out of fits, never out of scores."""
    matches = (all(re.fullmatch(p, row[name]) for name, p in columns.items()) for columns, _ in LOOKS_WRONG)
    return next((reason for found, (_, reason) in zip(matches, LOOKS_WRONG, strict=True) if found), "")


def cases(path: Path) -> tuple[Case, ...]:
    """Every row that counts."""
    found = []
    for row in read_rows(path):
        if not counts(row):
            continue
        deployment, load = deployment_of(row), load_of(row)
        name, at = coefficients.era_key(deployment.device, deployment.settings)
        configuration = deployment.architecture, deployment.device, deployment.settings, load.kind
        cell, finer = cell_name(*configuration), finer_name(*configuration)
        lengths = float(row["isl"]), float(row["osl"])
        room = room_of(deployment, load, *lengths)
        found.append(Case(row, deployment, load, *lengths, measured(row), (name, at), cell, finer, room))
    return tuple(found)


def sampled(found: Iterable[Case], most: int) -> tuple[Case, ...]:
    """At most about `most` cases of every group, evenly spread over its rows, with their weights."""
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in found:
        groups[case.group, case.row.get("engine", "")].append(case)
    chosen = []
    for _, members in sorted(groups.items()):
        taken = members[:: math.ceil(len(members) / most)]
        weight = len(members) / len(taken) / math.sqrt(len(members))
        chosen += [replace(case, weight=weight) for case in taken]
    return tuple(chosen)


def weight_of(case: Case, name: MetricName) -> float:
    """What a metric of a row counts."""
    return case.weight * WEIGHTS[name] * (OPEN_WEIGHT if case.load.kind == "open" else 1.0)


def damped(ratios: Floats) -> Floats:
    """Error of log ratios."""
    sizes = np.abs(ratios)
    return np.minimum(np.where(sizes <= CAREFUL, sizes, CAREFUL + CAREFUL * (sizes - CAREFUL)), MOST)


def slope_share(ratios: Floats) -> Floats:
    """Weights of squares that pull like `damped`: its slope over the size."""
    sizes = np.maximum(np.abs(ratios), SMALLEST)
    return np.where(sizes <= CAREFUL, 1.0, CAREFUL) / sizes
