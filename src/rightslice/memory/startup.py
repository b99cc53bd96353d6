"""Would this engine start with these arguments on this device? The answer an operator otherwise gets from a crash."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_arguments import engine_arguments
from rightslice.catalogue.engines import EngineFacts
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.core.quantities import format_bytes
from rightslice.memory.arguments import (
    AS_LONG_AS_FITS,
    AS_PUBLISHED,
    NO_CONTEXT,
    CommandLine,
    Formats,
    engine_facts,
    parse_arguments,
)
from rightslice.memory.cache import rank_sequence_bytes
from rightslice.memory.cache_groups import CachePlan
from rightslice.memory.computation import computation_problem
from rightslice.memory.engine_version import known_version
from rightslice.memory.legality import legal_parallelism, legal_sizes, slice_parallelism, stages_problem
from rightslice.memory.overheads import UNSURE_BYTES, engine_memory
from rightslice.memory.precision import kv_support, weight_support
from rightslice.memory.problems import Problem, Remedy
from rightslice.memory.quantization import quantization_problem
from rightslice.memory.remedies import Judged, Verdict, fix
from rightslice.memory.reservation import cache_plan
from rightslice.memory.room import counted_device, longest_tokens, most_decoding, room_bytes, taken
from rightslice.memory.scheduling import scheduling_problems
from rightslice.memory.serving import serving
from rightslice.memory.speculation import speculation_problem, with_draft
from rightslice.memory.stages import asked_settings, stage_note

_SMALLER: Final = "a smaller model, a lower precision or a larger device"
_ATTENTION: Final = "--attention-backend"
_FREE_FIRST: Final = "free memory of the device, or take another"


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

    architecture: Architecture
    device: Device
    facts: EngineFacts
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
    """The verdict on one rank of a replica, and a fix that starts when it is appended, where arguments can do that.

    refused: illegal before anything loads. does_not_start: weights and activations leave less cache than one sequence
    of the longest length needs. uncertain: the margin is within the error of the engine's constants. `free_bytes`:
    free memory at start when others use the device. `formats` hold where the arguments say nothing else. Raises
    BadInputError RS0315 or RS0501.
    """
    facts = engine_facts(engine_name)
    version, notes = known_version(facts, version)
    given = Given(architecture, device, facts, version, free_bytes, formats)
    judged = _judged(given, arguments)
    otherwise = _SMALLER if free_bytes is None or free_bytes >= device.memory_bytes else _FREE_FIRST
    if judged.line.settings.kv_cache_memory_bytes:
        otherwise = "leave --kv-cache-memory-bytes out"
    mended = fix(lambda text: _judged(given, text), engine_arguments(facts.name), arguments, judged, otherwise)
    return _report(replace(judged, notes=(*judged.notes, *notes)), mended)


def command_line(
    architecture: Architecture,
    device: Device,
    *,
    engine_name: str = "vllm",
    version: str = "",
    arguments: str = "",
    free_bytes: int | None = None,
    formats: Formats = AS_PUBLISHED,
) -> CommandLine:
    """What `startup` judges: the command line with the engine's defaults. Raises as `startup` does."""
    facts = engine_facts(engine_name)
    given = Given(architecture, device, facts, known_version(facts, version)[0], free_bytes, formats)
    return _judged(given, arguments).line


def _judged(given: Given, arguments: str) -> Judged:
    """The verdict on one command line."""
    device = given.device
    line = parse_arguments(given.architecture, device, given.facts, given.version, arguments, given.formats)
    architecture = with_draft(given.architecture, line.settings)
    device = counted_device(given.facts, device, given.free_bytes)
    told_to_fit = line.settings.max_model_len == AS_LONG_AS_FITS
    if told_to_fit:
        line = replace(line, settings=_as_long_as_fits(architecture, device, line.settings))
    settings = line.settings
    defaults = given.facts.defaults(given.version, device)
    notes = tuple(_said(given, line))
    judged = Judged(architecture, device, line, defaults, notes=notes)
    if problem := next(_refusals(given, architecture, line), None):
        return replace(judged, problem=problem)
    if problem := _taken(given, settings):
        return replace(judged, problem=problem, verdict="does_not_start")
    plan = cache_plan(architecture, asked_settings(settings), device)
    room, need = room_bytes(architecture, device, settings), plan.least_room_bytes(settings.max_model_len)
    verdict: Verdict = "starts" if room >= need else "does_not_start"
    if abs(room - need) < UNSURE_BYTES and need > 0 and not (told_to_fit and room >= need):
        verdict = "uncertain"
    if verdict != "does_not_start" and (problem := _too_large(architecture, device, settings)):
        return replace(judged, problem=problem, verdict="does_not_start")
    judged = replace(judged, verdict=verdict, room_bytes=room, need_bytes=need)
    return _with_states(judged) if verdict != "does_not_start" else judged


