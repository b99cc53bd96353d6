"""`calibration.json` read back, so that plans are made with measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rightslice.app.models import find_model
from rightslice.catalogue.accelerators import resolve_device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.calibrated import Calibrated
from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.loadtesting.calibration import Calibration
from rightslice.spec.source import read_text

MAX_BYTES: Final = 16_000_000
NEXT: Final = "rightslice calibrate RESULT… --model M --accelerator A -o calibration.json"
_INSIDE: Final = 0.8
LEAST_ERROR: Final = 0.05
"""Of a band: a handful of points does not show what a longer run would."""


def read_calibrations(paths: Sequence[Path]) -> tuple[Calibrated, ...]:
    """The laws of these files. Raises BadInputError for a file that is none, or that should not be used."""
    return tuple(_read(path) for path in paths)


def of_models(
    calibrated: Sequence[Calibrated], architectures: Mapping[str, Architecture | None]
) -> dict[str, tuple[Calibrated, ...]]:
    """Model of a workload -> its laws. Raises BadInputError RS0502 for a law of a model that is not in it."""
    names = {name: found.name for name, found in architectures.items() if found is not None}
    for found in calibrated:
        if found.architecture not in names.values():
            message = f"{found.source} is of {found.architecture}, which the workload does not serve"
            hint = f"it serves {', '.join(sorted(set(names.values())))}" if names else ""
            raise BadInputError(Diagnostic("RS0502", message[:300], hint=hint))
    return {
        model: tuple(found for found in calibrated if found.architecture == architecture)
        for model, architecture in names.items()
    }


def told_of(found: Calibrated) -> str:
    """What a plan says of it."""
    device = found.accelerator if found.partition == WHOLE else f"{found.accelerator} {found.partition}"
    where = f"{found.tensor_parallel_size} x {device} in {found.weight_dtype}"
    return (
        f"{found.architecture} on {where}: times as measured ({found.source}), four in five within "
        f"{found.relative_error:.0%}; on anything else as predicted"
    )


@cache
def _adapter() -> TypeAdapter[Calibration]:
    return TypeAdapter(Calibration)


def _read(path: Path) -> Calibrated:
    where = Location(str(path)[:200])
    text = read_text(path, max_bytes=MAX_BYTES)
    try:
        found = _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"no calibration: {place + ': ' if place else ''}{first['msg']}"
        raise BadInputError(Diagnostic("RS0203", message[:200], where, NEXT)) from None
    return _used(found, path, where)


def _used(found: Calibration, path: Path, where: Location) -> Calibrated:
    if not found.accepted:
        message = f"this calibration was not accepted: {'; '.join(found.reasons) or 'no reason given'}"
        raise BadInputError(Diagnostic("RS0502", message[:300], where, "measure again, with repeats"))
    if not found.model or not found.accelerator:
        raise BadInputError(Diagnostic("RS0502", "it does not say what was measured on what", where, NEXT))
    seen = resolve_device(found.accelerator)
    if seen is None:
        message = f'unknown accelerator "{found.accelerator[:80]}"'
        raise BadInputError(Diagnostic("RS0312", message, where, "rightslice catalog accelerators"))
    if not all(math.isfinite(term) and term >= 0.0 for term in found.coefficients.terms):
        raise BadInputError(Diagnostic("RS0106", "coefficients are numbers of at least 0", where, NEXT))
    architecture = find_model(found.model)
    return Calibrated(
        architecture=architecture.name,
        accelerator=seen[0],
        partition=seen[1],
        tensor_parallel_size=found.engine.tensor_parallel_size,
        weight_dtype=found.engine.weight_dtype or architecture.published_dtype,
        law=found.coefficients,
        relative_error=_band(found),
        source=path.name[:80],
    )


def _band(found: Calibration) -> float:
    """What four in five points, left out of the fit, were missed by at most; no less than repeats differ."""
    pairs = [(c.predicted_tpot_ms, c.tpot_ms) for c in found.checks if c.predicted_tpot_ms > 0.0 < c.tpot_ms]
    pairs += [(c.predicted_e2e_ms, c.e2e_ms) for c in found.checks if c.predicted_e2e_ms > 0.0 < c.e2e_ms]
    missed = [abs(math.log(predicted / measured)) for predicted, measured in pairs]
    most = math.expm1(float(np.quantile(missed, _INSIDE))) if missed else found.leave_one_out.tpot
    return max(most, found.repeat_spread or 0.0, LEAST_ERROR)
