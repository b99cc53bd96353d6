"""The numbers of the step-time laws, read once from data/coefficients.yaml, and what they make of one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Accelerator, Device
from rightslice.catalogue.versions import VersionKey, version_key
from rightslice.core.engine import DTYPE_BITS, EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic

_US = 1e-6
_EXPERT_MULTIPLIES = 2
_USUAL_MULTIPLIES = 4
"""Dense multiplies of a usual layer, for what an era says of one: query-key-value, output, gate-up, down."""
_OTHERS = "vllm"
_UNKNOWN_PCIE_BYTES_PER_S = 15.75e9
"""Sixteen lanes of PCIe 3, where the link to the host is not published: the slowest of today's servers."""
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
    feed_forward_launches: int
    attention_launches: dict[str, int]
    quantised_launches: dict[str, int]
    indexer_launches: int
    small_kernel_launches: int
    small_kernel_us: float
    small_kernel_bandwidth: float
    decode_attention_us: float
    experts_floor_us: float
    expert_padding_rows: float
    routing_evenness: float


_Shots = tuple[float, float, float, float]


class _AllReduce(_Section):
    source: str
    nvlink: dict[str, dict[int, _Shots]]
    pcie: dict[str, dict[int, _Shots]]


class _Era(_Section):
    """Versions of an engine: times of its host, efficiency of its kernels over that of the families."""

    since: str = ""
    before: str = ""
    step_us: float = 1000.0
    sequence_us: float = 5.0
    prefill_layer_us: float = 150.0
    prefill_expert_layer_us: float = 0.0
    request_us: float = 0.0
    launch: float = 1.0
    quantise_us: float = 0.0
    compute: float = 1.0
    quantised_compute: float = 1.0
    bandwidth: float = 1.0
    cache_bandwidth: float = 1.0
    expert_compute: float = 1.0
    expert_weight_only: float = 1.0
    expert_prefill: float = 1.0
    shares_heads: bool = True
    compiles: bool = False


class _Eras(_Section):
    version: str
    source: str
    eras: dict[str, tuple[_Era, ...]]


class _Document(_Section):
    version: str
    sources: dict[str, str]
    units: dict[str, str | None]
    modes: dict[str, str]
    experts_only: _ExpertsOnly
    families: dict[str, _Family]
    layer: _Layer
    all_reduce: _AllReduce


@dataclass(frozen=True, slots=True)
class MatrixPath:
    """How matrix multiplies of one weight dtype run on one device; rates are achievable, efficiency included."""

    flops_per_s: float
    bytes_per_s: float
    weight_bytes: float
    norm: float

    def times(self, compute: float, bandwidth: float) -> MatrixPath:
        """The same at these shares of its rates."""
        return replace(self, flops_per_s=self.flops_per_s * compute, bytes_per_s=self.bytes_per_s * bandwidth)


@dataclass(frozen=True, slots=True)
class Routing:
    """`padding_rows`: what a touched expert computes beyond its own rows. `evenness`: shape of the gamma distribution
    of experts' popularity."""

    padding_rows: float
    evenness: float


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
class Era:
    """What the kernels of an engine's version reach of the families' rates: matrix multiplies (compute, bandwidth),
    reads of the cache, compute of experts; how much longer experts take in prefill; seconds of a request outside the
    engine.

    `shares_heads`: query heads that share a KV head read it once. `compiles`: models are compiled (torch.compile), so
    that steps with prompts run in CUDA graphs as well, up to the largest, and 8-bit activations are quantised by the
    kernels in front of dense multiplies.
    """

    compute: float
    bandwidth: float
    cache_bandwidth: float
    expert_compute: float
    expert_prefill: float
    request_s: float
    shares_heads: bool
    compiles: bool


@dataclass(frozen=True, slots=True)
class Launches:
    """Seconds that do not depend on tokens: kernels of a step, further ones of a step with prompts, host, sequence."""

    kernels_s: float
    prefill_s: float
    step_s: float
    sequence_s: float


def _read(name: str) -> dict[str, Any]:
    text = resources.files("rightslice.performance").joinpath(f"data/{name}").read_text("utf-8")
    found: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return found


_factors_in_force: list[Mapping[str, float]] = []


def use_factors(factors: Mapping[str, float]) -> None:
    """Replace the shipped refinements for the rest of the process: for fits."""
    _factors_in_force[:] = [factors]
    _document.cache_clear()


def use_shipped_factors() -> None:
    """Undo `use_factors`."""
    _factors_in_force.clear()
    _document.cache_clear()


@cache
def _document() -> _Document:
    """The coefficients times their refinements, by paths such as `families/hopper/gemm/efficiency/8bit/0`."""
    raw = _read("coefficients.yaml")
    for path, factor in (_factors_in_force[0] if _factors_in_force else _read("refinements.yaml")["factors"]).items():
        *above, last = (int(part) if part.isdigit() else part for part in path.split("/"))
        inside: Any = raw
        for part in above:
            inside = inside[part]
        inside[last] *= factor
    return _Document.model_validate(raw)


@cache
def _shipped_eras() -> Mapping[str, tuple[_Era, ...]]:
    return _Eras.model_validate(_read("eras.yaml")).eras


_eras_in_force: list[Mapping[str, tuple[_Era, ...]]] = []


def use_eras(eras: Mapping[str, object]) -> None:
    """Replace the shipped eras for the rest of the process: for fits."""
    _eras_in_force[:] = [_Eras.model_validate({"version": "", "source": "", "eras": eras}).eras]


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


