"""Value types <-> JSON documents, deterministically."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any


def to_jsonable(value: Any) -> Any:
    """Dataclasses, tuples and numpy scalars -> plain JSON values; non-finite numbers become None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_jsonable(v) for v in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return rounded(value) if math.isfinite(value) else None
    if hasattr(value, "item"):
        return to_jsonable(value.item())
    raise TypeError(f"not a document value: {type(value).__name__}")


def rounded(value: float) -> float:
    """Nine significant digits: enough for money and microseconds, and stable across summation orders."""
    return float(f"{value:.9g}")


def to_json(value: Any) -> str:
    """Pretty JSON with a final newline; same value, same bytes."""
    return json.dumps(to_jsonable(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
