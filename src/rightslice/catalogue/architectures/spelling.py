"""The full names of a model's modules, as checkpoints and engines write them; quantisation lists refer to these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

_LAYERS: Final = ("model.layers", "layers")
_NESTED: Final = ("model.language_model.layers", "language_model.model.layers", "language_model.layers")
_ANYWHERE: Final = (*_NESTED, *_LAYERS, "transformer.layers", "backbone.layers", "decoder.layers")
"""Paths that literal names may write before a layer: they can mean no other one."""
_FAMILIES: Final[Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]]] = {
    "deepseek_v4": (("layers",), (("self_attn", "attn"), ("mlp", "ffn"))),
    "nemotron_h": (("backbone.layers",), (("self_attn", "mixer"), ("mlp", "mixer"))),
    "llama4_text": ((), (("mlp", "feed_forward"),)),
    "mixtral": ((), (("mlp", "block_sparse_moe"),)),
    "phimoe": ((), (("mlp", "block_sparse_moe"),)),
    "minimax": ((), (("mlp", "block_sparse_moe"),)),
    "minimax_m2": ((), (("mlp", "block_sparse_moe"),)),
    "minimax_m3_vl_text": ((), (("mlp", "block_sparse_moe"),)),
    "granitemoe": ((), (("mlp", "block_sparse_moe"),)),
    "granitemoeshared": ((), (("mlp", "block_sparse_moe"), ("mlp", "shared_mlp"))),
    "granitemoehybrid": ((), (("mlp", "block_sparse_moe"), ("mlp", "shared_mlp"), ("mixer", "mamba"))),
    "jamba": ((), (("mlp", "feed_forward"), ("mixer", "mamba"))),
    "bamba": ((), (("mlp", "feed_forward"), ("mixer", "mamba"))),
    "falcon_h1": ((), (("mlp", "feed_forward"), ("mixer", "mamba"))),
    "lfm2": ((), (("mlp", "feed_forward"),)),
    "lfm2_moe": ((), (("mlp", "feed_forward"),)),
    "gpt_neox": (("gpt_neox.layers",), (("self_attn", "attention"),)),
    "falcon": (("transformer.h",), (("self_attn", "self_attention"),)),
    "bloom": (("transformer.h",), (("self_attn", "self_attention"),)),
    "gpt2": (("transformer.h",), (("self_attn", "attn"),)),
    "gptj": (("transformer.h",), (("self_attn", "attn"),)),
    "codegen": (("transformer.h",), (("self_attn", "attn"),)),
    "gpt_bigcode": (("transformer.h",), (("self_attn", "attn"),)),
    "mpt": (("transformer.blocks",), (("self_attn", "attn"), ("mlp", "ffn"))),
    "dbrx": (("transformer.blocks",), (("self_attn", "norm_attn_norm.attn"), ("mlp", "ffn"))),
    "qwen": (("transformer.h",), (("self_attn", "attn"),)),
    "chatglm": (("transformer.encoder.layers",), (("self_attn", "self_attention"),)),
    "internlm2": ((), (("self_attn", "attention"), ("mlp", "feed_forward"))),
    "opt": (("model.decoder.layers",), ()),
    "mamba": (("backbone.layers",), ()),
    "mamba2": (("backbone.layers",), ()),
    "qwen2_vl_text": (_LAYERS[:1], ()),
    "qwen2_5_vl_text": (_LAYERS[:1], ()),
}
"""Families whose layers are called differently: their paths, and their words for ours (public classes and files)."""
_FUSED: Final = (
    (("q_proj", "k_proj", "v_proj"), ("qkv_proj",)),
    (("q_a_proj", "kv_a_proj_with_mqa"), ("fused_qkv_a_proj",)),
    (("in_proj_qkv", "in_proj_z"), ("in_proj_qkvz",)),
    (("in_proj_ba",), ("in_proj_b", "in_proj_a")),
    (("gate_proj", "up_proj"), ("gate_up_proj",)),
)
"""Matrices that some files and engines keep as one."""
_ONE_SHARED: Final = ("qwen", "llama4")
"""Families that call the shared experts `shared_expert`."""
_OTHER_FUSED: Final = ("query_key_value", "c_attn", "Wqkv", "W_pack")
_OF_EXPERTS: Final = {"gate_up_proj": ("gate_proj", "up_proj", "w1", "w3"), "down_proj": ("down_proj", "w2")}
_TOWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "vision_tower": ("visual", "vision_tower", "vision_model", "vision_encoder", "vit", "vision"),
    "audio_tower": ("audio_tower", "audio_model", "audio_encoder"),
    "multi_modal_projector": (
        "multi_modal_projector", "mm_projector", "connector", "aligner", "embed_vision", "projector"),
}  # fmt: skip
_OF_TOWER: Final = {word: tower for tower, words in _TOWERS.items() for word in words}
_INSIDE: Final = frozenset({"layers", "blocks", "encoder", "vision_model", "transformer"})


@dataclass(frozen=True, slots=True)
class ModuleName:
    """The names of one module: `exact`, those it has, and `loose`, those that a path in a list may mean it by.

    `fused`: names of matrices that hold it together with others. A pattern means those only where it spells them out:
    `*v_proj` is not about `qkv_proj`.

    `part`: tower and part of the tower, for modules outside the language model.
    """

    exact: tuple[str, ...]
    loose: tuple[str, ...]
    fused: tuple[str, ...] = ()
    part: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one model calls its modules. `family`: that of the language model; `nested`: it stands beside towers.

    Layers from `predictors` on predict several tokens at once and have a second name; None for a model of those alone.
    """

    family: str = ""
    nested: bool = False
    predictors: int | None = None

    def of(self, module: str, layer: int) -> ModuleName:
        """The names of `module` of layer `layer`, or outside of all layers (-1)."""
        if layer < 0:
            return _outside(module)
        paths, words = _FAMILIES.get(self.family, ((), ()))
        inside, others, fused = _spelled(module, words, self.family.startswith(_ONE_SHARED))
        usual = [f"{path}.{layer}." for path in (*(_NESTED if self.nested else _LAYERS[:1]), *paths)]
        anywhere = [f"{path}.{layer}." for path in (*_ANYWHERE, *paths)]
        if self.predictors is not None and layer >= self.predictors:
            extra = [f"mtp.layers.{layer - self.predictors}.", f"mtp.{layer - self.predictors}."]
            usual, anywhere = usual + extra, anywhere + extra
        return ModuleName(
            tuple(path + name for path in usual for name in inside),
            tuple(path + name for path in anywhere for name in (*inside, *others)),
            tuple(path + name for path in anywhere for name in fused),
        )


