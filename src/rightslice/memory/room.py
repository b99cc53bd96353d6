"""The room that an engine leaves for its cache, and the longest context that finds a place in it."""

from __future__ import annotations

from dataclasses import replace

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import EngineFacts, engine
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.quantities import format_bytes
from rightslice.memory.footprint import cache_room_bytes
from rightslice.memory.overheads import activation_bytes, overhead_bytes
from rightslice.memory.reservation import cache_plan
from rightslice.memory.stages import asked_settings
from rightslice.memory.weights import lora_bytes, rank_weights_bytes


def room_bytes(architecture: Architecture, device: Device, settings: EngineSettings) -> int:
    """Bytes left for the cache of one rank; negative when the rest does not fit."""
    weights = rank_weights_bytes(architecture, settings) + lora_bytes(architecture, settings)
    activations = activation_bytes(architecture, settings)
    overheads = overhead_bytes(architecture, device, settings)
    return cache_room_bytes(device.memory_bytes, settings, weights, activations, overheads)


def counted_device(facts: EngineFacts, device: Device, free_bytes: int | None) -> Device:
    """The device as the engine counts its memory when only so much of it is free at start."""
    if facts.memory_fraction_of == "everything" or free_bytes is None:
        return device
    return replace(device, memory_bytes=min(device.memory_bytes, free_bytes))


def taken(device: Device, settings: EngineSettings, free_bytes: int | None) -> str:
    """Why others hold memory that the engine asks for, where it takes a share of the whole device; else empty."""
    wanted = settings.memory_fraction * device.memory_bytes
    facts = engine(settings.engine)
    if facts.memory_fraction_of != "everything" or free_bytes is None or free_bytes >= wanted:
        return ""
    have, asked = format_bytes(free_bytes, binary=True), format_bytes(wanted, binary=True)
    return f"{have} free, the engine asks for {settings.memory_fraction:g} x the device = {asked}"


def most_decoding(
    architecture: Architecture, device: Device, settings: EngineSettings, margin_bytes: int = 0
) -> int | None:
    """Blocks of the pool, one of which each decoding sequence of a recurrent model must find before whole decode steps
    are captured in CUDA graphs (vLLM 0.32: CompilationConfig.resolve_cudagraph_mode_and_sizes); None where that is not
    checked. `margin_bytes`: of the room, left out."""
    plan = cache_plan(architecture, settings, device)
    states = any(group.keeps == "state" for group in plan.groups)
    if settings.enforce_eager or not states or not plan.shared or not plan.rules.block_per_sequence:
        return None
    return plan.pool_blocks(room_bytes(architecture, device, settings) - margin_bytes)


def fits(architecture: Architecture, device: Device, settings: EngineSettings, margin_bytes: int = 0) -> bool:
    """Whether the engine finds room for one sequence of the longest length, with a margin."""
    need = cache_plan(architecture, asked_settings(settings), device).least_room_bytes(settings.max_model_len)
    return room_bytes(architecture, device, settings) >= need + margin_bytes


def longest_tokens(architecture: Architecture, device: Device, settings: EngineSettings, margin_bytes: int = 0) -> int:
    """The longest context whose cache fits, in whole blocks or the model's own; 0 when none does.

    Longer ones also need more activations at times.
    """
    block = settings.block_size_tokens
    limit = architecture.context_max or settings.max_model_len
    low, high = 0, -(-limit // block)
    while low < high:
        middle = (low + high + 1) // 2
        tried = replace(settings, max_model_len=min(middle * block, limit))
        low, high = (middle, high) if fits(architecture, device, tried, margin_bytes) else (low, middle - 1)
    return min(low * block, limit)
