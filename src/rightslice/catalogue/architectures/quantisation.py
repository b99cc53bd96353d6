"""How a checkpoint stores its weights: formats with their scales, and the lists of what is left out.

Bytes per format: block FP8 1 B + a 4-byte scale per block; FP8 per tensor 1 B, per channel + 2 B a row; NVFP4 1/2 B +
1/16 B; MXFP4 1/2 B + 1/32 B; AWQ and GPTQ packed bits, a 2-byte scale and a packed zero per group (GPTQ also 4 B per
input channel); compressed-tensors integers packed bits and a 2-byte scale per group or channel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from rightslice.catalogue.architectures.config import Json, Object
from rightslice.catalogue.architectures.weights import Weight
from rightslice.core.errors import BadInputError, Diagnostic

DTYPE_BYTES: Final[dict[str, float]] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5}
_DTYPES: Final[dict[str, str]] = {
    "float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16",
    "bf16": "bf16", "fp32": "fp32", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """`bits` per element; a scale of `scale_bytes` per block of `rows` x `columns` (0 = the whole side)."""

    name: str
    bits: float
    scale_bytes: float = 0.0
    rows: int = 0
    columns: int = 0
    column_bytes: float = 0.0

    def bytes_of(self, weight: Weight) -> float:
        """Stored bytes of the matrices of `weight`, scales included, biases apart."""
        elements = weight.matrix_elements * self.bits / 8
        high = -(-weight.rows // self.rows) if self.rows else 1
        wide = -(-weight.columns // self.columns) if self.columns else 1
        return elements + weight.copies * (high * wide * self.scale_bytes + weight.columns * self.column_bytes)


FP8_BLOCK: Final = Format("fp8", 8, 4, 128, 128)
FP8_TENSOR: Final = Format("fp8", 8, 4)
FP8_CHANNEL: Final = Format("fp8", 8, 2, rows=1)
NVFP4: Final = Format("nvfp4", 4, 1, rows=1, columns=16)
MXFP4: Final = Format("mxfp4", 4, 1, rows=1, columns=32)


def _integer(bits: int, group: int, *, zero: bool, index: bool = False) -> Format:
    """Group-wise integers: a 2-byte scale, a packed zero point, and GPTQ's 4-byte group index per input channel."""
    name = "int4" if bits <= 4 else "int8"
    return Format(name, bits, 2 + (bits / 8 if zero else 0), 1, group, 4.0 if index else 0.0)


_ALGORITHMS: Final[dict[str, Format]] = {
    "FP8": FP8_TENSOR,
    "FP8_PB_WO": FP8_BLOCK,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": NVFP4,
    "MXFP4": MXFP4,
    "MXFP8": Format("fp8", 8, 1, 1, 32),
    "W4A16_AWQ": _integer(4, 128, zero=False),
    "W4A8_AWQ": _integer(4, 128, zero=False),
    "W8A8_SQ_PER_CHANNEL": Format("int8", 8, 4, rows=1),
}


@dataclass(frozen=True, slots=True)
class Scheme:
    """`default` for every linear weight that no list names, `own` for those named, `experts` for routed experts."""

    method: str
    default: Format | None
    experts: Format | None = None
    own: tuple[tuple[Names, Format], ...] = ()
    skip: Names | None = None

    def format_of(self, weight: Weight, layer: int) -> Format | None:
        """The format of one weight; None when it stays at the base dtype."""
        if not weight.linear:
            return None
        if weight.split == "vocab":  # kept at the base dtype even where a list names it: the safe side
            return None
        for listed, found in self.own:
            if listed.match(weight.module, layer):
                return found
        if self.experts is not None and weight.split == "expert":
            return self.experts
        if self.default is None or (self.skip is not None and self.skip.match(weight.module, layer)):
            return None
        return self.default

    @property
    def depends_on_layer(self) -> bool:
        """Whether any list names single layers."""
        lists = [names for names, _ in self.own] + ([self.skip] if self.skip else [])
        return any(names.by_layer for names in lists)


