"""Scoring predictions on a table of measurements, by the convention of such tables.

Error = |predicted - measured| / measured. Throughput counts for loads that reach it (not for open ones, which echo the
offered rate); where only input and output tokens together were measured, the output's part. TPOT counts for answers of
at least 20 tokens, TTFT for static batches, closed loops and open loops below capacity, end-to-end time for all but
bursts. Rows of quality D are left out. Speech, embedding and reranking are scored apart, all their metrics together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, Literal

from rightslice.app.predict import Prediction
from rightslice.app.predict_rows import Predicted, Row
from rightslice.app.predict_stages import StagePrediction
from rightslice.core.estimate import Metric
from rightslice.core.results import Score

MetricName = Literal["throughput", "tpot", "ttft", "e2e"]
METRICS: Final[tuple[MetricName, ...]] = ("throughput", "tpot", "ttft", "e2e")
WITHIN: Final = 0.20
LEAST_TPOT_TOKENS: Final = 20


@dataclass(frozen=True, slots=True)
class Point:
    """One metric of one row: measured, predicted, its interval, and what it belongs to."""

    row: str
    group: str
    cell: str
    metric: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows of the table that count, the share of them that was predicted, and the scores; None without rows.

    `stages`: of speech, embedding and reranking."""

    rows: int
    coverage: float
    throughput: Score | None
    tpot: Score | None
    ttft: Score | None
    e2e: Score | None
    by_group: tuple[Mapping[str, object], ...]
    by_cell: tuple[Mapping[str, object], ...]
    stages: Score | None = None


def measured(row: Row) -> dict[MetricName, float]:
    """What a row counts for."""

    def number(column: str) -> float | None:
        text = row.get(column, "")
        return float(text) if text else None

    prompt, answer, load = float(row["isl"]), float(row["osl"]), row["load"]
    total = number("tokens_s_total")
    throughput = number("output_tokens_s_total") or (total * answer / (prompt + answer) if total else None)
    found: dict[MetricName, float | None] = {
        "throughput": throughput if load != "open" else None,
        "tpot": number("tpot_ms_mean") if answer >= LEAST_TPOT_TOKENS else None,
        "ttft": number("ttft_ms_mean") if load != "burst" else None,
        "e2e": number("e2e_ms_mean") if load != "burst" else None,
    }
    return {name: value for name, value in found.items() if value}


def counts(row: Row) -> bool:
    """Whether a row is scored: language models, quality A to C."""
    return row.get("task", "llm") in ("", "llm") and row.get("quality") != "D"


def points(row: Row, prediction: Prediction) -> tuple[Point, ...]:
    """The metrics that are both measured and predicted."""
    predicted: dict[MetricName, Metric | None] = {
        "throughput": prediction.output_tokens_per_s,
        "tpot": prediction.tpot_ms,
        "ttft": prediction.ttft_ms,
        "e2e": prediction.e2e_ms,
    }
    return tuple(
        Point(row["id"], row.get("group", ""), prediction.cell, name, value, guess.mean, guess.low, guess.high)
        for name, value in measured(row).items()
        if (guess := predicted[name]) is not None
    )


def stage_points(row: Row, prediction: StagePrediction) -> tuple[Point, ...]:
    """What was measured of a stage and is predicted."""
    predicted = {
        "ttft_ms_mean": prediction.ttft_ms,
        "e2e_ms_mean": prediction.e2e_ms,
        "requests_s": prediction.requests_per_s,
        "rtfx": prediction.rtfx,
    }
    return tuple(
        Point(
            row["id"], row.get("group", ""), prediction.cell, name, float(row[name]), guess.mean, guess.low, guess.high
        )
        for name, guess in predicted.items()
        if guess is not None and row.get(name)
    )


def scored(found: Iterable[Predicted]) -> Scored:
    """All rows of a table with their predictions."""
    every = [(row, prediction) for row, prediction, _ in found if row.get("quality") != "D"]
    rows = [
        (row, prediction) for row, prediction in every if counts(row) and not isinstance(prediction, StagePrediction)
    ]
    seen = [point for row, prediction in rows if prediction for point in points(row, prediction)]
    stages = [p for row, found in every if isinstance(found, StagePrediction) for p in stage_points(row, found)]
    answered = sum(prediction is not None for _, prediction in rows)
    whole = {name: score([p for p in seen if p.metric == name]) for name in METRICS}
    return Scored(
        rows=len(rows),
        coverage=answered / len(rows) if rows else 0.0,
        throughput=whole["throughput"],
        tpot=whole["tpot"],
        ttft=whole["ttft"],
        e2e=whole["e2e"],
        by_group=_table(seen, "group", lambda p: p.group),
        by_cell=_table(seen, "cell", lambda p: p.cell),
        stages=score(stages),
    )


def score(seen: Sequence[Point]) -> Score | None:
    """Of the points of one metric; None without any."""
    if not seen:
        return None
    groups: dict[str, list[float]] = defaultdict(list)
    for point in seen:
        groups[point.group].append(point.error)
    return Score(
        rows=len(seen),
        groups=len(groups),
        median_ape=median(p.error for p in seen),
        macro_median_ape=fmean(median(errors) for errors in groups.values()),
        within_20pct=fmean(p.error <= WITHIN for p in seen),
        interval_coverage=fmean(p.low <= p.measured <= p.high for p in seen),
    )


def _table(seen: Sequence[Point], title: str, key: Callable[[Point], str]) -> tuple[Mapping[str, object], ...]:
    found: dict[str, list[Point]] = defaultdict(list)
    for point in seen:
        found[key(point)].append(point)
    return tuple(
        {title: name, **{metric: score([p for p in group if p.metric == metric]) for metric in METRICS}}
        for name, group in sorted(found.items())
    )