def arithmetic(device: Device, dtype: str) -> str:
    """How the device multiplies weights of that dtype: `16bit`, `8bit`, `4bit`, or `weight-only` in 16-bit units."""
    return _rate(device, dtype)[1]


def is_weight_only(device: Device, dtype: str) -> bool:
    """True when the device multiplies weights of that dtype through its 16-bit units."""
    return arithmetic(device, dtype) == "weight-only"


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


def routing() -> Routing:
    """How tokens spread over experts, the same for every model."""
    layer = _document().layer
    return Routing(layer.expert_padding_rows, layer.routing_evenness)


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
    rate = (device.accelerator.pcie_bytes_per_s or _UNKNOWN_PCIE_BYTES_PER_S) if pcie else device.link_bytes_per_s
    rails = min(device.accelerator.link_domain_max, devices) if pcie and device.link_bytes_per_s > 0.0 else 1
    return Link(devices, one_s * _US, one_share * rate, two_s * _US, two_share * rate, max(1, rails))


def era_key(device: Device, settings: EngineSettings) -> tuple[str, int]:
    """Where an engine's era stands: its name, with the device's family or without, and which of its eras.

    The newest for an empty version; vLLM's for an unknown engine.
    """
    table = _eras_in_force[0] if _eras_in_force else _shipped_eras()
    known = settings.engine in table
    engine = settings.engine if known else _OTHERS
    version = version_key(settings.version) if known and settings.version else None
    for name in (f"{engine}/{family(device)}", engine):
        for at, row in enumerate(table.get(name, ())):
            if _holds(row, version):
                return name, at
    return engine, len(table[engine]) - 1


def _holds(row: _Era, version: VersionKey | None) -> bool:
    if version is None:
        return not row.before
    old = bool(row.since) and version < version_key(row.since)
    return not old and (not row.before or version < version_key(row.before))


def _host(device: Device, settings: EngineSettings) -> _Era:
    name, at = era_key(device, settings)
    return (_eras_in_force[0] if _eras_in_force else _shipped_eras())[name][at]


def era_limit(device: Device, settings: EngineSettings) -> str:
    """The version before which the era ends; empty for today's."""
    return _host(device, settings).before


def era(device: Device, settings: EngineSettings) -> Era:
    """The era of an engine on the device's family, else on any; an unknown engine is taken as vLLM of today."""
    row = _host(device, settings)
    native = arithmetic(device, settings.weight_dtype) in ("8bit", "4bit")
    return Era(
        compute=row.quantised_compute if native else row.compute,
        bandwidth=row.bandwidth,
        cache_bandwidth=row.cache_bandwidth,
        expert_compute=row.expert_weight_only if is_weight_only(device, settings.weight_dtype) else row.expert_compute,
        expert_prefill=row.expert_prefill,
        request_s=row.request_us * _US,
        shares_heads=row.shares_heads,
        compiles=row.compiles,
    )


def most_quantise_us(device: Device, settings: EngineSettings) -> float:
    """What an 8- or 4-bit multiply may take longer than a 16-bit one, microseconds a launch."""
    return _host(device, settings).quantise_us


def launches(architecture: Architecture, device: Device, settings: EngineSettings) -> Launches:
    """Launch and host times of an engine that runs a model on a device.

    A multiply in 8 or 4 bit has its activations quantised by a kernel of its own: every dense one, and two of a layer's
    experts. Compiled models without experts have their 8-bit activations quantised by the kernels in front (models with
    experts are published with 8-bit weights in blocks, which need that kernel).
    """
    document = _document()
    entry, layer = document.families[family(device)], document.layer
    host = _host(device, settings)
    quantised = DTYPE_BITS[settings.weight_dtype] < 16 and not is_weight_only(device, settings.weight_dtype)
    kept = settings.weight_dtype in document.experts_only.dtypes
    multiplies = _dense_multiplies(architecture)
    kernels_us = architecture.layers * (layer.small_kernel_launches * layer.small_kernel_us + layer.decode_attention_us)
    dense_us = host.launch * (multiplies * entry.gemm.floor_us + kernels_us)
    expert_layers = sum(group.layers for group in architecture.moe)
    experts_us = expert_layers * host.launch * layer.experts_floor_us
    if quantised:
        experts_us += expert_layers * _EXPERT_MULTIPLIES * host.quantise_us
        fused = host.compiles and not expert_layers and arithmetic(device, settings.weight_dtype) == "8bit"
        dense_us += 0.0 if kept or fused else _dense_multiplies(architecture, quantised=True) * host.quantise_us
    prefill_us = multiplies / _USUAL_MULTIPLIES * host.prefill_layer_us
    prefill_us += architecture.layers * entry.attention.prefill_floor_us
    return Launches(
        (dense_us + experts_us) * _US,
        (prefill_us + expert_layers * host.prefill_expert_layer_us) * _US,
        host.step_us * _US,
        host.sequence_us * _US,
    )


def _dense_multiplies(architecture: Architecture, *, quantised: bool = False) -> int:
    """Dense multiplies that one step launches; `quantised`: only those by weights of the checkpoint's dtype."""
    layer = _document().layer
    launched = layer.quantised_launches if quantised else layer.attention_launches
    attention = sum(
        group.layers * (launched[group.kind] + (layer.indexer_launches if group.indexer_elements_per_token else 0))
        for group in architecture.attention
    )
    without = sum(group.layers for group in architecture.moe if not group.shared_parameters)
    return attention + layer.feed_forward_launches * (architecture.layers - without)
