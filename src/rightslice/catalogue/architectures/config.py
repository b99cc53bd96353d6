"""Typed, bounded access to a model configuration: one place that knows the many names of one number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from rightslice.core.errors import BadInputError, Diagnostic, Location

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Object = Mapping[str, Json]

MAX_LAYERS: Final = 4096
MAX_WIDTH: Final = 1 << 24
MAX_CONTEXT: Final = 1 << 34

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "model_dim", "decoder_hidden_size", "embed_dim", "dim", "hidden_dim",
               "vt_hidden_size", "width"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers", "decoder_layers",
               "encoder_layers", "depth", "vt_num_hidden_layers", "layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "attention_heads",
              "encoder_attention_heads", "vt_num_attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads",
                 "multi_query_group_num", "num_query_groups", "num_attention_groups"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim", "d_kv", "v_channels"),
    "intermediate": (
        "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "decoder_ffn_dim", "encoder_ffn_dim",
        "ffn_intermediate_size", "ff_intermediate_size", "mlp_hidden_size", "block_ff_dim", "dff",
        "inner_hidden_size", "vt_intermediate_size",
    ),
    "vocab": ("vocab_size", "padded_vocab_size", "n_vocab"),
    "context": (
        "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx",
        "model_max_length", "max_target_positions", "max_seq_length", "max_length_of_context", "max_context_length",
    ),
    "experts": (
        "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "n_experts", "num_moe_experts",
        "num_routed_experts",
    ),
    "top_k": (
        "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k_experts",
        "num_experts_per_topk", "num_selected_experts", "experts_per_token", "n_experts_per_token",
    ),
    "expert_intermediate": (
        "moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size",
        "moe_hidden_size",
    ),
    "shared_experts": (
        "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts", "n_share_expert",
    ),
    "shared_intermediate": (
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
        "share_expert_dim", "shared_experts_intermediate_size",
    ),
    "window": ("sliding_window", "sliding_window_size", "attention_window_size", "local_attention", "window_size"),
    "latent_width": ("moe_latent_size", "routed_expert_hidden_size"),
    "index_heads": ("index_n_heads", "sparse_num_index_heads"),
    "index_width": ("index_head_dim", "sparse_index_dim"),
    "conv_kernel": ("mamba_d_conv", "conv_kernel", "d_conv", "linear_conv_kernel_dim", "conv1d_width", "conv_L_cache"),
    "state_size": ("ssm_state_size", "mamba_d_state", "state_size", "d_state"),
}  # fmt: skip
"""One quantity -> the keys under which configurations give it, the commonest first."""


_NONE: Final = "none"
_ESSENTIAL: Final = ("hidden", "layers", "heads", "vocab")


def _matters(key: str) -> bool:
    """Whether a value that the class gives is told: activations, biases and norms weigh too little."""
    return not key.endswith(("_act", "activation_function", "_type")) and "bias" not in key and "norm" not in key


class Config:
    """One JSON object of a configuration with the defaults of its class. Wrong values raise BadInputError RS2007.

    A key that is present with `null` is not the same as an absent one: `null` means none, absent means the default.
    """

    __slots__ = ("_assumed", "_defaults", "_label", "_raw", "where")

    def __init__(self, raw: Object, defaults: Object, where: str) -> None:
        self._raw = raw
        self._defaults = defaults
        self._label = ""
        self._assumed: dict[str, tuple[str, bool]] = {}
        self.where = where

    def error(self, message: str, hint: str = "") -> BadInputError:
        """A finding about this configuration."""
        return BadInputError(Diagnostic("RS2007", message, Location(self.where), hint))

    def _find(self, name: str) -> tuple[str, Json]:
        names = ALIASES.get(name, (name,))
        for source in (self._raw, self._defaults):
            present = [key for key in names if key in source]
            key = next((key for key in present if source[key] is not None), None)
            if key is not None:
                return key, source[key]
            if present:
                return present[0], None
        return names[0], None

    def _taken(self, name: str) -> tuple[str, Json]:
        """As `_find`, and remembers what comes from the class, and what the file sets to null against the class.

        Raises BadInputError for a null where no network can do without.
        """
        key, value = self._find(name)
        if value is not None and key not in self._raw and _matters(key):
            self.assume(key, value)
        if value is None and key in self._raw:
            self._note_null(name, key)
        return key, value

    def _note_null(self, name: str, key: str) -> None:
        usual = next((self._defaults[k] for k in ALIASES.get(name, (name,)) if self._defaults.get(k)), None)
        if usual is None or isinstance(usual, bool):
            return
        if name in _ESSENTIAL:
            raise self.error(f"{key} is null", "give the model's complete config.json")
        self.assume(key, _NONE)

    def has(self, *names: str) -> bool:
        """Whether any of the keys is given (or a class default) and not null."""
        for name in names:
            key, value = self._find(name)
            if value is not None:
                return True
            if key in self._raw:
                self._note_null(name, key)
        return False

    def inside(self, part: Object, defaults: Object | None = None, label: str = "") -> Config:
        """A nested part of the same file; `label` is the key that holds it where its sizes are another network's."""
        found = Config(part, defaults or {}, self.where)
        found._label = label or self._label
        found._assumed = self._assumed
        return found

    def assumed(self, *, guessed: bool) -> tuple[str, ...]:
        """Sizes that the file leaves out with what was taken for them, in order of use.

        `guessed`: those that the class would not take either, since the file sets them to null.
        """
        return tuple(f"{key} {text}" for key, (text, guess) in self._assumed.items() if guess is guessed)

    def assume(self, key: str, value: Json, rule: str = "") -> None:
        """Remember that `value` was taken for a key that the file does not give."""
        name = f"{self._label}.{key}" if self._label else key
        null = key in self._raw and self._raw[key] is None
        why = "; ".join(text for text in ("null in the file" if null else "", rule) if text)
        guess = null and self._defaults.get(key) is not None
        text = value if isinstance(value, str) else _shown(value)
        told = (f"{text}{f' ({why})' if why else ''}", guess and value != _NONE)
        if value == _NONE:
            self._assumed.setdefault(name, told)
        else:
            self._assumed[name] = told

    def given(self, key: str) -> bool:
        """Whether the file itself carries the key, null included."""
        return key in self._raw

    def raw(self, name: str) -> Json:
        """The value as it stands, aliases resolved."""
        return self._find(name)[1]

    def maybe(self, name: str, *, low: int = 0, high: int = MAX_WIDTH) -> int | None:
        """A whole number, or None when absent or null."""
        key, value = self._taken(name)
        return None if value is None else self._whole(key, value, low, high)

    def number(self, name: str, default: int | None = None, *, low: int = 0, high: int = MAX_WIDTH) -> int:
        """A whole number; `default` when absent or null; an error when there is neither."""
        value = self.maybe(name, low=low, high=high)
        if value is not None:
            return value
        key = self._find(name)[0]
        if default is None:
            raise self.error(f"{key} is missing", "give the model's complete config.json")
        if default > 1 or key in self._raw:
            self.assume(key, default)
        return default

    def most(self, name: str, default: int | None = None, *, low: int = 0, high: int = 1 << 16) -> int:
        """A whole number, or the largest of a list with one per layer."""
        listed = self.numbers(name, low=low, high=high) if self.is_list(name) else None
        return max(listed) if listed else self.number(name, default, low=low, high=high)

    def side(self, name: str, default: int) -> int:
        """The length of a side of an image or patch: a whole number, or the first of a list."""
        sides = self.numbers(name, low=1, high=1 << 16)
        return sides[0] if sides else self.number(name, default, low=1, high=1 << 16)

    def real(self, name: str, default: float) -> float:
        """A finite number, for multipliers such as `expand`."""
        key, value = self._taken(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(f"{key} must be a number, not {_shown(value)}")
        if not 0 <= value <= MAX_WIDTH:
            raise self.error(f"{key} = {_shown(value)} is out of range")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean; null counts as `default`."""
        key, value = self._find(name)
        if (key in self._defaults or key == "tie_word_embeddings") and self._raw.get(key) is None and _matters(key):
            self.assume(key, default if value is None else value)
        if value is None:
            return default
        if value not in (False, True):
            raise self.error(f"{key} must be true or false, not {_shown(value)}")
        return bool(value)

    def is_list(self, name: str) -> bool:
        """Whether the value is a list: one number per layer."""
        value = self._find(name)[1]
        return isinstance(value, Sequence) and not isinstance(value, str)

    def text(self, name: str, default: str = "") -> str:
        """A string; anything else counts as absent."""
        value = self._taken(name)[1]
        return value if isinstance(value, str) else default

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list of strings, or None."""
        key, value = self._taken(name)
        if value is None or isinstance(value, str):
            return None
        if not isinstance(value, Sequence) or any(not isinstance(item, str) for item in value):
            raise self.error(f"{key} must be a list of strings")
        return tuple(str(item) for item in value)

    def numbers(self, name: str, *, low: int = 0, high: int = MAX_WIDTH) -> tuple[int, ...] | None:
        """A list of whole numbers (a bare one counts as none), or None. The text form of a list is read too."""
        key, value = self._taken(name)
        if isinstance(value, str):
            parts = [p for p in value.strip("[]() ").replace(" ", ",").split(",") if p]
            if not all(p.isdigit() and len(p) < 9 for p in parts):
                raise self.error(f"{key} must be a list of whole numbers, not {_shown(value)}")
            value = [int(p) for p in parts]
        if value is None or not isinstance(value, Sequence):
            return None
        if len(value) > MAX_LAYERS:
            raise self.error(f"{key} has {len(value)} entries")
        return tuple(self._whole(key, 0 if item is None else item, low, high) for item in value)

    def part(self, name: str) -> Object | None:
        """A nested object, or None."""
        key, value = self._find(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(f"{key} must be an object, not {_shown(value)}")
        return value

    def parts(self) -> tuple[str, ...]:
        """Keys of nested configurations that have layers or a width of their own."""
        marks = (*ALIASES["layers"], *ALIASES["hidden"])
        return tuple(
            key
            for key, value in self._raw.items()
            if key.endswith("_config") and isinstance(value, Mapping) and any(mark in value for mark in marks)
        )

    def objects(self, name: str) -> tuple[Object, ...] | None:
        """A list of objects, or None."""
        key, value = self._find(name)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > MAX_LAYERS:
            raise self.error(f"{key} must be a list of objects")
        found = tuple(item for item in value if isinstance(item, Mapping))
        if len(found) != len(value):
            raise self.error(f"{key} must be a list of objects")
        return found

    def _whole(self, key: str, value: Json, low: int, high: int) -> int:
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{key} must be a whole number, not {_shown(value)}")
        if not low <= value <= high:
            raise self.error(f"{key} = {_shown(value)} is out of range ({low} to {high})")
        return value


_SHORT: Final = 4


def _shown(value: Json) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list" if len(value) > _SHORT else f"[{', '.join(_shown(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "an object"
    text = (
        repr(value) if not isinstance(value, int) or abs(value) < 10**18 else f"a number of {value.bit_length()} bits"
    )
    return text if len(text) <= 40 else text[:37] + "..."
