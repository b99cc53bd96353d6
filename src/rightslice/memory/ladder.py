"""The fewest devices of one kind that hold a model and its sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import WHOLE, Device
from rightslice.core.engine import EngineSettings
from rightslice.memory.arguments import CommandLine
from rightslice.memory.footprint import Footprint, footprint
from rightslice.memory.legality import legal_parallelism
from rightslice.memory.overheads import UNSURE_BYTES, rank_step_tokens
from rightslice.memory.precision import kv_support, weight_support
from rightslice.memory.room import counted_device, taken
from rightslice.memory.weights import weights_bytes

COUNTS: Final = (1, 2, 4, 8, 16)
ENGINE: Final = "vllm"
Split = Literal["tensor", "replicas", "given"]
_SIZES: Final = frozenset({"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel"})


@dataclass(frozen=True, slots=True)
class SizeRequest:
    """What is asked. `dtype` None: as published; `kv_dtype` None: 16 bit. `line`: an engine's command line, whose
    settings then hold throughout instead of vLLM's defaults: the split that it names, and the lengths it allows.
    `free_bytes`: free on each device when that engine starts, None: all.
    """

    input_tokens: int = 1024
    output_tokens: int = 256
    sequences: int = 1
    dtype: str | None = None
    kv_dtype: str | None = None
    accelerator: str | None = None
    method: Literal["exact", "gke"] = "exact"
    line: CommandLine | None = None
    free_bytes: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens of one sequence at its end."""
        return self.input_tokens + self.output_tokens

    @property
    def weights(self) -> str:
        """Format of the weights; empty for the published one."""
        return self.line.settings.weight_dtype if self.line else self.dtype or ""

    @property
    def cache(self) -> str:
        """Format of the KV cache."""
        return self.line.settings.kv_dtype if self.line else self.kv_dtype or "bf16"


