"""The sizes of each layer: heads, head widths, windows and feed-forward widths, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from rightslice.catalogue.architectures import layers as kinds
from rightslice.catalogue.architectures.config import MAX_LAYERS, Config, Object
from rightslice.catalogue.architectures.families import Family


@dataclass(frozen=True, slots=True)
class Shape:
    """One layer. `word` is its token mixer, `feed` its feed-forward block (mlp, moe, both or none)."""

    word: str
    feed: str
    window: int
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    intermediate: int
    experts: int = 0
    owns_kv: bool = True
    key_is_value: bool = False
    indexer: bool = False
    ratio: int = 0
    norms: int = 2
    hash_routed: bool = False


def shapes(config: Config, family: Family) -> tuple[Shape, ...]:
    """One shape per layer. Raises BadInputError when sizes are missing or contradict each other."""
    listed = config.words("layer_types") or config.words("layers_block_type") or ()
    count = config.number("layers", len(listed) or None, low=1, high=MAX_LAYERS)
    if config.given("num_hidden_layers"):  # LongCat: counts the attention blocks (Transformers, vLLM 0.32)
        count = max(1, count // family.amount("blocks_per_layer", 1))
    words, _ = kinds.mixer_words(config, family, count)
    sparse = kinds.moe_flags(config, family, count)
    base = _base(config, family)
    blocks = kinds.nas_blocks(config, count)
    if blocks is not None:
        return tuple(_nas(config, base, block) for block in blocks)
    single = family.switch("one_block", config) or any(w in (kinds.MLP, kinds.MOE) for w in words)
    window = {w: kinds.window_tokens(config, family, w) for w in set(words)}
    found = []
    for i, word in enumerate(words):
        shape = replace(base, word=word, window=window[word], feed=_feed(family, config, single, word, sparse[i]))
        if single:
            shape = replace(shape, norms=1)
        if word in (kinds.SLIDING, kinds.CHUNKED):
            shape = _narrow(config, shape)
        elif word == kinds.FULL:
            shape = _wide(config, shape)
        found.append(shape)
    complete = _special(config, family, tuple(found))
    if any(not s.heads and s.word not in _WITHOUT_HEADS for s in complete):
        raise config.error("num_attention_heads is missing", "give the model's complete config.json")
    return complete


def _base(config: Config, family: Family) -> Shape:
    hidden = config.number("hidden", low=1)
    heads = config.maybe("heads", low=0, high=1 << 16) or family.amount("heads", 0)
    kv_heads = _kv_heads(config, family, heads)
    given = config.maybe("head_dim", low=0, high=1 << 16)
    head_dim = given or (hidden // heads if heads else 0)
    if not given and head_dim and not config.has("kv_lora_rank"):
        config.assume("head_dim", head_dim, "hidden_size / num_attention_heads")
    if heads and kv_heads and heads % kv_heads and not config.has("kv_lora_rank"):
        raise config.error(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    return Shape(
        word=kinds.FULL,
        feed=kinds.MLP,
        window=0,
        heads=heads,
        kv_heads=kv_heads,
        qk_dim=head_dim,
        v_dim=config.maybe("v_head_dim") or head_dim,
        intermediate=_intermediate(config, family, hidden),
        experts=config.most("experts", 0),
    )


def _kv_heads(config: Config, family: Family, heads: int) -> int:
    if family.trait("kv_rule") == "falcon":
        if not config.flag("new_decoder_architecture") and config.flag("multi_query", True):
            return 1
        given = config.maybe("kv_heads", low=1)
        if not given:
            config.assume("num_kv_heads", heads, "num_attention_heads")
        return given or heads
    if config.flag("multi_query"):
        return 1
    if config.has("multi_query_attention") and not config.flag("multi_query_attention"):
        return heads
    if config.is_list("kv_heads"):
        return heads
    given = config.maybe("kv_heads", high=1 << 16)
    if not given and heads:
        config.assume("num_key_value_heads", heads, "num_attention_heads")
    return given or heads


def _intermediate(config: Config, family: Family, hidden: int) -> int:
    if config.is_list("intermediate"):
        return 0  # one per layer, set later
    value = config.maybe("intermediate")
    if value is None:
        width = family.amount("mlp_factor", 4) * hidden
        if family.trait("mlp_rule") == "two-thirds":
            width = -(-int(8 * hidden / 3) // 256) * 256
        config.assume("intermediate_size", width, "from hidden_size")
        return width
    if family.switch("mlp_two_thirds", config):  # LFM2: 2/3 of the width, rounded up
        multiple = config.number("block_multiple_of", 256, low=1)
        value = int(config.real("block_ffn_dim_multiplier", 1.0) * int(2 * value / 3))
        return -(-value // multiple) * multiple
    return value // family.amount("mlp_divisor", 1)


def _feed(family: Family, config: Config, single: bool, word: str, sparse: bool) -> str:
    if word in (kinds.MLP, kinds.MOE):
        return word
    if single and word != kinds.MLP:
        return kinds.NONE
    if not sparse:
        return kinds.MLP
    return "both" if family.switch("parallel_moe", config) else kinds.MOE


_WITHOUT_HEADS: Final = (kinds.LINEAR, kinds.MLP, kinds.MOE, kinds.NONE)
_SLIDING_KEYS: Final = {
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "qk_dim": "head_dim",
    "v_dim": "v_head_dim",
}


def _narrow(config: Config, shape: Shape) -> Shape:
    """Windowed layers with sizes of their own: `swa_*` keys, or `attention_other_setting`."""
    other = config.part("attention_other_setting")
    nested = config.inside(other) if other is not None else None
    sizes = {}
    for field, key in _SLIDING_KEYS.items():
        value = config.maybe(f"swa_{key}")
        if value is None and nested is not None:
            value = nested.maybe("num_attention_groups" if field == "kv_heads" else key)
        if value:
            sizes[field] = value
    if "heads" not in sizes and (heads := config.maybe("num_sliding_attention_heads")):
        sizes["heads"] = heads
    return _sized(shape, sizes)


def _wide(config: Config, shape: Shape) -> Shape:
    """Full-attention layers with a head width of their own (Gemma 4), and K used as V."""
    sizes = {}
    if width := config.maybe("global_head_dim"):
        sizes["qk_dim"] = sizes["v_dim"] = width
    shared = config.flag("attention_k_eq_v")
    if shared and (heads := config.maybe("num_global_key_value_heads")):
        sizes["kv_heads"] = heads
    elif shared:
        config.assume("num_global_key_value_heads", shape.kv_heads, "num_key_value_heads")
    return replace(_sized(shape, sizes), key_is_value=shared)


def _sized(shape: Shape, sizes: dict[str, int]) -> Shape:
    return replace(
        shape,
        heads=sizes.get("heads", shape.heads),
        kv_heads=sizes.get("kv_heads", shape.kv_heads),
        qk_dim=sizes.get("qk_dim", shape.qk_dim),
        v_dim=sizes.get("v_dim", shape.v_dim),
    )


def _special(config: Config, family: Family, found: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Per-layer lists, layers that reuse another layer's KV, sparse-attention indexers, compression ratios."""
    found = _listed_sizes(config, found)
    shared = config.number("num_kv_shared_layers", 0)
    if shared:
        first = len(found) - shared
        doubled = 2 if config.flag("use_double_wide_mlp") else 1
        found = tuple(
            replace(s, owns_kv=False, intermediate=s.intermediate * doubled) if i >= first > 0 else s
            for i, s in enumerate(found)
        )
    if (factor := config.number("cla_share_factor", 1)) > 1 and config.flag("use_cla"):
        found = tuple(replace(s, owns_kv=i % factor == 0) for i, s in enumerate(found))
    if config.has("index_width") and config.has("index_heads") and family.switch("indexer", config, True):
        found = _indexed(config, family, found)
    return _compressed(config, found)


