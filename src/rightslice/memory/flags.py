"""The words of an engine's command line -> arguments and their values."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rightslice.catalogue.engine_arguments import COMMON, EngineArguments, known_flags, names_of_all
from rightslice.catalogue.engines import EngineFacts
from rightslice.catalogue.versions import version_key
from rightslice.core.errors import BadInputError, Diagnostic

_SHOWN: Final = 60
"""Characters of a word."""
_ALIKE: Final = 0.75
"""Names begin alike, so that more of them must agree than of other words."""
_LEVEL: Final = re.compile(r"-O=?(\w*)")


@dataclass(frozen=True, slots=True)
class Words:
    """`pairs`: (common name, as written, value); `others`: words that belong to no argument."""

    pairs: tuple[tuple[str, str, str], ...]
    others: tuple[str, ...]
    notes: tuple[str, ...]


def words_of(
    spelling: EngineArguments, facts: EngineFacts, version: str, arguments: str, is_switch: Callable[[str], bool]
) -> Words:
    """Names as the engine's parser reads them: abbreviations, `_` for `-` and `--name.key value` for a JSON object
    (vLLM 0.32: FlexibleArgumentParser). Raises BadInputError RS0501 for names that the version does not accept and for
    those that only other engines have.
    """
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise BadInputError(Diagnostic("RS0501", f"--engine-args: {error}")) from None
    reader = _Reader(spelling, facts, version)
    pairs: list[tuple[str, str, str]] = []
    others: list[str] = []
    i = 0
    while i < len(words):
        flag, given, text = words[i].partition("=")
        i += 1
        if not flag.startswith("-"):
            others.append(flag)
            continue
        name, key, level = reader.name(flag)
        text = level or text
        takes_value = not is_switch(name) and i < len(words) and not re.match(r"-[A-Za-z-]", words[i])
        if not given and not level and takes_value:
            text = words[i]
            i += 1
        if key:  # all keys of an object are one argument
            text, pairs = reader.object_with(name, key, text), [pair for pair in pairs if pair[0] != name]
        pairs.append((name, flag, text))
    return Words(tuple(pairs), tuple(others), tuple(reader.notes))


class _Reader:
    """Reads one name after the other; keeps what is to be said and the objects that are given key by key."""

    def __init__(self, spelling: EngineArguments, facts: EngineFacts, version: str) -> None:
        self._spelling, self._facts, self._version = spelling, facts, version
        self._objects: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []

    def name(self, flag: str) -> tuple[str, str, str]:
        """(common name, key behind a dot, level of optimisation behind -O)"""
        if self._facts.name == COMMON and (level := _LEVEL.fullmatch(flag)):
            return "--optimization-level", "", level[1]
        base, _, key = flag.partition(".")
        own = f"--{base[2:].replace('_', '-')}" if self._spelling.underscores and base.startswith("--") else base
        if own not in self._spelling.names:
            self._elsewhere(flag, base)
            own = self._whole(own, flag)
        return self._spelling.names.get(own, own), key, ""

    def object_with(self, name: str, key: str, text: str) -> str:
        """All that was given of an object so far, as JSON."""
        inner = self._objects.setdefault(name, {})
        *path, last = key.split(".")
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise BadInputError(Diagnostic("RS0501", f"{key[:_SHOWN]} is given twice"))
        try:
            inner[last] = json.loads(text)
        except (ValueError, RecursionError):
            inner[last] = text
        return json.dumps(self._objects[name])

    def _elsewhere(self, flag: str, base: str) -> None:
        """Raises BadInputError for a name that only other engines have."""
        meant = names_of_all().get(base)
        known = known_flags(self._facts.name)
        if meant is None or (known is not None and base in known.names):
            return
        hint = self._spelling.spelled(meant) or f"leave it out: {self._facts.title} has none like it"
        raise BadInputError(Diagnostic("RS0501", f"{self._facts.title} has no argument {flag}", None, hint))

    def _whole(self, own: str, flag: str) -> str:
        """The name that an abbreviation stands for; what is unknown to the version whose names were read is refused,
        and noted with others."""
        known = known_flags(self._facts.name)
        if known is None:
            hint = _like(own, self._spelling.names)
            if hint:
                self.notes.append(f"{flag[:_SHOWN]} is not among the arguments known here: {hint}")
            return own
        meant = known.meant(own)
        short = {self._spelling.names.get(name, name) for name in meant}
        if len(short) == 1:
            return meant[0]
        told = f"{self._facts.title} {known.version}"
        hint = f"one of {', '.join(meant[:5])}" if meant else _like(own, known.names)
        if version_key(self._version) == version_key(known.version):
            what = f"{flag[:_SHOWN]} may stand for several arguments of {told}" if meant else (
                f"{told} has no argument {flag[:_SHOWN]}"
            )  # fmt: skip
            raise BadInputError(Diagnostic("RS0501", what, None, hint or "leave it out"))
        note = f"{told} has no {flag[:_SHOWN]}, whether {self._version} has was not read"
        self.notes.append(f"{note}: {hint}" if hint else note)
        return own


def _like(own: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(own, sorted(names), n=1, cutoff=_ALIKE)
    return f"did you mean {close[0]}?" if close else ""
