"""The numbers of the step-time laws, read once from data/coefficients.yaml, and what they make of one device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict

from rightslice.catalogue.hardware import Accelerator, Device
from rightslice.core.engine import DTYPE_BITS
from rightslice.core.errors import BadInputError, Diagnostic

_US = 1e-6
Efficiency = tuple[float, float]
"""Achieved share of the compute rate and of the memory bandwidth."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Gemm(_Section):
    norm: float
    floor_us: float
    efficiency: dict[str, Efficiency]


class _Attention(_Section):
    decode: dict[int, float]
    prefill: float
    prefill_floor_us: float


class _Family(_Section):
    source: str
    compute_capabilities: tuple[str, ...]
    gemm: _Gemm
    attention: _Attention
    experts: dict[str, Efficiency]


class _ExpertsOnly(_Section):
    source: str
    dtypes: tuple[str, ...]


class _Layer(_Section):
    source: str
    gemm_launches: int
    small_kernel_launches: int
    small_kernel_us: float
    small_kernel_bandwidth: float
    decode_attention_us: float
    experts_floor_us: float


_Shots = tuple[float, float, float, float]


class _AllReduce(_Section):
    source: str
    nvlink: dict[str, dict[int, _Shots]]
    pcie: dict[str, dict[int, _Shots]]


class _EngineHost(_Section):
    step_us: float
    sequence_us: float


class _Host(_Section):
    source: str
    prefill_launch_us_per_layer: float
    engines: dict[str, _EngineHost]


class _Document(_Section):
    version: str
    sources: dict[str, str]
    units: dict[str, str | None]
    modes: dict[str, str]
    experts_only: _ExpertsOnly
    families: dict[str, _Family]
    layer: _Layer
    all_reduce: _AllReduce
    host: _Host


@dataclass(frozen=True, slots=True)
class MatrixPath:
    """How matrix multiplies of one weight dtype run on one device; rates are achievable, efficiency included."""

    flops_per_s: float
    bytes_per_s: float
    weight_bytes: float
    norm: float


@dataclass(frozen=True, slots=True)
class AttentionPath:
    """Achievable rates of attention on one device with one KV dtype."""

    flops_per_s: float
    bytes_per_s: float
    kv_bytes: float


@dataclass(frozen=True, slots=True)
class Link:
    """All-reduce over `devices`: start-up seconds and achievable bytes/s of the one-shot and two-shot algorithms.

    `rails`: devices of one domain that each have a path of their own to the other domains; 1 within one.
    """

    devices: int
    one_shot_s: float
    one_shot_bytes_per_s: float
    two_shot_s: float
    two_shot_bytes_per_s: float
    rails: int = 1


@dataclass(frozen=True, slots=True)
class Launches:
    """Seconds that do not depend on tokens: per layer (dense, expert, prefill), per step and per sequence."""

    layer_s: float
    experts_layer_s: float
    prefill_layer_s: float
    step_s: float
    sequence_s: float


@cache
def _document() -> _Document:
    text = resources.files("rightslice.performance").joinpath("data/coefficients.yaml").read_text("utf-8")
    return _Document.model_validate(yaml.load(text, Loader=yaml.CSafeLoader))


def family(device: Device) -> str:
    """Name of the coefficient family of a device, `default` for one whose kernels were not fitted."""
    capability = device.accelerator.compute_capability
    for name, entry in _document().families.items():
        if capability in entry.compute_capabilities:
            return name
    return "default"


def sixteen_bit_flops(silicon: Accelerator | Device) -> float:
    """Dense FLOP/s of a whole accelerator or a slice in bf16, fp16 or fp32, the first it has; BadInputError if none."""
    for unit in ("bf16", "fp16", "fp32"):
        if unit in silicon.flops:
            return silicon.flops[unit]
    message = f"the compute rate of {silicon.name} is not known"
    raise BadInputError(Diagnostic("RS2005", message, hint="choose another accelerator"))


def _rate(device: Device, dtype: str) -> tuple[float, str]:
    """FLOP/s and mode of a weight dtype: its own unit where that is faster, else weights through the 16-bit units."""
    document = _document()
    sixteen = sixteen_bit_flops(device)
    unit = document.units[dtype]
    if DTYPE_BITS[dtype] >= 16:
        return (device.flops.get("fp32", sixteen) if dtype == "fp32" else sixteen), "16bit"
    native = device.flops.get(unit, 0.0) if unit else 0.0
    return (native, document.modes[unit]) if unit and native > sixteen else (sixteen, "weight-only")


