"""What a configuration does not say because its class says it: one entry per `model_type`, read from data.

`defaults` are values of keys that a configuration may leave out. `traits` describe the layers (norms, biases, extra
tensors). Both were read from the public classes of Transformers 5.24 (some 5.19) and checked against models of them.
Classes that publish code of their own were checked against published parameter counts; those that were not carry an
`approximation`. `like`: the entry whose traits it shares; `variants`: keys whose presence means another entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import cast

from rightslice.catalogue.architectures.config import Config, Json, Object

_EMPTY: Mapping[str, Json] = {}


@dataclass(frozen=True, slots=True)
class Family:
    """One `model_type`. `known` is False for one that the data does not hold: its traits are then the commonest."""

    name: str
    known: bool
    traits: Object = field(default_factory=dict)
    defaults: Object = field(default_factory=dict)

    @property
    def is_tower(self) -> bool:
        """Whether the entry describes a vision or audio tower."""
        return self.traits.get("tower") is True

    def trait(self, name: str, default: str = "") -> str:
        """A trait that is a word."""
        value = self.traits.get(name)
        return value if isinstance(value, str) else default

    def amount(self, name: str, default: int) -> int:
        """A trait that is a whole number."""
        value = self.traits.get(name)
        return value if isinstance(value, int) else default

    def switch(self, name: str, config: Config, default: bool = False) -> bool:
        """A trait that is true, false, or the name of the configuration key that decides (`!key` negates it)."""
        value = self.traits.get(name, default)
        if isinstance(value, str):
            return not config.flag(value[1:]) if value.startswith("!") else config.flag(value)
        return bool(value)


@cache
def _table() -> Mapping[str, Object]:
    source = files("rightslice.catalogue") / "data" / "families.json"
    return cast("Mapping[str, Object]", json.loads(source.read_text()))


def family_of_class(name: str, *, known: bool = False) -> Family | None:
    """The family whose class is named in a configuration's `architectures`, or None.

    With a `known` model_type only classes that borrowed the name of another family (JinaBERT says "bert") count.
    """
    classes = _table()["@borrowed" if known else "@classes"]
    model_type = classes.get(name)
    return family(model_type) if isinstance(model_type, str) else None


def language_model_alone(name: str) -> bool:
    """Whether a class is the language model alone of a family whose whole is a class of its own."""
    stem = name.removesuffix("ForCausalLM")
    return stem != name and f"{stem}ForConditionalGeneration" in _table()["@classes"]


def family(model_type: str) -> Family:
    """The entry of `model_type`, with the traits (and, lacking its own, the defaults) of the one it is `like`."""
    if model_type in _table() and not model_type.startswith("@"):
        return _resolve(model_type)
    return replace(_resolve("@unknown"), name=model_type, known=False)


def family_like_gpt2(model_type: str) -> Family:
    """The traits of an unknown class whose keys are named as those of GPT-2."""
    return replace(_resolve("@unknown-gpt"), name=model_type, known=False)


def family_like_bert(model_type: str, raw: Object) -> Family | None:
    """The traits of an unknown class with layer norms and an activation without a gate, by its keys; None without.

    Classes with token types read a whole input, the others are decoders; positions are learned where nothing rotates.
    """
    activation = str(raw.get("hidden_act") or "")
    layered = any(key in raw for key in ("layer_norm_eps", "layer_norm_epsilon")) and "rms_norm_eps" not in raw
    if not layered or not activation.startswith(("gelu", "relu", "quick_gelu")):
        return None
    found = replace(_resolve("@unknown-gpt"), name=model_type, known=False)
    traits: dict[str, Json] = {**found.traits}
    if not any(key.startswith(("rope", "rotary")) for key in raw):
        traits["positions"] = "learned"
    if "type_vocab_size" in raw:
        traits.update(kind="encoder", token_types=True, pooler=True, positions="learned")
    return replace(found, traits=traits)


@cache
def _resolve(model_type: str) -> Family:
    entry = _table()[model_type]
    own = {k: v for k, v in entry.items() if k not in ("like", "defaults")}
    defaults = entry.get("defaults", _EMPTY)
    base = Family("", known=True)
    if isinstance(like := entry.get("like"), str):
        base = _resolve(like)
    if not isinstance(defaults, Mapping):
        raise TypeError(f"families.json: defaults of {model_type}")
    return Family(model_type, True, {**base.traits, **own}, defaults or base.defaults)
