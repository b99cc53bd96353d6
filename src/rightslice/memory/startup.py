"""Would this engine start with these arguments on this device? The answer an operator otherwise gets from a crash."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rightslice.catalogue.architecture import Architecture, AttentionGroup
from rightslice.catalogue.engines import EngineFacts, engine
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.quantities import QuantityError, format_bytes, parse_count
from rightslice.memory.footprint import cache_room_bytes
from rightslice.memory.legality import legal_parallelism, precision_support, slice_parallelism
from rightslice.memory.overheads import activation_bytes, engine_memory, overhead_bytes
from rightslice.memory.speculation import parsed_speculation, speculation_problem, with_draft
from rightslice.memory.stages import asked_bytes, stage_note
from rightslice.memory.weights import lora_bytes, rank_weights_bytes

Verdict = Literal["starts", "does_not_start", "refused", "uncertain"]
GIB: Final = 1 << 30
_UNSURE_BYTES: Final = GIB // 2
"""Margins below this decide nothing: the constants of `engine_memory.json` were within 0.4 GiB of the logs at hand."""
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
_SWITCHES: Final[dict[str, tuple[str, bool]]] = {
    "--enable-expert-parallel": ("expert_parallel", True),
    "--enable-chunked-prefill": ("chunked_prefill", True),
    "--no-enable-chunked-prefill": ("chunked_prefill", False),
    "--enable-prefix-caching": ("prefix_caching", True),
    "--no-enable-prefix-caching": ("prefix_caching", False),
}
_LONG_CHUNKED: Final = 32_768
"""Before 0.8.0 chunked prefill switches itself on above this context."""


@dataclass(frozen=True, slots=True)
class StartupReport:
    """`kv_tokens`: tokens the cache holds at the longest length; `max_model_len_that_fits`: 0 when nothing fits."""

    verdict: Verdict
    reason: str
    kv_tokens: int
    kv_cache_bytes: int
    kv_bytes_needed: int
    max_model_len_that_fits: int
    fix: str
    not_considered: tuple[str, ...]
    notes: tuple[str, ...] = ()


def startup(
    architecture: Architecture,
    device: Device,
    *,
    engine_name: str = "vllm",
    version: str = "",
    arguments: str = "",
    free_bytes: int | None = None,
) -> StartupReport:
    """The verdict on one rank of a replica.

    refused: illegal before anything loads. does_not_start: weights and activations leave less cache than one sequence
    of the longest length needs. uncertain: the margin is within the error of the engine's constants. `free_bytes`:
    free memory at start when others use the device. Raises BadInputError RS0315 or RS0501.
    """
    facts = _facts(engine_name)
    settings, others = parse_arguments(architecture, device, facts, version or facts.latest_version, arguments)
    architecture = with_draft(architecture, settings)
    if refusal := _refusal(architecture, device, settings):
        return StartupReport("refused", refusal[0], 0, 0, 0, 0, refusal[1], others)
    if too_long := _too_long(architecture, device, settings):
        return StartupReport("refused", too_long[0], 0, 0, 0, 0, too_long[1], others)
    if taken := _taken(device, settings, free_bytes):
        return StartupReport("does_not_start", taken[0], 0, 0, 0, 0, taken[1], others)
    seen = _as_cached(architecture, settings)
    room = _room(architecture, device, settings)
    need = math.ceil(asked_bytes(seen, settings.max_model_len, settings))
    longest = _longest(architecture, seen, device, settings)
    verdict: Verdict = "starts" if room >= need else "does_not_start"
    if abs(room - need) < _UNSURE_BYTES and need > 0:
        verdict = "uncertain"
    return StartupReport(
        verdict=verdict,
        reason=_reason(room, need, settings),
        kv_tokens=max(0, math.floor(room / need * settings.max_model_len)) if need > 0 else 0,
        kv_cache_bytes=max(0, room),
        kv_bytes_needed=need,
        max_model_len_that_fits=longest,
        fix=_fix(verdict, longest, architecture, device, settings),
        not_considered=others,
        notes=(*stage_note(seen, settings), *_notes(architecture, settings)),
    )


def _notes(architecture: Architecture, settings: EngineSettings) -> tuple[str, ...]:
    """What the verdict rests on beside the architecture."""
    found = [f"approximated: {text}" for text in architecture.approximations]
    if engine_memory(settings.engine, settings.version).assumed:
        found.append(f"context, graphs and sampler of {settings.engine} are assumed: no start-up log was at hand")
    return tuple(found)


def _facts(name: str) -> EngineFacts:
    try:
        return engine(name)
    except KeyError:
        raise BadInputError(
            Diagnostic("RS0315", f'unknown engine "{name[:60]}"', None, "vllm, sglang, tensorrt-llm")
        ) from None


def parse_arguments(
    architecture: Architecture, device: Device, facts: EngineFacts, version: str, arguments: str
) -> tuple[EngineSettings, tuple[str, ...]]:
    """Settings of an engine started with a command line, and the arguments that do not bear on memory."""
    given, others = _pairs(arguments)
    settings = _defaults(architecture, device, facts, version)
    changes: dict[str, object] = {}
    for flag, text in given:
        if flag in _NUMBERS:
            changes[_NUMBERS[flag]] = _count(flag, text, _MOST.get(flag, 1 << 30))
        elif flag in _SWITCHES:
            field, value = _SWITCHES[flag]
            changes[field] = value
        elif flag == "--gpu-memory-utilization":
            changes["memory_fraction"] = _fraction(flag, text)
        elif flag == "--dtype" and text != "auto":
            changes["weight_dtype"] = _one_of(flag, text, _WIDTHS)
        elif flag == "--kv-cache-dtype" and (kv := _one_of(flag, text, _KV_WIDTHS)):
            changes["kv_dtype"] = kv
        elif flag == "--quantization" and text == "fp8":
            changes["weight_dtype"] = "fp8"
        elif flag == "--speculative-config":
            changes |= parsed_speculation(text)
        elif flag == "--kv-offloading-size":
            continue
        else:
            others.append(flag)
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    return _completed(settings, changes), tuple(dict.fromkeys(others))


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
        max_model_len=architecture.context_max or 2048,
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
    try:
        value = parse_count(text.replace("_", ""))
    except QuantityError as error:
        raise BadInputError(Diagnostic("RS0501", f"{flag}: {error}")) from None
    if not 1 <= value <= most:
        raise BadInputError(Diagnostic("RS0501", f"{flag} {value} is out of range"))
    return value


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


def _refusal(architecture: Architecture, device: Device, settings: EngineSettings) -> tuple[str, str] | None:
    """(reason, fix) of what is illegal before anything loads, or None."""
    if problem := slice_parallelism(device, settings):
        return problem, "--tensor-parallel-size 1"
    if problem := legal_parallelism(architecture, settings):
        sizes = re.findall(r"\d+", problem.rpartition(":")[2])
        smaller = [int(s) for s in sizes if int(s) <= settings.tensor_parallel_size]
        return problem, f"--tensor-parallel-size {max(smaller)}" if smaller else "another checkpoint"
    if problem := speculation_problem(architecture, settings.engine, settings.speculative_method):
        return problem, "another method in --speculative-config"
    dtype = settings.weight_dtype
    if precision_support(device, dtype) == "refused" or _too_old(device, settings):
        fix = "--dtype half" if dtype == "bf16" else "a 16-bit checkpoint"
        return f"{settings.engine} {settings.version} cannot run {dtype} on {device.accelerator.name}", fix
    return None


def _too_long(architecture: Architecture, device: Device, settings: EngineSettings) -> tuple[str, str] | None:
    """(reason, fix) of a context beyond the model's own; the fix also fits the device, where anything does."""
    limit = architecture.context_max
    if limit is None or settings.max_model_len <= limit:
        return None
    tried = replace(settings, max_model_len=limit)
    fitting = _longest(architecture, _as_cached(architecture, tried), device, tried)
    reason = f"--max-model-len {settings.max_model_len} exceeds the model's {limit}"
    return reason, f"--max-model-len {min(limit, fitting) or limit}"


