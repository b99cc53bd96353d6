"""The room that an engine leaves for its cache, and the longest context that finds a place in it."""

from __future__ import annotations

from dataclasses import replace

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
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


def fits(architecture: Architecture, device: Device, settings: EngineSettings, margin_bytes: int = 0) -> bool:
    """Whether the engine finds room for one sequence of the longest length, with a margin."""
    need = cache_plan(architecture, asked_settings(settings)).least_room_bytes(settings.max_model_len)
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
