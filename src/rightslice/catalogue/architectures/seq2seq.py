"""Encoder-decoder models: T5 and its kin, BART and its kin, Whisper."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rightslice.catalogue.architecture import AttentionGroup, MoeGroup
from rightslice.catalogue.architectures.attention import attention
from rightslice.catalogue.architectures.config import MAX_CONTEXT, MAX_LAYERS, Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.feedforward import dense
from rightslice.catalogue.architectures.ledger import Ledger, norm
from rightslice.catalogue.architectures.shapes import Shape
from rightslice.catalogue.architectures.weights import Layer, Weight, count, linear, no_cache

_KV_BYTES = 2


@dataclass(frozen=True, slots=True)
class _Side:
    layers: int
    heads: int
    inner: int


def encoder_decoder(config: Config, family: Family) -> Ledger:
    """Encoder layers, then decoder layers with self and cross attention.

    The cross attention of a speech model always spans all frames, so it is constant state; that of a text model
    grows with the encoder's input and stands in the group's `kv_elements_per_token` with kind `cross`.
    """
    hidden = config.number("hidden", low=1)
    encoder, decoder = _sides(config)
    names = config.words("architectures") or ("",)
    alone = names[0].endswith("ForCausalLM")
    frames = config.maybe("max_source_positions") if family.trait("stem") == "audio" else None
    layers = []
    both = ((encoder, False), (decoder, True))
    for side, is_decoder in both[1:] if alone else both:
        dense_layer = _layer(config, family, side, hidden, decoder=is_decoder, frames=frames if is_decoder else None)
        sparse = _sparse_layers(config, family, "decoder" if is_decoder else "encoder", side.layers)
        mixed = _with_experts(config, family, dense_layer, side) if any(sparse) else dense_layer
        layers += [mixed if flag else dense_layer for flag in sparse]
    vocab = config.number("vocab", low=1)
    tied = config.flag("tie_word_embeddings", True)
    head = () if tied else (Weight("lm_head", vocab, hidden, "vocab", linear=True),)
    return Ledger(
        tuple(layers),
        embedding=(Weight("shared", vocab, hidden, "vocab"),),
        head=head,
        outside=tuple(_outside(config, family, hidden, (encoder, decoder), alone=alone)),
        tied=tied,
    )


def _sides(config: Config) -> tuple[_Side, _Side]:
    layers = config.number("encoder_layers", config.maybe("layers"), low=1, high=MAX_LAYERS)
    heads = config.number("encoder_attention_heads", config.maybe("heads"), low=1, high=1 << 16)
    inner = config.number("encoder_ffn_dim", config.maybe("intermediate"), low=1)
    later = config.maybe("decoder_layers") or config.maybe("num_decoder_layers")
    if not later:
        later = layers
        config.assume("decoder_layers", later, "as the encoder")
    if later > MAX_LAYERS:
        raise config.error(f"decoder_layers = {later} is out of range")
    return (
        _Side(layers, heads, inner),
        _Side(
            later,
            config.maybe("decoder_attention_heads") or heads,
            config.maybe("decoder_ffn_dim") or inner,
        ),
    )


def _layer(
    config: Config, family: Family, side: _Side, hidden: int, *, decoder: bool, frames: int | None = None
) -> Layer:
    width = config.maybe("head_dim") or hidden // side.heads
    shape = Shape("full", "mlp", 0, side.heads, side.heads, width, width, side.inner)
    own, caches = attention(config, family, shape)
    weights = [*own, *dense(config, family, side.inner)]
    weights += [norm(family, f"norm_{i}", hidden) for i in range(3 if decoder else 2)]
    if not decoder:
        weights += _encoder_only(config, family, hidden)
    if family.trait("positions") == "every-layer":
        weights.append(Weight("self_attn.relative_attention_bias", _buckets(config), side.heads))
    if not decoder:
        return Layer(tuple(weights), (no_cache(heads=side.heads, head_dim=width),))
    cross = attention(config, family, shape)[0]
    weights += [replace(w, module=w.module.replace("self_attn", "encoder_attn")) for w in cross]
    per_token = 2 * side.heads * width
    state = _KV_BYTES * per_token * frames if frames else 0
    kept = AttentionGroup(
        "cross", 1, side.heads, side.heads, width, width, 0 if frames else per_token, state_bytes_per_sequence=state
    )
    return Layer(tuple(weights), (*caches, kept))


def _encoder_only(config: Config, family: Family, hidden: int) -> list[Weight]:
    """Second projections for global tokens (LED) and the norm of summarised blocks (LongT5)."""
    number = family.amount("extra_projections", 0)
    found = [linear(f"self_attn.global_{i}", hidden, hidden, bias=True) for i in range(number)]
    if config.text("encoder_attention_type") == "transient-global":
        found.append(Weight("self_attn.global_input_layer_norm", hidden))
    return found


def _sparse_layers(config: Config, family: Family, side: str, number: int) -> tuple[bool, ...]:
    """Which layers hold experts: each `*_sparse_step`-th, counted as the class does."""
    step = config.number(f"{side}_sparse_step", 0)
    if config.number("experts", 0) < _SOME_EXPERTS or step < 1:
        return (False,) * number
    first = family.amount("sparse_first", step - 1) if step > 1 else 0
    return tuple(i % step == first for i in range(number))


_SOME_EXPERTS = 2


def _with_experts(config: Config, family: Family, layer: Layer, side: _Side) -> Layer:
    """The same layer with routed experts instead of the feed-forward block."""
    plain = dense(config, family, side.inner)
    experts = config.number("experts", low=1, high=1 << 16)
    top_k = min(experts, family.amount("top_k", 1))
    routed = tuple(replace(w, module=f"{w.module}.experts", split="expert", copies=experts) for w in plain)
    bias = experts if config.flag("router_bias") else 0
    router = Weight("mlp.gate", experts, config.number("hidden", low=1), bias=bias)
    kept = tuple(w for w in layer.weights if w not in plain)
    moe = MoeGroup(1, experts, top_k, count(plain), 0, side.inner)
    return replace(layer, weights=(*kept, *routed, router), moe=moe)


def _buckets(config: Config) -> int:
    return config.number("relative_attention_num_buckets", 32)


def _speech_stem(config: Config, hidden: int) -> list[Weight]:
    """Gated convolutions over the spectrogram (Speech2Text): each output is halved by its gate."""
    number = config.number("num_conv_layers", 2, low=1, high=16)
    kernels = config.numbers("conv_kernel_sizes", low=1, high=1024) or (5,) * number
    inner = config.number("conv_channels", 1024, low=2)
    width = config.number("input_feat_per_channel", 80) * config.number("input_channels", 1)
    found = []
    for i, kernel in enumerate(kernels[:number]):
        out = 2 * hidden if i == number - 1 else inner
        found.append(Weight(f"conv_{i}", out, width * kernel, bias=out))
        width = out // 2
    return found


def _audio_stem(config: Config, hidden: int, *, alone: bool) -> list[Weight]:
    """Two convolutions over the spectrogram and the positions of frames and words (Whisper)."""
    words = Weight("decoder.positions", config.number("max_target_positions", 448), hidden)
    if alone:
        return [words]
    mels = config.number("num_mel_bins", 80)
    frames = Weight("encoder.positions", config.number("max_source_positions", 1500), hidden)
    return [
        Weight("conv1", hidden, 3 * mels, bias=hidden),
        Weight("conv2", hidden, 3 * hidden, bias=hidden),
        frames,
        words,
    ]


def _outside(config: Config, family: Family, hidden: int, sides: tuple[_Side, _Side], *, alone: bool) -> list[Weight]:
    """Stems, positions and norms; a decoder `alone` (class `...ForCausalLM`) has its own half of them."""
    found = []
    parts = ("decoder",) if alone else ("encoder", "decoder")
    style = family.trait("positions")
    if family.trait("stem") == "speech" and not alone:
        found += _speech_stem(config, hidden)
    elif family.trait("stem") == "audio":
        found += _audio_stem(config, hidden, alone=alone)
    elif style == "per-side":
        for side in parts:
            rows = config.number(f"max_{side}_position_embeddings", low=1, high=MAX_CONTEXT)
            found.append(Weight(f"{side}.positions", rows, hidden))
    elif style == "learned":
        rows = config.number("context", low=1, high=MAX_CONTEXT) + family.amount("position_offset", 0)
        found.append(Weight("positions", rows, hidden, copies=len(parts)))
    elif style == "first-layer":
        found += [Weight("relative_attention_bias", _buckets(config), side.heads) for side in sides[-len(parts) :]]
        if config.text("encoder_attention_type") == "transient-global":
            found.append(Weight("global_relative_attention_bias", _buckets(config), sides[0].heads))
    if family.switch("embedding_norm", config):
        found += [norm(family, f"{part}.embedding_norm", hidden) for part in parts]
    if family.switch("final_norm", config, True):
        found += [norm(family, f"{part}.norm", hidden) for part in parts]
    return found
