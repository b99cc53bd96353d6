"""`rightslice calibrate`: the time of an engine's iteration from load tests, through the simulated scheduler.

A first law comes from the points alone (`step_fit`). It is then refined so that a simulation of each load test, with
that engine's scheduler, shows the measured times: who waits for whose prompt is the scheduler's doing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rightslice.core.calibrated import StepLaw
from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.loadtesting.calibration import Calibration, Engine, Errors, PointCheck
from rightslice.loadtesting.imports import Measured, UnknownFormatError, imported
from rightslice.loadtesting.step_fit import LEAST_POINTS, Fit, fit, repeat_spread
from rightslice.performance.measured import costs_of
from rightslice.simulation.loadtest import Reported, closed_test
from rightslice.simulation.scenario import LlmServer, StageLengths
from rightslice.spec.source import read_text

MAX_RESULT_BYTES: Final = 256_000_000
MAX_SPREAD: Final = 0.10
MAX_LEFT_OUT: Final = 0.15
"""Repeats that differ by more cannot be fitted; a law that misses a left-out point by more (median) is not accepted."""
ROUNDS: Final = 6
LEAST_REQUESTS: Final = 20
STEPS: Final = 8
STEPS_LEFT_OUT: Final = 3
_BLOCK: Final = 16
_NUDGE: Final = 0.05
_FLOORS: Final = (0.1, 1e-3, 1e-6, 1e-6, 0.1)
"""Milliseconds by which the coefficients are nudged where they are zero."""
LEAST_GAPS: Final = 8
"""Answers with fewer tokens tell little of the time per token."""

Floats = NDArray[np.float64]


def read_results(paths: Sequence[Path]) -> tuple[tuple[Measured, ...], tuple[str, ...]]:
    """The points of result files, and notes. Raises BadInputError for what cannot be read or is no tool's result."""
    points: list[Measured] = []
    notes: list[str] = []
    for path in paths:
        text = read_text(path, max_bytes=MAX_RESULT_BYTES)
        where = Location(str(path)[:200])
        try:
            tool, found, left_out = imported(json.loads(text), path.name[:80])
        except (json.JSONDecodeError, RecursionError):
            raise BadInputError(Diagnostic("RS0408", "no JSON document", where)) from None
        except UnknownFormatError as error:
            hint = "results of rightslice loadtest -o, guidellm, vllm bench serve, aiperf and inference-perf are read"
            message = str(error) or "no result of a load tester that is known"
            raise BadInputError(Diagnostic("RS0202", message[:200], where, hint)) from None
        points += found
        notes += [f"{path.name[:80]}: {tool}, {len(found)} points", *left_out]
    return tuple(points), tuple(dict.fromkeys(notes))


def calibrate(
    points: Sequence[Measured],
    engine: Engine,
    *,
    model: str = "",
    accelerator: str = "",
    notes: Sequence[str] = (),
) -> Calibration:
    """The law of the points, refined through the scheduler, and how far it can be trusted.

    Raises BadInputError RS0502 with too few points.
    """
    if len(points) < LEAST_POINTS:
        hint = "sweep several concurrencies and shapes: long answers, long prompts, long contexts"
        raise BadInputError(
            Diagnostic("RS0502", f"{len(points)} points; at least {LEAST_POINTS} are needed", hint=hint)
        )
    first: Fit = fit(points)
    law = refined(first.law, points, engine, STEPS)
    left_out = [
        simulated(refined(law, [*points[:i], *points[i + 1 :]], engine, STEPS_LEFT_OUT), points[i], engine)
        for i in range(len(points))
    ]
    alone = errors(points, left_out)
    spread = repeat_spread(points)
    reasons = tuple(_reasons(alone, spread))
    return Calibration(
        model=model,
        accelerator=accelerator,
        coefficients=law,
        engine=engine,
        points=len(points),
        before=errors(points, [simulated(first.law, point, engine) for point in points]),
        after=errors(points, [simulated(law, point, engine) for point in points]),
        leave_one_out=alone,
        repeat_spread=spread,
        checks=tuple(_check(point, found) for point, found in zip(points, left_out, strict=True)),
        accepted=not reasons,
        reasons=reasons,
        notes=tuple(notes)
        if spread is not None
        else (*notes, "no load was measured twice: repeats show what noise is"),
    )


