"""Costs of one engine step: as measured on the very thing, where somebody did, else by the laws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.core.calibrated import Calibrated, StepLaw
from rightslice.core.engine import EngineSettings
from rightslice.performance.costs import StepCosts, picoseconds
from rightslice.performance.laws import step_costs


def replica_costs(
    architecture: Architecture,
    device: Device,
    settings: EngineSettings,
    *,
    typical_tokens: int,
    calibrated: Sequence[Calibrated] = (),
) -> StepCosts:
    """Costs of one step of one replica: the last calibration of this model on this device with this parallelism and
    precision, else `step_costs`, which says what it raises."""
    for found in reversed(calibrated):
        if _is_of(found, architecture, device, settings):
            return costs_of(found.law, settings.max_num_batched_tokens, found.relative_error)
    return step_costs(architecture, device, settings, typical_tokens=typical_tokens)


def costs_of(law: StepLaw, max_tokens: int, relative_error: float = 0.0) -> StepCosts:
    """The law as costs of steps of up to `max_tokens` tokens; `request_ms` lies outside of them."""
    tokens = np.rint(np.arange(max_tokens + 1) * law.token_ms * 1e9).astype(np.int64)
    return StepCosts(
        tokens_ps=tokens,
        kv_token_ps=picoseconds(law.context_token_ms / 1e3),
        attention_ps=picoseconds(law.attention_ms / 1e3),
        sequence_ps=0,
        step_ps=max(picoseconds(law.step_ms / 1e3), 1),
        prefill_step_ps=0,
        relative_error=relative_error,
        provenance="calibrated",
    )


def _is_of(found: Calibrated, architecture: Architecture, device: Device, settings: EngineSettings) -> bool:
    whole = settings.pipeline_parallel_size == settings.data_parallel_size == 1
    return whole and (
        found.architecture,
        found.accelerator,
        found.partition,
        found.tensor_parallel_size,
        found.weight_dtype,
    ) == (
        architecture.name,
        device.accelerator.name,
        device.partition,
        settings.tensor_parallel_size,
        settings.weight_dtype,
    )