def _taken(device: Device, settings: EngineSettings, free_bytes: int | None) -> tuple[str, str] | None:
    """(reason, fix) when others hold memory that the engine asks for, or None."""
    wanted = settings.memory_fraction * device.memory_bytes
    if free_bytes is None or free_bytes >= wanted:
        return None
    share = math.floor(100 * free_bytes / device.memory_bytes) / 100
    have, asked = format_bytes(free_bytes, binary=True), format_bytes(wanted, binary=True)
    reason = f"{have} free, the engine asks for {settings.memory_fraction:g} x the device = {asked}"
    return reason, f"--gpu-memory-utilization {share:g}"


_FP8_WITHOUT_UNIT: Final = "0.5.2"
"""First version that stores FP8 weights on hardware without FP8 units (vllm#6979); before it they are refused."""


def _too_old(device: Device, settings: EngineSettings) -> bool:
    early = settings.engine == "vllm" and version_key(settings.version) < version_key(_FP8_WITHOUT_UNIT)
    return early and settings.weight_dtype == "fp8" and precision_support(device, "fp8") != "native"


def _room(architecture: Architecture, device: Device, settings: EngineSettings) -> int:
    weights = rank_weights_bytes(architecture, settings) + lora_bytes(architecture, settings)
    activations = activation_bytes(architecture, settings)
    overheads = overhead_bytes(architecture, device, settings)
    return cache_room_bytes(device.memory_bytes, settings, weights, activations, overheads)


