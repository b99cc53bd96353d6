"""Objects against the schemas of the API server, strictly: unknown fields, types, what is missing."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from rightslice.core.errors import did_you_mean
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.values import Path, Value, placeholder, shown

Fault = Literal["unknown", "type", "missing", "value"]
Schema = Mapping[str, Any]
_MOST_FAULTS: Final = 40
"""Per object; what follows is more of the same."""
_DEEPEST_HINT: Final = 4
_YAML_1_1: Final = frozenset({"yes", "no", "on", "off", "y", "n"})
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,),
    "array": (list,),
}  # fmt: skip
_OPEN: Final = frozenset({"metadata"})


@dataclass(frozen=True, slots=True)
class Problem:
    """One disagreement with the schema."""

    fault: Fault
    path: Path
    message: str
    hint: str = ""


@cache
def _bundle() -> Mapping[str, Any]:
    data = (files("rightslice.kube") / "data" / "schemas.json.gz").read_bytes()
    bundle: Mapping[str, Any] = json.loads(gzip.decompress(data))
    return bundle


def known_kinds() -> frozenset[str]:
    """`group/version/Kind` of every schema."""
    return frozenset(_bundle()["kinds"])


def problems(document: Document) -> list[Problem]:
    """What the API server would refuse; nothing for a kind without schema."""
    schema = _bundle()["kinds"].get(f"{document.api_version}/{document.kind}")
    if schema is None:
        return []
    found: list[Problem] = []
    for problem in _check(_Place(document, schema, schema), document.value, schema, ()):
        found.append(problem)
        if len(found) == _MOST_FAULTS:
            break
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose schema it is, for hints and for how a scalar was written."""

    document: Document
    root: Schema
    parent: Schema


def _resolved(schema: Schema) -> Schema:
    if "$ref" in schema:
        target: Schema = _bundle()["definitions"][schema["$ref"]]
        return target
    return schema


def _check(place: _Place, value: Value, schema: Schema, path: Path) -> Iterator[Problem]:
    schema = _resolved(schema)
    if value is None or placeholder(value):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            yield Problem("type", path, f"{_dotted(path)} takes a number or text, this is {_kind(value)}")
        return
    if "oneOf" in schema and "type" not in schema and "properties" not in schema:
        if not any(_is(value, option) for option in schema["oneOf"]):
            yield Problem("type", path, f"{_dotted(path)} takes a quantity, this is {_kind(value)}")
        return
    wrong = _wrong_type(place, value, schema, path)
    if wrong is not None:
        yield wrong
    elif isinstance(value, dict):
        yield from _check_object(place, value, schema, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check(place, item, schema.get("items", {}), (*path, index))
    else:
        yield from _check_scalar(value, schema, path)


def _is(value: Value, schema: Schema) -> bool:
    names = schema.get("type", ())
    listed: Sequence[str] = [names] if isinstance(names, str) else names
    if isinstance(value, bool):
        return "boolean" in listed
    return any(isinstance(value, _TYPES.get(name, ())) for name in listed)


def _wrong_type(place: _Place, value: Value, schema: Schema, path: Path) -> Problem | None:
    names = schema.get("type")
    if not names:
        return None
    listed = [name for name in ([names] if isinstance(names, str) else names) if name != "null"]
    if _is(value, {"type": listed}):
        if isinstance(value, str) and value.casefold() in _YAML_1_1 and not place.document.node(path).quoted:
            hint = f'put it in quotes: "{value}"'
            return Problem("type", path, f"{_dotted(path)} takes text, an unquoted {value} is read as a boolean", hint)
        return None
    wanted = " or ".join(_ARTICLES.get(name, name) for name in listed)
    hint = f'put it in quotes: "{shown(value)}"' if listed == ["string"] and isinstance(value, int | float) else ""
    if isinstance(value, bool) and listed == ["string"]:
        hint = f'put it in quotes: "{str(value).lower()}"'
    return Problem("type", path, f"{_dotted(path)} takes {wanted}, this is {_kind(value)}", hint)


_ARTICLES: Final = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "array": "a list",
}  # fmt: skip


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return f"the number {value}"
    return {"str": "text", "dict": "a mapping", "list": "a list"}.get(type(value).__name__, "something else")


def _check_object(place: _Place, value: Mapping[str, Value], schema: Schema, path: Path) -> Iterator[Problem]:
    known: Mapping[str, Schema] = schema.get("properties", {})
    further = schema.get("additionalProperties")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or (not known and further is not False)
    inner = _Place(place.document, place.root, schema)
    for name, part in value.items():
        if name in known:
            if path == () and name == "status":
                continue
            yield from _check(inner, part, known[name], (*path, name))
        elif isinstance(further, Mapping):
            yield from _check(inner, part, further, (*path, name))
        elif not free:
            yield Problem(
                "unknown", (*path, name), f"{_dotted((*path, name))} does not exist", _meant(place, schema, name)
            )
    for name in schema.get("required", ()):
        if value.get(name) is None and name not in _OPEN:
            yield Problem("missing", path, f"{_dotted((*path, name))} is missing")


def _meant(place: _Place, schema: Schema, name: str) -> str:
    """Where a field of that name stands in this kind, or what a neighbour is called."""
    elsewhere = [
        ".".join(path)
        for path in _places(place.root.get("properties", {}).get("spec", {}), name, ("spec",))
        if path[-1] == name
    ]
    near = did_you_mean(name, schema.get("properties", {}))
    if elsewhere:
        return f"there is {' and '.join(elsewhere[:2])}" + (f"; {near}" if near else "")
    return near or "leave it out"


def _places(schema: Schema, name: str, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(path) > _DEEPEST_HINT:
        return
    known = _resolved(schema).get("properties", {})
    if name in known:
        yield (*path, name)
    for inner, part in known.items():
        yield from _places(part, name, (*path, inner))


def _check_scalar(value: Value, schema: Schema, path: Path) -> Iterator[Problem]:
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        listed = ", ".join(str(choice) for choice in allowed[:8] if choice is not None)
        yield Problem("value", path, f'{_dotted(path)} is "{shown(value)}"', f"one of {listed}")
        return
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and value < low:
            yield Problem("value", path, f"{_dotted(path)} is {value}, less than {low}")
        if high is not None and value > high:
            yield Problem("value", path, f"{_dotted(path)} is {value}, more than {high}")
    pattern = schema.get("pattern")
    if pattern and isinstance(value, str) and len(value) < 300 and not _matches(pattern, value):
        yield Problem("value", path, f'{_dotted(path)}: "{shown(value)}" does not match {pattern[:80]}')


def _matches(pattern: str, value: str) -> bool:
    """By Python's reading of an RE2 pattern; what Python cannot read counts as matched."""
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True


def _dotted(path: Path) -> str:
    parts = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return parts.removeprefix(".") or "the object"
