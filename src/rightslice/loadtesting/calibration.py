"""The answer of a calibration."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.core.calibrated import StepLaw


@dataclass(frozen=True, slots=True)
class Engine:
    """What the measured engine was started with. `weight_dtype`: empty for the checkpoint's own."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    kv_cache_tokens: int | None = None
    tensor_parallel_size: int = 1
    weight_dtype: str = ""


@dataclass(frozen=True, slots=True)
class Errors:
    """Median relative errors over the points; `ttft` None where no tool's was to be trusted."""

    tpot: float
    e2e: float
    ttft: float | None


@dataclass(frozen=True, slots=True)
class PointCheck:
    """One point: measured, and predicted by a law that has not seen it; milliseconds."""

    source: str
    tpot_ms: float
    predicted_tpot_ms: float
    e2e_ms: float
    predicted_e2e_ms: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """`before`: by the first law, from the points alone; `after`: refined through the scheduler; `leave_one_out`: each
    point by a law fitted without it. Not `accepted`: `reasons` say why, and it should not be used."""

    model: str
    accelerator: str
    coefficients: StepLaw
    engine: Engine
    points: int
    before: Errors
    after: Errors
    leave_one_out: Errors
    repeat_spread: float | None
    checks: tuple[PointCheck, ...]
    accepted: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
