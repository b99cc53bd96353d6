"""Pipeline stages at start-up: what an engine compares with the memory of one stage."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.core.quantities import format_bytes
from rightslice.memory.cache import rank_sequence_bytes

_WHOLE_MODEL: Final[dict[str, tuple[str, str]]] = {"vllm": ("0.14.0", "0.16.0")}
"""Engine -> versions (from, before) whose check asks one stage for the cache of all of them: vllm#33698 (regression of
0.14), still so in 0.15.2rc (vllm#34076: 24.0 GiB asked of a stage that needs 8); 0.32.0 checks stage by stage."""


def asks_whole_model(settings: EngineSettings) -> bool:
    """Whether this version refuses by the cache of all stages together."""
    since, before = _WHOLE_MODEL.get(settings.engine, ("", ""))
    if not since or settings.pipeline_parallel_size == 1:
        return False
    return version_key(since) <= version_key(settings.version) < version_key(before)


def asked_settings(settings: EngineSettings) -> EngineSettings:
    """Settings under which the engine's check counts the cache of one sequence."""
    return replace(settings, pipeline_parallel_size=1) if asks_whole_model(settings) else settings


def stage_note(architecture: Architecture, device: Device, settings: EngineSettings) -> tuple[str, ...]:
    """What one stage really needs, where the engine asks for more."""
    if not asks_whole_model(settings):
        return ()
    need = format_bytes(rank_sequence_bytes(architecture, settings.max_model_len, settings, device), binary=True)
    text = f"vLLM {settings.version} compares the cache of all stages with one stage, which needs only {need}"
    return (f"{text}; from {_WHOLE_MODEL[settings.engine][1]} on it checks stage by stage (vllm#33698)",)
