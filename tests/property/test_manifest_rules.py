"""Whatever stands where in a manifest, rules find faults or do not; they never fail."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.kube.lint.documents import parse
from rightslice.kube.lint.promql import averages, divides_by_count, uses
from rightslice.kube.lint.run import lint
from rightslice.kube.lint.values import quantity, seconds, walk

CASES = sorted((Path(__file__).parents[1] / "data" / "lint" / "field_cases").glob("*.yaml"))
ODD: list[Any] = [
    None, True, 0, -1, 10**30, 1.5, float("inf"), "", " ", "x" * 500, "${A}", "\u202e", [], {}, [None], [[]], {"": {}},
    [{"a": [1]}], {"name": 5},
]  # fmt: skip


def objects(path: Path) -> list[Any]:
    return [value for value in yaml.safe_load_all(path.read_text(encoding="utf-8")) if value]


@settings(max_examples=300)
@given(st.data())
def test_a_wrong_value_anywhere_is_no_crash(data: st.DataObject) -> None:
    documents = copy.deepcopy(objects(data.draw(st.sampled_from(CASES))))
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        places = [path for path, _ in walk(documents) if path]
        path = data.draw(st.sampled_from(places))
        holder: Any = documents
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    text = yaml.safe_dump_all(documents, sort_keys=False)
    read = parse(text, "odd.yaml")
    for finding in lint(read.documents):
        assert 0 <= finding.line <= text.count("\n") + 1
        assert finding.message


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    read = parse(text, "any.yaml")
    lint(read.documents)
    for problem in read.problems:
        assert problem.message


PIECES = [
    "sum", "avg", "rate", "(", ")", "{", "}", "[5m]", "by", "without", "vllm:num_requests_running", "/", ">", "0.5",
    '"x',
    "DCGM_FI_DEV_GPU_UTIL", "offset", "-",
    "count", ",", "and", "le",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_query_is_looked_at(pieces: list[str]) -> None:
    query = " ".join(pieces)
    for use in uses(query):
        assert use.name
    averages(query)
    divides_by_count(query)


@given(st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.booleans(), st.none()))
def test_quantities_and_durations_are_numbers_or_nothing(value: object) -> None:
    for found in (quantity(value), seconds(value)):
        assert found is None or isinstance(found, float)


def test_quantities_as_kubernetes_reads_them() -> None:
    known = {"500m": 0.5, "16Gi": 16 * 2**30, "1e3": 1000.0, "2": 2.0, "1.5G": 1.5e9, "100k": 1e5, "1Ki": 1024.0}
    assert {text: quantity(text) for text in known} == known
    assert [quantity(text) for text in ("1 Gi", "Gi", "1g", "--1", "1KiB", "")] == [None] * 6