def simulated(law: StepLaw, point: Measured, engine: Engine) -> Reported | None:
    """The load test of `point` on an engine with that law; None where a request does not fit its cache."""
    inputs, outputs = max(round(point.input_tokens), 1), max(round(point.output_tokens), 1)
    streams = max(round(point.streams), 1)
    requests = max(ROUNDS * streams, LEAST_REQUESTS)
    longest = inputs + outputs
    tokens = engine.kv_cache_tokens or (longest + _BLOCK) * max(streams, 1) * 2
    budget = max(engine.max_num_batched_tokens, engine.max_num_seqs)
    server = LlmServer(
        deployment="one",
        model="one",
        replicas=1,
        costs=costs_of(law, budget),
        kv_blocks=max(tokens // _BLOCK, 1),
        block_size_tokens=_BLOCK,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=longest + 1,
    )
    lengths = StageLengths(np.full(requests, inputs, dtype=np.int64), np.full(requests, outputs, dtype=np.int64))
    found = closed_test(server, lengths, streams, law.request_ms / 1e3)
    return None if found is None else found.later(law.request_ms)


def refined(law: StepLaw, points: Sequence[Measured], engine: Engine, steps: int) -> StepLaw:
    """Gauss-Newton on the logarithms of simulated over measured times, coefficients kept >= 0."""
    theta = np.array(law.terms)
    residual = _residuals(theta, points, engine)
    damping = 1e-3
    for _ in range(steps):
        jacobian, scale = _jacobian(theta, residual, points, engine)
        gradient = jacobian.T @ residual
        square = jacobian.T @ jacobian
        while damping < 1e3:
            move = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -gradient)
            other = np.maximum(theta + move * scale, 0.0)
            found = _residuals(other, points, engine)
            if found @ found < residual @ residual:
                theta, residual, damping = other, found, damping / 3.0
                break
            damping *= 4.0
        else:
            break
    return StepLaw(*(float(value) for value in theta))


def errors(points: Sequence[Measured], found: Sequence[Reported | None]) -> Errors:
    """Median relative errors; a point that could not be simulated counts as wholly wrong."""
    tpot = [
        abs(f.tpot_ms.mean / p.tpot_ms - 1.0) if f and f.tpot_ms else 1.0 for p, f in zip(points, found, strict=True)
    ]
    e2e = [abs(f.e2e_ms.mean / p.e2e_ms - 1.0) if f else 1.0 for p, f in zip(points, found, strict=True)]
    ttft = [
        abs(f.ttft_ms.mean / p.ttft_ms - 1.0) if f else 1.0 for p, f in zip(points, found, strict=True) if p.ttft_ms
    ]
    return Errors(float(np.median(tpot)), float(np.median(e2e)), float(np.median(ttft)) if ttft else None)


def _residuals(theta: Floats, points: Sequence[Measured], engine: Engine) -> Floats:
    law = StepLaw(*(float(value) for value in theta))
    values = []
    for point in points:
        found = simulated(law, point, engine)
        pairs = [(found.e2e_ms.mean if found else 0.0, point.e2e_ms)]
        if point.output_tokens >= LEAST_GAPS:
            pairs.append((found.tpot_ms.mean if found and found.tpot_ms else 0.0, point.tpot_ms))
        if point.ttft_ms is not None:
            pairs.append((found.ttft_ms.mean if found else 0.0, point.ttft_ms))
        values += [math.log(max(there, 1e-9) / measured) for there, measured in pairs]
    return np.array(values)


def _jacobian(theta: Floats, residual: Floats, points: Sequence[Measured], engine: Engine) -> tuple[Floats, Floats]:
    scale = np.maximum(theta, np.array(_FLOORS))
    columns = []
    for i, size in enumerate(scale):
        other = theta.copy()
        other[i] += _NUDGE * size
        columns.append((_residuals(other, points, engine) - residual) / _NUDGE)
    return np.column_stack(columns), scale


def _check(point: Measured, found: Reported | None) -> PointCheck:
    tpot = found.tpot_ms.mean if found and found.tpot_ms else 0.0
    return PointCheck(point.source, point.tpot_ms, tpot, point.e2e_ms, found.e2e_ms.mean if found else 0.0)


def _reasons(alone: Errors, spread: float | None) -> list[str]:
    found = []
    if spread is not None and spread > MAX_SPREAD:
        found.append(
            f"repeats of one load differ by {spread:.0%} (at most {MAX_SPREAD:.0%}): measure on a quiet machine"
        )
    if max(alone.tpot, alone.e2e) > MAX_LEFT_OUT:
        found.append(f"points left out are missed by {max(alone.tpot, alone.e2e):.0%} (at most {MAX_LEFT_OUT:.0%})")
    return found
