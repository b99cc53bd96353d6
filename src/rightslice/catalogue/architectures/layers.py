"""Which token mixer and which feed-forward block each layer has, from the many ways configurations say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from rightslice.catalogue.architectures.config import MAX_CONTEXT, MAX_LAYERS, Config, Object
from rightslice.catalogue.architectures.families import Family

T = TypeVar("T")
FULL, SLIDING, CHUNKED, LINEAR, COMPRESSED, HYBRID = "full", "sliding", "chunked", "linear", "compressed", "hybrid"
CROSS = "cross"
MLP, MOE, NONE, PROJECTION = "mlp", "moe", "none", "projection"

_WORDS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("full_attention", "attention", "full", "global", "global_attention", "attn", "*", "a", "indexed_attention",
         "deepseek_sparse_attention", "sparse_attention", "minimax_m3_sparse", "default", "mla", "gqa"), FULL),
    **dict.fromkeys(
        ("sliding_attention", "sliding", "local", "local_attention", "swa", "sliding_window",
         "sliding_window_attention"), SLIDING),
    "chunked_attention": CHUNKED,
    **dict.fromkeys(
        ("linear_attention", "linear", "mamba", "mamba2", "recurrent", "conv", "short_conv", "kda", "m", "lightning",
         "gated_delta_net", "lightning_attention"), LINEAR),
    "compressed_sparse_attention": COMPRESSED,
    "heavily_compressed_attention": COMPRESSED,
    "hybrid": HYBRID, "g": HYBRID,
    "mlp": MLP, "-": MLP, "moe": MOE, "e": MOE, "none": NONE,
}  # fmt: skip
_LISTS: Final = ("layer_types", "layers_block_type", "layer_block_types", "attn_layer_types", "layer_block_type")
_DENSE: Final = frozenset({"dense", "mlp", "none"})


def mixer_words(config: Config, family: Family, count: int) -> tuple[tuple[str, ...], bool]:
    """One word for each layer's token mixer, and whether the configuration (or its class) said so by layer.

    Raises BadInputError for a list that does not match the number of layers or holds an unknown word.
    """
    listed = _listed(config, count) or _by_number(config, count) or _by_index(config, count)
    if listed is None:
        listed = _by_period(config, family, count)
    if listed is not None:
        return listed, True
    if family.trait("mixer") == LINEAR:
        return (LINEAR,) * count, False
    if config.has("window") and config.flag("use_sliding_window", True) and family.switch("window", config, True):
        return _from_window_layer(config, family, count), False
    if config.maybe("attention_chunk_size"):
        return _by_rope(config, count), True
    if family.trait("recurrent"):
        raise config.error("no key tells which layers are recurrent", "give hybrid_override_pattern or layer_types")
    return (FULL,) * count, False


def _word(config: Config, key: str, text: str) -> str:
    word = _WORDS.get(text.casefold()) or _likely(text.casefold())
    if word is None:
        raise config.error(f'{key} holds an unknown kind of layer "{text[:40]}"')
    return word


def _likely(text: str) -> str | None:
    """What an unknown kind of layer is by its name: the parts of it that name a known one."""
    for word, marks in (
        (SLIDING, ("sliding", "window", "local")),
        (LINEAR, ("linear", "mamba", "recurrent", "conv", "ssm", "delta")),
        (FULL, ("attention", "full", "global")),
    ):
        if any(mark in text for mark in marks):
            return word
    return None


def guessed_words(config: Config) -> tuple[str, ...]:
    """Kinds of layers that are not known and were taken for the likeliest one."""
    named = [word for key in _LISTS for word in config.words(key) or ()]
    return tuple(dict.fromkeys(word for word in named if word.casefold() not in _WORDS))


_PATTERNS: Final = ("hybrid_override_pattern", "hybrid_layer_pattern", "block_types", "_block_types", "attn_type_list")


def _listed(config: Config, count: int) -> tuple[str, ...] | None:
    for key in (*_LISTS, *_PATTERNS):
        if config.raw(key) in ("", []):
            raise config.error(f"{key} is empty", "one word or letter per layer, or no such key")
        if key in _LISTS and isinstance(config.raw(key), str):
            raise config.error(f"{key} must be a list of words, one per layer")
    for key in _LISTS:
        words = config.words(key)
        if words:
            return _of_all(config, key, tuple(_word(config, key, w) for w in words), count)
    pattern = config.text("hybrid_override_pattern") or config.text("hybrid_layer_pattern")
    if pattern:
        words = tuple(_word(config, "hybrid_override_pattern", w) for w in pattern if w != "|")
        return _of_all(config, "hybrid_override_pattern", words, count)
    cycle = config.words("block_types") or config.words("_block_types")
    if cycle:
        return tuple(_word(config, "block_types", cycle[i % len(cycle)]) for i in range(count))
    letters = config.text("sliding_window_pattern")
    if letters and config.has("window"):
        if set(letters.upper()) - {"L", "G"}:
            raise config.error(f'sliding_window_pattern "{letters[:40]}" is not known', "letters L and G, or a number")
        return tuple(SLIDING if letters[i % len(letters)] in "Ll" else FULL for i in range(count))
    return None


def _by_number(config: Config, count: int) -> tuple[str, ...] | None:
    """Lists of 0 and 1: attn_type_list (1 = softmax attention), hybrid_layer_pattern (1 = sliding)."""
    for key, zero, one in (("attn_type_list", LINEAR, FULL), ("hybrid_layer_pattern", FULL, SLIDING)):
        numbers = config.numbers(key)
        if numbers:
            return _of_all(config, key, tuple(one if n else zero for n in numbers), count)
    ratios = config.numbers("compress_ratios")
    if ratios:
        return _of_all(config, "compress_ratios", tuple(COMPRESSED if r else SLIDING for r in ratios), count)
    pairs = config.raw("attention_types")
    if isinstance(pairs, Sequence) and not isinstance(pairs, str):
        return _attention_types(config, pairs, count)
    return None


def _attention_types(config: Config, pairs: Sequence[object], count: int) -> tuple[str, ...]:
    """`[[["global", "local"], 12]]`: each list repeated that many times."""
    words: list[str] = []
    for pair in pairs:
        if not (isinstance(pair, Sequence) and len(pair) == 2 and isinstance(pair[1], int) and pair[1] <= MAX_LAYERS):
            raise config.error("attention_types must be pairs of a list and a count")
        words += [_word(config, "attention_types", str(w)) for w in pair[0]] * pair[1]
    return _of_all(config, "attention_types", tuple(words), count)


def _by_index(config: Config, count: int) -> tuple[str, ...] | None:
    """Lists of the layers that have softmax attention; the others are recurrent or convolutional."""
    crossed = config.numbers("cross_attention_layers")
    if crossed is not None:
        return tuple(CROSS if i in crossed else FULL for i in range(count))
    for key in ("full_attn_idxs", "attn_layer_indices"):
        indices = config.numbers(key)
        if indices is not None:
            return tuple(FULL if i in indices else LINEAR for i in range(count))
    linear = config.part("linear_attn_config")
    if linear is not None:
        nested = config.inside(linear)
        full = nested.numbers("full_attn_layers")
        if full is not None:  # counted from 1
            return tuple(FULL if i + 1 in full else LINEAR for i in range(count))
    return None


def _by_period(config: Config, family: Family, count: int) -> tuple[str, ...] | None:
    if config.has("full_attention_interval"):
        period = config.number("full_attention_interval", low=1)
        return tuple(FULL if (i + 1) % period == 0 else LINEAR for i in range(count))
    if config.has("mamba_step") and config.flag("mamba_enabled", True):
        return _by_step(config.number("mamba_step", low=1), count)
    if config.has("attn_layer_period"):
        period, offset = config.number("attn_layer_period", low=1), config.number("attn_layer_offset", 0)
        return tuple(FULL if i % period == offset else LINEAR for i in range(count))
    return _by_pattern(config, family, count)


def _by_step(step: int, count: int) -> tuple[str, ...]:
    """PLaMo 2: attention in the middle of each `step` layers, or in the last one of a shallow model."""
    if count <= step // 2:
        return tuple(FULL if i == count - 1 else LINEAR for i in range(count))
    return tuple(FULL if i % step == step // 2 else LINEAR for i in range(count))


def _by_pattern(config: Config, family: Family, count: int) -> tuple[str, ...] | None:
    """The pattern of the class: a window in all layers but each `period`-th, or a list of words to repeat."""
    cycle = family.traits.get("cycle")
    if isinstance(cycle, Sequence) and not isinstance(cycle, str):
        config.assume("layer_types", "the pattern of the class")
        return tuple(_word(config, "layer_types", str(cycle[i % len(cycle)])) for i in range(count))
    key = family.trait("period_key", "sliding_window_pattern")
    period = config.maybe(key) if family.amount("period", 0) or family.trait("period_key") else None
    period = family.amount("period", 0) if period is None else period
    if not period:
        return None
    config.assume("layer_types", "the pattern of the class")
    other = _word(config, "layer_types", family.trait("others", SLIDING))
    offset = family.amount("offset", 1)
    extra = family.trait("also_full").split(",")
    ends = {0 if "first" in extra else -1, count - 1 if "last" in extra else -1}
    return tuple(FULL if (i + offset) % period == 0 or i in ends else other for i in range(count))


def _from_window_layer(config: Config, family: Family, count: int) -> tuple[str, ...]:
    """All layers keep a window, or those from `max_window_layers` on where the class has that key.

    `window_layers`: "no-rope", those without rotary positions (SmolLM3); "every-other", every second one below
    `max_window_layers` (Qwen2-MoE).
    """
    windowed = family.trait("window_layers")
    if windowed == "no-rope":
        flags = config.numbers("no_rope_layers")
        step = config.number("no_rope_layer_interval", 4, low=1)
        turned = flags or tuple(int((i + 1) % step != 0) for i in range(count))
        return tuple(FULL if turn else SLIDING for turn in _of_all(config, "no_rope_layers", turned, count))
    if windowed == "every-other":
        last = config.number("max_window_layers", 0)
        return tuple(SLIDING if i % 2 == 0 and i < last else FULL for i in range(count))
    rules = "max_window_layers" in family.defaults or (not family.known and config.has("use_sliding_window"))
    first = config.number("max_window_layers", 0) if rules else 0
    return tuple(SLIDING if i >= first else FULL for i in range(count))


def _by_rope(config: Config, count: int) -> tuple[str, ...]:
    """Chunked attention with full attention where there is no rotary embedding (Llama 4)."""
    flags = config.numbers("no_rope_layers")
    if flags:
        return _of_all(config, "no_rope_layers", tuple(CHUNKED if f else FULL for f in flags), count)
    period = config.number("no_rope_layer_interval", 4, low=1)
    return tuple(CHUNKED if (i + 1) % period else FULL for i in range(count))


def window_tokens(config: Config, family: Family, word: str) -> int:
    """Tokens that a windowed layer keeps; 0 for none, and where the window is at least the context."""
    if word == CHUNKED:
        window = config.number("attention_chunk_size", 0)
    elif (
        word in (SLIDING, COMPRESSED)
        and config.flag("use_sliding_window", True)
        and family.switch("window", config, True)
    ):
        window = config.maybe("window") or 0
        if config.has("sliding_window_size"):  # counts the tokens before the current one
            window += family.amount("window_extra", 0)
    else:
        return 0
    context = config.maybe("context", high=MAX_CONTEXT)
    return 0 if context is not None and window >= context else window


def moe_flags(config: Config, family: Family, count: int) -> tuple[bool, ...]:
    """Whether each layer's feed-forward block is a mixture of experts."""
    if config.most("experts", 0) < 2 and not family.switch("always_moe", config):
        if config.maybe("top_k") and config.has("expert_intermediate") and not config.has("experts"):
            config.assume("num_experts", "none")
        return (False,) * count
    words = config.words("mlp_layer_types")
    if words:
        return tuple(w not in _DENSE for w in _of_all(config, "mlp_layer_types", words, count))
    for key in ("moe_layers_enum", "moe_layers"):
        indices = config.numbers(key)
        if indices:
            return tuple(i in indices for i in range(count))
    frequencies = config.numbers("moe_layer_freq")
    if frequencies:
        return tuple(bool(f) for f in _of_all(config, "moe_layer_freq", frequencies, count))
    return _moe_by_rule(config, count)


