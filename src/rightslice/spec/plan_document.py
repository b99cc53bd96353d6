"""`plan.json` read back into the value types it was written from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

from pydantic import TypeAdapter, ValidationError

from rightslice.core.documents import to_jsonable
from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.core.plan import PLAN_SCHEMA, Plan
from rightslice.spec.fields import Problem
from rightslice.spec.mistakes import bad_input, diagnostics_of
from rightslice.spec.nodes import Document, Node, compose
from rightslice.spec.source import read_text

MAX_PLAN_BYTES: Final = 64_000_000
"""A plan of 5,000 replicas is about 3 MB; this leaves a factor of twenty."""
_MAX_PLACED: Final = 4_000_000
_NEXT: Final = "rightslice plan WORKLOAD -o DIR"


@cache
def _adapter() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)


def load_plan(path: Path | str) -> Plan:
    """Read a `plan.json` of at most 64 MB. Raises BadInputError with every mistake and its place.

    `to_json(load_plan(path))` gives the bytes of the file again.
    """
    try:
        text = read_text(path, max_bytes=MAX_PLAN_BYTES)
    except BadInputError as error:
        raise bad_input(error.diagnostics, _NEXT) from None
    return parse_plan(text, file=str(path))


def parse_plan(text: str, *, file: str) -> Plan:
    """The same for text; `file` is its name in diagnostics."""
    document = _json(text, file)
    if not isinstance(document, dict) or "schema" not in document:
        message = f'this is not a plan: a plan is a JSON object with "schema": "{PLAN_SCHEMA}"'
        raise bad_input([Diagnostic("RS0203", message, Location(file))], _NEXT)
    if document["schema"] != PLAN_SCHEMA:
        _fail(text, file, None, [Problem("RS0203", f'this version reads "{PLAN_SCHEMA}"', path=("schema",))])
    try:
        plan = _adapter().validate_python(document)
    except ValidationError as error:
        _fail(text, file, error, [])
    unknown = [
        Problem("RS0201", f'unknown key "{path[-1]}"', "was it written by a newer version?", (*path, "[key]"))
        for path in _unknown(document, to_jsonable(plan), ())
    ]
    if unknown:
        _fail(text, file, None, unknown)
    return plan


def plan_schema() -> dict[str, object]:
    """JSON Schema (draft 2020-12) of `plan.json`."""
    schema = _adapter().json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "rightslice plan"}


def _json(text: str, file: str) -> object:
    if not text.strip():
        raise bad_input([Diagnostic("RS0405", "the file is empty", Location(file))], _NEXT)
    try:
        document: object = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = Location(file, error.lineno, error.colno)
        raise bad_input([Diagnostic("RS0408", f"this is not JSON: {error.msg}", place)], _NEXT) from None
    except RecursionError:
        raise bad_input([Diagnostic("RS0408", "nested too deep", Location(file))], _NEXT) from None
    except ValueError as error:
        raise bad_input([Diagnostic("RS0408", f"this is not JSON: {error}", Location(file))], _NEXT) from None
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _fail(text: str, file: str, error: ValidationError | None, problems: list[Problem]) -> NoReturn:
    """Raise with places: JSON is YAML, so the tree of the same text knows them, unless it is too large to build."""
    document = Document(file, [""], Node(1, 1, 1))
    if len(text) <= _MAX_PLACED:
        with suppress(BadInputError):  # JSON that is no YAML: escaped lone surrogates
            document = compose(text, file, max_values=len(text))
    raise bad_input(diagnostics_of(document, error, problems, None), _NEXT)


def _unknown(given: object, known: object, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Paths of the keys in `given` that `known` has not."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        for key, value in given.items():
            if key in known:
                yield from _unknown(value, known[key], (*path, key))
            else:
                yield (*path, key)
    elif isinstance(given, list) and isinstance(known, list):
        for index, pair in enumerate(zip(given, known, strict=False)):
            yield from _unknown(*pair, (*path, index))
