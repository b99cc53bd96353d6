"""From a configuration to a ledger: finds the family and the builder of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Literal

from rightslice.catalogue.architectures.config import Config, Object
from rightslice.catalogue.architectures.encoders import encoder, pair, speech_encoder, vision_encoder
from rightslice.catalogue.architectures.families import (
    Family,
    family,
    family_like_bert,
    family_like_gpt2,
    family_of_class,
)
from rightslice.catalogue.architectures.foreign import refuse_foreign
from rightslice.catalogue.architectures.ledger import Ledger, unknown_family
from rightslice.catalogue.architectures.multimodal import flattened, multimodal
from rightslice.catalogue.architectures.seq2seq import encoder_decoder
from rightslice.core.errors import BadInputError, Diagnostic, Location

Kind = Literal["decoder", "encoder", "encoder-decoder", "speech-ctc", "vision"]


def _vision(config: Config, own: Family) -> Ledger:
    return pair(config, own) if own.trait("pair") else vision_encoder(config, own)


_BUILDERS: Final[dict[Kind, Callable[[Config, Family], Ledger]]] = {
    "decoder": multimodal,
    "encoder": encoder,
    "encoder-decoder": encoder_decoder,
    "speech-ctc": speech_encoder,
    "vision": _vision,
}


def find_family(raw: Object) -> Family:
    """The family by `model_type`, else by the class named in `architectures`, else an unknown one."""
    model_type = raw.get("model_type")
    own = family(model_type) if isinstance(model_type, str) else Family("", known=False)
    variants = own.traits.get("variants")
    for key, other in variants.items() if isinstance(variants, Mapping) else ():
        if key in raw:
            return family(str(other))
    if isinstance(kernels := raw.get("ssm_cfg"), Mapping):  # the format of the mamba_ssm package
        return family("mamba2" if kernels.get("layer") == "Mamba2" else "mamba")
    names = raw.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        by_class = family_of_class(names[0], known=own.known)
        if by_class is not None:
            return by_class
    if own.known:
        return own
    return family_like_gpt2(own.name) if _reads_like_gpt2(raw) else family_like_bert(own.name, raw) or own


def _reads_like_gpt2(raw: Object) -> bool:
    """GPT-2's key names and an activation without a gate: such classes have layer norms, biases and two matrices."""
    activation = str(raw.get("activation_function") or raw.get("hidden_act") or "gelu")
    return "n_embd" in raw and activation.startswith(("gelu", "relu"))


def build(raw: Object, where: str) -> tuple[Ledger, Kind, Family, Config]:
    """The ledger of a configuration.

    Raises BadInputError: RS2007 for one that is incomplete or contradicts itself, RS0311 for a class that is known to
    be laid out in a way that is not modelled.
    """
    refuse_foreign(raw, where)
    if isinstance(named := raw.get("architectures"), str):
        message = f'architectures must be a list of strings, not "{named[:40]}"'
        raise BadInputError(Diagnostic("RS2007", message, Location(where), f'["{named[:40]}"]'))
    own = find_family(raw)
    config = Config(flattened(raw), own.defaults, where)
    if reason := own.trait("unsupported"):
        hint = "give its bytes as a custom model with memory: {weights, kv_cache, overhead}"
        raise BadInputError(Diagnostic("RS0311", f"{own.name} is not modelled: {reason}", Location(where), hint))
    trait = own.trait("kind", "vision" if own.is_tower else "decoder")
    kind: Kind = next((k for k in _BUILDERS if k == trait), "decoder")
    if not own.known and config.flag("is_encoder_decoder"):
        kind = "encoder-decoder"
    if not own.known and config.has("patch_size") and not config.has("vocab") and not config.parts():
        kind = "vision"
    ledger = _BUILDERS[kind](config, own)
    notes = dict.fromkeys((*_approximations(own, kind), *ledger.approximations))
    return replace(ledger, approximations=tuple(notes)), kind, own, config


def _approximations(own: Family, kind: Kind) -> tuple[str, ...]:
    """What is not exact about a whole class; a decoder says it for the part that holds its layers."""
    if own.known:
        return (own.trait("approximation"),) if own.trait("approximation") else ()
    return () if kind == "decoder" else (unknown_family(own.name),)
