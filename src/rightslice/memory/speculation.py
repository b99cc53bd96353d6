"""What drafts tokens ahead: layers of the model itself, a draft model, or nothing that takes memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.datafiles import read_json
from rightslice.core.engine import EngineSettings

Drafts = Literal["own", "model", "none"]
_BONUS_TOKEN: Final = 1


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
