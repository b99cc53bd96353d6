"""Vision and audio towers and the projectors that lead from them into the language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

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


def tower_width(config: Config, family: Family) -> int:
    """Width of the tower's residual stream."""
    return config.number(family.trait("width_key", "hidden"), low=1)


def _stem(config: Config, family: Family, width: int) -> list[Weight]:
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
    deep = len(config.numbers("deepstack_visual_indexes") or ())
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


def _two_layers(config: Config, width: int, text: int) -> list[Weight]:
    layers = config.raw("vision_feature_layer")
    inputs = width * (len(layers) if isinstance(layers, list) and layers else 1)
    bias = config.flag("multimodal_projector_bias", True)
    return [linear("linear_1", text, inputs, bias=bias), linear("linear_2", text, text, bias=bias)]


def _vip(config: Config, width: int, text: int) -> list[Weight]:
    layers = config.raw("vision_feature_layers")
    merged = width * (len(layers) if isinstance(layers, list) and layers else 5)
    normed = Weight("projector_layernorm", merged, bias=merged)
    return [normed, linear("linear_1", text, merged, bias=True), linear("linear_2", text, text, bias=True)]


def _newline(config: Config, width: int, text: int) -> list[Weight]:
    return [*_two_layers(config, width, text), Weight("image_newline", text)]


def _one_layer(_config: Config, width: int, text: int) -> list[Weight]:
    return [linear("linear", text, width, bias=True)]


def _bare(_config: Config, width: int, text: int) -> list[Weight]:
    return [linear("embedding_projection", text, width)]


def _gemma3(_config: Config, width: int, text: int) -> list[Weight]:
    return [linear("mm_input_projection", text, width), Weight("mm_soft_emb_norm", width)]


def _mistral3(config: Config, width: int, text: int) -> list[Weight]:
    merged = width * config.number("spatial_merge_size", 2, low=1, high=64) ** 2
    bias = config.flag("multimodal_projector_bias")
    return [
        Weight("norm", width),
        linear("patch_merger", width, merged),
        linear("linear_1", text, width, bias=bias),
        linear("linear_2", text, text, bias=bias),
    ]


def _kimi(config: Config, width: int, text: int) -> list[Weight]:
    sides = config.numbers("merge_kernel_size") or (2, 2)
    merged = width * sides[0] * sides[-1]
    return [
        Weight("pre_norm", width, bias=width),
        linear("in_proj", merged, merged, bias=True),
        linear("out_proj", text, merged, bias=True),
    ]


def _idefics3(config: Config, width: int, text: int) -> list[Weight]:
    return [linear("modality_projection", text, width * config.number("scale_factor", 2, low=1, high=64) ** 2)]


def _internvl(config: Config, width: int, text: int) -> list[Weight]:
    ratio = config.real("downsample_ratio", 0.5)
    merged = int(width / (ratio * ratio)) if ratio else width
    return [
        Weight("layer_norm", merged, bias=merged),
        linear("linear_1", text, merged, bias=True),
        linear("linear_2", text, text, bias=True),
    ]


def _lfm2(config: Config, width: int, text: int) -> list[Weight]:
    merged = width * config.number("downsample_factor", 2, low=1, high=64) ** 2
    inner = config.number("projector_hidden_size", text)
    normed = Weight("layer_norm", merged, bias=merged if config.flag("projector_use_layernorm", True) else 0)
    bias = config.flag("projector_bias", True)
    return [normed, linear("linear_1", inner, merged, bias=bias), linear("linear_2", text, inner, bias=bias)]


