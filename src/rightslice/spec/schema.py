"""JSON Schema of the workload document, for editors and for validation elsewhere."""

from __future__ import annotations

from typing import Any

from rightslice.spec.workload import Workload


def workload_schema() -> dict[str, object]:
    """JSON Schema (draft 2020-12): keys as written, quantities as text with a unit, short forms allowed."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rightslice workload",
        "description": "What should be served, how fast, where it may run and what it may cost.",
    }
    schema = _tidy(Workload.model_json_schema(by_alias=True))
    return {**schema, **head}


def _tidy(node: Any) -> Any:
    """No generated titles, no null for a key that may as well be absent, defaults only as people write them."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _tidy(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    choices = [choice for choice in kept.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del kept["anyOf"]
        kept = {**choices[0], **kept}
    elif choices:
        kept["anyOf"] = choices
    default = kept.get("default", "")
    if default in (None, [], {}) or (kept.get("type") == "string" and not isinstance(default, str)):
        del kept["default"]
    return kept
