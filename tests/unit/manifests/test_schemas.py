"""Every emitted object against the schema that the API server uses, unknown fields refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
from emitted import Object, emitted, objects, templates, tree

from plans import EVERY
from plans_scaled import gated, scaled

CRDS = Path(__file__).parents[2] / "data" / "crds"
CUSTOM = {"LeaderWorkerSet", "InferenceObjective", "ScaledObject"}


def strict(schema: Any) -> Any:
    """A structural schema as the API server applies it with strict field validation."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(part) for key, part in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    return made


def schema_of(kind: str) -> Any:
    file = CRDS / f"{kind.lower()}s.json"
    schema = strict(json.loads(file.read_text(encoding="utf-8"))["schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
@pytest.mark.parametrize("name", sorted(EVERY))
def test_built_in_kinds_validate_strictly(name: str, version: str) -> None:
    checked = 0
    for found in objects(tree(name)):
        if found["kind"] in CUSTOM:
            continue
        kubernetes_validate.validate(found, version, strict=True)
        checked += 1
    assert checked >= 3


def test_groups_validate_against_the_custom_resource_and_as_pods() -> None:
    (group,) = [found for found in objects(tree("two-nodes")) if found["kind"] == "LeaderWorkerSet"]
    jsonschema.Draft202012Validator(schema_of("LeaderWorkerSet")).validate(group)
    for template in templates(group):
        pod: Object = {"apiVersion": "v1", "kind": "Pod", **template}
        kubernetes_validate.validate(pod, "1.34", strict=True)


@pytest.mark.parametrize("kind", ["InferenceObjective", "ScaledObject"])
def test_what_scales_and_what_the_gateway_reads_validate_strictly(kind: str) -> None:
    made = emitted(gated(scaled("keda", least=0)), kind)
    assert made
    for found in made:
        jsonschema.Draft202012Validator(schema_of(kind)).validate(found)
        broken = {**found, "spec": {**found["spec"], "priorty": 1}}
        with pytest.raises(jsonschema.ValidationError, match="priorty"):
            jsonschema.Draft202012Validator(schema_of(kind)).validate(broken)


def test_the_group_schema_refuses_what_does_not_exist() -> None:
    (group,) = [found for found in objects(tree("two-nodes")) if found["kind"] == "LeaderWorkerSet"]
    group["spec"]["leaderWorkerTemplate"]["groupSize"] = 2
    with pytest.raises(jsonschema.ValidationError, match="groupSize"):
        jsonschema.Draft202012Validator(schema_of("LeaderWorkerSet")).validate(group)
