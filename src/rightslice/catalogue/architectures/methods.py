"""`quantization_config` by its `quant_method`, for the methods whose sizes follow from their keys.

Keys, their defaults and what they may hold are those of the quantisation configuration classes of Transformers 5.19 and
of vLLM 0.32. What a class refuses is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from rightslice.catalogue.architectures.method_variants import VARIANTS
from rightslice.catalogue.architectures.modelopt import FILES, group_size, listed_layers, modelopt, unknown
from rightslice.catalogue.architectures.module_names import Names, Rule, names_of
from rightslice.catalogue.architectures.scheme import Scheme

_SKIPPED: Final = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "skip_modules",
                   "llm_int8_skip_modules")  # fmt: skip
_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("compressed-tensors", "compressed_tensors", "sparseml"), "exact"),
    **dict.fromkeys(("awq", "awq_marlin", "auto_awq"), "substring"),
}  # fmt: skip
"""How the literal names of a method's lists match; those of other methods match whole parts of a name."""
_USUAL_GROUPS: Final = (0, 16, 32, 64, 128, 256, 512, 1024)


def read_method(own: Config, config: Config) -> Scheme | None:
    """The scheme of `quantization_config`; None where it leaves the weights as they are.

    Raises BadInputError RS2007 for values that mean nothing, RS0311 for sizes that stand in another file.
    """
    method = own.raw("quant_method")
    if method is not None and not isinstance(method, str):
        raise own.error(f"quant_method must be a word, not {str(method)[:40]!r}")
    method = (method or _implied(own)).casefold()
    reader = _METHODS.get(method) or VARIANTS.get(method)
    if reader is not None:
        return reader(method, own, config, _skipped(own, _rule(method)))
    if method == "modelopt_fp8" and isinstance(own.raw("quantized_layers"), Mapping):
        return _fp8(method, own, config, None)
    found = _grouped(method, own) or modelopt(own)
    if found is not None and method not in _MODELOPT and "modelopt" not in method:
        told = f'quant_method "{method[:40]}" is not known: read by its groups; {FILES}'
        return replace(found, approximations=(*found.approximations, told))
    if found is not None or own.has("quant_algo", "kv_cache_quant_algo", "kv_cache_scheme"):
        return found
    return _unread(method, own)


_MODELOPT: Final = frozenset({"", "nvfp4", "compressed-tensors"})


def _implied(own: Config) -> str:
    """The method of a configuration that names none, by its keys."""
    if own.has("quant_algo"):
        return "modelopt"
    if own.given("config_groups"):
        return "compressed-tensors"
    if own.has("load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit"):
        return "bitsandbytes"
    return "mlx" if own.has("bits") and own.has("group_size") else ""


def _rule(method: str) -> Rule:
    return _RULES.get(method, "part")


def _skipped(own: Config, rule: Rule) -> Names | None:
    for key in _SKIPPED:
        if (found := names_of(own.raw(key), rule)) is not None:
            return found
    return None


def _unread(method: str, own: Config) -> Scheme | None:
    """A method that is not known: by the bits it gives, else by its name, and said."""
    skip = _skipped(own, _rule(method))
    what = f'quant_method "{method[:40]}"' if method else "a quantization_config without quant_method"
    for key in ("bits", "nbits", "num_bits", "w_bit", "weight_bits", "wbits"):
        if own.raw(key) is not None:
            bits = own.number(key, low=1, high=16)
            if bits == 16:
                return None
            told = f"{what} is not known: weights are counted with the {bits} bits that it gives; {FILES}"
            return Scheme(method or "unknown", integer(bits, 128, zero=True), skip=skip, approximations=(told,))
    return unknown(what, method or "unknown", method, skip)


def _mxfp4(_method: str, _own: Config, _config: Config, _skip: Names | None) -> Scheme:
    return Scheme("mxfp4", None, MXFP4)


def _fp8(method: str, own: Config, config: Config, skip: Names | None) -> Scheme:
    if own.part("quantized_layers"):
        return Scheme("mixed", _fp8_format(own), own=listed_layers(own))
    if own.raw("quant_algo") == "MIXED_PRECISION":
        told = f"MIXED_PRECISION without quantized_layers: all weights are counted as FP8; {FILES}"
        return Scheme("fp8", _fp8_format(own), skip=skip, approximations=(told,))
    expert = config.raw("expert_dtype") or own.raw("expert_dtype")
    if expert not in (None, "", "fp4", "mxfp4", "fp8", "bf16", "bfloat16"):
        raise own.error(f"expert_dtype {str(expert)[:40]!r} is not known", "fp4 or fp8")
    experts = Format("fp4", 4, 1, rows=1, columns=32) if expert in ("fp4", "mxfp4") else None
    return Scheme("fp8-fp4-experts" if experts else "fp8", _fp8_format(own), experts, skip=skip)