def _as_cached(architecture: Architecture, settings: EngineSettings) -> Architecture:
    """What the engine version keeps: before windows had caches of their own, every layer kept every token."""
    if engine_memory(settings.engine, settings.version).windows:
        return architecture
    return replace(architecture, attention=tuple(_unwindowed(g) for g in architecture.attention))


def _unwindowed(group: AttentionGroup) -> AttentionGroup:
    return replace(group, kind="full", window_tokens=0) if group.kind in ("sliding", "chunked") else group


def _longest(architecture: Architecture, seen: Architecture, device: Device, settings: EngineSettings) -> int:
    """The longest context, in whole blocks, whose cache fits; longer ones also need more activations at times."""
    block = settings.block_size_tokens
    high = max(1, (architecture.context_max or settings.max_model_len) // block)
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        tried = replace(settings, max_model_len=middle * block)
        fits = _room(architecture, device, tried) >= asked_bytes(seen, middle * block, tried)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low * block


def _reason(room: int, need: int, settings: EngineSettings) -> str:
    have = format_bytes(max(0, room), binary=True)
    wanted = format_bytes(need, binary=True)
    compared = "at least" if room >= need else "less than"
    return f"{have} of KV cache are left, {compared} the {wanted} that {settings.max_model_len:,} tokens need"


def _fix(verdict: Verdict, longest: int, architecture: Architecture, device: Device, settings: EngineSettings) -> str:
    if verdict == "starts":
        return ""
    if longest >= settings.block_size_tokens and longest < settings.max_model_len:
        return f"--max-model-len {longest}"
    for size in _doubled(settings.tensor_parallel_size):
        tried = replace(settings, tensor_parallel_size=size)
        if not legal_parallelism(architecture, tried) and not slice_parallelism(device, tried):
            need = asked_bytes(architecture, settings.max_model_len, tried)
            if _room(architecture, device, tried) >= need:
                return f"--tensor-parallel-size {size}"
    return "" if longest >= settings.max_model_len else "a smaller model, a lower precision or a larger device"


def _doubled(size: int) -> Sequence[int]:
    return [s for s in (2, 4, 8, 16) if s > size]
