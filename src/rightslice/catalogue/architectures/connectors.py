"""What leads from a vision or audio tower into the language model: projectors, resamplers, query transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.weights import Weight, linear


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
    vision = config.inside(config.part("vision_config") or {}, label="vision_config")
    return [linear("linear", text, vision.number("vision_output_dim", 7680), bias=True)]


def _gemma3n(config: Config, width: int, text: int) -> list[Weight]:
    return [Weight("embedding", 128, width), Weight("norms", 2, width), linear("embedding_projection", text, width)]


def _voxtral(config: Config, width: int, text: int) -> list[Weight]:
    part = config.part("audio_config") or {}
    inputs = config.inside(part).number("intermediate_size", 4 * width)
    return [linear("linear_1", text, inputs), linear("linear_2", text, text)]


def _minimax(_config: Config, width: int, text: int) -> list[Weight]:
    return [
        linear("linear_1", text, width, bias=True),
        linear("linear_2", text, text, bias=True),
        linear("merge_linear_1", text, 4 * text, bias=True),
        linear("merge_linear_2", text, text, bias=True),
    ]


def _llama4(config: Config, _width: int, text: int) -> list[Weight]:
    vision = config.inside(config.part("vision_config") or {}, label="vision_config")
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
    vision = config.inside(config.part("vision_config") or {}, label="vision_config")
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


def _idefics2(config: Config, width: int, text: int) -> list[Weight]:
    """A gated projection, then a perceiver whose latents attend to the patches."""
    nested = config.inside(config.part("text_config") or {}, label="text_config")
    inner = nested.number("intermediate", 14_336)
    part = config.inside(config.part("perceiver_config") or {}, label="perceiver_config")
    heads, dim = part.number("resampler_n_heads", 16), part.number("resampler_head_dim", 96)
    kv_heads = part.number("num_key_value_heads", 4)
    layer = [
        Weight("perceiver.norms", 3, text),
        linear("perceiver.q_proj", heads * dim, text),
        linear("perceiver.kv_proj", 2 * kv_heads * dim, text),
        linear("perceiver.o_proj", text, heads * dim),
        linear("perceiver.mlp", 12 * text, text),
    ]
    return [
        linear("modality.gate_up_proj", 2 * inner, width),
        linear("modality.down_proj", text, inner),
        Weight("latents", part.number("resampler_n_latents", 64) + 1, text),
        *(replace(w, copies=part.number("resampler_depth", 3, low=1, high=256)) for w in layer),
    ]


def _query_transformer(part: Config, queries: int, text: int) -> list[Weight]:
    """BLIP-2's Q-Former: learned queries with self attention, and attention to the tower in every second layer."""
    hidden, layers = part.number("hidden", 768, low=1), part.number("layers", 12, low=1, high=1024)
    inner, inputs = part.number("intermediate", 4 * hidden), part.number("encoder_hidden_size", 1408, low=1)
    crossed = -(-layers // part.number("cross_attention_frequency", 2, low=1))
    attention = [linear("self", hidden, hidden, bias=True)] * 4
    return [
        Weight("query", queries, hidden),
        Weight("qformer.norm", 2, hidden),
        *(replace(w, copies=layers) for w in attention),
        linear_copies("qformer.up", inner, hidden, layers),
        linear_copies("qformer.down", hidden, inner, layers),
        Weight("qformer.norms", 4, hidden, copies=layers),
        linear_copies("qformer.cross.qo", hidden, hidden, 2 * crossed),
        linear_copies("qformer.cross.kv", hidden, inputs, 2 * crossed),
        Weight("qformer.cross.norm", 2, hidden, copies=crossed),
        linear("linear", text, hidden, bias=True),
    ]


def linear_copies(module: str, rows: int, columns: int, copies: int) -> Weight:
    """Several equal matrices with biases."""
    return replace(linear(module, rows, columns, bias=True), copies=copies)


def _blip2(config: Config, _width: int, text: int) -> list[Weight]:
    part = config.inside(config.part("qformer_config") or {}, label="qformer_config")
    return _query_transformer(part, config.number("num_query_tokens", 32), text)


def _granite(config: Config, _width: int, text: int) -> list[Weight]:
    part = config.inside(config.part("projector_config") or {}, label="projector_config")
    rate = config.number("downsample_rate", 5, low=1)
    return _query_transformer(part, config.number("window_size", 15) // rate, text)


def _omni_audio(config: Config, width: int, text: int) -> list[Weight]:
    part = config.inside(config.part("audio_config") or {}, label="audio_config")
    out = part.number("output_dim", text)
    return [Weight("audio_bos_eos_token", 2, out), linear("proj", out, width, bias=True)]


def _aria(config: Config, width: int, text: int) -> list[Weight]:
    """Learned queries that attend to the patches, then a block without biases."""
    numbers = config.part("projector_patch_to_query_dict") or {}
    queries = max((n for n in numbers.values() if isinstance(n, int)), default=256)
    return [
        Weight("query", queries, width),
        replace(linear("cross_attn.qkv", width, width), copies=3),
        linear("cross_attn.in_proj", 3 * width, width, bias=True),
        linear_copies("cross_attn.out", width, width, 2),
        Weight("norms", 6, width),
        linear("feed_forward.linear_in", text, width),
        linear("feed_forward.linear_out", text, text),
    ]


def _convolved_audio(config: Config, width: int, text: int) -> list[Weight]:
    part = config.inside(config.part("audio_config") or {}, label="audio_config")
    return [
        linear("proj1", width, width, bias=True),
        linear("proj2", part.number("output_dim", text), width, bias=True),
    ]


def _ernie(config: Config, width: int, text: int) -> list[Weight]:
    """ERNIE-VL: patches merged in space, then in time, then projected."""
    vision = config.inside(config.part("vision_config") or {}, label="vision_config")
    merge = vision.number("spatial_merge_size", config.number("spatial_conv_size", 2), low=1, high=64)
    frames = vision.number("temporal_merge_size", config.number("temporal_conv_size", 2), low=1, high=64)
    merged = width * merge * merge
    return [
        linear_copies("spatial_linear", merged, merged, 2),
        linear("temporal_linear.fc1", merged, merged * frames, bias=True),
        linear("temporal_linear.fc2", merged, merged, bias=True),
        Weight("norms", 4, merged),
        linear("mlp", text, merged, bias=True),
        Weight("after_norm", text),
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
    "idefics2": _idefics2,
    "blip2": _blip2,
    "granite": _granite,
    "omni-audio": _omni_audio,
    "ernie": _ernie,
    "aria": _aria,
    "convolved-audio": _convolved_audio,
}