def _listed_sizes(config: Config, found: tuple[Shape, ...]) -> tuple[Shape, ...]:
    lists: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("intermediate", ("intermediate_size", "intermediate", "intermediate_size_per_layer")),
        ("heads", ("num_attention_heads_per_layer", "num_query_heads", "n_heads_per_layer")),
        ("kv_heads", ("num_key_value_heads_per_layer", "num_kv_heads_per_layer", "num_key_value_heads", "kv_heads")),
    )
    for field, keys in lists:
        for key in keys:
            values = config.numbers(key)
            if not values:
                continue
            if len(values) < len(found):
                raise config.error(f"{key} has {len(values)} entries for {len(found)} layers")
            found = tuple(_with(s, field, v) for s, v in zip(found, values, strict=False))
            break
    return _multiplied(config, found)


def _multiplied(config: Config, found: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """`ffn_multipliers` (OpenELM): the width of each layer as a multiple of the hidden size, rounded."""
    factors = config.raw("ffn_multipliers")
    if not isinstance(factors, list):
        return found
    if len(factors) < len(found) or any(isinstance(f, bool) or not isinstance(f, int | float) for f in factors):
        raise config.error("ffn_multipliers must be numbers, one per layer")
    step, hidden = config.number("ffn_dim_divisor", 1, low=1), config.number("hidden", low=1)
    widths = []
    for factor in factors:
        if not 0 <= factor <= _MAX_FACTOR:
            raise config.error("ffn_multipliers holds a number out of range")
        exact = factor * hidden
        rounded = max(step, int(exact + step / 2) // step * step)
        widths.append(rounded + step if rounded < 0.9 * exact else rounded)
    return tuple(replace(s, intermediate=w) for s, w in zip(found, widths, strict=False))


_MAX_FACTOR: Final = 1024


def _with(shape: Shape, field: str, value: int) -> Shape:
    if field == "intermediate":
        return replace(shape, intermediate=value)
    return replace(shape, heads=value) if field == "heads" else replace(shape, kv_heads=value)


_SPARSE: Final = frozenset({"indexed_attention", "deepseek_sparse_attention", "minimax_m3_sparse", "sparse_attention"})


def _indexed(config: Config, family: Family, found: tuple[Shape, ...]) -> tuple[Shape, ...]:
    if isinstance(config.raw("indexer_types"), str):
        raise config.error("indexer_types must be a list of words, one per layer")
    words = config.words("indexer_types")
    if words is not None:
        if len(words) < len(found):
            raise config.error(f"indexer_types has {len(words)} entries for {len(found)} layers")
        return tuple(replace(s, indexer=w == "full") for s, w in zip(found, words, strict=False))
    config.assume("indexer_types", "by index_topk_freq" if config.has("index_topk_freq") else "all full")
    flags = config.numbers("sparse_attention_freq")
    if flags is not None:
        return tuple(replace(s, indexer=i < len(flags) and flags[i] > 0) for i, s in enumerate(found))
    named = config.words("layer_types")
    if named and (sparse := [w in _SPARSE for w in named]) and any(sparse):
        return tuple(replace(s, indexer=flag) for s, flag in zip(found, sparse, strict=False))
    if not family.switch("indexer_default", config, True):
        return found
    frequency = config.maybe("index_topk_freq") or 1
    offset = config.maybe("index_skip_topk_offset") or 0

    def owns(i: int) -> bool:
        return i < offset or (i - offset + 1) % frequency == 0 if frequency > 1 else True

    return tuple(replace(s, indexer=s.word == kinds.FULL and owns(i)) for i, s in enumerate(found))


def _compressed(config: Config, found: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Compressed attention (DeepSeek-V4): the ratio of each layer, 0 for a plain window."""
    latent = config.has("o_lora_rank")
    if not latent and not config.has("compress_ratios") and not any(s.word == kinds.COMPRESSED for s in found):
        return found
    ratios = config.numbers("compress_ratios")
    hashed = config.number("num_hash_layers", 0)
    if ratios is None:
        words = config.words("layer_types") or ()
        if not words:
            raise config.error(
                "neither compress_ratios nor layer_types is given", "one ratio per layer, 0 for a window"
            )
        rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
        given = config.part("compress_rates") or {}
        rates.update({k: v for k, v in given.items() if isinstance(v, int)})
        ratios = tuple(rates.get(w, 0) for w in words)
    if len(ratios) < len(found):
        raise config.error(f"compress_ratios has {len(ratios)} entries for {len(found)} layers")
    return tuple(
        replace(s, ratio=r, hash_routed=i < hashed) for i, (s, r) in enumerate(zip(found, ratios, strict=False))
    )


def _nas(config: Config, base: Shape, block: Object) -> Shape:
    """One entry of `block_configs`: attention {n_heads_in_group, no_op, replace_with_linear}, ffn {ffn_mult, ...}."""
    attention = _nested(config, block, "attention")
    feed = _nested(config, block, "ffn")
    shape = base
    if attention.flag("no_op"):
        shape = replace(shape, word=kinds.NONE, norms=shape.norms - 1)
    elif attention.flag("replace_with_linear"):
        shape = replace(shape, word=kinds.PROJECTION)
    else:
        group = attention.maybe("n_heads_in_group", low=1)
        kv_heads = attention.maybe("num_key_value_heads", low=1) or (base.heads // group if group else base.kv_heads)
        shape = replace(shape, kv_heads=kv_heads)
    if feed.flag("no_op"):
        return replace(shape, feed=kinds.NONE, norms=shape.norms - 1)
    if feed.flag("replace_with_linear"):
        return replace(shape, feed=kinds.PROJECTION)
    return replace(shape, intermediate=_ffn_width(config, base, feed))


def _ffn_width(config: Config, base: Shape, feed: Config) -> int:
    """2/3 x multiplier x hidden, rounded up to a multiple of 256, as the NAS models' code does."""
    if width := feed.maybe("intermediate_size"):
        return width
    multiplier = feed.real("ffn_mult", 0.0)
    if not multiplier:
        return base.intermediate
    hidden = config.number("hidden", low=1)
    return -(-int(2 * multiplier * hidden / 3) // 256) * 256


def _nested(config: Config, block: Object, key: str) -> Config:
    part = block.get(key)
    return Config(part if isinstance(part, dict) else {}, {}, config.where)
