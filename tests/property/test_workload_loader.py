"""Whatever is in the file: a workload, or diagnostics with a place inside the file. Nothing else ever comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.render import render_diagnostics
from rightslice.spec.loader import parse_workload
from rightslice.spec.nodes import Node, compose
from rightslice.spec.plan_document import parse_plan

DATA = Path(__file__).parents[1] / "data" / "workloads"
RIGHT = (DATA / "voice-assistant.yaml").read_text(encoding="utf-8")
KEYS = (*RIGHT.replace(":", " ").replace("{", " ").replace("[", " ").replace(",", " ").split(), "<<", "schema")
JARGON = ("Input should", "pydantic", "Traceback", "cannot be used here", "Extra inputs")

Steps: TypeAlias = tuple[str | int, ...]

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(KEYS)
    | st.sampled_from(["12/s", "80 GBs", "$5", "9" * 5000, "06:00", "\x1b[31m", "=", "~", "1e999", ".nan", "0x"])
)  # fmt: skip
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), inner, max_size=5)
    ),
    max_leaves=25,
)  # fmt: skip


def mistakes(load: Callable[..., object], text: str) -> BadInputError | None:
    """What loading says; any other exception is the test's failure."""
    try:
        load(text, file="w.yaml")
    except BadInputError as error:
        return error
    return None


def check(text: str) -> tuple[Diagnostic, ...]:
    """Load; the diagnostics are well-formed, lie in the file and render to printable text."""
    error = mistakes(parse_workload, text)
    if error is None:
        return ()
    lines = source_lines(text)
    for diagnostic in error.diagnostics:
        place = diagnostic.location
        assert place is not None
        assert place.line == 0 or 1 <= place.line <= len(lines)
        assert place.line == 0 or 1 <= place.column <= len(lines[place.line - 1]) + 1
        assert not any(word in diagnostic.message for word in JARGON)
    order = [(d.location.line, d.location.column) for d in error.diagnostics if d.location]
    assert order == sorted(order)
    assert all(c.isprintable() for line in render_diagnostics(error).split("\n") for c in line)
    return error.diagnostics


def source_lines(text: str) -> list[str]:
    for mark in ("\r\n", "\r", "\x85", "\u2028", "\u2029"):
        text = text.replace(mark, "\n")
    return text.removeprefix("\ufeff").split("\n")


@given(st.text() | st.text(alphabet="a:-[]{}&*!|>'\"%@`#,?<\n\t =\\~0.", max_size=60))
@settings(max_examples=400)
@example("\ufeff")
@example("? &a")
@example("a: >\n")
@example("&a [*a]")
@example("[[]]: 1")
@example("<<: [1, {<<: 3}]")
@example("{a: 1}}")
def test_any_text(text: str) -> None:
    check(text)
    assert mistakes(parse_plan, text)


@given(trees)
@settings(max_examples=300)
def test_any_tree(tree: object) -> None:
    check(json.dumps(tree, ensure_ascii=False))


@given(st.dictionaries(st.sampled_from(["metadata", "models", "pipelines", "fleet", "budget", "hours"]), trees))
@settings(max_examples=300)
def test_any_tree_under_the_right_head(tree: dict[str, object]) -> None:
    check(json.dumps({"apiVersion": "rightslice/v1", "kind": "Workload", **tree}, ensure_ascii=False))


def places(node: Node, path: Steps = ()) -> dict[Steps, Node]:
    """Every value of a document with its path."""
    found = {path: node} if path else {}
    for key, value in node.values.items():
        found |= places(value, (*path, key))
    for index, item in enumerate(node.items):
        found |= places(item, (*path, index))
    return found


FREE = {"source", "accelerators", "machine_type", "providers", "platform", "regions", "engines", "partition",
        "provider", "region", "accelerator", "applies_to", "name", "class", "method", "kind", "stages"}  # fmt: skip
"""Keys whose values are any text while nothing is known of the world outside, or whose change hides other mistakes."""
PLACES = {
    path: node
    for path, node in places(compose(RIGHT, "w.yaml").root).items()
    if not FREE.intersection(map(str, path))
    and (node.text or RIGHT.split("\n")[node.line - 1][node.column - 1] in "[{")
}


@given(st.sampled_from(sorted(PLACES, key=str)), st.sampled_from(["[[x]]", "{zzz: {}}", "'?'", ".nan", "-1e400"]))
@settings(max_examples=300)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_changed_value_is_found_on_its_line(newline: str, path: Steps, value: str) -> None:
    node = PLACES[path]
    lines = RIGHT.split("\n")
    line = lines[node.line - 1]
    lines[node.line - 1] = line[: node.column - 1] + value + line[node.column - 1 + node.width :]
    found = [d.location for d in check(newline.join(lines)) if d.location]
    assert any(place.line == node.line and place.column >= node.column for place in found)