def _of_all(config: Config, key: str, values: tuple[T, ...], count: int) -> tuple[T, ...]:
    """One value per layer; what goes beyond belongs to multi-token-prediction layers."""
    if len(values) < count:
        raise config.error(f"{key} has {len(values)} entries for {count} layers")
    return values[:count]


def _moe_by_rule(config: Config, count: int) -> tuple[bool, ...]:
    first = max(
        config.most(key, 0)
        for key in ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", "first_dense_layers")
    )
    given = not _negative(config, "moe_layer_end_index") and config.has("moe_layer_end_index")
    last = config.most("moe_layer_end_index") if given else count - 1
    only_dense = config.numbers("mlp_only_layers") or ()
    period = max(1, config.number("decoder_sparse_step", 1))
    interval = max(
        1,
        config.most("moe_layer_interval", 1),
        config.number("moe_layer_frequency", 1),
        config.number("interleave_moe_layer_step", 1),
        config.number("expert_layer_period", 1),
    )
    offset = config.number("expert_layer_offset", interval - 1)
    frequency = max(1, config.maybe("moe_layer_freq") or 1) if not isinstance(config.raw("moe_layer_freq"), list) else 1

    def sparse(i: int) -> bool:
        if i < first or i > last or i in only_dense or (i + 1) % period or i % frequency:
            return False
        return i % interval == offset

    return tuple(sparse(i) for i in range(count))


def _negative(config: Config, key: str) -> bool:
    value = config.raw(key)
    return isinstance(value, int) and value < 0


def nas_blocks(config: Config, count: int) -> tuple[Object, ...] | None:
    """`block_configs` of networks found by architecture search: one entry per layer."""
    blocks = config.objects("block_configs")
    if blocks is None:
        return None
    if len(blocks) < count:
        raise config.error(f"block_configs has {len(blocks)} entries for {count} layers")
    return blocks[:count]
