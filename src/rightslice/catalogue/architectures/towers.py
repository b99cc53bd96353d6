"""Vision and audio towers: transformers over patches or frames, and conformers."""

from __future__ import annotations

from dataclasses import replace

from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.ledger import norm
from rightslice.catalogue.architectures.weights import Weight, linear


def tower(config: Config, family: Family, name: str) -> tuple[Weight, ...]:
    """A transformer over patches or audio frames: stem, positions, layers, last norm, merger and pooling head."""
    if fixed := family.amount("fixed_parameters", 0):
        return (Weight(name, fixed),)
    width = tower_width(config, family)
    if config.text("norm_type") == "rms_norm":
        family = replace(family, traits={**family.traits, "norm": "rms"})
    if family.trait("stem") == "conformer":
        return tuple(replace(w, module=f"{name}.{w.module}") for w in conformer(config, family, width))
    if family.trait("stem") == "granite":
        return tuple(replace(w, module=f"{name}.{w.module}") for w in granite_conformer(config, width))
    layers = config.number("layers", high=1024)
    found = [*_stem(config, family, width), *_positions(config, family, width)]
    found += _layers(config, family, width, layers)
    for key, default in (("pre_norm", False), ("final_norm", True)):
        if family.switch(key, config, default):
            found.append(norm(family, key, width))
    if family.switch("tiles", config):
        found += _tiles(config, family, width)
    found += _merger(config, family, width)
    if family.switch("pooling_head", config):
        found += _pooling_head(config, width)
    return tuple(replace(w, module=f"{name}.{w.module}") for w in found)