def _with_states(judged: Judged) -> Judged:
    """The verdict once every decoding sequence wants a block for its recurrent state."""
    asked = judged.architecture, judged.device, judged.line.settings
    unsure = 0 if judged.line.settings.kv_cache_memory_bytes else UNSURE_BYTES
    sure, likely, at_most = (most_decoding(*asked, margin) for margin in (unsure, 0, -unsure))
    count = judged.line.settings.max_num_seqs
    if not judged.line.whole_graphs or sure is None or likely is None or at_most is None or count <= sure:
        return judged
    reason = f"{count:,} sequences need a block of recurrent state each before CUDA graphs are captured, {likely:,} fit"
    fewer: tuple[Remedy, ...] = ((("--max-num-seqs", f"{sure}"),),) if sure else ()
    problem = Problem("states", reason, (*fewer, (("--enforce-eager", ""),)))
    return replace(judged, verdict="does_not_start" if count > at_most else "uncertain", problem=problem)


def _report(judged: Judged, mended: str) -> StartupReport:
    others = judged.line.others
    if judged.problem is not None and not judged.need_bytes:
        return StartupReport(judged.verdict, judged.problem.reason, 0, 0, 0, 0, mended, others, judged.notes)
    architecture, settings = judged.architecture, judged.line.settings
    asked, length, room = asked_settings(settings), settings.max_model_len, judged.room_bytes
    plan = cache_plan(architecture, asked, judged.device)
    reserved = plan.bytes_per_request(length)
    kept = rank_sequence_bytes(architecture, length, asked, judged.device) if plan.rules.windows else reserved
    logged = plan.logged_tokens(room, length)
    notes = _notes(architecture, judged.device, settings, plan)
    return StartupReport(
        verdict=judged.verdict,
        reason=judged.problem.reason if judged.problem else _reason(room, judged.need_bytes, settings),
        kv_tokens=max(0, math.floor(room / kept * length)) if kept > 0 else 0,
        kv_cache_bytes=max(0, room),
        kv_bytes_needed=judged.need_bytes - plan.held_back_bytes,
        max_model_len_that_fits=longest_tokens(architecture, judged.device, settings),
        fix=mended,
        not_considered=others,
        notes=(*stage_note(architecture, judged.device, settings), *notes, *judged.notes),
        kv_bytes_reserved_per_sequence=reserved,
        logged_kv_tokens=logged,
        logged_max_concurrency=plan.concurrency(room, length) if logged else 0.0,
    )


def _said(given: Given, line: CommandLine) -> Iterator[str]:
    """What the engine does with the model and the arguments beside refusing them."""
    found = (
        serving(given.architecture, given.facts, given.version),
        quantization_problem(given.architecture, given.facts, given.version, line.quantization),
    )
    yield from (note for note in found if isinstance(note, str))
    yield from line.notes


def _notes(architecture: Architecture, device: Device, settings: EngineSettings, plan: CachePlan) -> tuple[str, ...]:
    """What the verdict rests on beside the architecture."""
    found = [f"approximated: {text}" for text in architecture.approximations]
    support = weight_support(device, settings.weight_dtype, settings.engine, settings.version)
    if support.level == "stored":
        found.append(f"{settings.weight_dtype} weights are only stored so: {support.reason}")
    if plan.groups and not plan.shared:
        found.append(f"how {settings.engine} divides the cache of this model is not known: layers are counted apart")
    facts, step = engine_facts(settings.engine), settings.max_num_batched_tokens
    if facts.refuses_long_prompts and not settings.chunked_prefill and step < settings.max_model_len:
        names = engine_arguments(facts.name)
        flags = names.spelled("--max-num-batched-tokens"), names.spelled("--enable-chunked-prefill")
        found.append(f"prompts of more than {step:,} tokens ({flags[0]}) are refused without {flags[1]}")
    if engine_memory(settings.engine, settings.version).assumed:
        found.append(f"context, graphs and sampler of {settings.engine} are assumed: no start-up log was at hand")
    return tuple(found)


def _refusals(given: Given, architecture: Architecture, line: CommandLine) -> Iterator[Problem]:
    """What is illegal before anything loads."""
    device, facts, version, settings = given.device, given.facts, given.version, line.settings
    found = (
        serving(given.architecture, facts, version),
        computation_problem(given.architecture, device, facts.name, version, line.compute, line.quantization),
        quantization_problem(given.architecture, facts, version, line.quantization),
    )
    yield from (problem for problem in found if isinstance(problem, Problem))
    if problem := slice_parallelism(device, settings):
        yield Problem("slice", problem, (_one_rank(settings),))
    yield from _parallel(architecture, settings)
    if problem := speculation_problem(architecture, settings.engine, settings.speculative_method):
        yield Problem("speculation", problem, otherwise="another method in --speculative-config")
    yield from _lora(given, line)
    yield from _formats(given, line)
    yield from _too_long(architecture, device, settings)
    yield from scheduling_problems(architecture, settings)


def _lora(given: Given, line: CommandLine) -> Iterator[Problem]:
    """Ranks of adapters that the version whose arguments were read does not take."""
    spelling, rank = engine_arguments(given.facts.name), line.settings.lora_max_rank
    ranks = spelling.lora_ranks
    older = version_key(given.version) < version_key(spelling.version)
    if "lora_max_rank" not in line.given or not ranks or rank in ranks or older:
        return
    legal = spelling.next_rank(rank) or ranks[-1]
    reason = f"{given.facts.title} takes adapters of ranks {', '.join(map(str, ranks))}, not {rank}"
    yield Problem("lora", reason, ((("--max-lora-rank", f"{legal}"),),))