@dataclass(frozen=True, slots=True)
class Fit:
    """The fewest devices that hold the model with all sequences, and how many sequences they hold at most.

    `margin_bytes`: left on each device beyond what is asked. `verdict`: just fits when that is within the error of the
    engine's constants, so that it may not start.
    `split`: tensor parallel, or one attention replica per device with the experts spread over all (`replicas`), which
    is worth knowing where a latent cache would repeat on every tensor-parallel rank; `given`: as the engine is told.
    """

    accelerator: str
    count: int
    max_sequences: int
    verdict: Literal["fits", "just fits"] = "fits"
    margin_bytes: int = 0
    split: Split = "tensor"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the largest count tried does not hold it."""

    accelerator: str
    count: int
    reason: str


def split_is_given(request: SizeRequest) -> bool:
    """Whether the engine is told over which devices to spread."""
    return request.line is not None and bool(request.line.given & _SIZES)


def settings_for(
    architecture: Architecture, request: SizeRequest, device: Device, count: int, split: Split = "tensor"
) -> EngineSettings:
    """The engine on that device over `count` devices split as in `Fit`: as it is told, or with its defaults and as long
    as asked."""
    data = 1 if split == "tensor" else count
    if split == "given" and request.line is not None:
        return request.line.settings
    if request.line is not None:
        base = request.line.settings
    else:
        facts = engine(ENGINE)
        defaults = facts.defaults(facts.latest_version, device)
        base = EngineSettings(
            engine=ENGINE,
            version=facts.latest_version,
            weight_dtype=request.dtype or architecture.published_dtype,  # type: ignore[arg-type]
            kv_dtype=facts.own_kv.get(architecture.family, request.cache),  # type: ignore[arg-type]
            max_model_len=request.tokens,
            max_num_seqs=max(request.sequences, defaults.max_num_seqs),
            max_num_batched_tokens=rank_step_tokens(defaults.max_num_batched_tokens, data),
            memory_fraction=defaults.memory_fraction,
            block_size_tokens=defaults.block_size_tokens,
        )
    return replace(
        base,
        tensor_parallel_size=count if split == "tensor" else 1,
        data_parallel_size=data,
        expert_parallel=split != "tensor",
    )


def fit(architecture: Architecture, request: SizeRequest, device: Device, split: Split) -> Fit | Refusal:
    """The fewest of 1, 2, 4, 8, 16 devices (or as many as given) that are legal and hold all sequences."""
    if refused := _unfit(architecture, request, device):
        return refused
    if request.line is not None:
        device = counted_device(engine(request.line.settings.engine), device, request.free_bytes)
    last = Refusal(device.name, 1, "")
    for count, settings in _tried(architecture, request, device, split):
        if illegal := legal_parallelism(architecture, settings):
            last = last if last.reason else Refusal(device.name, count, illegal)
            continue
        held = footprint(architecture, device, settings, typical_tokens=request.tokens)
        held = replace(held, max_sequences=_admitted(request, settings, held.max_sequences))
        if held.fits and held.max_sequences >= request.sequences:
            wanted = max(held.kv_bytes_least, request.sequences * held.kv_bytes_per_sequence)
            margin = held.kv_cache_bytes - wanted
            sure = margin >= UNSURE_BYTES
            return Fit(device.name, count, held.max_sequences, "fits" if sure else "just fits", margin, split)
        total = weights_bytes(architecture, request.weights)
        last = Refusal(device.name, count, _reason(held, device, request, count, total))
    return last


def _unfit(architecture: Architecture, request: SizeRequest, device: Device) -> Refusal | None:
    """What the device cannot hold in any number."""
    settings = request.line.settings if request.line else EngineSettings()
    dtype = request.weights or architecture.published_dtype
    asked = settings.engine, settings.version
    if weight_support(device, dtype, *asked).level == "refused":
        half = weight_support(device, "fp16").level != "refused" and dtype == "bf16"
        return Refusal(device.name, 1, f"cannot run {dtype} weights" + ("; --dtype fp16 can" if half else ""))
    if request.cache not in ("bf16", "fp16") and kv_support(device, request.cache, *asked).level == "refused":
        return Refusal(device.name, 1, f"cannot keep a KV cache in {request.cache}")
    refused = too_long(architecture, request) or (request.line and taken(device, settings, request.free_bytes))
    return Refusal(device.name, 1, refused) if refused else None


def too_long(architecture: Architecture, request: SizeRequest) -> str:
    """Why requests of the asked length are refused, else empty.

    Without an engine the usual question is put to models of any context.
    """
    line, tokens = request.line, request.tokens
    limit = line.settings.max_model_len if line else architecture.context_max
    usual = (request.input_tokens, request.output_tokens) == (SizeRequest().input_tokens, SizeRequest().output_tokens)
    if limit is None or request.method == "gke" or (usual and line is None):
        return ""
    if tokens > limit:
        return f"{tokens:,} tokens are more than the longest context of {limit:,}"
    if line is None or line.settings.chunked_prefill or not engine(line.settings.engine).refuses_long_prompts:
        return ""
    step = line.settings.max_num_batched_tokens
    return (
        f"a prompt of {request.input_tokens:,} tokens exceeds a step of {step:,}" if request.input_tokens > step else ""
    )


def _tried(
    architecture: Architecture, request: SizeRequest, device: Device, split: Split
) -> Iterator[tuple[int, EngineSettings]]:
    if split == "given":
        settings = settings_for(architecture, request, device, 1, split)
        yield settings.gpus_per_replica, settings
        return
    for count in COUNTS if device.partition == WHOLE else COUNTS[:1]:
        yield count, settings_for(architecture, request, device, count, split)


def _admitted(request: SizeRequest, settings: EngineSettings, held: int) -> int:
    """Sequences at once: no more than the engine is told to run."""
    if request.line is None or "max_num_seqs" not in request.line.given:
        return held
    return min(held, settings.max_num_seqs * settings.data_parallel_size)


def _reason(held: Footprint, device: Device, request: SizeRequest, count: int, total_bytes: int) -> str:
    if held.reason:
        need, have = f"{total_bytes / 1e9:,.0f} GB", f"{count * device.memory_bytes / 1e9:,.0f} GB"
        return f"{need} of weights, {count} x {device.name} = {have}; per device {held.reason}"
    return f"{count} x {device.name} hold {held.max_sequences} sequences of that length, not {request.sequences}"
