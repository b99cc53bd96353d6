"""Would this engine start with these arguments on this device? The answer an operator otherwise gets from a crash."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.quantities import format_bytes
from rightslice.memory.arguments import (
    AS_LONG_AS_FITS,
    AS_PUBLISHED,
    NO_CONTEXT,
    Formats,
    engine_facts,
    parse_arguments,
)
from rightslice.memory.cache import rank_sequence_bytes
from rightslice.memory.footprint import cache_room_bytes
from rightslice.memory.legality import legal_parallelism, slice_parallelism
from rightslice.memory.overheads import UNSURE_BYTES, activation_bytes, engine_memory, overhead_bytes
from rightslice.memory.precision import kv_support, weight_support
from rightslice.memory.reservation import CachePlan, cache_plan
from rightslice.memory.speculation import speculation_problem, with_draft
from rightslice.memory.stages import asked_settings, stage_note
from rightslice.memory.weights import lora_bytes, rank_weights_bytes

Verdict = Literal["starts", "does_not_start", "refused", "uncertain"]
_LEAST_STEP: Final = 512
"""Prompt tokens of one step below which lowering them further costs more than it saves: an assumption."""


@dataclass(frozen=True, slots=True)
class StartupReport:
    """`kv_tokens`: tokens the cache holds at the longest length, by the bytes that the engine version really keeps for
    them, padding and tokens in flight apart; `max_model_len_that_fits`: 0 when nothing fits.

    Bytes are of one rank. `kv_bytes_needed`: what the engine asks for at the longest length before it starts, which is
    `kv_bytes_reserved_per_sequence` where it counts in blocks of its pool. `logged_kv_tokens` and
    `logged_max_concurrency`: what its log line says, 0 where none is known.
    """

    verdict: Verdict
    reason: str
    kv_tokens: int
    kv_cache_bytes: int
    kv_bytes_needed: int
    max_model_len_that_fits: int
    fix: str
    not_considered: tuple[str, ...]
    notes: tuple[str, ...] = ()
    kv_bytes_reserved_per_sequence: int = 0
    logged_kv_tokens: int = 0
    logged_max_concurrency: float = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """What stays the same while fixes are tried."""

    engine: str
    version: str
    free_bytes: int | None
    formats: Formats


def startup(
    architecture: Architecture,
    device: Device,
    *,
    engine_name: str = "vllm",
    version: str = "",
    arguments: str = "",
    free_bytes: int | None = None,
    formats: Formats = AS_PUBLISHED,
) -> StartupReport:
    """The verdict on one rank of a replica, and a fix that starts when it is taken, where flags can do that.

    refused: illegal before anything loads. does_not_start: weights and activations leave less cache than one sequence
    of the longest length needs. uncertain: the margin is within the error of the engine's constants. `free_bytes`:
    free memory at start when others use the device. `formats` hold where the arguments say nothing else. Raises
    BadInputError RS0315 or RS0501.
    """
    given = Given(engine_name, version, free_bytes, formats)
    found = last = _once(architecture, device, given, arguments)
    flags: dict[str, str] = {}
    for _ in range(_MOST_FIXES):
        flag, _, value = last.fix.partition(" ")
        if not flag.startswith("--") or flag in flags:
            break
        flags[flag] = value
        last = _once(architecture, device, given, " ".join((arguments, *(f"{f} {v}" for f, v in flags.items()))))
        if last.verdict not in _BAD:
            break
    if not flags:
        return found
    taken = " ".join(f"{flag} {value}" for flag, value in flags.items())
    more = f", then {last.fix}" if last.verdict in _BAD and last.fix and not last.fix.startswith("--") else ""
    return replace(found, fix=taken + more)


_BAD: Final = ("refused", "does_not_start")
_MOST_FIXES: Final = 4


def _once(architecture: Architecture, device: Device, given: Given, arguments: str) -> StartupReport:
    """The verdict, and the first thing to change."""
    facts = engine_facts(given.engine)
    version = given.version or facts.latest_version
    settings, others = parse_arguments(architecture, device, facts, version, arguments, given.formats)
    architecture = with_draft(architecture, settings)
    told_to_fit = settings.max_model_len == AS_LONG_AS_FITS
    if told_to_fit:
        settings = _as_long_as_fits(architecture, device, settings)
    if refusal := _refusal(architecture, device, settings):
        return StartupReport("refused", refusal[0], 0, 0, 0, 0, refusal[1], others)
    if too_long := _too_long(architecture, device, settings):
        return StartupReport("refused", too_long[0], 0, 0, 0, 0, too_long[1], others)
    if taken := _taken(device, settings, given.free_bytes):
        return StartupReport("does_not_start", taken[0], 0, 0, 0, 0, taken[1], others)
    asked = asked_settings(settings)
    room, plan = _room(architecture, device, settings), cache_plan(architecture, asked)
    length = settings.max_model_len
    need, reserved = plan.least_room_bytes(length), plan.bytes_per_request(length)
    kept = rank_sequence_bytes(architecture, length, asked) if plan.rules.windows else reserved
    longest = _longest(architecture, device, settings)
    verdict: Verdict = "starts" if room >= need else "does_not_start"
    if abs(room - need) < UNSURE_BYTES and need > 0 and not (told_to_fit and room >= need):
        verdict = "uncertain"
    logged = plan.logged_tokens(room, length)
    return StartupReport(
        verdict=verdict,
        reason=_reason(room, need, settings),
        kv_tokens=max(0, math.floor(room / kept * length)) if kept > 0 else 0,
        kv_cache_bytes=max(0, room),
        kv_bytes_needed=need - plan.held_back_bytes,
        max_model_len_that_fits=longest,
        fix=_fix(verdict, longest, architecture, device, settings),
        not_considered=others,
        notes=(*stage_note(architecture, settings), *_notes(architecture, device, settings, plan)),
        kv_bytes_reserved_per_sequence=reserved,
        logged_kv_tokens=logged,
        logged_max_concurrency=plan.concurrency(room, length) if logged else 0.0,
    )


def _notes(architecture: Architecture, device: Device, settings: EngineSettings, plan: CachePlan) -> tuple[str, ...]:
    """What the verdict rests on beside the architecture."""
    found = [f"approximated: {text}" for text in architecture.approximations]
    support = weight_support(device, settings.weight_dtype, settings.engine, settings.version)
    if support.level == "stored":
        found.append(f"{settings.weight_dtype} weights are only stored so: {support.reason}")
    if plan.groups and not plan.shared:
        found.append(f"how {settings.engine} divides the cache of this model is not known: layers are counted apart")
    if engine_memory(settings.engine, settings.version).assumed:
        found.append(f"context, graphs and sampler of {settings.engine} are assumed: no start-up log was at hand")
    return tuple(found)


def _refusal(architecture: Architecture, device: Device, settings: EngineSettings) -> tuple[str, str] | None:
    """(reason, fix) of what is illegal before anything loads, or None."""
    if problem := slice_parallelism(device, settings):
        return problem, _one_rank(settings)
    if problem := legal_parallelism(architecture, settings):
        sizes = re.findall(r"\d+", problem.rpartition(":")[2])
        smaller = [int(s) for s in sizes if int(s) <= settings.tensor_parallel_size]
        return problem, f"--tensor-parallel-size {max(smaller)}" if smaller else "another checkpoint"
    if problem := speculation_problem(architecture, settings.engine, settings.speculative_method):
        return problem, "another method in --speculative-config"
    dtype = settings.weight_dtype
    asked = settings.engine, settings.version
    support = weight_support(device, dtype, *asked)
    if support.level == "refused":
        return support.reason, "--dtype half" if dtype == "bf16" else "a 16-bit checkpoint"
    support = kv_support(device, settings.kv_dtype, *asked)
    return (support.reason, "--kv-cache-dtype auto") if support.level == "refused" else None


def _one_rank(settings: EngineSettings) -> str:
    sizes = (
        ("--tensor-parallel-size", settings.tensor_parallel_size),
        ("--pipeline-parallel-size", settings.pipeline_parallel_size),
        ("--data-parallel-size", settings.data_parallel_size),
    )
    return " ".join(f"{flag} 1" for flag, size in sizes if size > 1)


def _as_long_as_fits(architecture: Architecture, device: Device, settings: EngineSettings) -> EngineSettings:
    """With the longest context that fits, or the model's own where none does."""
    own = replace(settings, max_model_len=architecture.context_max or NO_CONTEXT)
    return replace(own, max_model_len=_longest(architecture, device, own) or own.max_model_len)