@cache
def _spelled(
    module: str, words: tuple[tuple[str, str], ...], one_shared: bool
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The names of a module inside its layer: its own, those of other releases, those of matrices it is fused into.

    The first expert stands for all.
    """
    first, _, last = module.partition(".")
    found = [module, *(f"{theirs}.{last}" for ours, theirs in words if ours == first)]
    others: list[str] = []
    if "shared_experts" in module:
        singular = [name.replace("shared_experts", "shared_expert") for name in found]
        found, others = (singular, found) if one_shared else (found, singular)
    stem, _, matrix = module.rpartition(".")
    if stem.endswith(".experts"):
        stems = [name.rpartition(".")[0] for name in found]
        single = [f"{s}.0.{m}" for s in stems for m in _OF_EXPERTS.get(matrix, (matrix,))]
        return (*stems, *found, *single), (), ()
    wholes = [other for parts, names in _FUSED if matrix in parts for other in names]
    wholes += _OTHER_FUSED if words and wholes == ["qkv_proj"] else []
    wholes += ["w1", "w3"] if matrix == "gate_up_proj" else []
    fused = [f"{name.rpartition('.')[0]}.{whole}" for name in (*found, *others) for whole in wholes]
    return tuple(found), tuple(others), tuple(fused)


@cache
def _outside(module: str) -> ModuleName:
    first, _, last = module.partition(".")
    if first not in _TOWERS:
        own = ("lm_head", "head") if module == "lm_head" else (module,)
        names = tuple(f"{path}{name}" for name in own for path in ("", "model.", "language_model."))
        return ModuleName(names, names)
    insides = [last]
    if last.startswith("layers."):
        block = last.removeprefix("layers.")
        blocks = (block, block.replace("self_attn.", "attn.")) if "self_attn" in block else (block,)
        paths = ("layers.0", "blocks.0", "encoder.layers.0", "encoder.blocks.0", "vision_model.encoder.layers.0")
        insides = [f"{path}.{b}" for path in paths for b in blocks]
    names = tuple(
        f"{path}{word}.{inside}" if inside else f"{path}{word}"
        for path in ("", "model.", "thinker.") for word in _TOWERS[first] for inside in insides
    )  # fmt: skip
    second = last.partition(".")[0]
    return ModuleName(names, names, part=(first, "" if second in _INSIDE else second))


def tower_part(name: str) -> tuple[str, str] | None:
    """The tower, and the part of it beside its layers, that a literal name in a list belongs to; None for others.

    A list names the modules of a tower one by one, and one of its layers stands for all.
    """
    parts = [part for part in name.split(".") if part not in ("model", "thinker")]
    tower = _OF_TOWER.get(parts[0]) if parts else None
    if tower is None:
        return None
    second = parts[1] if len(parts) > 1 else ""
    return tower, "" if second in _INSIDE else second
