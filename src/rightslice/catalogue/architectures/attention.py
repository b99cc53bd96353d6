"""Softmax attention: grouped-query, multi-head latent and compressed, with what each keeps per token."""

from __future__ import annotations

from dataclasses import replace

from rightslice.catalogue.architecture import AttentionGroup, AttentionKind
from rightslice.catalogue.architectures import layers as kinds
from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.shapes import Shape
from rightslice.catalogue.architectures.weights import Weight, linear, vector

Mixer = tuple[tuple[Weight, ...], tuple[AttentionGroup, ...]]


def attention(config: Config, family: Family, shape: Shape, *, inputs: int = 0) -> Mixer:
    """Grouped-query attention (multi-head and multi-query are its ends). `inputs`: width read, default hidden.

    Cache elements per token = KV heads x (key width + value width); 0 when another layer's cache is read.
    """
    hidden = config.number("hidden", low=1)
    inputs = inputs or hidden
    bias = family.switch("qkv_bias", config)
    queries, keys, values = shape.heads * shape.qk_dim, shape.kv_heads * shape.qk_dim, shape.kv_heads * shape.v_dim
    doubled = 2 if family.switch("query_gate", config) else 1
    if rank := config.maybe("share_q_dim"):  # Step-3: queries through a low rank
        weights = [
            linear("self_attn.q_a_proj", rank, inputs, "replicate"),
            vector("self_attn.q_norm", rank),
            linear("self_attn.q_b_proj", queries, rank),
        ]
    else:
        weights = [linear("self_attn.q_proj", queries * doubled, inputs, bias=bias)]
    if shape.owns_kv:
        weights.append(linear("self_attn.k_proj", keys, inputs, "kv", bias=family.switch("k_bias", config, bias)))
        if not shape.key_is_value:
            weights.append(linear("self_attn.v_proj", values, inputs, "kv", bias=bias))
    output = shape.heads * shape.v_dim
    weights.append(linear("self_attn.o_proj", hidden, output, bias=family.switch("o_bias", config)))
    weights += _head_norms(config, family, shape) + _extras(config, family, shape, inputs, output)
    kept = cache_of(shape)
    if shape.indexer and (width := config.number("index_width", 0)):
        weights += _block_indexer(config, inputs, width)
        kept = replace(kept, indexer_elements_per_token=width)
    return tuple(weights), (kept,)


def _block_indexer(config: Config, inputs: int, width: int) -> list[Weight]:
    """The scorer of blocks beside grouped-query attention (MiniMax-M3)."""
    return [
        linear("self_attn.indexer.q_proj", config.number("index_heads", low=1) * width, inputs, "replicate"),
        linear("self_attn.indexer.k_proj", width, inputs, "replicate"),
        Weight("self_attn.indexer.norms", 2, width),
    ]


def cross_attention(config: Config, family: Family, shape: Shape) -> Mixer:
    """A decoder layer that reads the image instead of the text (Llama 3.2 Vision): keys per image token, gated."""
    weights = (
        *attention(config, family, shape)[0],
        Weight("cross_attn.norms", 2, shape.qk_dim),
        Weight("cross_attn.gates", 2),
    )
    per_token = shape.kv_heads * (shape.qk_dim + shape.v_dim)
    group = AttentionGroup("cross", 1, shape.heads, shape.kv_heads, shape.qk_dim, shape.v_dim, per_token)
    return weights, (group,)


def cache_of(shape: Shape) -> AttentionGroup:
    """What one layer of grouped-query attention keeps."""
    kind: AttentionKind = "full"
    if shape.window:
        kind = "chunked" if shape.word == kinds.CHUNKED else "sliding"
    per_token = shape.kv_heads * (shape.qk_dim + shape.v_dim) if shape.owns_kv else 0
    return AttentionGroup(
        kind, 1, shape.heads, shape.kv_heads, shape.qk_dim, shape.v_dim, per_token, window_tokens=shape.window
    )


def _head_norms(config: Config, family: Family, shape: Shape) -> list[Weight]:
    style = family.trait("qk_norm")
    if not style or not family.switch("qk_norm_if", config, True):
        return []
    if style in ("full", "per-head"):
        sizes = shape.heads * shape.qk_dim, shape.kv_heads * shape.qk_dim
    else:
        sizes = shape.qk_dim, shape.qk_dim
    bias = family.switch("qk_norm_bias", config)
    norms = [vector("self_attn.q_norm", sizes[0], bias=bias)]
    return norms + ([vector("self_attn.k_norm", sizes[1], bias=bias)] if shape.owns_kv else [])


def _extras(config: Config, family: Family, shape: Shape, inputs: int, output: int) -> list[Weight]:
    """Sinks, output gates and inner norms."""
    found = []
    sinks = family.trait("sinks_on", "all")
    if family.switch("sinks", config) and sinks in ("all", shape.word):
        found.append(Weight("self_attn.sinks", shape.heads))
    gate = family.trait("output_gate")
    if gate and family.switch("output_gate_if", config, True):
        found.append(linear("self_attn.g_proj", output if gate == "full" else shape.heads, inputs))
    if family.switch("attention_norm", config):
        found.append(vector("self_attn.attn_sub_norm", output))
    if heads := family.amount("head_vectors", 0):
        found.append(Weight("self_attn.lambda", heads, shape.qk_dim))
    return found


