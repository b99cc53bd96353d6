"""What drafts tokens ahead: layers of the model itself, a draft model, or nothing that takes memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.architectures.config import Json
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean

Drafts = Literal["own", "model", "none"]
_BONUS_TOKEN: Final = 1
_USUAL_DRAFT_WORDS: Final = 32_000
"""Of published EAGLE-3 heads (Llama 3.1 8B and 3.3 70B, Qwen3): the commonest words of the target only."""
_LEAST_INTERMEDIATE: Final = 2
"""Experts are narrow; the dense block of a head is at least so many times as wide as the hidden state."""
_WITH_HEADS: Final = ("full", "sliding")


@dataclass(frozen=True, slots=True)
class Drafter:
    """What is loaded beside the model, and the settings under which its shares are counted."""

    architecture: Architecture
    settings: EngineSettings


@cache
def methods(engine: str) -> dict[str, Drafts]:
    """Speculative method of an engine -> its own prediction layers, a draft model, or no weights; empty if unknown."""
    table: dict[str, Drafts] = read_json("speculation.json")["engines"].get(engine, {})
    return table


def drafts(settings: EngineSettings) -> Drafts:
    """What the method of `settings` drafts with; a method that is not known drafts with a model where one is named."""
    return methods(settings.engine).get(settings.speculative_method, "model" if settings.speculative_method else "none")


def drafter_of(architecture: Architecture, settings: EngineSettings) -> Drafter | None:
    """The prediction layers or the draft model, under the target's tensor and expert parallelism but in one stage.

    Prediction layers follow the target's precision; a draft model stays as published.
    """
    kind = drafts(settings)
    found = architecture.predictor if kind == "own" else architecture.draft if kind == "model" else None
    if found is None:
        return None
    dtype = settings.weight_dtype if kind == "own" else found.published_dtype
    own = replace(settings, pipeline_parallel_size=1, speculative_method="", weight_dtype=dtype)  # type: ignore[arg-type]
    return Drafter(found, own)


def lookahead_tokens(settings: EngineSettings) -> int:
    """Cache slots that a decoding sequence holds ahead of its tokens.

    One for each drafted token and one for the token that verification adds (vLLM 0.32: num_lookahead_tokens of methods
    with a drafter); none where nothing is computed to draft.
    """
    return settings.speculative_tokens + _BONUS_TOKEN if drafts(settings) != "none" else 0


def speculation_problem(architecture: Architecture, engine: str, method: str) -> str:
    """Empty when `engine` can draft so for this model, else the reason."""
    known = methods(engine)
    if not method or not known:
        return ""
    if method not in known:
        hint = did_you_mean(method, known) or _commonest(known)
        return f'unknown speculative method "{method[:40]}" of {engine}: {hint}'
    if known[method] == "own" and architecture.predictor is None:
        return f"method {method}: {architecture.name} has no multi-token-prediction layers"
    if known[method] == "model" and architecture.draft is None:
        return f"method {method} needs a draft model"
    return ""


def _commonest(known: dict[str, Drafts]) -> str:
    kinds: tuple[Drafts, ...] = ("own", "model", "none")
    names = (next(name for name, found in known.items() if found == kind) for kind in kinds)
    return "for example " + ", ".join(names)


def with_draft(architecture: Architecture, settings: EngineSettings) -> Architecture:
    """`architecture` with the draft model that `settings` name, from the catalogue or a folder.

    An EAGLE-3 head that is not known is taken for the usual one of its target, as an approximation. Raises
    BadInputError as `resolve_model` does.
    """
    name = settings.speculative_model
    if drafts(settings) != "model" or not name:
        return architecture
    try:
        return replace(architecture, draft=resolve_model(name))
    except BadInputError as error:
        if settings.speculative_method.casefold() != "eagle3" or error.code != "RS0310":
            raise
    told = f"draft {name[:80]} is not known: one dense layer of {architecture.name}'s widths and a head of"
    told += f" {_USUAL_DRAFT_WORDS:,} words are assumed; give its folder or config.json"
    approximations = (*architecture.approximations, told)
    return replace(architecture, draft=usual_eagle3(architecture, name), approximations=approximations)


def usual_eagle3(target: Architecture, name: str) -> Architecture:
    """The EAGLE-3 head that is usually trained for a target: its widths, one layer with a dense feed-forward block."""
    own = next((group for group in target.attention if group.kind in _WITH_HEADS), None)
    heads = own.query_heads if own else target.query_heads
    width = own.qk_head_dim if own else target.hidden_size // max(heads, 1)
    config: dict[str, Json] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": target.hidden_size,
        "intermediate_size": max(target.intermediate_size, _LEAST_INTERMEDIATE * target.hidden_size),
        "num_attention_heads": heads,
        "num_key_value_heads": own.kv_heads if own else heads,
        "head_dim": width,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": min(_USUAL_DRAFT_WORDS, target.vocab_size),
        "torch_dtype": "bfloat16",
    }
    return read_architecture(config, name, checked=True)


def parsed_speculation(text: str) -> dict[str, object]:
    """Fields of the settings from the JSON of --speculative-config; a method that is left out follows from the model.

    Raises BadInputError RS0501 for what is no such object.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        hint = '{"method": "mtp", "num_speculative_tokens": 1}'
        if text.startswith("{") and '"' not in text:
            hint = f"the shell took its quotes: --speculative-config '{hint}' inside of --engine-args \"…\""
        raise _bad(f"'{text[:60]}' is not a JSON object", hint)
    method, model, tokens = (given.get(key) for key in ("method", "model", "num_speculative_tokens"))
    for key, value in (("method", method), ("model", model)):
        if value is not None and not isinstance(value, str):
            raise _bad(f"{key} is a text")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= _MOST_TOKENS:
        raise _bad(f"num_speculative_tokens is a whole number from 1 to {_MOST_TOKENS}")
    if not method and not model:
        raise _bad("neither method nor model is given")
    return {"speculative_method": method or _implied(str(model)), "speculative_model": model or "",
            "speculative_tokens": tokens}  # fmt: skip


_MOST_TOKENS: Final = 1024


def _implied(model: str) -> str:
    """The method that vLLM takes for a draft model whose method is not given."""
    name = model.casefold()
    return next((found for found in ("ngram", "eagle3", "eagle", "medusa") if found in name), "draft_model")


def _bad(message: str, hint: str = "") -> BadInputError:
    return BadInputError(Diagnostic("RS0501", f"--speculative-config: {message}", None, hint))
