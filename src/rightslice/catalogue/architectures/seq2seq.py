"""Encoder-decoder models: T5 and its kin, BART and its kin, Whisper."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rightslice.catalogue.architecture import AttentionGroup
from rightslice.catalogue.architectures.attention import attention
from rightslice.catalogue.architectures.config import MAX_CONTEXT, MAX_LAYERS, Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.feedforward import dense
from rightslice.catalogue.architectures.ledger import Ledger, norm
from rightslice.catalogue.architectures.shapes import Shape
from rightslice.catalogue.architectures.weights import Layer, Weight, no_cache

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
    frames = config.maybe("max_source_positions") if family.trait("stem") == "audio" else None
    layers = [_layer(config, family, encoder, hidden, decoder=False)] * encoder.layers
    layers += [_layer(config, family, decoder, hidden, decoder=True, frames=frames)] * decoder.layers
    vocab = config.number("vocab", low=1)
    tied = config.flag("tie_word_embeddings", True)
    head = () if tied else (Weight("lm_head", vocab, hidden, "vocab", linear=True),)
    return Ledger(
        tuple(layers),
        embedding=(Weight("shared", vocab, hidden, "vocab"),),
        head=head,
        outside=tuple(_outside(config, family, hidden, (encoder, decoder))),
        tied=tied,
    )


def _sides(config: Config) -> tuple[_Side, _Side]:
    layers = config.number("encoder_layers", config.maybe("layers"), low=1, high=MAX_LAYERS)
    heads = config.number("encoder_attention_heads", config.maybe("heads"), low=1, high=1 << 16)
    inner = config.number("encoder_ffn_dim", config.maybe("intermediate"), low=1)
    later = config.maybe("decoder_layers") or config.maybe("num_decoder_layers") or layers
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


def _buckets(config: Config) -> int:
    return config.number("relative_attention_num_buckets", 32)


def _outside(config: Config, family: Family, hidden: int, sides: tuple[_Side, _Side]) -> list[Weight]:
    found = []
    style = family.trait("positions")
    if family.trait("stem") == "audio":
        mels = config.number("num_mel_bins", 80)
        found += [Weight("conv1", hidden, 3 * mels, bias=hidden), Weight("conv2", hidden, 3 * hidden, bias=hidden)]
        found.append(Weight("encoder.positions", config.number("max_source_positions", 1500), hidden))
        found.append(Weight("decoder.positions", config.number("max_target_positions", 448), hidden))
    elif style == "learned":
        rows = config.number("context", low=1, high=MAX_CONTEXT) + family.amount("position_offset", 0)
        found.append(Weight("positions", rows, hidden, copies=2))
    elif style == "first-layer":
        found += [Weight("relative_attention_bias", _buckets(config), side.heads) for side in sides]
    if family.switch("embedding_norm", config):
        found += [norm(family, f"{part}.embedding_norm", hidden) for part in ("encoder", "decoder")]
    if family.switch("final_norm", config, True):
        found += [norm(family, f"{part}.norm", hidden) for part in ("encoder", "decoder")]
    return found
