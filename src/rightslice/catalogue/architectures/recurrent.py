"""Token mixers with a constant state: Mamba, Mamba-2, gated delta net, KDA, lightning, short convolution, RG-LRU.

Recurrent state is kept in 32 bit and convolution state (all `kernel` columns) in 16 bit, as Transformers keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

from rightslice.catalogue.architecture import AttentionGroup
from rightslice.catalogue.architectures.attention import Mixer
from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.shapes import Shape
from rightslice.catalogue.architectures.weights import Weight, linear, vector


def _group(
    kind: Literal["mamba", "linear"], heads: int, width: int, channels: int, kernel: int, recurrent: int
) -> AttentionGroup:
    """`channels` and `kernel` of the convolution, elements of the recurrent state."""
    state, column = 2 * channels * kernel + 4 * recurrent, 2 * channels
    return AttentionGroup(
        kind, 1, heads, heads, width, width, 0, state_bytes_per_sequence=state, spare_state_bytes_per_sequence=column
    )


def mamba(config: Config, family: Family, _shape: Shape) -> Mixer:
    """Mamba-1: inner width x (kernel + state)."""
    hidden = config.number("hidden", low=1)
    expand = config.real("mamba_expand", config.real("expand", 2.0))
    inner = int(expand * hidden)
    if not config.has("mamba_expand") and config.has("intermediate") and family.trait("mixer") == "linear":
        inner = config.number("intermediate", low=1)
    state, kernel = config.number("state_size", 16, low=1), config.number("conv_kernel", 4, low=1)
    key = "mamba_dt_rank" if config.has("mamba_dt_rank") else "time_step_rank"
    rank = (0 if config.raw(key) == "auto" else config.maybe(key)) or math.ceil(hidden / 16)
    bias = family.switch("proj_bias", config)
    weights = [
        linear("mixer.in_proj", 2 * inner, hidden, bias=bias),
        Weight("mixer.conv1d", inner, kernel, "shard", bias=inner if family.switch("conv_bias", config, True) else 0),
        linear("mixer.x_proj", rank + 2 * state, inner),
        linear("mixer.dt_proj", inner, rank, bias=True),
        Weight("mixer.A_log", inner, state, "shard"),
        Weight("mixer.D", inner, 1, "shard"),
        linear("mixer.out_proj", hidden, inner, bias=bias),
    ]
    if family.switch("mamba_inner_norms", config):
        weights.append(vector("mixer.inner_layernorms", rank + 2 * state))
    return tuple(weights), (_group("mamba", 1, inner, inner, kernel, inner * state),)


def mamba2(config: Config, family: Family, _shape: Shape) -> Mixer:
    """Mamba-2: heads x head width x state, with a convolution over inner width and the two state projections."""
    hidden = config.number("hidden", low=1)
    state, kernel = config.number("state_size", 128, low=1), config.number("conv_kernel", 4, low=1)
    groups = config.maybe("mamba_n_groups") or config.maybe("n_groups") or config.maybe("mamba_ngroups") or 1
    expanded = config.maybe("mamba_d_ssm") or int(config.real("mamba_expand", config.real("expand", 2.0)) * hidden)
    heads, width = mamba_heads(config, expanded)
    inner = heads * width
    channels = inner + 2 * groups * state
    bias = family.switch("proj_bias", config)
    weights = [
        linear("mixer.in_proj", inner + channels + heads, hidden, bias=bias),
        Weight(
            "mixer.conv1d",
            channels,
            kernel,
            "shard",
            bias=channels if family.switch("conv_bias", config, True) else 0,
        ),
        Weight("mixer.dt_bias", 3 * heads, 1, "shard"),
        linear("mixer.out_proj", hidden, inner, bias=bias),
    ]
    if family.switch("gated_norm", config, True):
        weights.append(Weight("mixer.norm", inner, 1, "shard"))
    return tuple(weights), (_group("mamba", heads, width, channels, kernel, inner * state),)


def mamba_heads(config: Config, expanded: int) -> tuple[int, int]:
    """Number and width of the heads of Mamba-2, of which configurations give one or both."""
    heads = config.maybe("mamba_n_heads") or config.maybe("mamba_num_heads") or config.maybe("n_mamba_heads")
    heads = heads or (config.maybe("num_heads") if config.has("state_size") else None)
    named = config.raw("mamba_d_head") != "auto"
    width = (config.maybe("mamba_d_head") if named else 0) or config.maybe("mamba_head_dim")
    width = width or config.maybe("mamba_headdim")
    width = width or (config.maybe("head_dim") if not config.has("heads") or config.has("num_heads") else None)
    if width:
        return heads or expanded // width, width
    if not heads:
        raise config.error("neither the number nor the width of the Mamba heads is given")
    return heads, expanded // heads


def delta_net(config: Config, _family: Family, shape: Shape) -> Mixer:
    """Gated delta net: value heads x key width x value width."""
    hidden = config.number("hidden", low=1)
    key_heads = config.number("linear_num_key_heads", shape.heads, low=1)
    heads = config.number("linear_num_value_heads", shape.heads, low=1)
    key_width = config.number("linear_key_head_dim", 3 * hidden // (4 * key_heads), low=1)
    width = config.number("linear_value_head_dim", 2 * key_width, low=1)
    kernel = config.number("linear_conv_kernel_dim", 4, low=1)
    keys, values = key_heads * key_width, heads * width
    weights = (
        linear("linear_attn.in_proj_qkv", 2 * keys + values, hidden),
        linear("linear_attn.in_proj_z", values, hidden),
        linear("linear_attn.in_proj_ba", 2 * heads, hidden),
        Weight("linear_attn.conv1d", 2 * keys + values, kernel, "shard"),
        Weight("linear_attn.dt_bias", 2 * heads, 1, "shard"),
        vector("linear_attn.norm", width),
        linear("linear_attn.out_proj", hidden, values),
    )
    return weights, (_group("linear", heads, width, 2 * keys + values, kernel, heads * key_width * width),)


def kimi_delta(config: Config, family: Family, shape: Shape) -> Mixer:
    """Kimi delta attention: a decay per channel, so that gate and decay have projections of their own."""
    hidden = config.number("hidden", low=1)
    part = config.part("linear_attn_config")
    nested = config.inside(part or {})
    heads = nested.number("num_heads", config.number("linear_num_heads", shape.heads), low=1)
    width = nested.number("head_dim", config.number("linear_head_dim", shape.qk_dim), low=1)
    kernel = nested.number("short_conv_kernel_size", config.number("conv_kernel", 4), low=1)
    inner = heads * width
    low_rank = {
        "f": family.switch("low_rank_gates", config, True),
        "g": family.switch("low_rank_gates", config, True) and not nested.flag("use_full_rank_gate"),
    }
    weights = [
        *(linear(f"self_attn.{name}_proj", inner, hidden) for name in "qkv"),
        Weight("self_attn.conv1d", 3 * inner, kernel, "shard"),
        Weight("self_attn.dt_bias", inner, 1, "shard"),
        Weight("self_attn.A_log", heads, 1, "shard"),
        linear("self_attn.b_proj", heads, hidden),
        vector("self_attn.o_norm", width),
        linear("self_attn.o_proj", hidden, inner),
    ]
    for gate in "fg":
        if low_rank[gate]:
            weights += [
                linear(f"self_attn.{gate}_a_proj", width, hidden, "replicate"),
                linear(f"self_attn.{gate}_b_proj", inner, width),
            ]
        else:
            weights.append(linear(f"self_attn.{gate}_proj", inner, hidden))
    return tuple(weights), (_group("linear", heads, width, 3 * inner, kernel, heads * width * width),)


def plamo(config: Config, _family: Family, _shape: Shape) -> Mixer:
    """PLaMo 2: Mamba-2 heads whose step and projections are computed as in Mamba-1, each normed."""
    hidden = config.number("hidden", low=1)
    heads, width = config.number("mamba_num_heads", low=1, high=1 << 16), config.number("hidden_size_per_head", low=1)
    state, kernel = config.number("state_size", 64, low=1), config.number("conv_kernel", 4, low=1)
    inner, rank = heads * width, max(64, hidden // 16)
    weights = (
        linear("mixer.in_proj", 2 * inner, hidden),
        Weight("mixer.conv1d", inner, kernel, "shard"),
        linear("mixer.bcdt_proj", rank + 2 * state, inner),
        linear("mixer.dt_proj", heads, rank),
        Weight("mixer.dt_bias", 3 * heads, 1, "shard"),
        vector("mixer.norms", rank + 2 * state),
        linear("mixer.out_proj", hidden, inner),
    )
    return weights, (_group("mamba", heads, width, inner, kernel, inner * state),)


def lightning(config: Config, _family: Family, shape: Shape) -> Mixer:
    """Lightning attention (MiniMax): heads x width x width, no convolution."""
    hidden, inner = config.number("hidden", low=1), shape.heads * shape.qk_dim
    weights = (
        linear("self_attn.qkv_proj", 3 * inner, hidden),
        linear("self_attn.output_gate", inner, hidden),
        linear("self_attn.out_proj", hidden, inner),
        vector("self_attn.norm", inner),
    )
    return weights, (_group("linear", shape.heads, shape.qk_dim, 0, 0, inner * shape.qk_dim),)


def short_conv(config: Config, family: Family, _shape: Shape) -> Mixer:
    """Gated short convolution (LFM2): only the last `kernel` inputs are kept."""
    hidden, kernel = config.number("hidden", low=1), config.number("conv_kernel", 3, low=1)
    bias = family.switch("conv_bias", config, False)
    weights = (
        Weight("conv.conv", hidden, kernel, "shard", bias=hidden if bias else 0),
        linear("conv.in_proj", 3 * hidden, hidden, bias=bias),
        linear("conv.out_proj", hidden, hidden, bias=bias),
    )
    return weights, (_group("linear", 1, hidden, hidden, kernel, 0),)


def gated_linear_recurrence(config: Config, _family: Family, shape: Shape) -> Mixer:
    """RG-LRU (RecurrentGemma): one number per channel and a short convolution."""
    hidden = config.number("hidden", low=1)
    width = config.maybe("lru_width") or hidden
    kernel, heads = config.number("conv_kernel", 4, low=1), max(1, shape.heads)
    block = width // heads
    weights = (
        linear("temporal_block.linear_y", width, hidden, bias=True),
        linear("temporal_block.linear_x", width, hidden, bias=True),
        linear("temporal_block.linear_out", hidden, width, bias=True),
        Weight("temporal_block.conv_1d", width, kernel, "shard", bias=width),
        Weight("temporal_block.rg_lru.recurrent_param", width, 1, "shard"),
        Weight("temporal_block.rg_lru.gates", heads * block, block, "shard", copies=2, bias=heads * block),
    )
    return weights, (_group("linear", heads, block, width, kernel, width),)


RECURRENT: Final[dict[str, Callable[[Config, Family, Shape], Mixer]]] = {
    "mamba": mamba,
    "mamba2": mamba2,
    "delta-net": delta_net,
    "kimi-delta": kimi_delta,
    "lightning": lightning,
    "plamo": plamo,
    "short-conv": short_conv,
    "rg-lru": gated_linear_recurrence,
}


def recurrent_kind(config: Config, family: Family) -> str:
    """Which recurrent mixer a model has: the trait of its class, else what its keys tell. Empty when they do not."""
    if (trait := family.trait("recurrent")) in RECURRENT:
        return trait
    if config.has("linear_num_value_heads"):
        return "delta-net"
    if config.has("linear_attn_config"):
        return "kimi-delta"
    if config.has("conv_L_cache"):
        return "short-conv"
    if config.has("lru_width"):
        return "rg-lru"
    if config.has("state_size"):
        several = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "mamba_d_head", "mamba_head_dim", "n_groups")
        return "mamba2" if config.has(*several) else "mamba"
    return "lightning" if config.has("attn_type_list") else ""
