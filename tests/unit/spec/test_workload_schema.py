from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from rightslice.core.errors import BadInputError
from rightslice.spec.loader import load_workload, parse_workload
from rightslice.spec.schema import workload_schema
from rightslice.spec.starter import starter_workload

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted([*(ROOT / "tests" / "data" / "workloads").iterdir(), *(ROOT / "examples").glob("*.yaml")])
VALIDATOR = jsonschema.Draft202012Validator(workload_schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads_and_matches_the_schema(path: Path) -> None:
    loaded = load_workload(path)
    assert loaded.warnings == ()
    assert [error.message for error in VALIDATOR.iter_errors(loaded.plain)] == []


def test_schema_is_a_schema_that_speaks_of_what_people_write() -> None:
    schema: Any = workload_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == "rightslice workload"
    assert "$id" not in schema
    sections = schema["$defs"]
    assert all(section["description"] for section in sections.values() if "properties" in section)
    assert sections["CustomMemory"]["properties"]["weights"]["examples"] == ["80GiB"]
    assert "class" in sections["TrafficClass"]["properties"]
    assert sections["Users"]["properties"]["think_time"]["type"] == "string"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "name"), "Not A Name"),
        (("models", 0, "traffic", 0, "slo"), {"ttfb_p95": "1s"}),
        (("models", 0, "traffic", 0, "rate"), {"peek": "1/s"}),
        (("models", 0, "traffic", 0, "shape"), "square"),
        (("models", 0, "memory"), {"weights": 80}),
        (("fleet", "platform"), 3),
    ],
)
def test_schema_refuses_what_the_loader_refuses(path: tuple[str | int, ...], value: object) -> None:
    document: Any = copy.deepcopy(parse_workload(starter_workload(), file="w.yaml").plain)
    target = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    assert not VALIDATOR.is_valid(document)


def test_starter_is_short_commented_and_right() -> None:
    text = starter_workload("shop-assistant")
    loaded = parse_workload(text, file="workload.yaml")
    assert (loaded.workload.metadata.name, loaded.warnings) == ("shop-assistant", ())
    assert VALIDATOR.is_valid(loaded.plain)
    fields = [line for line in text.splitlines() if ":" in line.split("#")[0]]
    explained = [line for line in fields if "#" in line]
    assert len(text.splitlines()) < 45
    headings = {"apiVersion", "kind", "models", "- name", "traffic", "regions"}
    assert {line.split(":")[0].strip() for line in fields if line not in explained} <= headings
    with pytest.raises(BadInputError, match="not a usable name"):
        starter_workload("Shop Assistant")
