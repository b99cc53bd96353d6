"""Validation errors -> diagnostics: our words, our rules, the place in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.spec.fields import Problem
from rightslice.spec.nodes import Document, Finding, Node

MAX_DIAGNOSTICS = 1000
"""More are not listed: nobody reads them, and a hostile file could hold a hundred thousand."""
MAX_HINTS = 100
"""Spelling hints of one file; a search among names takes about a millisecond."""

Context: TypeAlias = Mapping[str, Any]

_NEXT: dict[str, str] = {
    "RS0310": "rightslice catalog models",
    "RS0312": "rightslice catalog accelerators",
    "RS0313": "rightslice catalog machines",
    "RS0314": "rightslice catalog machines",
    "RS0315": "rightslice catalog engines",
    "RS0316": "rightslice catalog platforms",
    "RS0317": "rightslice catalog mig",
    "RS0318": "rightslice catalog machines",
}


def bad_input(diagnostics: Iterable[Diagnostic], otherwise: str) -> BadInputError:
    """The error of all diagnostics; the next command is the catalogue of the first unknown name, or `otherwise`."""
    found = tuple(diagnostics)
    named = next((_NEXT[diagnostic.rule] for diagnostic in found if diagnostic.rule in _NEXT), otherwise)
    return BadInputError(found, named)


def diagnostics_of(
    document: Document, error: ValidationError | None, problems: Iterable[Problem], model: type[BaseModel] | None
) -> tuple[Diagnostic, ...]:
    """What is wrong, in file order, once each, at most 1,000. `model` tells which keys a section may have."""
    found: list[tuple[Finding, tuple[str, frozenset[str]] | None]] = [(item, None) for item in document.findings]
    found += [_located(document, problem, ()) for problem in problems]
    for details in error.errors(include_url=False, include_input=False) if error else ():
        found += _translated(document, details, model)
    found.sort(key=lambda item: (item[0].node.line, item[0].node.column))
    unique: dict[Diagnostic, None] = {}
    hints = 0
    for finding, near in found:
        if len(unique) == MAX_DIAGNOSTICS:
            break
        hint = finding.hint
        if near and hints < MAX_HINTS:
            hints += 1
            hint = did_you_mean(*near) or hint
        unique[document.diagnostic(Finding(finding.node, finding.rule, finding.message, hint))] = None
    return tuple(unique)


def _located(
    document: Document, problem: Problem, prefix: tuple[str | int, ...]
) -> tuple[Finding, tuple[str, frozenset[str]] | None]:
    node = document.resolve((*prefix, *problem.path))
    return Finding(node, problem.rule, problem.reason, problem.hint), problem.near


def _translated(
    document: Document, details: ErrorDetails, model: type[BaseModel] | None
) -> list[tuple[Finding, tuple[str, frozenset[str]] | None]]:
    path = details["loc"]
    context = details.get("ctx", {})
    kind = details["type"]
    if kind == "rightslice":
        return [_located(document, problem, path) for problem in context["problems"]]
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        known = frozenset(_keys(model, path[:-1]))
        problem = Problem(
            "RS0201",
            f'unknown key "{str(path[-1])[:60]}"',
            f"known: {', '.join(sorted(known)[:12])}" if known else "",
            ("[key]",),
            (str(path[-1]), known),
        )
        return [_located(document, problem, path)]
    if kind == "missing":
        name = str(path[-1])
        return [(Finding(document.resolve(path[:-1]), "RS0202", f'"{name}" is missing', _needed(model, path)), None)]
    node = document.resolve(path)
    if kind == "too_short" and len(node.items) + len(node.values) >= context["min_length"]:
        return []  # enough entries, but some of them are wrong, which is reported at each
    rule, message, hint, near = _words(kind, context, node, str(path[-1]) if path else "")
    return [(Finding(node, rule, message, hint), near)]


Worded: TypeAlias = tuple[str, str, str, tuple[str, frozenset[str]] | None]


def _words(kind: str, context: Context, node: Node, key: str) -> Worded:
    shown = _shown(node)
    if kind == "literal_error":
        return _choice(context, node, key)
    if kind.startswith("int_") and node.text.lstrip("+-").isdecimal():
        return "RS0106", f"{shown} is too large", "", None
    if kind in _TYPES:
        wanted, hint = _TYPES[kind]
        if wanted == "text" and not isinstance(node.plain, list | dict | None):
            hint = f'put it in quotes: "{node.text[:40]}"'
        return "RS0105", f"expected {wanted}, got {shown}", hint, None
    if kind in _LIMITS:
        return "RS0106", _LIMITS[kind](shown, context), "", None
    if kind == "value_error":
        return "RS0106", str(context.get("error", "this value cannot be used")), "", None
    return "RS0105", f"{shown} cannot be used here", "", None


_TYPES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("string_type", "string_unicode"), ("text", "")),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), ("a whole number", "")),
    **dict.fromkeys(("float_type", "float_parsing"), ("a number", "")),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("true or false", "")),
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type", "dataclass_type", "mapping_type"),
        ("a mapping", "write key: value pairs, indented or in {}"),
    ),
    **dict.fromkeys(("tuple_type", "list_type"), ("a list", "write [a, b], or one '- ' line for each entry")),
}
_LIMITS: dict[str, Callable[[str, Context], str]] = {
    "greater_than": lambda shown, c: f"{shown} is too small: more than {_number(c['gt'])} is needed",
    "greater_than_equal": lambda shown, c: f"{shown} is too small: at least {_number(c['ge'])} is needed",
    "less_than": lambda shown, c: f"{shown} is too large: it must be below {_number(c['lt'])}",
    "less_than_equal": lambda shown, c: f"{shown} is too large: at most {_number(c['le'])} is possible",
    "finite_number": lambda shown, c: f"{shown} is not a finite number",
    "too_short": lambda shown, c: f"at least {_entries(c['min_length'])} needed, got {c['actual_length']}",
    "too_long": lambda shown, c: f"at most {_entries(c['max_length'])} possible",
}


def _entries(count: int) -> str:
    return "1 entry is" if count == 1 else f"{count:,} entries are"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _choice(context: Context, node: Node, key: str) -> Worded:
    choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    if key in {"apiVersion", "kind", "schema"}:
        return "RS0203", f"{key} {_shown(node)} is not known here", f"write {key}: {choices[0]}", None
    near = (node.text, frozenset(choices)) if node.text else None
    return "RS0109", f"{_shown(node)} is not one of {', '.join(choices)}", "", near


def _shown(node: Node) -> str:
    if isinstance(node.plain, list):
        return "a list"
    if isinstance(node.plain, dict):
        return "a mapping"
    if node.plain is None:
        return "nothing"
    text = node.text if len(node.text) <= 40 else node.text[:37] + "..."
    return f'"{text}"' if isinstance(node.plain, str) else text


def _keys(model: type[BaseModel] | None, path: tuple[str | int, ...]) -> list[str]:
    """The keys that the section at a path may have, as people write them."""
    section = _section(model, path)
    return [field.alias or name for name, field in section.model_fields.items()] if section else []


def _section(model: type[BaseModel] | None, path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model of the section at a path. Steps that are no field (list indexes, free keys) are left out."""
    section = model
    for step in path:
        fields = (
            {field.alias or name: field.annotation for name, field in section.model_fields.items()} if section else {}
        )
        section = _inner(fields.get(str(step))) or section
    return section


def _inner(annotation: object) -> type[BaseModel] | None:
    """The first model within a type: `tuple[Model, ...]` -> Model."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part))), None)


def _needed(model: type[BaseModel] | None, path: tuple[str | int, ...]) -> str:
    """`write kind: Workload` for a key with one choice only."""
    section, name = _section(model, path[:-1]), str(path[-1])
    for field_name, field in section.model_fields.items() if section else ():
        choices = get_args(field.annotation)
        if (field.alias or field_name) == name and len(choices) == 1:
            return f"write {name}: {choices[0]}"
    return ""