_TOKENS: Final[dict[str, str]] = {
    **dict.fromkeys(("attn", "self_attn", "attention", "self_attention", "linear_attn", "mamba", "conv",
                     "temporal_block"), "attn"),
    **dict.fromkeys(("mlp", "ffn", "feed_forward", "block_sparse_moe", "moe"), "ffn"),
    **dict.fromkeys(("visual", "vision_tower", "vision_model", "vision_encoder", "vit", "vision"), "vision"),
    **dict.fromkeys(("mm_projector", "multi_modal_projector", "connector", "aligner", "embed_vision"), "projector"),
    **dict.fromkeys(("audio_tower", "audio_model", "audio_encoder"), "audio"),
    **dict.fromkeys(("shared_expert", "shared_experts"), "shared"),
    "head": "lm_head", "router": "gate", "h": "layers", "blocks": "layers", "block": "layers",
}  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_PREFIX: Final = re.compile(r"^(?:[a-z_]+\.)*(?=layers\.)")
_LAYER: Final = re.compile(r"^layers\.(\d+)\b\.?")


def _canonical(text: str) -> str:
    mapped = _WORD.sub(lambda m: _TOKENS.get(m.group(), m.group()), text)
    if mapped.startswith(("vision", "audio", "projector")):
        return mapped
    shortened = _PREFIX.sub("", mapped)
    for prefix in ("model.", "language_model.", "model.language_model."):
        shortened = shortened.removeprefix(prefix)
    return "lm_head" if shortened.endswith(".lm_head") else shortened


@cache
def _spellings(module: str) -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...]]:
    """The names under which lists may refer to a weight (its own, fused and per-expert ones), relative to its layer.

    With them every run of their dotted parts, and the runs that start at the layer.
    """
    base = _canonical(module)
    base = "attn." + base.removeprefix("mixer.") if base.startswith("mixer.") else base
    found = [base]
    if "gate_up_proj" in base:
        found.append(base.replace("gate_up_proj", "gate_proj"))
    if base.startswith("ffn.experts."):
        found += [s.replace("ffn.experts.", "ffn.experts.0.") for s in found]
        found.append(base.removeprefix("ffn."))
    found += ["mixer." + s.partition(".")[2] for s in found if s.startswith(("attn.", "ffn."))]
    parts = [s.split(".") for s in found]
    runs = {".".join(p[i:j]) for p in parts for i in range(len(p)) for j in range(i + 1, len(p) + 1)}
    starts = {".".join(p[:j]) for p in parts for j in range(1, len(p) + 1)}
    return tuple(found), frozenset(runs), tuple(sorted(starts))


@dataclass(frozen=True, slots=True)
class Names:
    """A list of module names, wildcards and `re:` patterns, sorted so that a look-up costs little."""

    plain: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    by_layer: Mapping[int, tuple[re.Pattern[str], ...]] = field(default_factory=dict)
    towers: frozenset[str] = frozenset()

    def match(self, module: str, layer: int) -> bool:
        """Whether the list holds the weight's name, a part of it between dots, or a module around it."""
        names, runs, starts = _spellings(module)
        if names[0].partition(".")[0] in self.towers:  # a list that names one module of a tower names all of them
            return True
        if not self.plain.isdisjoint(runs):
            return True
        at = f"layers.{layer}." if layer >= 0 else ""
        if layer >= 0 and (f"layers.{layer}" in self.plain or any(at + s in self.plain for s in starts)):
            return True
        candidates = (*self.by_layer.get(layer, ()), *self.patterns)
        return any(pattern.match(at + name) for pattern in candidates for name in names)


def _names(values: Json) -> Names | None:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return None
    if len(values) > _MAX_NAMES:
        raise BadInputError(Diagnostic("RS2007", f"a quantisation list has {len(values)} entries"))
    plain: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    by_layer: dict[int, list[re.Pattern[str]]] = {}
    for value in values:
        if not isinstance(value, str) or len(value) > _MAX_PATTERN or value.startswith("mtp"):
            continue
        name = value if value.startswith("re:") else _canonical(value)
        single = _LAYER.match(name)
        own = by_layer.setdefault(int(single[1]), []) if single else patterns
        if name.startswith("re:"):
            patterns += _expression(name[3:])
        elif "*" not in name and "?" not in name:
            plain.add(name)
        elif name.count("*") <= _MAX_REPEATS:
            (patterns if re.match(r"layers\.\d+\*", name) else own).append(re.compile(_glob(name)))
    if len(patterns) > _MAX_PATTERNS:
        raise BadInputError(Diagnostic("RS2007", f"a quantisation list has {len(patterns)} patterns"))
    towers = frozenset(n.partition(".")[0] for n in plain) & {"vision", "audio", "projector"}
    return Names(frozenset(plain), tuple(patterns), {k: tuple(v) for k, v in by_layer.items()}, towers)


