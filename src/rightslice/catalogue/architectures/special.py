"""Decoders whose layers are not a token mixer followed by a feed-forward block: RWKV, Zamba, JetMoE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rightslice.catalogue.architecture import AttentionGroup, MoeGroup
from rightslice.catalogue.architectures.attention import attention
from rightslice.catalogue.architectures.config import MAX_LAYERS, Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.feedforward import dense
from rightslice.catalogue.architectures.layers import HYBRID, mixer_words
from rightslice.catalogue.architectures.recurrent import mamba2, mamba_heads
from rightslice.catalogue.architectures.shapes import shapes
from rightslice.catalogue.architectures.weights import Layer, Weight, linear, vector

_SUM_BYTES: Final = 3 * 4
"""RWKV keeps numerator, denominator and maximum of its weighted mean in 32 bit, and two inputs in 16 bit."""


def rwkv(config: Config, _family: Family) -> tuple[Layer, ...]:
    """RWKV-4: time mixing and channel mixing, two layer norms each layer and one before the first."""
    hidden, count = config.number("hidden", low=1), config.number("layers", low=1, high=MAX_LAYERS)
    inner = config.maybe("attention_hidden_size") or hidden
    width = config.maybe("intermediate") or 4 * hidden
    weights = (
        Weight("attention.time_decay", 2, inner),
        Weight("attention.time_mix", 3, hidden),
        *(linear(f"attention.{name}", inner, hidden) for name in ("key", "value", "receptance")),
        linear("attention.output", hidden, inner),
        Weight("feed_forward.time_mix", 2, hidden),
        linear("feed_forward.key", width, hidden),
        linear("feed_forward.receptance", hidden, hidden),
        linear("feed_forward.value", hidden, width),
        Weight("norms", 4, hidden),
    )
    state = 2 * hidden * 2 + inner * _SUM_BYTES
    layer = Layer(weights, (AttentionGroup("linear", 1, 1, 1, inner, inner, 0, state_bytes_per_sequence=state),))
    first = Layer((*weights, Weight("pre_ln", 2, hidden)), layer.caches)
    return (first, *([layer] * (count - 1)))


def zamba(config: Config, family: Family) -> tuple[Layer, ...]:
    """Zamba and Zamba2: Mamba layers; some first run an attention block whose weights all of them share.

    The shared block reads the hidden state beside the first embedding, twice the width. Its weights are counted in the
    first layers that use them (one per `num_mem_blocks`); Zamba2 adds low-rank adapters for each use.
    """
    hidden, count = config.number("hidden", low=1), config.number("layers", low=1, high=MAX_LAYERS)
    ids = config.numbers("hybrid_layer_ids")
    words, _ = mixer_words(config, family, count) if ids is None else ((), False)
    hybrid = [i in ids for i in range(count)] if ids is not None else [word == HYBRID for word in words]
    shape = shapes(config, family)[0]
    mixed, state = _grouped_mamba(config) if family.switch("grouped_mamba", config) else mamba2(config, family, shape)
    plain = (*mixed, vector("input_layernorm", hidden))
    heads, width = shape.heads, config.maybe("attention_head_dim") or 2 * hidden // max(1, shape.heads)
    kv_heads = shape.kv_heads
    cache = AttentionGroup("full", 1, heads, kv_heads, width, width, 2 * kv_heads * width)
    shared, adapters = _shared_block(config, heads, kv_heads, width, shape.intermediate)
    blocks = config.number("num_mem_blocks", 1, low=1, high=MAX_LAYERS)
    found: list[Layer] = []
    used = 0
    for is_hybrid in hybrid:
        weights = plain
        if is_hybrid:
            weights = (*plain, linear("linear", hidden, hidden), *adapters, *(shared if used < blocks else ()))
            used += 1
        found.append(Layer(weights, (*state, cache) if is_hybrid else state))
    return tuple(found)


def _shared_block(
    config: Config, heads: int, kv_heads: int, width: int, inner: int
) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """The shared attention and feed-forward block, and the adapters of one use."""
    hidden = config.number("hidden", low=1)
    wide = config.maybe("attention_hidden_size") or 2 * hidden
    shared = (
        linear("self_attn.q_proj", heads * width, wide),
        linear("self_attn.k_proj", kv_heads * width, wide, "kv"),
        linear("self_attn.v_proj", kv_heads * width, wide, "kv"),
        linear("self_attn.o_proj", hidden, heads * width),
        linear("feed_forward.gate_up_proj", 2 * inner, hidden),
        linear("feed_forward.down_proj", hidden, inner),
        vector("shared.input_layernorm", wide),
        vector("shared.pre_ff_layernorm", hidden),
    )
    rank = config.maybe("adapter_rank") or 0
    adapters = [Weight("feed_forward.adapter", rank, hidden + 2 * inner)]
    if config.flag("use_shared_attention_adapter"):
        adapters.append(Weight("self_attn.adapter", rank, 3 * (wide + heads * width)))
    return shared, tuple(adapters) if rank else ()


def _grouped_mamba(config: Config) -> tuple[tuple[Weight, ...], tuple[AttentionGroup, ...]]:
    """Zamba's Mamba-1: the inner width in `n_mamba_heads` groups, each with projections of its own."""
    hidden = config.number("hidden", low=1)
    inner = int(config.real("mamba_expand", 2.0) * hidden)
    heads, _ = mamba_heads(config, inner)
    state, kernel = config.number("state_size", 16, low=1), config.number("conv_kernel", 4, low=1)
    given = config.raw("mamba_dt_rank")
    rank = given if isinstance(given, int) and 0 < given <= hidden else -(-hidden // 16)
    bias = config.flag("mamba_conv_bias", True)
    weights = (
        linear("mamba.in_proj", 2 * inner, hidden, bias=config.flag("mamba_proj_bias")),
        Weight("mamba.conv1d", inner, kernel, "shard", bias=inner if bias else 0),
        Weight("mamba.x_proj", rank + 2 * state, inner, "shard", linear=True),
        Weight("mamba.dt_proj", inner, rank, "shard", bias=inner, linear=True),
        Weight("mamba.A_log", inner, state, "shard"),
        Weight("mamba.D", inner, 1, "shard"),
        linear("mamba.out_proj", hidden, inner, bias=config.flag("mamba_proj_bias")),
    )
    kept = 2 * inner * kernel + 4 * inner * state
    return weights, (AttentionGroup("mamba", 1, heads, heads, inner, inner, 0, state_bytes_per_sequence=kept),)


def jetmoe(config: Config, family: Family) -> tuple[Layer, ...]:
    """JetMoE: queries and outputs are experts too, routed beside those of the feed-forward block."""
    hidden, count = config.number("hidden", low=1), config.number("layers", low=1, high=MAX_LAYERS)
    experts, top_k = config.most("experts", 8, low=1), config.most("top_k", 2, low=1)
    if top_k > experts:
        raise config.error(f"{top_k} experts per token, but there are only {experts} experts")
    kv_heads, width = config.number("num_key_value_heads", low=1), config.number("kv_channels", 128, low=1)
    inner = config.number("intermediate", low=1)
    keys = kv_heads * width
    routed = (
        Weight("self_attention.experts.input_linear", keys, hidden, "expert", experts, linear=True),
        Weight("self_attention.experts.output_linear", hidden, keys, "expert", experts, linear=True),
        Weight("mlp.input_linear", 2 * inner, hidden, "expert", experts, linear=True),
        Weight("mlp.output_linear", hidden, inner, "expert", experts, linear=True),
    )
    weights = (
        *routed,
        linear("self_attention.kv_proj", 2 * keys, hidden, "kv"),
        Weight("self_attention.router.gate", experts, hidden),
        Weight("mlp.gate", experts, hidden),
        Weight("biases", 2, hidden),
        Weight("norms", 2, hidden),
    )
    parameters = 2 * keys * hidden + 3 * inner * hidden
    moe = MoeGroup(1, experts, top_k, parameters, 0, inner)
    cache = AttentionGroup("full", 1, top_k * kv_heads, kv_heads, width, width, 2 * keys)
    return (Layer(weights, (cache,), moe),) * count


def xlstm(config: Config, _family: Family) -> tuple[Layer, ...]:
    """xLSTM: a matrix memory per head (keys of half the width), kept in 16 bit as Transformers does; a gated block."""
    hidden, count = config.number("hidden", low=1), config.maybe("num_blocks") or config.number("layers", low=1)
    if count > MAX_LAYERS:
        raise config.error(f"num_blocks = {count} is out of range")
    heads, bias = config.number("heads", 8, low=1), config.flag("use_bias")
    keys, values = int(config.real("qk_dim_factor", 0.5) * hidden), int(config.real("v_dim_factor", 1.0) * hidden)
    step = config.number("ffn_round_up_to_multiple_of", 64, low=1)
    inner = -(-int(config.real("ffn_proj_factor", 2.667) * hidden) // step) * step
    weights = (
        *(linear(f"mlstm_layer.{name}", keys, hidden, bias=bias) for name in "qk"),
        *(linear(f"mlstm_layer.{name}", values, hidden, bias=bias) for name in ("v", "ogate_preact")),
        Weight("mlstm_layer.gates", 2 * heads, hidden, bias=2 * heads),
        vector("mlstm_layer.multihead_norm", values),
        linear("mlstm_layer.out_proj", hidden, values, bias=bias),
        *(linear(f"ffn.{name}", inner, hidden, bias=bias) for name in ("proj_up_gate", "proj_up")),
        linear("ffn.proj_down", hidden, inner, bias=bias),
        Weight("norms", 2, hidden),
    )
    state = 2 * (keys * values // heads + keys + heads)
    cache = AttentionGroup("linear", 1, heads, heads, keys, values, 0, state_bytes_per_sequence=state)
    return (Layer(weights, (cache,)),) * count


def eagle3(config: Config, family: Family) -> tuple[Layer, ...]:
    """EAGLE-3 draft heads: three hidden states of the target become one, which a layer reads beside the embedding.

    Word embeddings are the target's own; the head knows `draft_vocab_size` words. Source: vLLM 0.32 llama_eagle3.
    """
    hidden = config.number("hidden", low=1)
    source = config.maybe("target_hidden_size") or hidden
    found = []
    for i, shape in enumerate(shapes(config, family)):
        mixed, caches = attention(config, family, shape, inputs=2 * hidden if i == 0 else hidden)
        first = (linear("fc", hidden, 3 * source, "replicate"), vector("hidden_norm", hidden)) if i == 0 else ()
        norms = Weight("norms", 2, hidden)
        found.append(Layer((*first, *mixed, *dense(config, family, shape.intermediate), norms), caches))
    return tuple(found)


SPECIAL: Final[dict[str, Callable[[Config, Family], tuple[Layer, ...]]]] = {
    "rwkv": rwkv,
    "zamba": zamba,
    "jetmoe": jetmoe,
    "xlstm": xlstm,
    "eagle3": eagle3,
}
"""The trait `block` of a family -> its layers."""
