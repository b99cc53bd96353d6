"""Files that a load test reads: prompts, sound, and recorded traffic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.core.rng import generator
from rightslice.loadtesting.audio import Recording, recorded, synthetic
from rightslice.loadtesting.dialects import Prompt
from rightslice.spec.source import read_bytes, read_text
from rightslice.traffic.recorded import Trace
from rightslice.traffic.traces import read_trace

MAX_PROMPT_BYTES: Final = 256_000_000
MAX_SOUND_BYTES: Final = 512_000_000
MAX_ANSWER_TOKENS: Final = 4_000_000
SYNTHETIC_RECORDINGS: Final = 16
_EXAMPLE: Final = 'one JSON object a line, for example {"prompt": "…", "output_tokens": 64}'


def prompts_of(path: Path) -> tuple[Prompt, ...]:
    """One JSON object a line with `prompt` or `messages`, and `output_tokens` or `max_tokens` where it matters.

    Raises BadInputError RS0105 with the line of the first that is none, RS0405 where there is none.
    """
    lines = read_text(path, max_bytes=MAX_PROMPT_BYTES).splitlines()
    found = tuple(_prompt(line, path, number) for number, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise BadInputError(Diagnostic("RS0405", "no prompts in it", Location(str(path)[:200]), _EXAMPLE))
    return found


def recordings_of(path: Path | None, seconds: float, seed: int) -> tuple[Recording, ...]:
    """The WAV file at `path`; without one, several synthetic ones of `seconds`. Raises BadInputError RS0406."""
    if path is None:
        return tuple(synthetic(seconds, generator(seed, "sound", i)) for i in range(SYNTHETIC_RECORDINGS))
    try:
        return (recorded(read_bytes(path, max_bytes=MAX_SOUND_BYTES)),)
    except ValueError:
        where, hint = Location(str(path)[:200]), "convert it: ffmpeg -i FILE -ar 16000 -ac 1 speech.wav"
        raise BadInputError(Diagnostic("RS0406", "no WAV file of up to four hours", where, hint)) from None


def replayed(path: Path, speed: float, requests: int | None, duration_s: float | None) -> Trace:
    """The head of a trace, from its first request on and `speed` times as fast. Raises as `read_trace`."""
    trace = read_trace(path)
    times = (trace.arrival_s - trace.arrival_s[0]) / speed
    inside = np.flatnonzero(times <= (np.inf if duration_s is None else duration_s))[:requests]
    return trace.take(inside, times[inside])


def _prompt(line: str, path: Path, number: int) -> Prompt:
    where = Location(str(path)[:200], number, 1)
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        raise BadInputError(Diagnostic("RS0105", "no JSON", where, _EXAMPLE)) from None
    if not isinstance(found, Mapping):
        raise BadInputError(Diagnostic("RS0105", "no object", where, _EXAMPLE))
    text, messages = found.get("prompt"), found.get("messages")
    tokens = found.get("output_tokens", found.get("max_tokens", 0))
    good = (isinstance(text, str) and text.strip()) or _conversation(messages)
    if not good or not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= MAX_ANSWER_TOKENS:
        raise BadInputError(Diagnostic("RS0105", "no prompt that can be sent", where, _EXAMPLE))
    return Prompt(text if isinstance(text, str) else "", tokens, None, tuple(messages or ()))


def _conversation(messages: Any) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(isinstance(m, Mapping) and "role" in m and "content" in m for m in messages)
    )
