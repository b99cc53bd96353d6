"""Which formats of weights and KV cache a version of an engine runs on a device: the one place that decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rightslice.catalogue.engines import EngineFacts, engine
from rightslice.catalogue.hardware import Device

Level = Literal["native", "stored", "refused"]
ENGINE: Final = "vllm"
"""Whose facts count where an engine's own are not established."""
_SIXTEEN_AND_UP: Final[dict[str, float]] = {"fp32": 0.0, "fp16": 5.3, "bf16": 8.0}
"""Lowest compute capability of formats that need no method (bfloat16 from 8.0: the refusal quoted in vllm#1157)."""
_UNIT: Final[dict[str, str]] = {"fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "fp8": "fp8", "int8": "int8"}
"""Format -> the unit of the accelerator that multiplies in it; INT4 has none and is unpacked."""

_UNIT_SINCE: Final[dict[str, float]] = {"int8": 7.5, "fp8": 8.9, "fp4": 10.0}
"""Compute capability from which NVIDIA's hardware has the unit: for devices whose rates are not published."""


@dataclass(frozen=True, slots=True)
class Support:
    """native: the device computes in the format. stored: saves memory, arithmetic is no faster. refused: no start."""

    level: Level
    reason: str


def weight_support(device: Device, dtype: str, engine_name: str = ENGINE, version: str = "") -> Support:
    """Whether `version` of an engine (its newest one when empty) runs weights in `dtype` on the device."""
    capability = compute_capability(device)
    if capability is None:
        return _of_another_vendor(device, dtype)
    name = device.accelerator.name
    if dtype in _SIXTEEN_AND_UP:
        needed, told = _SIXTEEN_AND_UP[dtype], ""
    else:
        facts, version, assumed = _established(engine_name, version)
        told = f"{facts.name} {version}"
        if dtype not in facts.weight_methods:
            return Support("stored", f"what {told} needs for {dtype} weights is not established")
        found = facts.weight_capability(version, dtype)
        if found is None:
            return Support("refused", f"{told} has no {dtype} weights")
        needed, told = found, f" with {told}{assumed}"
    if capability < needed:
        return _short_of(f"{name} cannot run {dtype} weights{told}", needed, capability)
    if dtype in _SIXTEEN_AND_UP or _has_unit(device, dtype):
        return Support("native", f"{name} computes in {dtype}")
    return Support("stored", f"{name} has no {dtype} unit: less memory, no faster arithmetic")


def kv_support(device: Device, dtype: str, engine_name: str = ENGINE, version: str = "") -> Support:
    """Whether `version` of an engine keeps a KV cache in `dtype` on the device; unknown needs are those of `ENGINE`."""
    name, capability = device.accelerator.name, compute_capability(device)
    if dtype in _SIXTEEN_AND_UP:
        return Support("native", f"{name} computes in {dtype}")
    facts = engine(engine_name)
    version = version or facts.latest_version
    told = f"{facts.name} {version}"
    try:
        if facts.kv_cache_type(version, dtype) is None:
            return Support("refused", f"{told} has no KV cache in {dtype}")
    except KeyError:
        told = f"{told} (whose cache types are not established)"
    needed = (facts.kv_min_capability or engine(ENGINE).kv_min_capability).get(dtype, 0.0)
    if capability is not None and capability < needed:
        return _short_of(f"{name} cannot keep a KV cache in {dtype} with {told}", needed, capability)
    if _has_unit(device, dtype):
        return Support("native", f"{name} computes in {dtype}")
    return Support("stored", f"{name} has no {dtype} unit: less memory, attention in 16 bit; not tested")


def _short_of(what: str, needed: float, capability: float) -> Support:
    return Support("refused", f"{what}: compute capability {needed:.1f} is needed, it has {capability:.1f}")


def compute_capability(device: Device) -> float | None:
    """CUDA compute capability; None for another vendor's device."""
    try:
        return float(device.accelerator.compute_capability)
    except ValueError:
        return None


def _has_unit(device: Device, dtype: str) -> bool:
    unit, capability = _UNIT.get(dtype, dtype), compute_capability(device)
    if device.flops or capability is None:
        return device.flops.get(unit, 0.0) > 0.0
    return unit in _UNIT_SINCE and capability >= _UNIT_SINCE[unit]


def _established(engine_name: str, version: str) -> tuple[EngineFacts, str, str]:
    """(facts, version, remark) of the engine whose methods are known: its own, else the newest of `ENGINE`."""
    own = engine(engine_name)
    if own.weight_methods:
        return own, version or own.latest_version, ""
    known = engine(ENGINE)
    return known, known.latest_version, f" (taken for {own.name}, whose needs are not established)"


def _of_another_vendor(device: Device, dtype: str) -> Support:
    """Only what its units compute; 4-bit integers are unpacked anywhere."""
    name = device.accelerator.name
    if _has_unit(device, dtype) or dtype in _SIXTEEN_AND_UP:
        return Support("native", f"{name} computes in {dtype}")
    if dtype == "int4":
        return Support("stored", f"{name} has no {dtype} unit: less memory, no faster arithmetic")
    return Support("refused", f"{name} has no {dtype} unit")
