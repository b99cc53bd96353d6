"""What one replica keeps on each of its devices, and how many sequences its cache holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.quantities import format_bytes
from rightslice.memory.cache import rank_sequence_bytes
from rightslice.memory.legality import legal_parallelism, slice_parallelism
from rightslice.memory.overheads import activation_bytes, engine_memory, graphs_bytes, overhead_bytes
from rightslice.memory.reservation import cache_plan
from rightslice.memory.speculation import lookahead_tokens
from rightslice.memory.weights import lora_bytes, rank_weights_bytes

if TYPE_CHECKING:
    from rightslice.spec.workload import CustomMemory

__all__ = ["Footprint", "custom_footprint", "footprint", "legal_parallelism"]

_ENCODERS: Final = frozenset({"encoder", "speech-ctc", "vision"})
_FREE_FRACTION: Final = 0.95
"""Share of a device that a model of unknown make may fill: an assumption, nobody measured it."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes are per device. `kv_cache_bytes`: left for the cache. `kv_tokens`, `kv_blocks` and `max_sequences` are of
    the whole replica at the typical length: what is sustained. `kv_bytes_least`: what the engine asks for before it
    starts. `headroom_share`: what that leaves, as a share of the device; negative when it does not fit.
    """

    device_bytes: int
    weights_bytes: int
    activation_bytes: int
    overhead_bytes: int
    kv_cache_bytes: int
    kv_bytes_per_sequence: int
    kv_tokens: int
    kv_blocks: int
    max_sequences: int
    fits: bool
    reason: str
    headroom_share: float
    kv_bytes_least: int = 0


def cache_room_bytes(
    device_bytes: int, settings: EngineSettings, weights_bytes: int, activations_bytes: int, overheads_bytes: int
) -> int:
    """Bytes left for the KV cache on one device; negative when the rest does not fit.

    everything (vLLM): f x memory - weights - activations - overhead; graphs count outside before 0.21.0.
    weights-and-kv (SGLang): f x memory - weights, and activations and overhead must fit into the rest of the device.
    kv-of-free (TensorRT-LLM): f x (memory - weights - activations - overhead).
    none: memory - weights - activations - overhead.
    A cache size that was given is taken as it is: the engine does not check it against anything (vLLM 0.32).
    """
    if settings.kv_cache_memory_bytes:
        return settings.kv_cache_memory_bytes
    kind = engine(settings.engine).memory_fraction_of
    fraction = settings.memory_fraction
    beside = activations_bytes + overheads_bytes
    free = device_bytes - weights_bytes - beside
    if kind == "weights-and-kv":
        return min(
            math.floor(fraction * device_bytes) - weights_bytes, free
        )  # the engine's own reserve covers the rest
    if kind == "kv-of-free":
        return math.floor(fraction * free) if free > 0 else free
    if kind == "none":
        return free
    constants = engine_memory(settings.engine, settings.version)
    inside = beside if constants.graphs_inside else beside - graphs_bytes(settings)
    return min(math.floor(fraction * device_bytes) - weights_bytes - inside, free)


def footprint(
    architecture: Architecture, device: Device, settings: EngineSettings, *, typical_tokens: int
) -> Footprint:
    """Memory of one replica of `architecture` on devices of one kind.

    It fits when the engine can reserve one sequence of `max_model_len` tokens in its own blocks, padding and tokens in
    flight included: it refuses to start otherwise.
    """
    weights = rank_weights_bytes(architecture, settings) + lora_bytes(architecture, settings)
    activations = activation_bytes(architecture, settings)
    overheads = overhead_bytes(architecture, device, settings)
    room = cache_room_bytes(device.memory_bytes, settings, weights, activations, overheads)
    typical = max(1, min(typical_tokens, settings.max_model_len))
    ahead = min(typical + lookahead_tokens(settings), settings.max_model_len)
    sequence = rank_sequence_bytes(architecture, _in_blocks(ahead, settings), settings, device)
    longest = cache_plan(architecture, settings, device).least_room_bytes(settings.max_model_len)
    illegal = slice_parallelism(device, settings) or legal_parallelism(architecture, settings)
    kept = Footprint(
        device_bytes=device.memory_bytes,
        weights_bytes=weights,
        activation_bytes=activations,
        overhead_bytes=overheads,
        kv_cache_bytes=max(0, room),
        kv_bytes_per_sequence=math.ceil(sequence),
        kv_tokens=0,
        kv_blocks=0,
        max_sequences=0,
        fits=False,
        reason=illegal or _refusal(room, longest, device, kept_bytes=(weights, activations, overheads)),
        headroom_share=(room - longest) / device.memory_bytes,
        kv_bytes_least=longest,
    )
    if kept.reason:
        return kept
    replicas = settings.data_parallel_size
    if sequence <= 0 or architecture.kind in _ENCODERS:
        return replace(kept, fits=True, max_sequences=settings.max_num_seqs * replicas)
    tokens = math.floor(room * typical / sequence) * replicas
    return replace(
        kept,
        fits=True,
        kv_tokens=tokens,
        kv_blocks=tokens // settings.block_size_tokens,
        max_sequences=math.floor(room / sequence) * replicas,
    )


def _in_blocks(tokens: int, settings: EngineSettings) -> int:
    """Tokens rounded up to whole cache blocks."""
    return -(-tokens // settings.block_size_tokens) * settings.block_size_tokens


def _refusal(room: int, longest: int, device: Device, *, kept_bytes: tuple[int, int, int]) -> str:
    if room >= longest and room >= 0:
        return ""
    weights, activations, overheads = (format_bytes(part, binary=True) for part in kept_bytes)
    have = format_bytes(device.memory_bytes, binary=True)
    parts = f"weights {weights} + activations {activations} + overhead {overheads}"
    if room <= 0:
        return f"{parts} leave nothing of {have} for the cache"
    need, left = format_bytes(longest, binary=True), format_bytes(room, binary=True)
    return f"{parts} leave {left} of {have}; the engine reserves {need} for one sequence of the longest length"


def custom_footprint(memory: CustomMemory, device: Device, gpus: int) -> Footprint:
    """A model that cannot be read: its stated bytes, divided evenly when it may be split, in 95 % of the device."""
    parts = gpus if memory.shardable else 1
    weights, cache, overhead = (
        math.ceil(amount / parts) for amount in (memory.weights, memory.kv_cache, memory.overhead)
    )
    free = math.floor(_FREE_FRACTION * device.memory_bytes) - weights - overhead - cache
    fits = free >= 0 and (memory.shardable or gpus == 1)
    reason = (
        ""
        if fits
        else (
            f"needs {format_bytes(weights + cache + overhead)} on each of {gpus}, "
            f"{format_bytes(_FREE_FRACTION * device.memory_bytes)} may be filled"
        )
    )
    if gpus > 1 and not memory.shardable:
        reason = "it may not be split (shardable: false)"
    return Footprint(
        device_bytes=device.memory_bytes,
        weights_bytes=weights,
        activation_bytes=0,
        overhead_bytes=overhead,
        kv_cache_bytes=cache,
        kv_bytes_per_sequence=0,
        kv_tokens=0,
        kv_blocks=0,
        max_sequences=0,
        fits=fits,
        reason=reason,
        headroom_share=free / device.memory_bytes,
    )