def _gated_pixels(config: Config, width: int, text: int) -> list[Weight]:
    merged = width * config.number("downsample_factor", 2, low=1, high=64) ** 2
    inner = config.number("alignment_intermediate_size", 36864)
    return [linear("linear_1", inner, merged, bias=True), linear("linear_2", text, inner // 2, bias=True)]


def _aya(config: Config, width: int, text: int) -> list[Weight]:
    merged = width * config.number("downsample_factor", 2, low=1, high=64) ** 2
    inner = config.number("alignment_intermediate_size", text)
    return [
        Weight("layernorm", merged, bias=merged),
        linear("linear_1", inner, merged, bias=True),
        linear("linear_2", text, inner // 2, bias=True),
    ]


def _tiled(config: Config, _width: int, text: int) -> list[Weight]:
    vision = Config(config.part("vision_config") or {}, {}, config.where)
    return [linear("linear", text, vision.number("vision_output_dim", 7680), bias=True)]


def _gemma3n(config: Config, width: int, text: int) -> list[Weight]:
    return [Weight("embedding", 128, width), Weight("norms", 2, width), linear("embedding_projection", text, width)]


def _voxtral(config: Config, width: int, text: int) -> list[Weight]:
    part = config.part("audio_config") or {}
    inputs = Config(part, {}, config.where).number("intermediate_size", 4 * width)
    return [linear("linear_1", text, inputs), linear("linear_2", text, text)]


def _minimax(_config: Config, width: int, text: int) -> list[Weight]:
    return [
        linear("linear_1", text, width, bias=True),
        linear("linear_2", text, text, bias=True),
        linear("merge_linear_1", text, 4 * text, bias=True),
        linear("merge_linear_2", text, text, bias=True),
    ]


def _llama4(config: Config, _width: int, text: int) -> list[Weight]:
    vision = Config(config.part("vision_config") or {}, {}, config.where)
    hidden, ratio = vision.number("hidden", 1408), vision.real("pixel_shuffle_ratio", 0.5)
    inner, out = vision.number("projector_input_dim", 4096), vision.number("projector_output_dim", 4096)
    shuffled = int(hidden / (ratio * ratio)) if ratio else hidden
    return [
        linear("adapter.fc1", inner, shuffled),
        linear("adapter.fc2", out, inner),
        linear("linear_1", text, vision.number("vision_output_dim", 4096)),
    ]


def _step(config: Config, width: int, text: int) -> list[Weight]:
    return [
        Weight("downsampler1", 2 * width, 9 * width, bias=2 * width),
        Weight("downsampler2", 4 * width, 18 * width, bias=4 * width),
        linear("multi_modal_projector", text, 4 * width, bias=config.flag("projector_bias")),
    ]


def _glm(config: Config, width: int, text: int) -> list[Weight]:
    vision = Config(config.part("vision_config") or {}, {}, config.where)
    out, merge = vision.number("out_hidden_size", text), vision.number("spatial_merge_size", 2, low=1, high=64)
    inner = vision.number("intermediate_size", 13696)
    return [
        linear("merger.proj", out, out),
        Weight("merger.post_projection_norm", out, bias=out),
        linear("merger.gate_proj", inner, out),
        linear("merger.up_proj", inner, out),
        linear("merger.down_proj", out, inner),
        Weight("downsample", out, width * merge * merge, bias=out),
    ]


def _resampler(config: Config, width: int, text: int) -> list[Weight]:
    """MiniCPM-V: learned queries that attend to the patches."""
    return [
        Weight("query", config.number("query_num", 64), text),
        linear("kv_proj", text, width),
        linear("attn.in_proj", 3 * text, text, bias=True),
        linear("attn.out_proj", text, text, bias=True),
        Weight("norms", 6, text),
        Weight("proj", text, text),
    ]


def _downsampled(_config: Config, width: int, text: int) -> list[Weight]:
    """DeepSeek-VL2: four patches into one, and two learned separators."""
    return [
        linear("layers.0", text, 4 * width, bias=True),
        linear("layers.2", text, text, bias=True),
        Weight("separators", 2, text),
    ]


PROJECTORS: Final[dict[str, Callable[[Config, int, int], list[Weight]]]] = {
    "two-layers": _two_layers,
    "newline": _newline,
    "vip": _vip,
    "one-layer": _one_layer,
    "bare": _bare,
    "gemma3": _gemma3,
    "mistral3": _mistral3,
    "kimi": _kimi,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "lfm2": _lfm2,
    "gated-pixels": _gated_pixels,
    "aya": _aya,
    "tiled": _tiled,
    "gemma3n": _gemma3n,
    "voxtral": _voxtral,
    "minimax": _minimax,
    "llama4": _llama4,
    "step": _step,
    "glm": _glm,
    "resampler": _resampler,
    "downsampled": _downsampled,
}
