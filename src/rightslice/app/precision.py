"""`rightslice size --dtype`: what another precision means, and the files that bring a model there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rightslice.app.models import find_model
from rightslice.app.sizing import asked_about
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.models import hub_id
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.files import check_folder, write_together
from rightslice.manifests.evaluate import CONTEXT_TOKENS
from rightslice.manifests.quantise import Quantisation, quantisation_files
from rightslice.memory.advice import PrecisionReport, lowered, precision_report
from rightslice.memory.precision import ENGINE
from rightslice.memory.recipe import no_recipe, recipe
from rightslice.memory.sizing import Fit, SizeRequest, size

USUAL: Final = "H100-SXM-80GB"
"""The accelerator that the evaluation is sized for where none is named."""


def precision_of(
    source: str, formats: tuple[str | None, str | None], accelerator: str | None, engine: str | None, version: str
) -> PrecisionReport | None:
    """What differs from the published precision; None when nothing does.

    `formats`: of weights and KV cache; `engine` None: vLLM, `version` empty: its newest. Raises BadInputError for
    unknown names.
    """
    devices, asked = asked_about(accelerator), (engine or ENGINE, version)
    return precision_report(source, find_model(source), formats, devices, asked)


def write_quantisation(source: str, dtype: str | None, accelerator: str | None, folder: Path) -> tuple[str, ...]:
    """Write recipe, Jobs and page into `folder`; returns their names.

    Raises BadInputError RS0502 where there is nothing to quantise, RS2005 where the recipe is impossible and RS0407
    when the folder cannot be written.
    """
    architecture = find_model(source)
    if dtype is None or not lowered(architecture, dtype):
        hint = f"--dtype with fewer bits than the published {architecture.published_dtype}"
        raise BadInputError(
            Diagnostic("RS0502", "-o writes how to quantise, and nothing is to be quantised", hint=hint)
        )
    if problem := no_recipe(architecture, dtype):
        raise BadInputError(Diagnostic("RS2005", problem, hint="name a checkpoint in that precision instead"))
    device = asked_about(accelerator or USUAL)[0]
    made = Quantisation(
        title=source,
        model=hub_id(source),
        published=architecture.published_dtype,
        dtype=dtype,
        recipe=recipe(architecture, dtype),
        weights_bytes=architecture.published_weights_bytes,
        quantised_bytes=_weights_bytes(architecture, dtype),
        accelerator=device.name,
        gpus=_count(architecture, None, device),
        quantised_gpus=_count(architecture, dtype, device),
        context_tokens=min(CONTEXT_TOKENS, architecture.context_max or CONTEXT_TOKENS),
    )
    files = quantisation_files(made)
    check_folder(folder)
    write_together(folder, files)
    return tuple(files)


def _weights_bytes(architecture: Architecture, dtype: str) -> int:
    return size(architecture, SizeRequest(dtype=dtype)).weights_bytes


def _count(architecture: Architecture, dtype: str | None, device: Device) -> int:
    """Devices that hold the model with one sequence of the evaluation. Raises BadInputError where none do."""
    half = min(CONTEXT_TOKENS, architecture.context_max or CONTEXT_TOKENS) // 2
    request = SizeRequest(dtype=dtype, input_tokens=half, output_tokens=half)
    found = size(architecture, request, (device,))
    fits: tuple[Fit, ...] = found.fits
    if fits:
        return fits[0].count
    reason = f"the evaluation does not fit {found.refused[0].accelerator}: {found.refused[0].reason}"
    raise BadInputError(Diagnostic("RS2001", reason, hint="--accelerator with a larger one"))
