"""Values of an engine's arguments, as its parser reads them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

from rightslice.catalogue.engine_arguments import EngineArguments
from rightslice.catalogue.engines import GIB
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.memory.speculation import parsed_speculation

_COMPUTE: Final[dict[str, str]] = {
    "auto": "", "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32",
}  # fmt: skip
_KV_WIDTHS: Final[dict[str, str]] = {
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8", "nvfp4": "fp4", "bfloat16": "bf16",
    "float16": "fp16", "bf16": "bf16", "auto": "",
}  # fmt: skip
_LEVELS: Final[dict[str, str]] = {"0": "none", "1": "piecewise", "2": "", "3": ""}
"""Level of optimisation -> the mode that it implies (vLLM 0.32: config/vllm.py); empty: whole steps."""
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


def _method(spelling: EngineArguments, flag: str, text: str) -> str:
    if not text:
        raise BadInputError(Diagnostic("RS0501", f"{flag} needs a method"))
    unset = spelling.quantization.unset if spelling.quantization else ""
    return "" if text == unset else text[:40]


def _graph_mode(flag: str, text: str) -> str:
    """The mode of CUDA graphs in a compilation config: JSON, or an old level; empty where it says none."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict | int):
        raise BadInputError(
            Diagnostic("RS0501", f'{flag} "{text[:30]}" is no JSON object', None, '{"cudagraph_mode": "PIECEWISE"}')
        )
    return str(given.get("cudagraph_mode") or "").casefold() if isinstance(given, dict) else ""


def _one_of(flag: str, text: str, known: dict[str, str]) -> str:
    if text not in known:
        hint = did_you_mean(text, known) or ", ".join(known)
        raise BadInputError(Diagnostic("RS0501", f'{flag}: unknown value "{text[:30]}"', None, hint))
    return known[text]


READERS: Final[dict[str, Callable[[str, str], dict[str, Any]]]] = {
    "--gpu-memory-utilization": lambda flag, text: {"memory_fraction": _fraction(flag, text)},
    "--speculative-config": lambda _, text: parsed_speculation(text),
    "--cpu-offload-gb": lambda flag, text: {"weights_offload_bytes": _gib(flag, text)},
}
WORDS: Final[dict[str, Callable[[EngineArguments, str, str], str]]] = {
    "--dtype": lambda _, flag, text: _one_of(flag, text, _COMPUTE),
    "--kv-cache-dtype": lambda _, flag, text: _one_of(flag, text, _KV_WIDTHS),
    "--compilation-config": lambda _, flag, text: _graph_mode(flag, text),
    "--optimization-level": lambda _, flag, text: _one_of(flag, text, _LEVELS),
    "--quantization": _method,
}