def _fp8_format(own: Config) -> Format:
    sides = own.raw("weight_block_size")
    if sides is not None:
        if isinstance(sides, str) or not isinstance(sides, Sequence) or len(sides) != 2:
            raise own.error("weight_block_size must be two whole numbers", "[128, 128]")
        rows, columns = own.numbers("weight_block_size", low=1, high=1 << 16) or (128, 128)
        return Format("fp8", 8, 4, rows, columns)
    return FP8_BLOCK if own.raw("moe_quant_algo") or (own.raw("fmt") and own.raw("scale_fmt")) else FP8_TENSOR


def _fbgemm(_method: str, _own: Config, _config: Config, skip: Names | None) -> Scheme:
    return Scheme("fp8", FP8_CHANNEL, skip=skip)


def _groupwise(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    """AWQ, GPTQ, AutoRound and INC: packed integers in groups."""
    notes = []
    key = "bits" if own.has("bits") else "w_bit"
    given = own.maybe(key, low=1, high=16)
    if given is None:
        notes.append(f"{method}: bits not given, 4 is the default of the class")
    bits = given or 4
    packing = own.text("packing_format") + own.text("backend") + method
    allowed = (2, 3, 4, 8) if "gptq" in method or "awq" in method else (2, 3, 4, 5, 6, 7, 8)
    if bits not in allowed:
        raise own.error(f"{method}: bits = {bits}", f"one of {', '.join(str(b) for b in allowed)}")
    if bits not in (4, 8):
        notes.append(f"{bits}-bit weights: what runs them is judged as for {'INT4' if bits < 4 else 'INT8'}")
    key = "group_size" if own.raw("group_size") is not None else "q_group_size"
    group = group_size(own, key, 128)
    if own.raw(key) is None:
        notes.append(f"{method}: group_size not given, 128 is the default of the class")
    if group not in _USUAL_GROUPS:
        notes.append(f"group_size {group} is unusual: engines have kernels for 32, 64, 128 or whole rows")
    found = _auto_round_format(own, bits, group)
    if found is None:
        zero = bool(own.raw("zero_point") if own.has("zero_point") else own.has("sym") or method.startswith("gptq"))
        found = integer(bits, group, zero=zero, index="gptq" in packing)
    kept, overridden = _overrides(own, found)
    listed = (*_dynamic(own, found), *overridden, *(((kept, None),) if kept is not None else ()))
    default: Format | None = found
    if (only := _only(own)) is not None:
        listed, default = (*listed, (only, found)), None
    return Scheme(
        method,
        default,
        own=listed,
        skip=skip,
        head=own.flag("lm_head"),
        whole_groups="awq" in method,
        notes=tuple(notes),
    )


def _dynamic(own: Config, usual: Format) -> tuple[tuple[Names, Format | None], ...]:
    """GPTQModel's `dynamic`: expressions in order, `-:` keeps a module at 16 bit, others give it bits of its own."""
    found: list[tuple[Names, Format | None]] = []
    for pattern, changes in (own.part("dynamic") or {}).items():
        names = names_of([f"re:{pattern.removeprefix('-:').removeprefix('+:')}"])
        if names is None:
            continue
        if pattern.startswith("-:"):
            found.append((names, None))
        elif isinstance(changes, Mapping):
            inner = own.inside(changes)
            bits = inner.maybe("bits", low=1, high=16) or int(usual.bits)
            group = group_size(inner, "group_size", usual.columns)
            changed = integer(bits, group, zero=usual.scale_bytes > _SCALE_BYTES, index=bool(usual.column_bytes))
            found.append((names, changed if bits < _UNQUANTISED else None))
    return tuple(found)


_SCALE_BYTES: Final = 2
_UNQUANTISED: Final = 16


def _only(own: Config) -> Names | None:
    """GPTQ's `modules_in_block_to_quantize`: lists of the only modules that are converted; None for all of them."""
    listed = own.raw("modules_in_block_to_quantize")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        return None
    names: list[Json] = []
    for item in listed:
        names += item if isinstance(item, list) else [item]
    return names_of(names, "substring")


def _auto_round_format(own: Config, bits: int, group: int) -> Format | None:
    """Floating formats that AutoRound writes; None for its integers."""
    kind = own.text("data_type", "int")
    if kind.startswith(("mx_fp", "mxfp")):
        return MXFP4 if bits == 4 else MXFP8
    if kind.startswith(("nv_fp", "nvfp")):
        return NVFP4
    if kind.startswith("fp") and bits == 8:
        return FP8_BLOCK if group else FP8_CHANNEL
    return None


def _overrides(own: Config, usual: Format) -> tuple[Names | None, tuple[tuple[Names, Format | None], ...]]:
    """AutoRound's `extra_config`: modules that stay at 16 bit, and modules with bits of their own."""
    kept: list[Json] = []
    by_bits: dict[int, list[Json]] = {}
    for name, entry in (own.part("extra_config") or {}).items():
        if not isinstance(entry, Mapping):
            continue
        bits = own.inside(entry).maybe("bits", low=1, high=16)
        if bits is not None and bits >= 16:
            kept.append(name)
        elif bits is not None and bits != usual.bits:
            by_bits.setdefault(bits, []).append(name)
    pairs = ((names_of(names), replace(usual, bits=float(bits))) for bits, names in by_bits.items())
    return names_of(kept) if kept else None, tuple((names, found) for names, found in pairs if names is not None)


def _bitsandbytes(method: str, own: Config, _config: Config, skip: Names | None) -> Scheme:
    """NF4 or FP4 with a 4-byte scale per 64 elements (1 byte where scales are quantised too); INT8 with one a row."""
    four = own.flag("load_in_4bit") or own.flag("_load_in_4bit")
    eight = own.flag("load_in_8bit") or own.flag("_load_in_8bit")
    if not four and not eight:
        told = "bitsandbytes without load_in_4bit and load_in_8bit: weights are counted unquantised; " + FILES
        return Scheme(method, None, approximations=(told,))
    scale = 1 if own.flag("bnb_4bit_use_double_quant") else 4
    return Scheme(method, Format("int4", 4, scale, 1, 64) if four else INT8_CHANNEL, skip=skip)


def _grouped(method: str, own: Config) -> Scheme | None:
    """compressed-tensors and modelopt: groups of targets, each with its own weights entry."""
    rule = _rule(method)
    skip, groups = _skipped(own, rule), own.part("config_groups") or {}
    default: Format | None = None
    listed: list[tuple[Names, Format]] = []
    for group in groups.values():
        entry = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(group, Mapping) or entry is None:
            continue
        if not isinstance(entry, Mapping):
            raise own.error(f"config_groups: weights must be an object, not {str(entry)[:40]!r}")
        found = _group_format(own.inside(entry), own.text("format") + str(group.get("format", "")))
        targets = group.get("targets") or ["Linear"]
        if isinstance(targets, Sequence) and any(t in ("Linear", "MoE") for t in targets):
            default = found if default is None else default
        elif (names := names_of(targets, rule)) is not None:
            listed.append((names, found))
    if default is None and not listed:
        return None
    sparse = own.part("sparsity_config")
    told = ("sparsity_config: zeros that are left out of the files are counted; " + FILES,)
    dense = sparse is None or sparse.get("format") in (None, "dense")
    name = method or "compressed-tensors"
    return Scheme(
        name, default, own=tuple(listed), skip=skip, head=rule == "exact", approximations=() if dense else told
    )


def _group_format(weights: Config, packing: str) -> Format:
    bits = weights.number("num_bits", 8, low=1, high=16)
    group = group_size(weights, "group_size", 0)
    if weights.raw("type") == "float":
        if bits == 4:
            return MXFP4 if "mxfp4" in packing or group == 32 else NVFP4
        strategy = weights.raw("strategy")
        if bits == 8 and group == 32:
            return MXFP8
        if strategy == "block" or weights.is_list("block_structure"):
            return FP8_BLOCK
        return FP8_CHANNEL if strategy == "channel" else FP8_TENSOR
    return integer(bits, group, zero=weights.raw("symmetric") is False)


def _compressed(method: str, own: Config, _config: Config, _skip: Names | None) -> Scheme | None:
    """By its groups; where none quantises weights, only the KV cache is quantised, or it is said."""
    found = _grouped(method, own)
    if found is not None or own.raw("kv_cache_scheme") is not None:
        return found
    told = f"{method} without config_groups that quantise weights: they are counted unquantised; {FILES}"
    return Scheme(method, None, approximations=(told,))


Reader = Callable[[str, Config, Config, Names | None], Scheme | None]
_METHODS: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4"), _mxfp4),
    **dict.fromkeys(("fp8", "finegrained_fp8", "deepseek_v4_fp8"), _fp8),
    "fbgemm_fp8": _fbgemm,
    **dict.fromkeys(
        ("awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq", "gptqmodel", "auto-round", "auto_round",
         "intel/auto-round", "inc", "moe_wna16", "humming"), _groupwise),
    **dict.fromkeys(("bitsandbytes", "bnb", "bitsandbytes_4bit", "bitsandbytes_8bit"), _bitsandbytes),
    **dict.fromkeys(("compressed-tensors", "compressed_tensors", "sparseml"), _compressed),
}  # fmt: skip
