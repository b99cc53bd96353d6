"""What to know about a precision other than the published one: hardware, accuracy, and how to come by the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from rightslice.catalogue.accuracy import Risk, kv_risk, weight_risk
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.checkpoints import Checkpoint, quantised_checkpoints
from rightslice.catalogue.engines import EngineFacts, engine
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import DTYPE_BITS
from rightslice.core.quantities import format_bytes
from rightslice.memory.precision import ENGINE, Level, Support, kv_support, weight_support
from rightslice.memory.recipe import no_recipe


@dataclass(frozen=True, slots=True)
class DeviceSupport:
    """What one accelerator does with the format."""

    accelerator: str
    level: Level
    reason: str


@dataclass(frozen=True, slots=True)
class FormatReport:
    """One format: its risk and, in the order of the devices asked about, who runs it."""

    dtype: str
    published: str
    risk: Risk
    support: tuple[DeviceSupport, ...]


@dataclass(frozen=True, slots=True)
class PrecisionReport:
    """`weights` and `kv` are None where the published format is kept. `advice`: what to do, in order."""

    engine: str
    weights: FormatReport | None
    kv: FormatReport | None
    checkpoints: tuple[Checkpoint, ...]
    advice: tuple[str, ...]


def lowered(architecture: Architecture, dtype: str) -> bool:
    """Whether weights in `dtype` have fewer bits than the published ones."""
    return DTYPE_BITS[dtype] < DTYPE_BITS.get(architecture.published_dtype, 16)


def precision_report(
    source: str,
    architecture: Architecture,
    formats: tuple[str | None, str | None],
    devices: Sequence[Device],
    asked: tuple[str, str] = (ENGINE, ""),
) -> PrecisionReport | None:
    """What differs from the published precision, or None when nothing does.

    `source`: the model as it was named. `formats`: of weights and KV cache, None for the published one. `asked`: engine
    and version, the newest one when empty.
    """
    dtype, kv_dtype = formats
    published = architecture.published_dtype
    published_kv = architecture.kv_dtype_published or "bf16"
    weights = kv = None
    checkpoints: tuple[Checkpoint, ...] = ()
    if dtype and dtype != published:
        seen = [(device, weight_support(device, dtype, *asked)) for device in devices]
        weights = FormatReport(dtype, published, _weight_risk(architecture, dtype), _listed(seen))
        if lowered(architecture, dtype):
            checkpoints = quantised_checkpoints(source, architecture, dtype)
    if kv_dtype and kv_dtype != published_kv:
        seen = [(device, kv_support(device, kv_dtype, *asked)) for device in devices]
        kv = FormatReport(kv_dtype, published_kv, kv_risk(kv_dtype), _listed(seen))
    if weights is None and kv is None:
        return None
    facts = engine(asked[0])
    version = asked[1] or facts.latest_version
    advice = (*_weight_advice(source, architecture, weights, checkpoints), *_kv_advice(kv, facts, version))
    return PrecisionReport(f"{facts.title} {version}", weights, kv, checkpoints, advice)


def _weight_risk(architecture: Architecture, dtype: str) -> Risk:
    """Lower formats as measured; a format with as many bits or more loses nothing that was there."""
    if lowered(architecture, dtype) or DTYPE_BITS[dtype] < 16:
        return weight_risk(dtype, architecture.published_dtype)
    return Risk(dtype, "none", "not lower than published", (), "")


def _listed(seen: Sequence[tuple[Device, Support]]) -> tuple[DeviceSupport, ...]:
    return tuple(DeviceSupport(device.name, support.level, support.reason) for device, support in seen)


def _weight_advice(
    source: str, architecture: Architecture, weights: FormatReport | None, checkpoints: Sequence[Checkpoint]
) -> Iterator[str]:
    if weights is None:
        return
    dtype = weights.dtype
    if not lowered(architecture, dtype):
        yield f"{dtype} is no lower than the published {architecture.published_dtype}: nothing is saved by it"
        return
    for found in checkpoints:
        size = format_bytes(found.weights_bytes)
        yield f"use {found.model} ({found.method}, {size}; its base is read from the {found.source}, {found.date})"
    if not checkpoints:
        yield f"the catalogue knows no {dtype} checkpoint of this model"
    other = "or " if checkpoints else ""
    if dtype == "fp8" and not architecture.quantisation:
        yield f"{other}let the engine quantise while it loads, as a plan does: nothing to prepare"
        other = "or "
    if problem := no_recipe(architecture, dtype):
        yield f"no recipe: {problem}"
        return
    command = f"rightslice size {quote(source)} --dtype {dtype} -o DIR"
    yield f"{other}make one: {command} writes a recipe and the Job that runs it"
    yield "then measure it: the evaluation Job beside them compares it with the original"


def _kv_advice(kv: FormatReport | None, facts: EngineFacts, version: str) -> Iterator[str]:
    if kv is None or kv.dtype in ("bf16", "fp16"):
        return
    try:
        name = facts.kv_cache_type(version, kv.dtype)
    except KeyError:
        yield f"how {facts.title} {version} is told to keep its cache in {kv.dtype} is not established"
        return
    if name is None:
        yield f"take another version: {facts.title} {version} has no KV cache in {kv.dtype}"
        return
    yield f"start the engine with {facts.flags['kv_dtype']} {name}; measure with prompts as long as yours"
