"""Which format each weight of a checkpoint has: its scheme, from `quantization_config` and `hf_quant_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rightslice.catalogue.architectures.config import Config, Json, Object
from rightslice.catalogue.architectures.methods import read_method
from rightslice.catalogue.architectures.modelopt import modelopt
from rightslice.catalogue.architectures.scheme import Scheme

_PARTS: Final = ("text_config", "llm_config", "thinker_config")


def scheme_of(raw: Object, hf_quant: Object | None, where: str = "") -> Scheme | None:
    """The quantisation scheme of a checkpoint, or None for an unquantised one.

    Raises BadInputError RS2007 for values that mean nothing and RS0311 for a method that keeps its sizes elsewhere.
    """
    config = Config(raw, {}, where)
    own = config.part("quantization_config")
    for key in _PARTS if own is None else ():
        part = config.part(key)
        own = config.inside(part).part("quantization_config") if part is not None else None
        if own is not None:
            break
    if own is None and isinstance(raw.get("quantization"), Mapping) and "bits" in raw["quantization"]:  # type: ignore[operator]
        own = config.part("quantization")  # MLX
    found = read_method(config.inside(own), config) if own else None
    declared = Config(hf_quant, {}, "hf_quant_config.json").part("quantization") if hf_quant is not None else None
    other = modelopt(Config(declared, {}, "hf_quant_config.json")) if declared is not None else None
    return found or other


def kv_dtype(raw: Object, hf_quant: Object | None) -> str:
    """`fp8` or `fp4` when the checkpoint declares a quantised KV cache, else an empty string."""
    found: list[Json] = []
    own = raw.get("quantization_config")
    for part in (own, hf_quant.get("quantization") if hf_quant is not None else None):
        if isinstance(part, Mapping):
            found += [part.get("kv_cache_quant_algo"), part.get("kv_cache_scheme")]
    for value in found:
        if isinstance(value, str) and value:
            return "fp4" if "FP4" in value.upper() else "fp8" if "FP8" in value.upper() else ""
        if isinstance(value, Mapping) and (bits := value.get("num_bits")):
            return ("fp8" if bits == 8 else "fp4") if value.get("type", "float") == "float" else ""
    return ""