def _too_long(architecture: Architecture, device: Device, settings: EngineSettings) -> tuple[str, str] | None:
    """(reason, fix) of a context beyond the model's own; the fix also fits the device, where anything does."""
    limit = architecture.context_max
    if limit is None or settings.max_model_len <= limit:
        return None
    tried = replace(settings, max_model_len=limit)
    fitting = _longest(architecture, device, tried)
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


def _room(architecture: Architecture, device: Device, settings: EngineSettings) -> int:
    weights = rank_weights_bytes(architecture, settings) + lora_bytes(architecture, settings)
    activations = activation_bytes(architecture, settings)
    overheads = overhead_bytes(architecture, device, settings)
    return cache_room_bytes(device.memory_bytes, settings, weights, activations, overheads)


def _fits(architecture: Architecture, device: Device, settings: EngineSettings, margin_bytes: int = 0) -> bool:
    """Whether the engine finds room for one sequence of the longest length, with a margin."""
    need = cache_plan(architecture, asked_settings(settings)).least_room_bytes(settings.max_model_len)
    return _room(architecture, device, settings) >= need + margin_bytes


def _longest(architecture: Architecture, device: Device, settings: EngineSettings) -> int:
    """The longest context, in whole blocks, whose cache fits; longer ones also need more activations at times."""
    block = settings.block_size_tokens
    high = max(1, (architecture.context_max or settings.max_model_len) // block)
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        fits = _fits(architecture, device, replace(settings, max_model_len=middle * block))
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
    if step := _smaller_step(architecture, device, settings):
        return f"--max-num-batched-tokens {step}"
    if longest >= settings.block_size_tokens and longest < settings.max_model_len:
        return f"--max-model-len {longest}"
    for size in _doubled(settings.tensor_parallel_size):
        tried = replace(settings, tensor_parallel_size=size)
        if legal_parallelism(architecture, tried) or slice_parallelism(device, tried):
            continue
        if _fits(architecture, device, tried):
            return f"--tensor-parallel-size {size}"
    return "" if longest >= settings.max_model_len else "a smaller model, a lower precision or a larger device"


def _smaller_step(architecture: Architecture, device: Device, settings: EngineSettings) -> int:
    """The most tokens of one step with which the asked context starts; 0 when none does or windows keep none of them.

    Windows keep the tokens in flight beside themselves, so that a smaller step costs no context.
    """
    plan = cache_plan(architecture, settings)
    if not settings.chunked_prefill or plan.in_flight_tokens is None:
        return 0
    step = settings.max_num_batched_tokens // 2 if any(g.keeps in ("window", "chunk") for g in plan.groups) else 0
    while step >= max(_LEAST_STEP, settings.max_num_seqs):
        if _fits(architecture, device, replace(settings, max_num_batched_tokens=step), UNSURE_BYTES):
            return step
        step //= 2
    return 0


def _doubled(size: int) -> Sequence[int]:
    return [s for s in (2, 4, 8, 16) if s > size]
