"""The serialiser against arbitrary documents: nothing changes on the way, for an old and a new YAML reader."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from rightslice.kube.objects import Json
from rightslice.kube.writer import dump, dump_all

TRICKY = (
    "", "on", "No", "y", "~", "null", "1", "0x1f", "0o7", "0b1", "1e3", "1_000", "1:30", "190:20:30", ".5", "-.inf",
    ".NaN", "2026-08-03", "2026-08-03T00:00:00Z", "=", "<<", "- a", "a: b", "a #b", "#a", "&a", "*a", "!a", "%a", "@a",
    "`a", "'", '"', "[", "{", "a\nb", "a\nb\n", "a\n\n", " a\nb\n", "a \nb\n", "\n", "\ta\n", "a\r\nb", "\x85",
    "\u2028", "\ufeff", "\x00", "\x7f", "é", "😀", "$(HF_TOKEN)", "a" * 300 + " " + "b" * 300, "---", "...", "? a",
    "|", ">",
)  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(TRICKY)
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(TRICKY), inner, max_size=4),
    max_leaves=20,
)


@given(trees)
@example({text: text for text in TRICKY})
@example(list(TRICKY))
def test_round_trip(tree: Json) -> None:
    text = dump(tree)
    assert text.endswith("\n")
    assert yaml.safe_load(text) == tree


@given(trees)
@example({text: text for text in TRICKY})
def test_a_yaml_1_2_reader_agrees(tree: Json) -> None:
    assert YAML(typ="safe", pure=True).load(dump(tree)) == tree


@given(st.dictionaries(st.text(max_size=6), scalars, max_size=6))
def test_equal_objects_give_equal_bytes(fields: dict[str, Json]) -> None:
    assert dump(dict(reversed(fields.items()))) == dump(fields)


def test_no_anchors_and_a_fixed_key_order() -> None:
    shared: dict[str, Json] = {"b": "1", "a": ["on"]}
    text = dump(
        {"spec": shared, "data": shared, "metadata": {"labels": {}, "name": "x"}, "kind": "K", "apiVersion": "v1"}
    )
    assert text == (
        "apiVersion: v1\nkind: K\nmetadata:\n  name: x\n  labels: {}\n"
        'spec:\n  a:\n  - "on"\n  b: "1"\ndata:\n  a:\n  - "on"\n  b: "1"\n'
    )


def test_several_documents_stay_apart() -> None:
    assert list(yaml.safe_load_all(dump_all([{"a": 1}, {"b": 2}]))) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_lacks_still_come_back(number: float) -> None:
    back = yaml.safe_load(dump(number))
    assert back == number or math.isnan(back)


def test_configuration_text_is_readable() -> None:
    assert dump({"data": {"config.yaml": "a:\n  b: 1\n\nc: 2\n"}}) == (
        "data:\n  config.yaml: |\n    a:\n      b: 1\n\n    c: 2\n"
    )
