"""A model of several parts: a language model with its vision and audio towers, or the language model alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rightslice.catalogue.architecture import AttentionGroup
from rightslice.catalogue.architectures.config import ALIASES, Config, Object
from rightslice.catalogue.architectures.connectors import PROJECTORS
from rightslice.catalogue.architectures.decoder import decoder
from rightslice.catalogue.architectures.families import Family, family, family_like_bert, language_model_alone
from rightslice.catalogue.architectures.ledger import Ledger, unknown_family
from rightslice.catalogue.architectures.named import named_tower
from rightslice.catalogue.architectures.towers import tower, tower_width
from rightslice.catalogue.architectures.weights import Weight
from rightslice.core.quantities import format_bytes

TEXT_KEYS: Final = ("text_config", "llm_config", "language_config", "thinker_config", "text_model_config")
_TOWER_KEYS: Final = ("vision_config", "audio_config", "speech_config", "encoder_config")
_MAX_DEPTH: Final = 4
_COUNTED_KEYS: Final = frozenset((*TEXT_KEYS, *_TOWER_KEYS, "perceiver_config", "qformer_config"))
_IMAGE_BYTES: Final = 2
_SHARED: Final = ("tie_word_embeddings", "vocab_size", "quantization_config", "architectures")


def text_part(config: Config, parent: Family, depth: int = 0) -> tuple[Config, Family]:
    """The configuration of the language model: the nested one, or the whole where there is none."""
    if depth > _MAX_DEPTH:
        raise config.error("language models are nested too deeply")
    for key in TEXT_KEYS:
        part = config.part(key)
        if part is not None:
            child = part_family(part, parent, key)
            if not part:
                config.assume(key, "empty")
            nested = config.inside(flattened(_inherited(config, part)), child.defaults)
            deeper = any(nested.part(k) for k in TEXT_KEYS)
            return text_part(nested, child, depth + 1) if deeper else (nested, child)
    versions = parent.traits.get("text_by_version")
    by_version = versions.get(str(config.raw("version"))) if isinstance(versions, dict) else None
    parts = parent.traits.get("parts")
    usual = parts.get("text_config") if isinstance(parts, dict) else None  # a flat configuration of the same class
    name = next((n for n in (by_version, parent.trait("text"), usual) if isinstance(n, str) and n), "")
    if name and (flat := family(name)).known:
        if usual and not any(config.given(key) for key in ALIASES["layers"]):
            config.assume("text_config", "absent")
        return config, replace(flat, defaults={**flat.defaults, **parent.defaults})
    return config, parent


def flattened(raw: Object) -> Object:
    """Sizes that some configurations nest one level deeper (MPT, DBRX, MiniMax-M3), lifted to the top."""
    found = dict(raw)
    for key in ("attn_config", "ffn_config", "sparse_attention_config", "ssm_cfg"):
        part = raw.get(key)
        if isinstance(part, dict):
            for name, value in part.items():
                found.setdefault(name, value)
    vocab, step = raw.get("vocab_size"), raw.get("pad_vocab_size_multiple")
    if "ssm_cfg" in raw and isinstance(vocab, int) and isinstance(step, int) and step > 0:
        found["vocab_size"] = -(-vocab // step) * step
    return found


def _inherited(config: Config, part: Object) -> Object:
    """The nested part with what stands outside it. The outer `tie_word_embeddings`, where given, decides.

    Where neither part gives it, both classes must tie by default for the embeddings to be tied.
    """
    found = dict(part)
    for key in _SHARED:
        value = config.raw(key)
        if config.given(key) and value is not None and (key == "tie_word_embeddings" or key not in part):
            found[key] = value
    tied = "tie_word_embeddings"
    if tied not in found and config.raw(tied) is False:
        found[tied] = False
        config.assume(tied, False)
    return found


def part_family(part: Object, parent: Family, key: str) -> Family:
    """The family of a nested configuration: its own `model_type`, else what the outer class uses there."""
    own = part.get("model_type")
    parts = parent.traits.get("parts")
    expected = parts.get(key) if isinstance(parts, dict) else None
    is_tower = key in _TOWER_KEYS
    for name in (own, expected):
        if isinstance(name, str) and (found := family(name)).known and (found.is_tower == is_tower):
            return found
    name = str(own or expected or "")
    return (None if is_tower else family_like_bert(name, part)) or Family(name, known=False)


def multimodal(config: Config, parent: Family) -> Ledger:
    """Language model, towers and projectors of one configuration."""
    text, child = text_part(config, parent)
    ledger = decoder(text, child)
    ledger = replace(ledger, spelling=replace(ledger.spelling, nested=text is not config))
    alone = language_model_alone((config.words("architectures") or ("",))[0])
    return ledger if alone else _with_towers(ledger, config, parent, text, child)


def _with_towers(ledger: Ledger, config: Config, parent: Family, text: Config, child: Family) -> Ledger:
    width = text.number("hidden", low=1)
    towers: list[Weight] = []
    notes = list(ledger.approximations)
    if not parent.known and child.known:
        notes.append(unknown_family(parent.name))
    for key in _TOWER_KEYS:
        part = config.part(key)
        if part is None and _expects(config, parent, key):
            notes.append(f"{key} is missing: the tower that this class has is not counted")
        if part is None or (key == "encoder_config" and not parent.switch("encoder_tower", config)):
            continue
        own = part_family(part, parent, key)
        nested = config.inside(part, own.defaults, key)
        name = "vision_tower" if key == "vision_config" else "audio_tower"
        if not own.known and not (nested.has("layers") and nested.has("hidden")):
            notes.append(f"{key}: not counted; its model_type is not in the catalogue and its sizes have unknown names")
            continue
        towers += tower(nested, own, name) * parent.amount("tower_copies", 1)
        if not own.known:
            notes.append(f"{key}: counted as a plain vision transformer; its model_type is not in the catalogue")
        inputs = nested.maybe("output_proj_dims") or tower_width(nested, own)
        projector = _projector(config, parent, key, inputs, width)
        towers += projector
        if not projector and not own.trait("merger"):
            notes.append(f"{key}: the projector behind it is not counted")
    if parent.switch("linear_patches", config):
        patch = config.number("patch_size", 30, low=1, high=1 << 12)
        inputs = patch * patch * config.number("num_channels", 3, low=1, high=64)
        towers.append(Weight("vision_embed_tokens", width, inputs, bias=width))
    named, remark = named_tower(config, parent, width)
    towers += named
    if remark:
        notes.append(remark)
    counted = {*_COUNTED_KEYS, *(("projector_config",) if parent.trait("audio_projector") == "granite" else ())}
    notes += [f"{key}: this part is not counted" for key in config.parts() if key not in counted]
    return replace(ledger, towers=tuple(towers), approximations=tuple(notes))


def image_cache(config: Config, parent: Family, attention: tuple[AttentionGroup, ...]) -> list[str]:
    """What cross attention keeps of one image that fills all its tiles, each of (image / patch)^2 + 1 tokens."""
    part = config.part("vision_config")
    own = part_family(part, parent, "vision_config") if part is not None else None
    if part is None or own is None or not own.switch("tiles", config):
        return []
    nested = config.inside(part, own.defaults, "vision_config")
    tiles = nested.number("max_num_tiles", 4, low=1, high=1024)
    tokens = tiles * ((nested.side("image_size", 448) // nested.side("patch_size", 14)) ** 2 + 1)
    elements = sum(g.layers * g.kv_elements_per_token for g in attention if g.kind == "cross")
    kept = f"{format_bytes(tokens * elements * _IMAGE_BYTES)} of cross-attention cache in 16 bit"
    return [f"an image of {tiles} tiles is {tokens:,} tokens to the language model: {kept}"] if elements else []


def _expects(config: Config, parent: Family, key: str) -> bool:
    """Whether the class has a tower that the configuration does not describe; not so for its language model alone."""
    listed = parent.traits.get("parts")
    parts = listed if isinstance(listed, dict) else {}
    names = config.words("architectures") or ("",)
    projects = key == "vision_config" and bool(parent.trait("projector"))
    if not (projects or key in parts) or names[0].endswith("ForCausalLM"):
        return False
    return key == "vision_config" or "vision_config" not in parts  # hearing is optional beside sight


def _projector(config: Config, parent: Family, key: str, width: int, text: int) -> list[Weight]:
    style = parent.trait("audio_projector" if key != "vision_config" else "projector")
    if style not in PROJECTORS:
        return []
    return [replace(w, module=f"multi_modal_projector.{w.module}") for w in PROJECTORS[style](config, width, text)]
