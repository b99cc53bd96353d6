"""Lists of module names in a quantisation configuration: exact names, wildcards and `re:` patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from rightslice.catalogue.architectures.config import Json
from rightslice.core.errors import BadInputError, Diagnostic

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


def names_of(values: Json) -> Names | None:
    """The list as `Names`; None for null. Raises BadInputError RS2007 for anything else and for too long a list."""
    if values is None:
        return None
    if not isinstance(values, Sequence) or isinstance(values, str) or any(not isinstance(v, str) for v in values):
        raise BadInputError(Diagnostic("RS2007", f"a quantisation list must hold names, not {str(values)[:40]!r}"))
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
