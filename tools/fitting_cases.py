"""Published measurements as cases for fitting: a deployment, a load, what was measured, and the era it belongs to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rightslice.app.predict import Deployment, Load, Room, metrics_of, room_of, simulated
from rightslice.app.predict_rows import Row, deployment_of, load_of, read_rows, states_median
from rightslice.app.scoring import MetricName, counts, measured
from rightslice.performance import coefficients
from rightslice.performance.accuracy import cell_name

WEIGHTS: dict[MetricName, float] = {"throughput": 1.0, "tpot": 1.0, "ttft": 0.5, "e2e": 0.5}
OPEN_WEIGHT = 0.3
"""An open load near saturation turns small errors of capacity into large ones of waiting."""
CAREFUL, MOST = 0.3, 1.0
"""|log ratio| counts in full up to the first, beyond it at CAREFUL, and never more than the second: outliers among the
measurements do not steer the fit."""

Key = tuple[str, int]
"""Engine (or engine/family) and number of the era."""
Ratios = dict[MetricName, float]


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


def cases(path: Path) -> tuple[Case, ...]:
    """Every row that counts."""
    found = []
    for row in read_rows(path):
        if not counts(row):
            continue
        deployment, load = deployment_of(row), load_of(row)
        name, at = coefficients.era_key(deployment.device, deployment.settings)
        cell = cell_name(deployment.architecture, deployment.device, deployment.settings, load.kind)
        lengths = float(row["isl"]), float(row["osl"])
        room = room_of(deployment, load, *lengths)
        found.append(Case(row, deployment, load, *lengths, measured(row), (name, at), cell, room))
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


def loss(found: Sequence[Case]) -> float:
    """Weighted mean of the damped |log ratio|."""
    total = weights = 0.0
    for case in found:
        share = case.weight * (OPEN_WEIGHT if case.load.kind == "open" else 1.0)
        for name, ratio in case.ratios().items():
            size = abs(ratio)
            damped = size if size <= CAREFUL else CAREFUL + CAREFUL * (size - CAREFUL)
            total += share * WEIGHTS[name] * min(damped, MOST)
            weights += share * WEIGHTS[name]
    return total / weights if weights else 0.0