def _tiles(config: Config, family: Family, width: int) -> list[Weight]:
    """Llama 3.2 Vision: gated layers over all tiles, and position tables for every aspect ratio of tiles."""
    layers = config.number("num_global_layers", 8, high=1024)
    ratios = config.raw("supported_aspect_ratios")
    ids = 1 + (len(ratios) if isinstance(ratios, list) and ratios else config.number("max_aspect_ratio_id", 8))
    tiles = config.number("max_num_tiles", 4, low=1, high=1024)
    tokens = (config.side("image_size", 448) // config.side("patch_size", 14)) ** 2 + 1
    return [
        *_layers(config, family, width, layers),
        Weight("gates", 2 * layers + 3),
        Weight("tile_embedding", ids, tiles * tokens * width),
        Weight("tile_positions", 2 * ids, tiles * width),
    ]


def conformer(config: Config, family: Family, width: int) -> list[Weight]:
    """Gemma's audio encoder: two strided convolutions, then feed-forward, attention, convolution, feed-forward."""
    layers = config.number("conf_num_hidden_layers", config.maybe("layers"), high=1024)
    heads = config.number("conf_num_attention_heads", config.maybe("heads"), low=1)
    kernel = config.number("conf_conv_kernel_size", config.number("conv_kernel_size", 5))
    first, second = config.numbers(family.trait("channels_key")) or (128, 32)
    mels = config.number("input_feat_size", 128)
    block = [
        linear("ffw_up", 4 * width, width),
        linear("ffw_down", width, 4 * width),
    ]
    found = [replace(w, copies=2) for w in block]
    found += [replace(linear("self_attn", width, width), copies=5), Weight("self_attn.per_dim_scale", width // heads)]
    found += [linear("lconv1d.start", 2 * width, width), linear("lconv1d.end", width, width)]
    found += [Weight("lconv1d.depthwise", width, kernel), Weight("norms", 9, width)]
    inside = [replace(w, module=f"layers.{w.module}", copies=layers * w.copies) for w in found]
    stem = [
        Weight("conv_0", first, 9),
        Weight("conv_1", second, 9 * first),
        Weight("conv_norms", first + second),
        linear("input_proj", width, second * mels // 4),
    ]
    out = config.maybe("output_proj_dims") or 0
    return [*inside, *stem, *([linear("output_proj", out, width, bias=True)] if out else [])]


def granite_conformer(config: Config, width: int) -> list[Weight]:
    """Granite Speech: feed-forward, attention with relative positions, convolution, feed-forward; a CTC head inside."""
    layers = config.number("layers", low=1, high=1024)
    inner = width * config.number("feedforward_mult", 4)
    heads, dim = config.number("num_heads", 8, low=1), config.maybe("dim_head") or 0
    dim = dim or width // heads
    kernel, wide = config.number("conv_kernel_size", 15), width * config.number("conv_expansion_factor", 2)
    labels = config.number("output_dim", 0)
    block = [
        replace(linear("ff.up_proj", inner, width, bias=True), copies=2),
        replace(linear("ff.down_proj", width, inner, bias=True), copies=2),
        linear("attn.qkv", 3 * heads * dim, width),
        linear("attn.to_out", width, heads * dim, bias=True),
        Weight("attn.rel_pos_emb", 2 * config.number("max_pos_emb", 512) + 1, dim),
        linear("conv.up_conv", 2 * wide, width, bias=True),
        Weight("conv.depth_conv", wide, kernel + 2),
        linear("conv.down_conv", width, wide, bias=True),
        Weight("norms", 10, width),
    ]
    return [
        *(replace(w, module=f"layers.{w.module}", copies=layers * w.copies) for w in block),
        linear("input_linear", width, config.number("input_dim", 160), bias=True),
        linear("out", labels, width, bias=True),
        linear("out_mid", width, labels, bias=True),
    ]


def tower_width(config: Config, family: Family) -> int:
    """Width of the tower's residual stream."""
    return config.number(family.trait("width_key", "hidden"), low=1)


def _stem(config: Config, family: Family, width: int) -> list[Weight]:
    if family.trait("stem") == "conv2d":  # Qwen3-Omni: three strided convolutions over the spectrogram
        inner, mels = config.number("downsample_hidden_size", 480), config.number("num_mel_bins", 128)
        return [
            Weight("conv2d1", inner, 9, bias=inner),
            Weight("conv2d", inner, 9 * inner, copies=2, bias=inner),
            linear("conv_out", width, inner * -(-mels // 8)),
        ]
    if family.trait("stem") == "audio":
        mels = config.maybe("num_mel_bins") or config.number("mel_bins", 80)
        return [Weight("conv1", width, 3 * mels, bias=width), Weight("conv2", width, 3 * width, bias=width)]
    patch = config.side("patch_size", 14)
    channels = config.maybe("num_channels") or config.maybe("in_channels") or config.number("in_chans", 3)
    frames = config.maybe("temporal_patch_size") or 1
    bias = width if family.switch("patch_bias", config, True) else 0
    return [Weight("patch_embed", width, channels * frames * patch * patch, bias=bias)]


def _positions(config: Config, family: Family, width: int) -> list[Weight]:
    tokens = family.amount("class_tokens", 0)
    found = [Weight("class_embedding", tokens, width)] if tokens else []
    style = family.trait("positions", "image")
    if style == "image":
        patch = config.side("patch_size", 14)
        image = config.side("image_size", 224)
        rows = (image // patch) ** 2 + tokens
    elif style == "none":
        rows = 0
    elif style == "square":
        rows = config.number(family.trait("positions_key"), 0) ** 2
    else:
        rows = config.number(style, 0) * family.amount("position_tables", 1)
    if rows:
        found.append(Weight("position_embedding", rows, width))
    return found


def _layers(config: Config, family: Family, width: int, layers: int) -> list[Weight]:
    heads = max(1, config.number("heads", 1))
    inner_heads = heads * (config.maybe("head_dim") or width // heads)
    inner = config.maybe(family.trait("inner_key", "intermediate")) or int(config.real("mlp_ratio", 4.0) * width)
    bias = family.switch("qkv_bias", config, True)
    mlp_bias = family.switch("mlp_bias", config, True)
    found = [
        linear("layers.self_attn.q_proj", inner_heads, width, bias=bias),
        linear("layers.self_attn.k_proj", inner_heads, width, bias=family.switch("k_bias", config, bias)),
        linear("layers.self_attn.v_proj", inner_heads, width, bias=bias),
        linear("layers.self_attn.o_proj", width, inner_heads, bias=family.switch("o_bias", config, bias)),
        linear("layers.mlp.up_proj", inner, width, bias=mlp_bias),
        linear("layers.mlp.down_proj", width, inner, bias=mlp_bias),
    ]
    if family.trait("mlp", "plain") == "gated":
        found.append(linear("layers.mlp.gate_proj", inner, width, bias=mlp_bias))
    if family.trait("qk_norm") == "head":
        found.append(Weight("layers.self_attn.qk_norm", 2, width // heads))
    elif family.trait("qk_norm") == "full" and family.switch("qk_norm_if", config, True):
        found.append(Weight("layers.self_attn.qk_norm", 2, width))
    number = family.amount("norms", 2)
    found += [norm(family, f"layers.norm_{i}", width) for i in range(number)]
    if vectors := family.amount("layer_vectors", 0):
        found.append(Weight("layers.scales", vectors, width))
    if scalars := family.amount("layer_scalars", 0):
        found.append(Weight("layers.scalars", scalars))
    return [replace(w, copies=layers) for w in found]


def _merger(config: Config, family: Family, width: int) -> list[Weight]:
    """Qwen's patch merger, once at the end and once per `deepstack` layer."""
    if family.trait("merger") != "qwen":
        return []
    merged = width * config.number("spatial_merge_size", 2, low=1, high=64) ** 2
    out = config.number(family.trait("out_key", "out_hidden_size"), low=1)
    matrices = [
        linear("merger.linear_fc1", merged, merged, bias=True),
        linear("merger.linear_fc2", out, merged, bias=True),
    ]
    indexes = config.numbers("deepstack_visual_indexes")
    if indexes is None and config.has("deepstack_visual_indexes"):
        raise config.error("deepstack_visual_indexes must be a list of layers")
    deep = len(indexes or ())
    found = [norm(family, "merger.norm", width), *matrices]
    if deep:
        found += [replace(w, copies=deep) for w in (norm(family, "deepstack.norm", merged), *matrices)]
    return found


def _pooling_head(config: Config, width: int) -> list[Weight]:
    """SigLIP's attention pooling: a probe, one attention, one MLP."""
    inner = config.maybe("intermediate") or int(config.real("mlp_ratio", 4.0) * width)
    return [
        Weight("head.probe", width),
        linear("head.attention.in_proj", 3 * width, width, bias=True),
        linear("head.attention.out_proj", width, width, bias=True),
        Weight("head.layernorm", width, bias=width),
        linear("head.mlp.fc1", inner, width, bias=True),
        linear("head.mlp.fc2", width, inner, bias=True),
    ]
