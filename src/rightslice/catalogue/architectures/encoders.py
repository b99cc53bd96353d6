"""Models that read a whole input at once: BERT and its kin, vision transformers, CLIP pairs, CTC speech encoders."""

from __future__ import annotations

from dataclasses import replace

from rightslice.catalogue.architectures.attention import attention
from rightslice.catalogue.architectures.config import MAX_CONTEXT, Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.feedforward import dense
from rightslice.catalogue.architectures.ledger import Ledger, norm, unknown_family
from rightslice.catalogue.architectures.multimodal import part_family
from rightslice.catalogue.architectures.shapes import Shape, shapes
from rightslice.catalogue.architectures.towers import tower
from rightslice.catalogue.architectures.weights import Layer, Weight, linear, no_cache

_LABELS = 2
"""Labels of a classifier whose configuration names none (the library's default)."""


def encoder(config: Config, family: Family) -> Ledger:
    """A text encoder with the head of its class (masked words, labels, or a pooler)."""
    hidden = config.number("hidden", low=1)
    layers = _layers(config, family)
    width = config.maybe("embedding_size") or hidden
    found = [Weight("embed_tokens", config.number("vocab", low=1), width, "vocab")]
    absolute = config.text("position_embedding_type", "absolute") not in ("alibi", "rope", "rotary")
    if family.trait("positions") == "learned" and absolute and config.flag("position_biased_input", True):
        rows = config.number("context", low=1, high=MAX_CONTEXT) + family.amount("position_offset", 0)
        found.append(Weight("embed_positions", rows, width))
    if family.switch("token_types", config) and (types := config.number("type_vocab_size", 0)):
        found.append(Weight("token_type_embeddings", types, width))
    if key := family.trait("box_positions"):  # LayoutLM: left, top, width and height of each word
        found.append(Weight("box_position_embeddings", 4 * config.number(key, 1024), width))
    if family.trait("positions") == "rotary-table":
        outside_rows = config.number("context", low=1, high=MAX_CONTEXT)
        found.append(Weight("embed_positions", outside_rows, hidden // max(1, config.number("heads", 1))))
    outside = []
    if family.switch("embedding_norm", config, True):
        outside.append(norm(family, "embeddings.norm", width))
    if width != hidden:
        outside.append(linear("embeddings_project", hidden, width, bias=True))
    outside += _relative(config, family, hidden)
    if family.switch("final_norm", config):
        outside.append(norm(family, "norm", hidden))
    tied = config.flag("tie_word_embeddings", True)
    names = config.words("architectures") or ("",)
    return Ledger(
        layers,
        tuple(found),
        head=_head(config, family, hidden, width, tied),
        outside=tuple(outside),
        tied=tied,
        has_language_head=names[0].endswith(_WORD_HEADS),
    )


_WORD_HEADS = ("ForMaskedLM", "LMHeadModel", "ForCausalLM", "ForPreTraining")


def _layers(config: Config, family: Family) -> tuple[Layer, ...]:
    """All layers; ALBERT keeps one set of weights per group, so the others are empty."""
    found = []
    first_skips = family.switch("first_layer_without_norm", config)
    for i, shape in enumerate(shapes(config, replace(family, traits={**family.traits, "window": False}))):
        mixed, caches = attention(config, family, shape)
        inner = config.maybe(family.trait("inner_key")) if family.trait("inner_key") else shape.intermediate
        weights = (
            *mixed,
            *_extra_attention(config, family, shape),
            *dense(config, family, inner or shape.intermediate),
            *_norms(config, family, skipped=int(first_skips and i == 0)),
        )
        group = replace(caches[0], kind="encoder", kv_elements_per_token=0, window_tokens=0)
        found.append(Layer(weights, (group,)))
    groups = config.maybe("num_hidden_groups")
    if groups and family.switch("shared_layers", config):
        return tuple(layer if i < groups else Layer((), layer.caches) for i, layer in enumerate(found))
    return tuple(found)


def _extra_attention(config: Config, family: Family, shape: Shape) -> tuple[Weight, ...]:
    """Longformer's second projections for global tokens, and the convolution of Nystromformer."""
    hidden = config.number("hidden", low=1)
    number = family.amount("extra_projections", 0)
    found = [linear(f"attention.global_{i}", hidden, hidden, bias=True) for i in range(number)]
    if family.switch("gated_positions", config):  # WavLM: relative positions gated per head
        found.append(Weight("attention.gru_rel_pos", 8, hidden // max(1, shape.heads) + 1, bias=shape.heads))
    if family.trait("attention_conv"):
        found.append(Weight("attention.conv", shape.heads, config.number(family.trait("attention_conv"), 0)))
    return tuple(found)


def _norms(config: Config, family: Family, *, skipped: int) -> tuple[Weight, ...]:
    hidden = config.number("hidden", low=1)
    return tuple(norm(family, f"norm_{i}", hidden) for i in range(family.amount("norms", 2) - skipped))


def _relative(config: Config, family: Family, hidden: int) -> list[Weight]:
    """Relative positions: a bias per head (MPNet), or embeddings of distances (DeBERTa)."""
    if family.trait("positions_extra") == "bias":
        return [
            Weight(
                "relative_attention_bias", config.number("relative_attention_num_buckets", 32), config.number("heads")
            )
        ]
    if not (family.trait("positions_extra") == "distance" and config.flag("relative_attention")):
        return []
    buckets = config.raw("position_buckets")
    rows = buckets if isinstance(buckets, int) and buckets > 0 else config.number("context", high=MAX_CONTEXT)
    found = [Weight("rel_embeddings", 2 * rows, hidden)]
    if "layer_norm" in config.text("norm_rel_ebd"):
        found.append(Weight("rel_norm", hidden, bias=hidden))
    if kernel := config.maybe("conv_kernel_size"):
        found += [Weight("conv", hidden, hidden * kernel, bias=hidden), Weight("conv.norm", hidden, bias=hidden)]
    return found


def _head(config: Config, family: Family, hidden: int, width: int, tied: bool) -> tuple[Weight, ...]:
    names = config.words("architectures") or ()
    name = names[0] if names else ""
    vocab = config.number("vocab", low=1)
    bias = family.switch("head_dense_bias", config, True)
    if name.endswith(_WORD_HEADS):
        if family.trait("mlm_head") == "plain":
            return () if tied else (Weight("lm_head", vocab, width, "vocab"),)
        words = Weight("cls.decoder", vocab, 1) if tied else Weight("cls.decoder", vocab, width, "vocab", bias=vocab)
        pooled = (linear("pooler", hidden, hidden, bias=bias),) if family.switch("pooler_with_head", config) else ()
        return (*pooled, linear("cls.dense", width, hidden, bias=bias), norm(family, "cls.norm", width), words)
    pooler = (linear("pooler", hidden, hidden, bias=bias),)
    if name.endswith("ForSequenceClassification"):
        labels = _label_count(config)
        between = (norm(family, "head.norm", hidden),) if family.trait("classifier") == "normed" else ()
        return (*pooler, *between, Weight("classifier", labels, hidden, bias=labels))
    if name.endswith("ForTokenClassification"):
        labels = _label_count(config)
        return (Weight("classifier", labels, hidden, bias=labels),)
    return pooler if family.switch("pooler", config) else ()


def _label_count(config: Config) -> int:
    labels = config.raw("id2label")
    return len(labels) if isinstance(labels, dict) and labels else config.number("num_labels", _LABELS)


def _tower_layers(weights: tuple[Weight, ...]) -> tuple[tuple[Layer, ...], tuple[Weight, ...]]:
    """Splits a tower's weights into its layers and the rest; all are the rest where layers hold a matrix twice."""
    inside = [w for w in weights if ".layers." in w.module]
    if len({w.copies for w in inside}) > 1:
        return (), weights
    outside = tuple(w for w in weights if ".layers." not in w.module)
    number = max((w.copies for w in inside), default=0)
    one = Layer(tuple(replace(w, copies=1) for w in inside), (no_cache(),))
    return (one,) * number, outside


def vision_encoder(config: Config, family: Family) -> Ledger:
    """A vision transformer on its own."""
    layers, outside = _tower_layers(tower(config, family, "vision_model"))
    names = config.words("architectures") or ()
    if family.switch("pooler", config) and names and names[0].endswith("Model"):
        hidden = config.number("hidden", low=1)
        outside = (*outside, linear("pooler", hidden, hidden, bias=True))
    if tokens := family.switch("mask_token", config) + config.number("num_register_tokens", 0, high=1 << 12):
        outside = (*outside, Weight("special_tokens", tokens, config.number("hidden", low=1)))
    if names and names[0].endswith("ForImageClassification"):
        labels, inputs = _label_count(config), config.number("hidden", low=1) * family.amount("label_inputs", 1)
        outside = (*outside, Weight("classifier", labels, inputs, bias=labels))
    notes = () if family.known else (unknown_family(family.name),)
    if family.known and family.trait("kind") != "vision":
        notes = (f"{family.name} is a part of a larger model: what joins it to the rest is not counted",)
    return Ledger(layers, outside=outside, approximations=notes)


def pair(config: Config, family: Family) -> Ledger:
    """CLIP and SigLIP: a text and a vision tower with their projections."""
    parts: list[Weight] = []
    widths = []
    embedding: tuple[Weight, ...] = ()
    layers: tuple[Layer, ...] = ()
    for key in ("text_config", "vision_config"):
        part = config.part(key) or {}
        own = part_family(part, family, key)
        nested = config.inside(part, own.defaults, key)
        widths.append(nested.number("hidden", low=1))
        if own.is_tower:
            parts += tower(nested, own, "vision_model")
            continue
        layers = _layers(nested, own)
        positions = nested.number("context", 77, high=MAX_CONTEXT)
        embedding = (Weight("embed_tokens", nested.number("vocab", low=1), widths[0], "vocab"),)
        parts += [Weight("text.positions", positions, widths[0]), norm(own, "text.norm", widths[0])]
        if family.trait("pair") == "siglip":
            size = nested.number("projection_size", widths[0])
            parts.append(linear("text.head", size, widths[0], bias=True))
    if family.trait("pair") == "clip":
        size = config.number("projection_dim", 512)
        parts += [linear("visual_projection", size, widths[1]), linear("text_projection", size, widths[0])]
    parts.append(Weight("logit_scale", 2 if family.trait("pair") == "siglip" else 1))
    seen = tuple(w for w in parts if w.module.startswith("vis"))
    return Ledger(layers, embedding, outside=tuple(w for w in parts if w not in seen), towers=seen)


def speech_encoder(config: Config, family: Family) -> Ledger:
    """wav2vec 2.0 and its kin: convolutions over the waveform, a transformer, a linear head per character."""
    hidden = config.number("hidden", low=1)
    widths, kernels = config.numbers("conv_dim") or (), config.numbers("conv_kernel") or ()
    if not widths or len(widths) != len(kernels):
        raise config.error("conv_dim and conv_kernel must be lists of the same length")
    bias = config.flag("conv_bias")
    grouped = config.text("feat_extract_norm", "group") == "group"
    found = [Weight("masked_spec_embed", hidden)]
    for i, (width, kernel) in enumerate(zip(widths, kernels, strict=True)):
        before = widths[i - 1] if i else 1
        found.append(Weight("conv_layers.conv", width, before * kernel, bias=width if bias else 0))
        if i == 0 or not grouped:
            found.append(Weight("conv_layers.norm", width, bias=width))
    kernel, groups = (
        config.number("num_conv_pos_embeddings", 128),
        config.number("num_conv_pos_embedding_groups", 16, low=1),
    )
    found += [
        Weight("feature_projection.norm", widths[-1], bias=widths[-1]),
        linear("feature_projection", hidden, widths[-1], bias=True),
        Weight("pos_conv", hidden, hidden // groups * kernel, bias=hidden),
        Weight("pos_conv.scale", kernel),
        norm(family, "norm", hidden),
    ]
    if family.switch("gated_positions", config):
        found.append(Weight("rel_attn_embed", config.number("num_buckets", 320), config.number("heads", low=1)))
    vocab = config.number("vocab", low=1)
    return Ledger(_layers(config, family), outside=tuple(found), head=(Weight("lm_head", vocab, hidden, bias=vocab),))
