"""Checkpoints of NVIDIA's Model Optimizer: `quant_algo` in `quantization_config` or in `hf_quant_config.json`.

Algorithms as vLLM 0.32 and TensorRT-LLM name them (their quantisation configuration classes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rightslice.catalogue.architectures.config import Config, Json
from rightslice.catalogue.architectures.formats import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    INT8_CHANNEL,
    MXFP4,
    MXFP8,
    NVFP4,
    Format,
    integer,
)
from rightslice.catalogue.architectures.module_names import Names, names_of
from rightslice.catalogue.architectures.scheme import Scheme

_GROUPED: Final = frozenset({"W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ", "W4A16_GPTQ", "W8A16_GPTQ", "W4A8_QSERVE_PER_GROUP"})
_ALGORITHMS: Final[dict[str, Format]] = {
    "FP8": FP8_TENSOR,
    "FP8_PB_WO": FP8_BLOCK,
    "FP8_PB_REAL": FP8_BLOCK,
    "FP8_BLOCK_SCALES": FP8_BLOCK,
    "FP8_1X128_128X128": FP8_BLOCK,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": NVFP4,
    "W4A8_NVFP4_FP8": NVFP4,
    "MXFP4": MXFP4,
    "W4A16_MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": MXFP4,
    "W4A8_MXFP4_MXFP8": MXFP4,
    "MXFP8": MXFP8,
    "INT4_AWQ": integer(4, 128, zero=False),
    "W4A16_AWQ": integer(4, 128, zero=False),
    "W4A8_AWQ": integer(4, 128, zero=False),
    "W4A16_GPTQ": integer(4, 128, zero=True),
    "W8A16_GPTQ": integer(8, 128, zero=True),
    "W4A8_QSERVE_PER_GROUP": integer(4, 128, zero=True),
    "W4A8_QSERVE_PER_CHANNEL": integer(4, 0, zero=True),
    "W4A16": integer(4, 0, zero=False),
    "W8A16": integer(8, 0, zero=False),
    "INT8": INT8_CHANNEL,
    "INT8_SQ": INT8_CHANNEL,
    **dict.fromkeys(
        ("W8A8_SQ_PER_CHANNEL", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN",
         "W8A8_SQ_PER_TENSOR_PLUGIN", "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN"), INT8_CHANNEL),
}  # fmt: skip
_BY_METHOD: Final = {"modelopt_fp4": "NVFP4", "modelopt_mxfp8": "MXFP8", "modelopt_fp8": "FP8"}
FILES: Final = "give the folder with the weight files for exact bytes"


def modelopt(own: Config) -> Scheme | None:
    """The scheme that `quant_algo` names; None where it names none.

    An unknown algorithm is read by the widths in its name (W4A16), or else counted at the base dtype, and flagged.
    """
    value = own.raw("quant_algo")
    if value is not None and not isinstance(value, str):
        raise own.error(f"quant_algo must be a word, not {str(value)[:40]!r}")
    algorithm = (value or _BY_METHOD.get(own.text("quant_method"), "")).upper()
    skip = names_of(own.raw("exclude_modules") or own.raw("ignore"))
    if algorithm in ("", "NO_QUANT", "NONE"):
        return None
    if algorithm == "MIXED_PRECISION":
        return _mixed(own)
    found = _ALGORITHMS.get(algorithm)
    method = f"modelopt-{algorithm.casefold()}"
    if found is None:
        return unknown(f'quantisation algorithm "{algorithm[:40]}"', method[:60], algorithm, skip)
    if algorithm in _GROUPED and (group := group_size(own, "group_size", found.columns)) != found.columns:
        found = replace(found, columns=group)
    return Scheme(method, found, skip=skip)


def unknown(what: str, method: str, hint: str, skip: Names | None) -> Scheme:
    """A scheme for something unknown: the format that its name tells, else none, said as an approximation."""
    guess = next((found for mark, found in _MARKS if mark in hint.upper()), None)
    counted = f"weights are counted as {guess.name}, as its name tells" if guess else "weights are counted unquantised"
    return Scheme(method, guess, skip=skip, approximations=(f"{what} is not known: {counted}; {FILES}",))


_MARKS: Final = (
    ("NVFP4", NVFP4), ("FP4", MXFP4), ("W4A", integer(4, 128, zero=False)), ("INT4", integer(4, 128, zero=False)),
    ("FP8", FP8_TENSOR), ("W8A", INT8_CHANNEL), ("INT8", INT8_CHANNEL),
)  # fmt: skip


def group_size(own: Config, key: str, default: int) -> int:
    """Input channels per scale, 0 for the whole row (written -1). Raises BadInputError RS2007 for 0 and below -1."""
    value = own.raw(key)
    if value is None:
        return default
    if value == -1 and not isinstance(value, bool):
        return 0
    if value == 0 and not isinstance(value, bool):
        raise own.error(f"{key} = 0 is out of range", "-1 for one scale per row, or 32, 64, 128")
    return own.number(key, low=1, high=1 << 20)


def _mixed(own: Config) -> Scheme:
    layers = own.part("quantized_layers")
    if not layers:
        message = "MIXED_PRECISION without quantized_layers: weights are counted unquantised"
        return Scheme("modelopt-mixed", None, approximations=(f"{message}; {FILES}",))
    listed, strange = _listed(layers)
    skip = names_of(own.raw("exclude_modules") or own.raw("ignore"))
    told = f"quantized_layers names unknown algorithms ({', '.join(strange)}): those weights are counted unquantised"
    approximations = (f"{told}; {FILES}",) if strange else ()
    return Scheme("modelopt-mixed", None, own=listed, skip=skip, approximations=approximations)


def _listed(layers: Json) -> tuple[tuple[tuple[Names, Format | None], ...], tuple[str, ...]]:
    """Names of modules with the format of each, and the algorithms that are not known."""
    by_format: dict[Format, list[Json]] = {}
    strange: dict[str, None] = {}
    for name, entry in layers.items() if isinstance(layers, Mapping) else ():
        algorithm = str(entry.get("quant_algo") or "").upper() if isinstance(entry, Mapping) else ""
        if (found := _ALGORITHMS.get(algorithm)) is not None:
            by_format.setdefault(found, []).append(name)
        elif algorithm not in ("", "NONE", "NO_QUANT"):
            strange[algorithm[:40]] = None
    pairs = ((names_of(names), found) for found, names in by_format.items())
    return tuple((names, found) for names, found in pairs if names is not None), tuple(strange)[:5]


def listed_layers(own: Config) -> tuple[tuple[Names, Format | None], ...]:
    """Formats of the modules that `quantized_layers` names."""
    return _listed(own.part("quantized_layers"))[0]
