"""Decoder-only language models: layer by layer from the shapes, then embeddings and head."""

from __future__ import annotations

from collections.abc import Callable

from rightslice.catalogue.architecture import AttentionGroup, MoeGroup
from rightslice.catalogue.architectures import layers as kinds
from rightslice.catalogue.architectures.attention import (
    Mixer,
    attention,
    compressed_attention,
    cross_attention,
    latent_attention,
)
from rightslice.catalogue.architectures.config import MAX_CONTEXT, Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.feedforward import dense, mixture
from rightslice.catalogue.architectures.ledger import Ledger, has_language_head, label_head, norm, unknown_family
from rightslice.catalogue.architectures.recurrent import RECURRENT, recurrent_kind
from rightslice.catalogue.architectures.shapes import Shape, shapes
from rightslice.catalogue.architectures.special import SPECIAL
from rightslice.catalogue.architectures.spelling import Spelling
from rightslice.catalogue.architectures.weights import Layer, Weight, linear, vector


def decoder(config: Config, family: Family) -> Ledger:
    """The ledger of a decoder. Raises BadInputError when the configuration is incomplete or contradicts itself."""
    layers, found = _all_layers(config, family)
    hidden, vocab = config.number("hidden", low=1), config.number("vocab", low=1)
    width = config.maybe("word_embed_proj_dim") or hidden
    tied = config.flag("tie_word_embeddings", True)
    head: tuple[Weight, ...] = ()
    if has_language_head(config, family):
        bias = vocab if family.switch("head_bias", config) else 0
        if not tied:
            drafts = family.switch("borrowed_embedding", config)
            rows = (config.maybe("draft_vocab_size", low=1) if drafts else None) or vocab
            head = (Weight("lm_head", rows, width, "vocab", bias=bias, linear=True),)
        elif bias:
            head = (Weight("lm_head", bias),)
    return Ledger(
        layers=layers,
        embedding=_embedding(config, family, vocab, width, hidden),
        head=head or (label_head(config, hidden)),
        outside=_outside(config, family, hidden, width, len(layers)),
        tied=tied,
        has_language_head=has_language_head(config, family),
        approximations=_approximations(config, family, found),
        spelling=Spelling(family.name, predictors=len(layers)),
    )


def _all_layers(config: Config, family: Family) -> tuple[tuple[Layer, ...], tuple[Shape, ...]]:
    special = SPECIAL.get(family.trait("block"))
    if special is not None:
        return special(config, family), ()
    found = shapes(config, family)
    built: dict[Shape, Layer] = {}
    for shape in found:
        if shape not in built:
            built[shape] = _layer(config, family, shape)
    return tuple(built[shape] for shape in found), found


def _approximations(config: Config, family: Family, found: tuple[Shape, ...]) -> tuple[str, ...]:
    notes = []
    if not family.known:
        notes.append(unknown_family(family.name))
    elif text := family.trait("approximation"):
        notes.append(text)
    if any(s.word == kinds.LINEAR for s in found) and not recurrent_kind(config, family):
        notes.append("the recurrent layers of this model are not known: counted as full attention")
    if guessed := kinds.guessed_words(config):
        notes.append(f"kinds of layers not known, taken for the likeliest: {', '.join(w[:40] for w in guessed[:5])}")
    return tuple(notes)


def _embedding(config: Config, family: Family, vocab: int, width: int, hidden: int) -> tuple[Weight, ...]:
    if family.switch("borrowed_embedding", config):
        return ()
    found = [Weight("embed_tokens", vocab + family.amount("extra_embeddings", 0), width, "vocab")]
    if family.trait("positions") == "learned":
        rows = config.number("context", low=1, high=MAX_CONTEXT) + family.amount("position_offset", 0)
        found.append(Weight("embed_positions", rows, hidden))
    return tuple(found)


def _outside(config: Config, family: Family, hidden: int, width: int, layers: int) -> tuple[Weight, ...]:
    found = []
    if family.switch("embedding_norm", config):
        found.append(norm(family, "embedding_norm", hidden))
    if family.switch("last_bias", config):
        found.append(Weight("last_attention.dense_bias", hidden))
    if width != hidden:
        found += [linear("project_in", hidden, width), linear("project_out", width, hidden)]
    if family.switch("final_norm", config, True):
        found.append(norm(family, "norm", hidden))
    if per_layer := config.maybe("hidden_size_per_layer_input"):
        rows = config.number("vocab_size_per_layer_input", low=1)
        found += [
            Weight("embed_tokens_per_layer", rows, layers * per_layer, "vocab"),
            linear("per_layer_model_projection", layers * per_layer, hidden),
            vector("per_layer_projection_norm", per_layer),
        ]
    if inputs := config.maybe("altup_num_inputs"):
        found.append(Weight("altup_projections", hidden, hidden, copies=2 * (inputs - 1)))
    if streams := config.maybe("hc_mult"):
        found.append(Weight("hc_head", streams, streams * hidden, bias=streams + 1))
    return tuple(found)