def _formats(given: Given, line: CommandLine) -> Iterator[Problem]:
    """Formats of weights and cache that the device or the version does not run."""
    settings = line.settings
    asked = settings.engine, settings.version
    support = weight_support(given.device, settings.weight_dtype, *asked)
    if support.level == "refused":
        unset: tuple[Remedy, ...] = ((("--quantization", "None"),),) if line.quantization else ()
        yield Problem("weights", support.reason, unset, "a 16-bit checkpoint")
    support = kv_support(given.device, settings.kv_dtype, *asked)
    if support.level == "refused":
        types: tuple[Remedy, ...] = tuple((("--kv-cache-dtype", name),) for name in ("auto", "bfloat16", "bf16"))
        yield Problem("cache", support.reason, types, "a KV cache in 16 bit")
    own = given.facts.own_kv.get(given.architecture.family)
    if own and settings.kv_dtype != own and _ATTENTION not in line.others:
        reason = f"{given.facts.title} keeps the cache of {given.architecture.family} models in {own} only"
        yield Problem("cache", reason, ((("--kv-cache-dtype", own),),))


def _parallel(architecture: Architecture, settings: EngineSettings) -> Iterator[Problem]:
    if problem := stages_problem(architecture, settings):
        yield Problem("stages", problem, ((("--pipeline-parallel-size", f"{max(1, architecture.layers)}"),),))
    elif problem := legal_parallelism(architecture, settings):
        size = settings.tensor_parallel_size
        legal = legal_sizes(architecture, settings)
        nearest = [*reversed([s for s in legal if s <= size]), *(s for s in legal if s > size)]
        yield Problem(
            "tensor", problem, tuple((("--tensor-parallel-size", f"{s}"),) for s in nearest), "another checkpoint"
        )


def _one_rank(settings: EngineSettings) -> Remedy:
    sizes = (
        ("--tensor-parallel-size", settings.tensor_parallel_size),
        ("--pipeline-parallel-size", settings.pipeline_parallel_size),
        ("--data-parallel-size", settings.data_parallel_size),
    )
    return tuple((flag, "1") for flag, size in sizes if size > 1)


def _as_long_as_fits(architecture: Architecture, device: Device, settings: EngineSettings) -> EngineSettings:
    """With the longest context that fits, or the model's own where none does."""
    own = replace(settings, max_model_len=architecture.context_max or NO_CONTEXT)
    return replace(own, max_model_len=longest_tokens(architecture, device, own) or own.max_model_len)


def _too_long(architecture: Architecture, device: Device, settings: EngineSettings) -> Iterator[Problem]:
    """A context beyond the model's own."""
    limit = architecture.context_max
    if limit is None or settings.max_model_len <= limit:
        return
    fitting = longest_tokens(architecture, device, replace(settings, max_model_len=limit))
    name = engine_arguments(settings.engine).spelled("--max-model-len")
    reason = f"{name} {settings.max_model_len} exceeds the model's {limit}"
    lengths = dict.fromkeys(f"{length}" for length in (fitting, limit) if length)
    yield Problem("length", reason, tuple((("--max-model-len", length),) for length in lengths))


def _taken(given: Given, settings: EngineSettings) -> Problem | None:
    """Others hold memory that the engine asks for: where it takes a share of the whole device."""
    reason = taken(given.device, settings, given.free_bytes)
    if not reason:
        return None
    share = math.floor(100 * (given.free_bytes or 0) / given.device.memory_bytes) / 100
    remedies: tuple[Remedy, ...] = ((("--gpu-memory-utilization", f"{share:g}"),),) if share > 0 else ()
    return Problem("free", reason, remedies, _FREE_FIRST)


def _too_large(architecture: Architecture, device: Device, settings: EngineSettings) -> Problem | None:
    """A cache of given size that the device does not hold beside the rest: the engine runs out of memory over it."""
    given = settings.kv_cache_memory_bytes
    left = given and room_bytes(architecture, device, replace(settings, kv_cache_memory_bytes=0, memory_fraction=1.0))
    if given <= left + UNSURE_BYTES:
        return None
    have, asked = format_bytes(max(0, left), binary=True), format_bytes(given, binary=True)
    smaller: tuple[Remedy, ...] = ((("--kv-cache-memory-bytes", f"{left}"),),) if left > 0 else ()
    larger = [size for size in legal_sizes(architecture, settings) if size > settings.tensor_parallel_size]
    remedies = (*smaller, *((("--tensor-parallel-size", f"{size}"),) for size in larger))
    return Problem("given", f"{have} are left for a cache of the {asked} that are given", remedies)


def _reason(room: int, need: int, settings: EngineSettings) -> str:
    have = format_bytes(max(0, room), binary=True)
    wanted = format_bytes(need, binary=True)
    compared = "at least" if room >= need else "less than"
    return f"{have} of KV cache are left, {compared} the {wanted} that {settings.max_model_len:,} tokens need"
