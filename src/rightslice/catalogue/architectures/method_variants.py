"""The rarer values of `quant_method`: layouts of their own, formats made while the weights load, sizes kept elsewhere.

Keys and defaults are those of the quantisation configuration classes of Transformers 5.19 and vLLM 0.32. Where a
layout's scales are not in the configuration they are estimated, and the answer says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from rightslice.catalogue.architectures.config import Config, Json
from rightslice.catalogue.architectures.formats import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    INT8_CHANNEL,
    MXFP4,
    MXFP6,
    MXFP8,
    NVFP4,
    Format,
    affine,
    integer,
)
from rightslice.catalogue.architectures.modelopt import FILES, group_size, unknown
from rightslice.catalogue.architectures.module_names import Names, names_of
from rightslice.catalogue.architectures.scheme import Scheme
from rightslice.core.errors import BadInputError, Diagnostic, Location

_TWO_BITS: Final = "2-bit weights: what runs them is judged as for INT4"


def _torchao(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    """`quant_type`: a word of older releases, or {"default": {"_type": ..., "_data": {...}}}."""
    value = own.raw("quant_type")
    named = value.get("default", value) if isinstance(value, Mapping) else value
    data = named.get("_data") if isinstance(named, Mapping) else own.raw("quant_type_kwargs")
    word = str(named.get("_type") or "") if isinstance(named, Mapping) else str(named or "")
    inner = own.inside(data if isinstance(data, Mapping) else {})
    found = _torchao_format(word.casefold().replace("_", ""), inner)
    if found is None:
        return unknown(f'torchao\'s "{word[:40]}"', method, word, skip)
    told = [f"torchao's {word[:60]} keeps layouts of its own: scales are estimated; {FILES}"]
    if own.flag("include_input_output_embeddings"):
        told.append("embedding and head are quantised too, and counted unquantised")
    return Scheme(method, found, skip=skip, approximations=tuple(told))


def _torchao_format(word: str, data: Config) -> Format | None:
    """The stored weights: torchao keeps the 4-bit ones beside 8-bit activations in a byte each."""
    if word.startswith(("int8dynamicactivationint4", "int8dynamicactivationintx", "intxweightonly")):
        return affine(8, group_size(data, "group_size", 32))
    if "int4weight" in word:
        return affine(4, group_size(data, "group_size", 128))
    if word.startswith(("uintxweight", "uint")):
        return affine(8, group_size(data, "group_size", 64))
    if "int8weight" in word:
        return INT8_CHANNEL
    if "nvfp4" in word:
        return NVFP4
    if word.startswith("mx"):
        return MXFP4 if "float4" in str(data.raw("weight_dtype")) else MXFP8
    return FP8_CHANNEL if "float8" in word else None


def _hqq(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    """Bits and group stand in the configuration or in `quant_config.weight_quant_params`."""
    nested = own.part("quant_config")
    inner = own.inside(nested) if nested is not None else own
    part = inner.part("weight_quant_params")
    inner = own.inside(part) if part is not None else inner
    bits = inner.number("nbits", 4, low=1, high=8)
    if bits not in (1, 2, 3, 4, 8):
        raise own.error(f"hqq: nbits = {bits}", "one of 1, 2, 3, 4, 8")
    told = [f"hqq: layers may have a configuration of their own, which is not read; {FILES}"]
    return Scheme(
        method,
        affine(bits, group_size(inner, "group_size", 64)),
        skip=skip,
        notes=(_TWO_BITS.replace("2", str(bits), 1),) if bits not in (4, 8) else (),
        approximations=tuple(told) if own.raw("dynamic_config") else (),
    )


_QUARK: Final[Mapping[str, Format]] = {
    "int8": INT8_CHANNEL, "uint8": INT8_CHANNEL, "fp4": MXFP4, "mxfp4": MXFP4, "fp6_e2m3": MXFP6, "fp6_e3m2": MXFP6,
    "mxfp6_e2m3": MXFP6, "mxfp6_e3m2": MXFP6, "mxfp8_e4m3": MXFP8,
}  # fmt: skip


def _quark(method: str, own: Config, _config: Config, _skip: Names | None) -> Scheme:
    """`global_quant_config` for all, `layer_quant_config` by names, `exclude` for what stays."""
    skip = names_of(own.raw("exclude"))
    entry = own.part("global_quant_config")
    default = _quark_format(own, entry.get("weight")) if entry is not None else None
    listed = []
    for name, part in (own.part("layer_quant_config") or {}).items():
        found = _quark_format(own, part.get("weight")) if isinstance(part, Mapping) else None
        if found is not None and (names := names_of([name])) is not None:
            listed.append((names, found))
    if default is None and not listed:
        return unknown("quark without a weight format that is known", method, "", skip)
    return Scheme(method, default, own=tuple(listed), skip=skip)


def _quark_format(own: Config, weight: Json) -> Format | None:
    if isinstance(weight, list) and weight:
        weight = weight[-1] if len(weight) == 2 and _dtype(weight[-1]).startswith(("int4", "uint4")) else weight[0]
    if not isinstance(weight, Mapping):
        return None
    inner, dtype = own.inside(weight), _dtype(weight)
    if dtype in ("int4", "uint4"):
        return integer(4, group_size(inner, "group_size", 128), zero=weight.get("symmetric") is False)
    if dtype.startswith("fp8"):
        scheme = weight.get("qscheme")
        if scheme == "per_group":
            return MXFP8
        return FP8_BLOCK if scheme == "per_block" else FP8_CHANNEL if scheme == "per_channel" else FP8_TENSOR
    return _QUARK.get(dtype)


def _dtype(weight: Json) -> str:
    return str(weight.get("dtype") or "") if isinstance(weight, Mapping) else ""


def _eetq(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    if own.text("weights", "int8") != "int8":
        raise own.error(f"eetq: weights {str(own.raw('weights'))[:40]!r}", "int8")
    return Scheme(method, Format("int8", 8, 2, rows=1), skip=skip)


_QUANTO: Final[Mapping[str, Format]] = {
    "float8": FP8_CHANNEL, "int8": Format("int8", 8, 2, rows=1), "int4": affine(4, 128), "int2": affine(2, 128),
}  # fmt: skip


def _quanto(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    word = own.text("weights", "int8")
    if word not in _QUANTO:
        raise own.error(f"quanto: weights {word[:40]!r}", f"one of {', '.join(_QUANTO)}")
    told = f"quanto's scales are estimated; {FILES}"
    return Scheme(method, _QUANTO[word], skip=skip, approximations=(told,))


def _bitnet(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme | None:
    """Offline: four ternary weights in a byte and a scale per matrix. Online: 16-bit weights, ternary in each step."""
    if own.text("quantization_mode", "offline") == "online":
        return None
    return Scheme(method, Format("int4", 2, 2), skip=skip, notes=(_TWO_BITS,))


def _aqlm(method: str, own: Config, _config: Config, _skip: Names | None) -> Scheme:
    """Codes of `nbits_per_codebook` bits for each block of weights and codebook, the codebooks, a scale per row."""
    inputs, outputs = own.number("in_group_size", 8, low=1, high=1024), own.number("out_group_size", 1, low=1, high=64)
    books, width = own.number("num_codebooks", 1, low=1, high=16), own.number("nbits_per_codebook", 16, low=1, high=24)
    bits = books * width / (inputs * outputs)
    if bits > 8:
        raise own.error(f"aqlm: {books} codebooks of {width} bits per {inputs} x {outputs} weights: {bits:g} bits each")
    held = books * 2**width * inputs * outputs * 2
    found = Format("int4" if bits <= 4 else "int8", bits, 2, rows=outputs, matrix_bytes=held)
    skip = names_of(own.raw("linear_weights_not_to_quantize"))
    return Scheme(method, found, skip=skip, notes=(f"AQLM: {bits:g} bits per weight and codebooks of {held:,} B",))


def _vptq(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    """Vector quantisation: an index per vector and one per residual; the commonest layer stands for all."""
    layers = own.part("config_for_layers") or own.part("shared_layer_config") or {}
    counts: Counter[float] = Counter()
    for entry in layers.values():
        if isinstance(entry, Mapping) and (bits := _vector_bits(own.inside(entry))):
            counts[bits] += 1
    if not counts:
        return unknown("vptq without num_centroids and vector_lens", method, "", skip)
    bits = max(sorted(counts), key=lambda b: counts[b])
    if bits > 8:
        raise own.error(f"vptq: {bits:g} bits per weight")
    told = f"vptq: {bits:.3g} bits per weight, as most layers have; codebooks and outliers are estimated; {FILES}"
    return Scheme(method, Format("int4" if bits <= 4 else "int8", bits * 1.05, 2), skip=skip, approximations=(told,))


def _vector_bits(layer: Config) -> float:
    bits = 0.0
    lengths = layer.raw("vector_lens")
    length = lengths[-1] if isinstance(lengths, list) and lengths else 0
    for key in ("num_centroids", "num_res_centroids"):
        listed = layer.raw(key)
        centroids = listed[-1] if isinstance(listed, list) and listed else 0
        if isinstance(centroids, int) and centroids > 1 and isinstance(length, int) and length > 0:
            bits += math.log2(centroids) / length
    return bits


def _grouped_bits(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    """SpQR, HIGGS, SINQ, Metal, MLX, Gemma: integers in groups, told by bits and group."""
    usual_bits, usual_group, allowed = _GROUPED[method]
    key = next((k for k in ("bits", "nbits", "num_bits") if own.raw(k) is not None), "bits")
    bits = own.number(key, usual_bits, low=1, high=8)
    if bits not in allowed:
        raise own.error(f"{method}: {key} = {bits}", f"one of {', '.join(str(b) for b in allowed)}")
    name = method if own.has("quant_method") else f"no quant_method, read as {method}"
    told = f"{name}: scales, and modules with bits of their own, are estimated; {FILES}"
    group = group_size(own, "group_size", usual_group)
    return Scheme(method, affine(bits, group), skip=skip, approximations=(told,))


_GROUPED: Final[Mapping[str, tuple[int, int, tuple[int, ...]]]] = {
    "spqr": (3, 16, (3,)),
    "higgs": (4, 256, (2, 3, 4)),
    "sinq": (4, 64, (2, 3, 4, 5, 6, 8)),
    "metal": (4, 64, (2, 4, 8)),
    "mlx": (4, 64, (2, 3, 4, 5, 6, 8)),
    "gemma": (4, 0, (2, 4, 8)),
}


def _four_bit_float(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    """FP-Quant and Four Over Six: NVFP4 or MXFP4; master weights, where kept, come on top."""
    key = "forward_dtype" if method == "fp_quant" else "dtype"
    word = own.text(key, "nvfp4")
    if word not in ("nvfp4", "mxfp4"):
        raise own.error(f"{method}: {key} {word[:40]!r}", "nvfp4 or mxfp4")
    if own.flag("store_master_weights") or own.flag("keep_master_weights"):
        return Scheme(method, None, notes=(f"{method}: the files keep 16-bit master weights, which are counted",))
    return Scheme(method, NVFP4 if word == "nvfp4" else MXFP4, skip=skip)


_ONLINE: Final[Mapping[str, Format]] = {
    "ptpc_fp8": FP8_CHANNEL,
    "fp8_per_channel": FP8_CHANNEL,
    "fp8_per_tensor": FP8_TENSOR,
    "fp8_per_block": FP8_BLOCK,
    "int8_per_channel_weight_only": INT8_CHANNEL,
    "nvfp4": NVFP4,
    "nvfp4_per_token": NVFP4,
    "mxfp8": MXFP8,
}


def _online(method: str, _own: Config, _config: Config, skip: Names | None) -> Scheme:
    told = f"{method} quantises while the weights load: files may hold 16 bit, the bytes here are those in memory"
    return Scheme(method, _ONLINE[method], skip=skip, approximations=(told,))


def _experts_int8(method: str, _own: Config, _config: Config, _skip: Names | None) -> Scheme:
    told = f"{method} quantises the experts while they load: the bytes here are those in memory"
    return Scheme(method, None, INT8_CHANNEL, approximations=(told,))


def _gguf(method: str, own: Config, _config: Config, _skip: Names | None) -> Scheme:
    message = f"{method}: the sizes of a GGUF file stand in the file, not in its configuration"
    hint = "give the original model with --dtype int4 or int8, or a custom model with its bytes"
    raise BadInputError(Diagnostic("RS0311", message, Location(own.where), hint))


VARIANTS: Final[Mapping[str, Callable[[str, Config, Config, Names | None], Scheme | None]]] = {
    "torchao": _torchao,
    "hqq": _hqq,
    "quark": _quark,
    "eetq": _eetq,
    "quanto": _quanto,
    "bitnet": _bitnet,
    "aqlm": _aqlm,
    "vptq": _vptq,
    "gguf": _gguf,
    "experts_int8": _experts_int8,
    **dict.fromkeys(("fp_quant", "fouroversix", "four_over_six"), _four_bit_float),
    **dict.fromkeys(_GROUPED, _grouped_bits),
    **dict.fromkeys(_ONLINE, _online),
}