def _layer(config: Config, family: Family, shape: Shape) -> Layer:
    hidden = config.number("hidden", low=1)
    repeats = family.amount("blocks_per_layer", 1)
    weights: list[Weight] = []
    caches: list[AttentionGroup] = []
    for _ in range(repeats):
        mixed, kept = _mixer(config, family, shape)
        weights += mixed
        caches += kept
    moe: MoeGroup | None = None
    if shape.feed in (kinds.MOE, "both"):
        routed, moe = mixture(config, family, shape)
        weights += routed
        if family.switch("residual_mlp", config):
            weights += dense(config, family, hidden, "residual_mlp")
            weights.append(norm(family, "residual_layernorm", hidden))
    if shape.feed in (kinds.MLP, "both"):
        width = config.maybe(family.trait("dense_key")) if family.trait("dense_key") else None
        weights += dense(config, family, width or shape.intermediate)
    elif shape.feed == kinds.PROJECTION:
        weights.append(linear("mlp.linear_mlp", hidden, hidden))
    for _ in range(repeats if repeats > 1 else 0):
        weights += dense(config, family, shape.intermediate, "mlps")
    weights += _norms(config, family, shape, hidden)
    weights += _extras(config, hidden)
    weights += _adapters(config, weights)
    return Layer(tuple(weights), tuple(caches), moe)


def _norms(config: Config, family: Family, shape: Shape, hidden: int) -> list[Weight]:
    number = family.amount("norms", 2) if shape.norms == 2 else shape.norms
    if family.trait("norms_if") and not family.switch("norms_if", config):
        number -= 1
    if family.switch("extra_norms", config):
        number += 2
    found = [norm(family, f"norm_{i}", hidden) for i in range(number)]
    if vectors := family.amount("layer_vectors", 0):
        found.append(Weight("layer_vectors", vectors, hidden))
    if shape.feed in (kinds.MOE, "both"):
        found += [norm(family, f"moe_norm_{i}", hidden) for i in range(family.amount("moe_norms", 0))]
    if scalars := family.amount("layer_scalars", 0):
        found.append(Weight("layer_scalars", scalars))
    return found


def _extras(config: Config, hidden: int) -> list[Weight]:
    """Tensors that only some models have, told by their keys."""
    found = []
    if per_layer := config.maybe("hidden_size_per_layer_input"):
        found += [
            linear("per_layer_input_gate", per_layer, hidden),
            linear("per_layer_projection", hidden, per_layer),
            vector("post_per_layer_input_norm", hidden),
        ]
    if rank := config.maybe("laurel_rank"):
        found += [linear("laurel.linear_left", rank, hidden), linear("laurel.linear_right", hidden, rank)]
        found.append(vector("laurel.post_laurel_norm", hidden))
    if inputs := config.maybe("altup_num_inputs"):
        found += [Weight("altup.router", inputs, hidden), Weight("altup.coefficients", inputs**2, inputs, bias=0)]
        found += [Weight("altup.correction_coefs", inputs, inputs), Weight("altup.norms", 2, hidden)]
    if streams := config.maybe("hc_mult"):
        rows = (2 + streams) * streams
        found.append(Weight("hyper_connections", rows, streams * hidden, copies=2, bias=rows + 3))
    return found


def _adapters(config: Config, weights: list[Weight]) -> list[Weight]:
    """Low-rank adapters that are part of the model (Phi-4-multimodal): one per fused matrix and modality."""
    parts = [part for key in ("vision_lora", "speech_lora") if (part := config.part(key))]
    rank = sum(config.inside(part).number("r", 0, high=1 << 16) for part in parts)
    if not rank:
        return []
    fused = ("k_proj", "v_proj", "up_proj")  # read the same input as the one before them
    inputs = sum(w.columns for w in weights if w.linear and not w.module.endswith(fused))
    return [Weight("lora", rank, inputs + sum(w.rows for w in weights if w.linear))]


def _mixer(config: Config, family: Family, shape: Shape) -> Mixer:
    hidden = config.number("hidden", low=1)
    if shape.word in (kinds.NONE, kinds.MLP, kinds.MOE):
        return (), ()
    if shape.word == kinds.PROJECTION:
        return (linear("self_attn.linear_attn", hidden, hidden),), ()
    if shape.word in (kinds.LINEAR, kinds.HYBRID):
        recurrent = RECURRENT.get(recurrent_kind(config, family))
        if recurrent is not None:
            own = recurrent(config, family, shape)
            if shape.word == kinds.LINEAR:
                return own
            beside = attention(config, family, shape)
            return (*beside[0], *own[0]), (*beside[1], *own[1])
    if shape.word == kinds.CROSS:
        return cross_attention(config, family, shape)
    return _softmax(config, family)(config, family, shape)


def _softmax(config: Config, family: Family) -> Callable[[Config, Family, Shape], Mixer]:
    if config.has("o_lora_rank"):
        return compressed_attention
    if config.has("kv_lora_rank") and family.trait("mixer") != "grouped":
        return latent_attention
    return _grouped


def _grouped(config: Config, family: Family, shape: Shape) -> Mixer:
    return attention(config, family, shape)
