"""What was stated of a deployment beside what its simulation says: published, derived, fitted, and left unexplained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean
from rightslice.core.replay import Replay, Stated
from rightslice.spec.reference import StatedFigure, load_reference

_PER_SECOND: Final = {"s": 1.0, "ms": 1e3}


def referenced(replay: Replay, path: Path) -> Replay:
    """The replay with the figures of a reference file beside its own.

    Raises BadInputError for a file that is none, and for a figure of something that the simulation does not have.
    """
    reference, simulated = load_reference(path), _simulated(replay)
    wrong = [
        Diagnostic("RS0109", f'"{row.of}" is no figure of this simulation', Location(str(path)[:200]), hint)
        for row in reference.figures
        if row.of is not None and row.of not in simulated
        for hint in [did_you_mean(row.of, simulated) or ", ".join(sorted(simulated))]
    ]
    if wrong:
        raise BadInputError(wrong)
    stated = tuple(_stated(row, simulated) for row in reference.figures)
    return replace(replay, stated=stated, stated_source=reference.source)


def _stated(row: StatedFigure, simulated: Mapping[str, float]) -> Stated:
    found = None if row.of is None else simulated[row.of] * _PER_SECOND.get(row.unit, 1.0)
    return Stated(row.part, row.what, row.value, row.unit, found)


def _simulated(replay: Replay) -> dict[str, float]:
    """Name -> figure; times in seconds. Of several populations the first; of classes the sums, and no times."""
    pipelines = [found for result in replay.results for found in result.pipelines]
    found: dict[str, float] = {}
    if replay.requests_per_s_per_gpu is not None:
        found["requests_per_s_per_gpu"] = replay.requests_per_s_per_gpu
    if not pipelines:
        classes = [c for result in replay.results for c in result.per_class]
        return {**found, "requests_per_s": sum(c.requests_per_s for c in classes)}
    first = pipelines[0]
    found["requests_per_s"] = first.requests_per_s
    if first.requests:
        found["success"] = first.completed / first.requests
    if first.e2e_ms:
        found["e2e"] = first.e2e_ms.mean / 1e3
    for stage in first.per_stage:
        if stage.e2e_ms:
            found[f"stage:{stage.model}"] = stage.e2e_ms.mean / 1e3
    return found
