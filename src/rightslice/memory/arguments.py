"""An engine's command line -> the settings that bear on memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_arguments import COMMON, EngineArguments, engine_arguments
from rightslice.catalogue.engines import EngineFacts, engine
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.memory.computation import cache_dtype, cache_note, chosen
from rightslice.memory.flags import Words, words_of
from rightslice.memory.values import READERS, WORDS, whole_number

_NUMBERS: Final[dict[str, str]] = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "--data-parallel-size": "data_parallel_size",
    "--expert-parallel-size": "expert_parallel",
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--block-size": "block_size_tokens",
    "--max-loras": "lora_slots",
    "--max-lora-rank": "lora_max_rank",
    "--kv-cache-memory-bytes": "kv_cache_memory_bytes",
    "--cuda-graph-max-bs": "graph_sequences",
}
_MOST: Final[dict[str, int]] = {"--kv-cache-memory-bytes": 1 << 50}
_LORA: Final = "lora"
"""Not a field: one slot of rank 16 unless other arguments say more (vLLM's defaults)."""
_DP_ATTENTION: Final = "dp_attention"
"""Not a field: data-parallel ranks are a part of the tensor-parallel ones (SGLang)."""
_GRAPHS: Final = "graph_sequences"
"""Not a field: most sequences of a captured step (SGLang)."""
_PARTIAL: Final[dict[str, bool]] = {"none": True, "piecewise": False}
"""Modes of CUDA graphs that capture no whole decode step, and whether they capture nothing at all."""
_SWITCHES: Final[dict[str, tuple[str, bool]]] = {
    "--enable-expert-parallel": ("expert_parallel", True),
    "--no-enable-expert-parallel": ("expert_parallel", False),
    "--enable-chunked-prefill": ("chunked_prefill", True),
    "--no-enable-chunked-prefill": ("chunked_prefill", False),
    "--enable-prefix-caching": ("prefix_caching", True),
    "--no-enable-prefix-caching": ("prefix_caching", False),
    "--enforce-eager": ("enforce_eager", True),
    "--no-enforce-eager": ("enforce_eager", False),
    "--enable-lora": (_LORA, True),
    "--no-enable-lora": (_LORA, False),
    "--enable-dp-attention": (_DP_ATTENTION, True),
}
_ELSEWHERE: Final = ("--kv-offloading-size",)
"""Memory of the host."""
AS_LONG_AS_FITS: Final = 0
"""`max_model_len` of an engine that is told to find the longest context that fits."""
NO_CONTEXT: Final = 2048
_LONG_CHUNKED: Final = 32_768
"""Before 0.8.0 chunked prefill switches itself on above this context."""
_LEAST_WHOLE_PROMPT: Final = 2048


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


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line says.

    `given`: fields of the settings that it names. `compute`: format of computation asked for and `quantization`:
    method asked for, empty where the engine chooses. `ranks_per_tensor`: tensor-parallel ranks as the engine counts
    them for each of the settings' (the data-parallel ones of DP attention). `whole_graphs`: whole decode steps are
    captured. `others`: arguments that do not bear on memory.
    """

    settings: EngineSettings
    given: frozenset[str] = frozenset()
    compute: str = ""
    quantization: str = ""
    ranks_per_tensor: int = 1
    whole_graphs: bool = True
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse_arguments(
    architecture: Architecture,
    device: Device,
    facts: EngineFacts,
    version: str,
    arguments: str,
    formats: Formats = AS_PUBLISHED,
) -> CommandLine:
    """Settings of an engine started with a command line, defaults that follow from other arguments included.

    The format of computation is that of the weights, unless the checkpoint is quantised, and of the cache, unless the
    arguments say otherwise. Raises BadInputError RS0501 for values that make no sense and for names of other engines.
    """
    spelling = engine_arguments(facts.name)
    given = words_of(spelling, facts, version, arguments, lambda name: name in _SWITCHES)
    changes, words, others = _read(spelling, facts, given)
    compute = chosen(architecture, device, facts.name, version, words.get("--dtype", ""))
    settings = _defaults(architecture, device, facts, version)
    weights = formats.weights or (architecture.published_dtype if architecture.quantisation else compute)
    method = words.get("--quantization", "")
    if spelling.quantization is not None and not architecture.quantisation:
        weights = spelling.quantization.while_loading.get(method) or weights
    asked = words.get("--kv-cache-dtype") or formats.kv or ""
    kept = cache_dtype(architecture, facts.name, version, "fp32" if formats.weights == "fp32" else compute, asked)
    settings = replace(settings, weight_dtype=weights, kv_dtype=kept)  # type: ignore[arg-type]
    if changes.pop(_LORA, False):
        changes = {"lora_slots": 1, "lora_max_rank": 16, **changes}
    partial = words.get("--compilation-config") or words.get("--optimization-level", "")
    if _PARTIAL.get(partial, False):
        changes.setdefault("enforce_eager", True)
    graphs = changes.pop(_GRAPHS, None)
    settings, ranks, notes = _ranked(settings, facts, changes)
    if facts.reserve is not None and "memory_fraction" not in changes:
        share = facts.reserve.share(version, device, settings, ranks, graphs)
        settings = replace(settings, memory_fraction=settings.memory_fraction if share is None else share)
    return CommandLine(
        settings=_completed(architecture, settings, changes),
        given=frozenset(changes),
        compute=words.get("--dtype", ""),
        quantization=method,
        ranks_per_tensor=ranks,
        whole_graphs=partial not in _PARTIAL,
        others=tuple(dict.fromkeys(others)),
        notes=tuple(
            note for note in (*given.notes, *notes, cache_note(architecture, facts.name, version, asked)) if note
        ),
    )


def _read(
    spelling: EngineArguments, facts: EngineFacts, given: Words
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Fields of the settings, the words of arguments that are no field, and what does not bear on memory."""
    changes: dict[str, Any] = {}
    words: dict[str, str] = {}
    others = list(given.others)
    for name, flag, text in given.pairs:
        if name == "--max-num-batched-tokens" and facts.name != COMMON and text == "-1":
            changes["chunked_prefill"] = False
        elif name in _NUMBERS:
            changes[_NUMBERS[name]] = _number(name, flag, text, suffixed=name in spelling.suffixed)
        elif name in _SWITCHES:
            field, value = _SWITCHES[name]
            changes[field] = value
        elif name in WORDS:
            words[name] = WORDS[name](spelling, flag, text)
        elif name in READERS:
            changes |= READERS[name](flag, text)
        elif name not in _ELSEWHERE:
            others.append(flag)
    return changes, words, others


def _number(name: str, flag: str, text: str, *, suffixed: bool) -> int:
    if name == "--max-model-len" and suffixed and text.casefold() in ("auto", "-1"):
        return AS_LONG_AS_FITS
    value = whole_number(flag, text, suffixed=suffixed)
    if not 1 <= value <= _MOST.get(name, 1 << 30):
        raise BadInputError(Diagnostic("RS0501", f"{flag} {value} is out of range"))
    return value


def _ranked(
    settings: EngineSettings, facts: EngineFacts, changes: dict[str, Any]
) -> tuple[EngineSettings, int, tuple[str, ...]]:
    """(settings, tensor ranks of the engine for one of the settings', notes) with `changes` made.

    SGLang: `--enable-dp-attention` divides the tensor-parallel ranks into data-parallel ones for the attention; without
    it they are replicas of their own behind one port. Ranks that share the experts are a part of the tensor-parallel
    ones (SGLang, TensorRT-LLM). Raises BadInputError RS0501 where sizes do not divide.
    """
    inside = changes.pop(_DP_ATTENTION, False)
    experts = changes.get("expert_parallel", True)
    if experts is not True and experts is not False:
        changes["expert_parallel"] = experts > 1
    settings = replace(settings, **changes)
    ranks, tensor = settings.data_parallel_size, settings.tensor_parallel_size
    if experts and tensor % experts:
        flags = [engine_arguments(facts.name).spelled(f"--{kind}-parallel-size") for kind in ("expert", "tensor")]
        message = f"{flags[0]} {experts} does not divide {flags[1]} {tensor}"
        raise BadInputError(Diagnostic("RS0501", message, None, f"{flags[0]} {math.gcd(experts, tensor)}"))
    if facts.name == COMMON or ranks == 1:
        return settings, 1, ()
    if inside and tensor % ranks == 0:
        return replace(settings, tensor_parallel_size=tensor // ranks), ranks, ()
    if inside:
        message = f"--dp-size {ranks} does not divide --tp-size {tensor}, as DP attention needs"
        raise BadInputError(Diagnostic("RS0501", message, None, f"--dp-size {math.gcd(ranks, tensor)}"))
    note = f"{ranks} data-parallel replicas of {settings.gpus_per_replica // ranks} devices each: the answer is for one"
    return replace(settings, data_parallel_size=1), 1, (note,)


def _completed(architecture: Architecture, settings: EngineSettings, changes: Mapping[str, Any]) -> EngineSettings:
    """Defaults that follow from other arguments.

    vLLM: before 0.8.0 a step holds a whole prompt unless prefill is chunked; models other than decoders never chunk.
    A step that is not given is at least a whole prompt where none is chunked, and never more than all sequences at full
    length; sequences that are not given are no more than the step (0.32: EngineArgs.create_engine_config).
    """
    if settings.engine != COMMON:
        return settings
    chunked = settings.chunked_prefill
    old = version_key(settings.version) < version_key("0.8.0")
    if "chunked_prefill" not in changes and old:
        chunked = version_key(settings.version) >= version_key("0.5.5") and settings.max_model_len > _LONG_CHUNKED
    if architecture.kind == "encoder-decoder" or (architecture.kind != "decoder" and "chunked_prefill" not in changes):
        chunked = False
    step, sequences = settings.max_num_batched_tokens, settings.max_num_seqs
    if "max_num_batched_tokens" not in changes and settings.max_model_len != AS_LONG_AS_FITS:
        if not chunked:
            step = max(settings.max_model_len, _LEAST_WHOLE_PROMPT if old else step)
        step = min(step, sequences * settings.max_model_len)
    if "max_num_seqs" not in changes:
        sequences = min(sequences, step)
    return replace(settings, chunked_prefill=chunked, max_num_batched_tokens=step, max_num_seqs=sequences)


def _defaults(architecture: Architecture, device: Device, facts: EngineFacts, version: str) -> EngineSettings:
    try:
        defaults = facts.defaults(version, device)
    except KeyError:
        raise BadInputError(
            Diagnostic("RS0501", f"the defaults of {facts.name} {version[:20]} are not known", None, "use engine vllm")
        ) from None
    return EngineSettings(
        engine=facts.name,
        version=version,
        max_model_len=architecture.context_max or NO_CONTEXT,
        max_num_seqs=defaults.max_num_seqs,
        max_num_batched_tokens=defaults.max_num_batched_tokens,
        memory_fraction=defaults.memory_fraction,
        block_size_tokens=defaults.block_size_tokens,
        prefix_caching=defaults.prefix_caching,
        chunked_prefill=defaults.chunked_prefill,
    )
