"""How much of a figure is the chance of one run: 95 % confidence intervals by batch means.

The requests of one class in order of their start are cut into BATCHES batches of equal size. The figure of a batch is
nearly independent of the others', so t x (their standard deviation) / sqrt(BATCHES) around the figure of the whole run
covers its long-run value in 95 % of runs. Source: Schmeiser, "Batch size effects in the analysis of simulation output",
Operations Research 30(3), 1982: 10 to 30 batches are enough.

What changes over a day is not chance: an interval says nothing about another hour, or another day's load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rightslice.core.replay import Confidence
from rightslice.core.slo import Slo
from rightslice.simulation.play import Played, SteppedRun
from rightslice.simulation.statistics import Times, of_class, of_pipeline, order_statistic, verdicts

BATCHES = 20
T_95 = 2.093
"""0.975 quantile of Student's t with BATCHES - 1 degrees of freedom."""
_STATISTICS = {"mean": None, "p50": 0.5, "p95": 0.95, "p99": 0.99}
_PS_PER_MS = 1e9

Values = NDArray[np.float64]


def confidence_of(run: SteppedRun, played: Played) -> tuple[Confidence, ...]:
    """Every figure of every class and population with enough requests."""
    scenario = run.scenario
    found: list[tuple[str, Times, tuple[Slo, ...]]] = [
        (f"{c.model}/{c.name}", of_class(run, played, i)[1], c.slos) for i, c in enumerate(scenario.classes)
    ]
    found += [
        (f"{p.name}/{p.users_name}", of_pipeline(run, played, i)[1], p.slos) for i, p in enumerate(scenario.pipelines)
    ]
    return tuple(interval for subject, times, slos in found for interval in _intervals(subject, times, slos))


def _intervals(subject: str, times: Times, slos: Sequence[Slo]) -> Iterator[Confidence]:
    met, missed = verdicts(times, slos)
    judged = met[met | missed].astype(np.float64)
    if (half := half_width(judged, lambda batch: float(batch.mean()), 1)) is not None:
        share = float(judged.mean())
        yield Confidence(subject, "slo_attainment", "mean", max(share - half, 0.0), min(share + half, 1.0))
    done = times.completed
    for metric, chosen in (("ttft", done), ("tpot", done & (times.answer > 1)), ("e2e", done)):
        values = times.value_ps(metric)[0][chosen] / _PS_PER_MS
        for name, part in _STATISTICS.items():
            statistic = _statistic(part)
            half = half_width(values, statistic, _least(part))
            if half is not None:
                value = statistic(values)
                yield Confidence(subject, f"{metric}_ms", name, max(value - half, 0.0), value + half)


def half_width(values: Values, statistic: Callable[[Values], float], least: int) -> float | None:
    """Half of the interval. `values` in order of time; None with fewer than `least` (or 1) in a batch."""
    size = len(values) // BATCHES
    if size < max(least, 1):
        return None
    batches = values[len(values) - size * BATCHES :].reshape(BATCHES, size)
    figures = np.array([statistic(batch) for batch in batches])
    return T_95 * float(figures.std(ddof=1)) / math.sqrt(BATCHES)


def _statistic(part: float | None) -> Callable[[Values], float]:
    if part is None:
        return lambda values: float(values.mean())
    percent = round(part * 100)
    return lambda values: order_statistic(np.sort(values), percent)


def _least(part: float | None) -> int:
    """A batch has at least one value beyond its percentile."""
    return 1 if part is None else math.ceil(1.0 / (1.0 - part) - 1e-9)
