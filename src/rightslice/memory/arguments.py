"""An engine's command line -> the settings that bear on memory."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import GIB, EngineFacts, engine
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.options import quantity_of
from rightslice.core.quantities import parse_count
from rightslice.memory.speculation import parsed_speculation

_WIDTHS: Final[dict[str, str]] = {
    "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32", "fp8": "fp8",
}  # fmt: skip
_KV_WIDTHS: Final[dict[str, str]] = {
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8", "nvfp4": "fp4", "bfloat16": "bf16",
    "float16": "fp16", "bf16": "bf16", "auto": "",
}  # fmt: skip
_SHORT: Final[dict[str, str]] = {
    "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel", "--tp-size": "--tensor-parallel-size", "--tp": "--tensor-parallel-size",
    "--pp-size": "--pipeline-parallel-size", "--context-length": "--max-model-len", "-q": "--quantization",
    "-sc": "--speculative-config",
    "--mem-fraction-static": "--gpu-memory-utilization", "--max-running-requests": "--max-num-seqs",
    "--chunked-prefill-size": "--max-num-batched-tokens", "--device-memory-utilization": "--gpu-memory-utilization",
    "--tensor_parallel_size": "--tensor-parallel-size", "--tp_size": "--tensor-parallel-size",
    "--max_seq_len": "--max-model-len", "--max_batch_size": "--max-num-seqs",
    "--max_num_tokens": "--max-num-batched-tokens", "--free_gpu_memory_fraction": "--gpu-memory-utilization",
    "--kv_cache_free_gpu_memory_fraction": "--gpu-memory-utilization",
}  # fmt: skip
_NUMBERS: Final[dict[str, str]] = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "--data-parallel-size": "data_parallel_size",
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--block-size": "block_size_tokens",
    "--max-loras": "lora_slots",
    "--max-lora-rank": "lora_max_rank",
    "--kv-cache-memory-bytes": "kv_cache_memory_bytes",
}
_MOST: Final[dict[str, int]] = {"--kv-cache-memory-bytes": 1 << 50}
_LORA: Final = "lora"
"""Not a field: one slot of rank 16 unless other arguments say more (vLLM's defaults)."""
_SWITCHES: Final[dict[str, tuple[str, bool]]] = {
    "--enable-expert-parallel": ("expert_parallel", True),
    "--enable-chunked-prefill": ("chunked_prefill", True),
    "--no-enable-chunked-prefill": ("chunked_prefill", False),
    "--enable-prefix-caching": ("prefix_caching", True),
    "--no-enable-prefix-caching": ("prefix_caching", False),
    "--enforce-eager": ("enforce_eager", True),
    "--enable-lora": (_LORA, True),
}
AS_LONG_AS_FITS: Final = 0
"""`max_model_len` of an engine that is told to find the longest context that fits."""
NO_CONTEXT: Final = 2048
_LONG_CHUNKED: Final = 32_768
"""Before 0.8.0 chunked prefill switches itself on above this context."""


def engine_facts(name: str) -> EngineFacts:
    """The engine of that name. Raises BadInputError RS0315."""
    try:
        return engine(name)
    except KeyError:
        raise BadInputError(
            Diagnostic("RS0315", f'unknown engine "{name[:60]}"', None, "vllm, sglang, tensorrt-llm")
        ) from None


@dataclass(frozen=True, slots=True)
class Formats:
    """Weights and cache of a checkpoint as it is taken to be; None: as published, and 16 bit."""

    weights: str | None = None
    kv: str | None = None


AS_PUBLISHED: Final = Formats()


def parse_arguments(
    architecture: Architecture,
    device: Device,
    facts: EngineFacts,
    version: str,
    arguments: str,
    formats: Formats = AS_PUBLISHED,
) -> tuple[EngineSettings, tuple[str, ...]]:
    """Settings of an engine started with a command line, and the arguments that do not bear on memory.

    `--dtype` is the format of computation: a quantised checkpoint stays as it is.
    Raises BadInputError RS0501 for values that make no sense.
    """
    given, others = _pairs(arguments)
    settings = _defaults(architecture, device, facts, version)
    if formats.weights:
        settings = replace(settings, weight_dtype=formats.weights)  # type: ignore[arg-type]
    if formats.kv:
        settings = replace(settings, kv_dtype=formats.kv)  # type: ignore[arg-type]
    changes: dict[str, object] = {}
    for flag, text in given:
        if flag in _NUMBERS:
            changes[_NUMBERS[flag]] = _length(flag, text)
        elif flag in _SWITCHES:
            field, value = _SWITCHES[flag]
            changes[field] = value
        elif flag == "--dtype" and architecture.quantisation:
            _weights(flag, text)
        elif flag in _READERS:
            changes |= _READERS[flag](flag, text)
        elif flag not in _ELSEWHERE:
            others.append(flag)
    if changes.pop(_LORA, False):
        changes = {"lora_slots": 1, "lora_max_rank": 16, **changes}
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    return _completed(settings, changes), tuple(dict.fromkeys(others))


def _length(flag: str, text: str) -> int:
    if flag == "--max-model-len" and text in ("auto", "-1"):
        return AS_LONG_AS_FITS
    return _count(flag, text, _MOST.get(flag, 1 << 30))


def _completed(settings: EngineSettings, changes: dict[str, object]) -> EngineSettings:
    """Defaults that follow from other arguments: before 0.8.0 a step holds a whole prompt unless prefill is chunked."""
    if version_key(settings.version) >= version_key("0.8.0") or settings.engine != "vllm":
        return settings
    chunked = settings.chunked_prefill
    if "chunked_prefill" not in changes:
        chunked = version_key(settings.version) >= version_key("0.5.5") and settings.max_model_len > _LONG_CHUNKED
    return replace(settings, chunked_prefill=chunked)


def _defaults(architecture: Architecture, device: Device, facts: EngineFacts, version: str) -> EngineSettings:
    try:
        defaults = facts.defaults(version, device)
    except KeyError:
        raise BadInputError(
            Diagnostic("RS0501", f"the defaults of {facts.name} {version[:20]} are not known", None, "use engine vllm")
        ) from None
    published = architecture.published_dtype if architecture.published_dtype != "fp32" else "bf16"
    return EngineSettings(
        engine=facts.name,
        version=version,
        weight_dtype=published,  # type: ignore[arg-type]
        kv_dtype="bf16",
        max_model_len=architecture.context_max or NO_CONTEXT,
        max_num_seqs=defaults.max_num_seqs,
        max_num_batched_tokens=defaults.max_num_batched_tokens,
        memory_fraction=defaults.memory_fraction,
        block_size_tokens=defaults.block_size_tokens,
        prefix_caching=defaults.prefix_caching,
        chunked_prefill=defaults.chunked_prefill,
    )


def _pairs(arguments: str) -> tuple[list[tuple[str, str]], list[str]]:
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise BadInputError(Diagnostic("RS0501", f"--engine-args: {error}")) from None
    found: list[tuple[str, str]] = []
    others: list[str] = []
    i = 0
    while i < len(words):
        flag, _, text = words[i].partition("=")
        i += 1
        if not flag.startswith("-"):
            others.append(flag)
            continue
        flag = _SHORT.get(flag, flag)
        takes_value = flag not in _SWITCHES and i < len(words) and not re.match(r"-[A-Za-z-]", words[i])
        if not text and takes_value:
            text = words[i]
            i += 1
        found.append((flag, text))
    return found, others


def _count(flag: str, text: str, most: int) -> int:
    value = quantity_of(flag, parse_count, text.replace("_", ""))
    if not 1 <= value <= most:
        raise BadInputError(Diagnostic("RS0501", f"{flag} {value} is out of range"))
    return value


def _gib(flag: str, text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1 << 20:
        raise BadInputError(Diagnostic("RS0501", f'{flag} "{text[:20]}" is no number of GiB'))
    return round(value * GIB)


def _fraction(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value <= 1.0:
        raise BadInputError(Diagnostic("RS0501", f'{flag} "{text[:20]}" is not a share between 0 and 1'))
    return value


def _one_of(flag: str, text: str, known: dict[str, str]) -> str:
    if text not in known:
        hint = did_you_mean(text, known) or ", ".join(known)
        raise BadInputError(Diagnostic("RS0501", f'{flag}: unknown value "{text[:30]}"', None, hint))
    return known[text]


def _weights(flag: str, text: str) -> dict[str, object]:
    return {} if text == "auto" else {"weight_dtype": _one_of(flag, text, _WIDTHS)}


def _cache_format(flag: str, text: str) -> dict[str, object]:
    kept = _one_of(flag, text, _KV_WIDTHS)
    return {"kv_dtype": kept} if kept else {}


_READERS: Final[dict[str, Callable[[str, str], dict[str, object]]]] = {
    "--gpu-memory-utilization": lambda flag, text: {"memory_fraction": _fraction(flag, text)},
    "--dtype": _weights,
    "--kv-cache-dtype": _cache_format,
    "--quantization": lambda _, text: {"weight_dtype": "fp8"} if text == "fp8" else {},
    "--speculative-config": lambda _, text: parsed_speculation(text),
    "--cpu-offload-gb": lambda flag, text: {"weights_offload_bytes": _gib(flag, text)},
}
_ELSEWHERE: Final = ("--kv-offloading-size",)
"""Memory of the host."""