def latent_attention(config: Config, family: Family, shape: Shape) -> Mixer:
    """Multi-head latent attention: one latent of `kv_lora_rank` and one rotary key for all heads."""
    hidden = config.number("hidden", low=1)
    rank = config.number("kv_lora_rank", low=1)
    rope = config.number("qk_rope_head_dim", 0)
    nope = config.number("qk_nope_head_dim", shape.qk_dim)
    value = config.number("v_head_dim", nope)
    heads = shape.heads
    bias = family.switch("qkv_bias", config)
    query_rank = config.maybe("q_lora_rank") or 0
    weights = []
    if query_rank:
        weights += [
            linear("self_attn.q_a_proj", query_rank, hidden, "replicate", bias=bias),
            vector("self_attn.q_a_layernorm", query_rank),
            linear("self_attn.q_b_proj", heads * (nope + rope), query_rank),
        ]
    else:
        weights.append(linear("self_attn.q_proj", heads * (nope + rope), hidden))
    weights += [
        linear("self_attn.kv_a_proj_with_mqa", rank + rope, hidden, "replicate", bias=bias),
        vector("self_attn.kv_a_layernorm", rank),
        linear("self_attn.kv_b_proj", heads * (nope + value), rank),
        linear("self_attn.o_proj", hidden, heads * value, bias=bias),
    ]
    weights += _extras(config, family, shape, hidden, heads * value)
    index = config.number("index_width", 0) if shape.indexer else 0
    if index:
        weights += indexer(config, hidden, query_rank or hidden, index)
    group = AttentionGroup("mla", 1, heads, 1, nope + rope, value, rank + rope, indexer_elements_per_token=index)
    return tuple(weights), (group,)


def indexer(config: Config, hidden: int, queries: int, width: int) -> list[Weight]:
    """The scorer that picks tokens for sparse attention; it keeps one key of `width` per token."""
    heads = config.number("index_heads", low=1)
    return [
        linear("self_attn.indexer.wq_b", heads * width, queries, "replicate"),
        linear("self_attn.indexer.wk", width, hidden, "replicate"),
        vector("self_attn.indexer.k_norm", width, bias=True),
        linear("self_attn.indexer.weights_proj", heads, hidden, "replicate"),
    ]


def compressed_attention(config: Config, _family: Family, shape: Shape) -> Mixer:
    """Window plus compressed context (DeepSeek-V4): one tensor is both K and V, `ratio` tokens share an entry.

    State: the group of tokens that is not compressed yet, kept three times (entry, gate, overlap) in layers that
    compress with overlap; measured on the public implementation.
    """
    hidden, width, heads = config.number("hidden", low=1), shape.qk_dim, shape.heads
    rank, out_rank = config.number("q_lora_rank", low=1), config.number("o_lora_rank", low=1)
    groups = config.number("o_groups", low=1)
    index, index_heads = config.number("index_width", 0), config.number("index_heads", 0)
    weights = [
        Weight("self_attn.sinks", heads),
        linear("self_attn.q_a_proj", rank, hidden, "replicate"),
        vector("self_attn.q_a_norm", rank),
        linear("self_attn.q_b_proj", heads * width, rank),
        linear("self_attn.kv_proj", width, hidden, "replicate"),
        vector("self_attn.kv_norm", width),
        linear("self_attn.o_a_proj", groups * out_rank, heads * width // groups),
        linear("self_attn.o_b_proj", hidden, groups * out_rank),
    ]
    window = AttentionGroup("sliding", 1, heads, 1, width, width, width, window_tokens=shape.window)
    if not shape.ratio:
        return tuple(weights), (window,)
    overlapping = shape.ratio < _LARGE_RATIO
    weights += _compressor("self_attn.compressor", hidden, width, shape.ratio, overlapping)
    entry = width
    if overlapping:
        weights += _compressor("self_attn.compressor.indexer", hidden, index, shape.ratio, overlapping)
        weights += [
            linear("self_attn.compressor.indexer.q_b_proj", index_heads * index, rank, "replicate"),
            linear("self_attn.compressor.indexer.weights_proj", index_heads, hidden, "replicate"),
        ]
        entry += index
    state = 3 * shape.ratio * entry * 2 if overlapping else 0
    far = AttentionGroup(
        "mla",
        1,
        heads,
        1,
        width,
        width,
        entry // shape.ratio,
        state_bytes_per_sequence=state,
        compress_ratio=shape.ratio,
        compressed_index_width=entry - width,
    )
    return tuple(weights), (window, far)


_LARGE_RATIO = 64
"""Layers that compress 128 tokens into one do so without overlap and without an indexer."""


def _compressor(module: str, hidden: int, width: int, ratio: int, overlapping: bool) -> list[Weight]:
    wide = width * (2 if overlapping else 1)
    return [
        Weight(f"{module}.position_bias", ratio, wide),
        linear(f"{module}.kv_proj", wide, hidden, "replicate"),
        linear(f"{module}.gate_proj", wide, hidden, "replicate"),
        vector(f"{module}.kv_norm", width),
    ]