_MAX_NAMES: Final = 100_000
_MAX_PATTERNS: Final = 2_000
_MAX_REPEATS: Final = 3
"""Bounds that keep matching cheap whatever a file says; published lists stay far below them."""
_MAX_PATTERN: Final = 300


def _glob(name: str) -> str:
    """A wildcard as a regular expression; a whole module matches what is inside it."""
    return re.escape(name).replace(r"\*", ".*").replace(r"\?", ".") + r"(?:\..*)?$"


def _expression(text: str) -> list[re.Pattern[str]]:
    mapped = _WORD.sub(lambda m: _TOKENS.get(m.group(), m.group()), text)
    repeats = len(re.findall(r"[*+?{]", mapped.replace("(?:", "(")))
    if repeats > _MAX_REPEATS or re.search(r"\)[*+?{]", mapped):  # could take for ever
        return []
    try:
        return [re.compile(f"(?:.*){mapped}" if not mapped.startswith((".*", "^")) else mapped)]
    except re.error:
        return []


def base_dtype(raw: Object) -> str:
    """The dtype of unquantised weights: `dtype` or `torch_dtype`, outside or in the text part; fp32 when not said."""
    for part in (raw, raw.get("text_config"), raw.get("llm_config"), raw.get("thinker_config")):
        if isinstance(part, Mapping):
            for key in ("dtype", "torch_dtype"):
                value = part.get(key)
                if isinstance(value, str) and (found := _DTYPES.get(value.removeprefix("torch."))):
                    return found
    return ""


def scheme_of(raw: Object, hf_quant: Object | None) -> Scheme | None:
    """The quantisation scheme of a checkpoint, or None for an unquantised one."""
    own = raw.get("quantization_config")
    if not isinstance(own, Mapping):
        text = raw.get("text_config")
        own = text.get("quantization_config") if isinstance(text, Mapping) else None
    if isinstance(own, Mapping):
        found = _from_config(own, raw)
        if found is not None:
            return found
    nested = hf_quant.get("quantization") if hf_quant is not None else None
    return _modelopt(nested) if isinstance(nested, Mapping) else None


def _from_config(own: Object, raw: Object) -> Scheme | None:
    method = str(own.get("quant_method") or ("modelopt" if "quant_algo" in own else "")).casefold()
    skip = _names(own.get("modules_to_not_convert") or own.get("ignore") or own.get("exclude_modules"))
    if method == "mxfp4":
        return Scheme("mxfp4", None, MXFP4)
    if method in ("fp8", "fbgemm_fp8", "modelopt_fp8") and isinstance(own.get("quantized_layers"), Mapping):
        return Scheme("mixed", _fp8(own), own=_listed(own["quantized_layers"]))
    if method in ("fp8", "fbgemm_fp8", "finegrained_fp8"):
        expert = raw.get("expert_dtype") or own.get("expert_dtype")
        experts = Format("fp4", 4, 1, rows=1, columns=32) if expert in ("fp4", "mxfp4") else None
        return Scheme("fp8-fp4-experts" if experts else "fp8", _fp8(own), experts, skip=skip)
    if method in ("awq", "gptq", "auto-round", "auto_round", "gptq_marlin", "awq_marlin"):
        return _groupwise(method, own, skip)
    if method in ("bitsandbytes", "bnb"):
        four = bool(own.get("load_in_4bit"))
        return Scheme(method, Format("int4", 4, 1, 1, 64) if four else Format("int8", 8, 4, rows=1), skip=skip)
    if "config_groups" in own:
        return _grouped(method, own, skip)
    return _modelopt(own) if "quant_algo" in own else None


def _fp8(own: Object) -> Format:
    sides = own.get("weight_block_size")
    if isinstance(sides, Sequence) and not isinstance(sides, str) and len(sides) == 2:
        rows, columns = (side if isinstance(side, int) and side > 0 else 128 for side in sides)
        return Format("fp8", 8, 4, rows, columns)
    if own.get("fmt") and own.get("scale_fmt"):
        return FP8_BLOCK
    return (
        FP8_BLOCK
        if own.get("moe_quant_algo")
        else FP8_CHANNEL
        if own.get("quant_method") == "fbgemm_fp8"
        else FP8_TENSOR
    )