def is_weight_only(device: Device, dtype: str) -> bool:
    """True when the device multiplies weights of that dtype through its 16-bit units."""
    return _rate(device, dtype)[1] == "weight-only"


def _path(device: Device, dtype: str, table: dict[str, Efficiency], norm: float) -> MatrixPath:
    flops, mode = _rate(device, dtype)
    compute, bandwidth = table.get(mode) or table["weight-only"]
    return MatrixPath(flops * compute, device.memory_bandwidth_bytes_per_s * bandwidth, DTYPE_BITS[dtype] / 8, norm)


def dense_path(device: Device, dtype: str, *, has_experts: bool) -> MatrixPath:
    """Path of layers outside routed experts; formats that quantise experts only leave them in 16 bit."""
    document = _document()
    kept = has_experts and dtype in document.experts_only.dtypes
    gemm = document.families[family(device)].gemm
    return _path(device, "bf16" if kept else dtype, gemm.efficiency, gemm.norm)


def head_path(device: Device, dtype: str) -> MatrixPath:
    """Path of the output head, which quantised checkpoints leave in 16 bit."""
    gemm = _document().families[family(device)].gemm
    return _path(device, dtype if DTYPE_BITS[dtype] >= 16 else "bf16", gemm.efficiency, gemm.norm)


def expert_path(device: Device, dtype: str) -> MatrixPath:
    """Path of routed experts (norm 2)."""
    return _path(device, dtype, _document().families[family(device)].experts, 2.0)


def attention_path(device: Device, kv_dtype: str) -> AttentionPath:
    """Path of attention: prefill computes in 16 bit whatever the cache's dtype."""
    entry = _document().families[family(device)].attention
    bits = DTYPE_BITS[kv_dtype]
    bandwidth = entry.decode[16 if bits >= 16 else 8]
    return AttentionPath(
        sixteen_bit_flops(device) * entry.prefill, device.memory_bandwidth_bytes_per_s * bandwidth, bits / 8
    )


def small_kernel_bytes_per_s(device: Device) -> float:
    """Achievable bandwidth of norms, rotary embeddings and activations."""
    return device.memory_bandwidth_bytes_per_s * _document().layer.small_kernel_bandwidth


def crosses_pcie(device: Device, devices: int) -> bool:
    """True when `devices` of them reach beyond one NVLink (or Infinity Fabric) domain, or have none."""
    return device.link_bytes_per_s <= 0.0 or devices > device.accelerator.link_domain_max


def link(device: Device, engine: str, devices: int) -> Link:
    """All-reduce path of an engine over `devices`; sizes between the measured 2, 4 and 8 take the next larger."""
    tables = _document().all_reduce
    pcie = crosses_pcie(device, devices)
    table = tables.pcie if pcie else tables.nvlink
    by_devices = table.get(engine) or table["default"]
    one_s, one_share, two_s, two_share = by_devices[
        min((n for n in by_devices if n >= devices), default=max(by_devices))
    ]
    rate = device.accelerator.pcie_bytes_per_s if pcie else device.link_bytes_per_s
    rails = min(device.accelerator.link_domain_max, devices) if pcie and device.link_bytes_per_s > 0.0 else 1
    return Link(devices, one_s * _US, one_share * rate, two_s * _US, two_share * rate, max(1, rails))


def launches(device: Device, engine: str) -> Launches:
    """Launch and host times of an engine on a device; an unknown engine is taken as vLLM."""
    document = _document()
    entry, layer = document.families[family(device)], document.layer
    host = document.host.engines.get(engine) or document.host.engines["default"]
    dense_us = (
        layer.gemm_launches * entry.gemm.floor_us
        + layer.small_kernel_launches * layer.small_kernel_us
        + layer.decode_attention_us
    )
    return Launches(
        dense_us * _US,
        layer.experts_floor_us * _US,
        (document.host.prefill_launch_us_per_layer + entry.attention.prefill_floor_us) * _US,
        host.step_us * _US,
        host.sequence_us * _US,
    )
