"""An engine's command line -> the settings that bear on memory."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_arguments import COMMON, EngineArguments, engine_arguments, names_of_all
from rightslice.catalogue.engines import GIB, EngineFacts, engine
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.memory.computation import chosen
from rightslice.memory.speculation import parsed_speculation

_COMPUTE: Final[dict[str, str]] = {
    "auto": "", "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32",
}  # fmt: skip
_KV_WIDTHS: Final[dict[str, str]] = {
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8", "nvfp4": "fp4", "bfloat16": "bf16",
    "float16": "fp16", "bf16": "bf16", "auto": "",
}  # fmt: skip
_WORDS: Final = {"--dtype": _COMPUTE, "--kv-cache-dtype": _KV_WIDTHS}
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
}
_MOST: Final[dict[str, int]] = {"--kv-cache-memory-bytes": 1 << 50}
_LORA: Final = "lora"
"""Not a field: one slot of rank 16 unless other arguments say more (vLLM's defaults)."""
_DP_ATTENTION: Final = "dp_attention"
"""Not a field: data-parallel ranks are a part of the tensor-parallel ones (SGLang)."""
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
    them for each of the settings' (the data-parallel ones of DP attention). `others`: arguments that do not bear on
    memory.
    """

    settings: EngineSettings
    given: frozenset[str] = frozenset()
    compute: str = ""
    quantization: str = ""
    ranks_per_tensor: int = 1
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
    changes, words, others = _read(spelling, facts, arguments)
    compute = chosen(architecture, device, facts.name, version, words.get("--dtype", ""))
    settings = _defaults(architecture, device, facts, version)
    weights = formats.weights or (architecture.published_dtype if architecture.quantisation else compute)
    method = words.get("--quantization", "")
    if spelling.quantization is not None and not architecture.quantisation:
        weights = spelling.quantization.while_loading.get(method) or weights
    kept = words.get("--kv-cache-dtype") or formats.kv or ("fp32" if formats.weights == "fp32" else compute)
    settings = replace(settings, weight_dtype=weights, kv_dtype=kept)  # type: ignore[arg-type]
    if changes.pop(_LORA, False):
        changes = {"lora_slots": 1, "lora_max_rank": 16, **changes}
    settings, ranks, notes = _ranked(settings, facts, changes)
    return CommandLine(
        settings=_completed(architecture, settings, changes),
        given=frozenset(changes),
        compute=words.get("--dtype", ""),
        quantization=method,
        ranks_per_tensor=ranks,
        others=tuple(dict.fromkeys(others)),
        notes=notes,
    )


def _read(
    spelling: EngineArguments, facts: EngineFacts, arguments: str
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Fields of the settings, the words of arguments that are no field, and what does not bear on memory."""
    given, others = _pairs(spelling, facts, arguments)
    changes: dict[str, Any] = {}
    words: dict[str, str] = {}
    for name, flag, text in given:
        if name == "--max-num-batched-tokens" and facts.name != COMMON and text == "-1":
            changes["chunked_prefill"] = False
        elif name in _NUMBERS:
            changes[_NUMBERS[name]] = _number(name, flag, text, suffixed=name in spelling.suffixed)
        elif name in _SWITCHES:
            field, value = _SWITCHES[name]
            changes[field] = value
        elif name in _WORDS:
            words[name] = _one_of(flag, text, _WORDS[name])
        elif name == "--quantization" and not text:
            raise BadInputError(Diagnostic("RS0501", f"{flag} needs a method"))
        elif name == "--quantization":
            unset = spelling.quantization.unset if spelling.quantization else ""
            words[name] = "" if text == unset else text[:40]
        elif name in _READERS:
            changes |= _READERS[name](flag, text)
        elif name not in _ELSEWHERE:
            others.append(flag)
    return changes, words, others


def _number(name: str, flag: str, text: str, *, suffixed: bool) -> int | bool:
    if name == "--max-model-len" and suffixed and text.casefold() in ("auto", "-1"):
        return AS_LONG_AS_FITS
    value = whole_number(flag, text, suffixed=suffixed)
    if not 1 <= value <= _MOST.get(name, 1 << 30):
        raise BadInputError(Diagnostic("RS0501", f"{flag} {value} is out of range"))
    return value > 1 if name == "--expert-parallel-size" else value


_POWERS: Final = {"k": 1, "m": 2, "g": 3, "t": 4}


def whole_number(flag: str, text: str, *, suffixed: bool) -> int:
    """`4096`; where an engine takes suffixes also `32k` = 32,000, `25.6k` = 25,600 and `32K` = 32,768.

    Raises BadInputError RS0501 for anything else: capital suffixes take whole numbers only (vLLM 0.32:
    human_readable_int).
    """
    match = re.fullmatch(r"(\d{1,30})(\.\d{1,30})?([kKmMgGtT])", text.strip()) if suffixed else None
    if match is not None:
        whole, decimals, suffix = match.groups()
        power = _POWERS[suffix.casefold()]
        if suffix.islower():
            return math.floor(float(whole + (decimals or "")) * float(1000**power))
        if decimals is None:
            return int(whole) * int(1024**power)
        hint = f"{whole}{decimals}{suffix.lower()}"
        raise BadInputError(Diagnostic("RS0501", f'{flag} "{text[:40]}": {suffix} takes whole numbers', None, hint))
    if re.fullmatch(r"[+-]?\d+(_\d+)*", text.strip()) and len(text) <= 60:
        return int(text)
    hint = "4096, 32k = 32,000 or 32K = 32,768" if suffixed else "a whole number such as 4096"
    raise BadInputError(Diagnostic("RS0501", f'{flag} "{text[:40]}" is no whole number', None, hint))


def _ranked(
    settings: EngineSettings, facts: EngineFacts, changes: dict[str, Any]
) -> tuple[EngineSettings, int, tuple[str, ...]]:
    """(settings, tensor ranks of the engine for one of the settings', notes) with `changes` made.

    SGLang: `--enable-dp-attention` divides the tensor-parallel ranks into data-parallel ones for the attention; without
    it they are replicas of their own behind one port.
    """
    inside = changes.pop(_DP_ATTENTION, False)
    settings = replace(settings, **changes)
    ranks, tensor = settings.data_parallel_size, settings.tensor_parallel_size
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


def _pairs(
    spelling: EngineArguments, facts: EngineFacts, arguments: str
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """(common name, as written, value) of what is known or looks like an argument, and words that belong to none."""
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise BadInputError(Diagnostic("RS0501", f"--engine-args: {error}")) from None
    found: list[tuple[str, str, str]] = []
    others: list[str] = []
    i = 0
    while i < len(words):
        flag, given, text = words[i].partition("=")
        i += 1
        if not flag.startswith("-"):
            others.append(flag)
            continue
        name = _common_name(spelling, facts, flag)
        takes_value = name not in _SWITCHES and i < len(words) and not re.match(r"-[A-Za-z-]", words[i])
        if not given and takes_value:
            text = words[i]
            i += 1
        found.append((name, flag, text))
    return found, others


def _common_name(spelling: EngineArguments, facts: EngineFacts, flag: str) -> str:
    """The name under which a flag is read. Raises BadInputError RS0501 for one that only other engines have."""
    own = f"--{flag[2:].replace('_', '-')}" if spelling.underscores and flag.startswith("--") else flag
    if own in spelling.names:
        return spelling.names[own]
    meant = names_of_all().get(flag)
    if meant is None:
        return flag
    hint = spelling.spelled(meant) or f"leave it out: {facts.title} has none like it"
    raise BadInputError(Diagnostic("RS0501", f"{facts.title} has no argument {flag}", None, hint))


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


_READERS: Final[dict[str, Callable[[str, str], dict[str, Any]]]] = {
    "--gpu-memory-utilization": lambda flag, text: {"memory_fraction": _fraction(flag, text)},
    "--speculative-config": lambda _, text: parsed_speculation(text),
    "--cpu-offload-gb": lambda flag, text: {"weights_offload_bytes": _gib(flag, text)},
}
_ELSEWHERE: Final = ("--kv-offloading-size",)
"""Memory of the host."""