def _groupwise(method: str, own: Object, skip: Names | None) -> Scheme:
    bits, group = own.get("bits") or own.get("w_bit") or 4, own.get("group_size") or own.get("q_group_size") or 128
    bits = bits if isinstance(bits, int) and 1 <= bits <= 8 else 4
    group = group if isinstance(group, int) and group > 0 else 0
    zero = bool(own.get("zero_point", own.get("sym") is not None or method.startswith("gptq")))
    return Scheme(method, _integer(bits, group, zero=zero, index=method.startswith("gptq")), skip=skip)


def _grouped(method: str, own: Object, skip: Names | None) -> Scheme | None:
    """compressed-tensors and modelopt: groups of targets, each with its own weights entry."""
    groups = own.get("config_groups")
    default: Format | None = None
    listed: list[tuple[Names, Format]] = []
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if not isinstance(group, Mapping) or not isinstance(weights := group.get("weights"), Mapping):
            continue
        found = _group_format(weights, str(own.get("format", "")) + str(group.get("format", "")))
        targets = group.get("targets") or ["Linear"]
        if isinstance(targets, Sequence) and any(t in ("Linear", "MoE") for t in targets):
            default = found
        elif (names := _names(targets)) is not None:
            listed.append((names, found))
    if default is None and not listed:
        return _modelopt(own) if "quant_algo" in own else None
    return Scheme(method or "compressed-tensors", default, own=tuple(listed), skip=skip)


def _group_format(weights: Object, packing: str) -> Format:
    bits = weights.get("num_bits")
    bits = bits if isinstance(bits, int) and 1 <= bits <= 16 else 8
    group = weights.get("group_size")
    group = group if isinstance(group, int) and group > 0 else 0
    if weights.get("type") == "float":
        if bits == 4:
            return MXFP4 if "mxfp4" in packing or group == 32 else NVFP4
        strategy = weights.get("strategy")
        sides = weights.get("block_structure")
        if strategy == "block" or isinstance(sides, Sequence):
            return FP8_BLOCK
        return FP8_CHANNEL if strategy == "channel" else FP8_TENSOR
    zero = weights.get("symmetric") is False
    return _integer(bits, group, zero=zero)


def _modelopt(own: Object) -> Scheme | None:
    algorithm = str(own.get("quant_algo") or "").upper()
    if algorithm == "MIXED_PRECISION":
        return Scheme("modelopt-mixed", None, own=_listed(own.get("quantized_layers")))
    found = _ALGORITHMS.get(algorithm)
    if found is None:
        return None
    return Scheme(
        f"modelopt-{algorithm.casefold()}", found, skip=_names(own.get("exclude_modules") or own.get("ignore"))
    )


def _listed(layers: Json) -> tuple[tuple[Names, Format], ...]:
    if not isinstance(layers, Mapping):
        return ()
    by_format: dict[Format, list[Json]] = {}
    for name, entry in layers.items():
        algorithm = str(entry.get("quant_algo") or "").upper() if isinstance(entry, Mapping) else ""
        if (found := _ALGORITHMS.get(algorithm)) is not None:
            by_format.setdefault(found, []).append(name)
    pairs = ((_names(names), found) for found, names in by_format.items())
    return tuple((names, found) for names, found in pairs if names is not None)


def kv_dtype(raw: Object, hf_quant: Object | None) -> str:
    """`fp8` or `fp4` when the checkpoint declares a quantised KV cache, else an empty string."""
    found: list[Json] = []
    own = raw.get("quantization_config")
    for part in (own, hf_quant.get("quantization") if hf_quant is not None else None):
        if isinstance(part, Mapping):
            found += [part.get("kv_cache_quant_algo"), part.get("kv_cache_scheme")]
    for value in found:
        if isinstance(value, str) and value:
            return "fp4" if "FP4" in value.upper() else "fp8" if "8" in value else ""
        if isinstance(value, Mapping) and (bits := value.get("num_bits")):
            return "fp8" if bits == 8 else "fp4"
    return ""
