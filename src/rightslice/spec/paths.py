"""`models.chat.traffic.rate=20/s`: one value of a document changed by its path, for what-if questions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.spec.nodes import compose

_NAMES: Final = ("name", "class")
"""Keys by which the items of a list are called."""
_OPENED: Final = ("engine", "gateway", "prefix", "router")
"""Sections that a path may open where the document leaves them out."""


def split_change(text: str, option: str = "--set") -> tuple[tuple[str, ...], str]:
    """`a.b=c` -> (("a", "b"), "c"). Raises BadInputError RS0501."""
    path, equals, value = text.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or not all(parts) or not value.strip():
        example = "for example models.chat.replicas=3"
        raise BadInputError(Diagnostic("RS0501", f'{option} "{text[:80]}" is not PATH=VALUE', hint=example))
    return parts, value.strip()


def changed(document: Mapping[str, Any], path: Sequence[str], value: str) -> dict[str, Any]:
    """A copy of a plain document with the value at `path` replaced; `value` is read as YAML.

    Mappings are entered by key, lists by the `name` or `class` of an item; a list of one may be left out of the path.
    The last key may be new, which the document's own checks judge. Raises BadInputError RS0501 for a path that leads
    nowhere.
    """
    root = copy.deepcopy(dict(document))
    at: Any = root
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        at = _sole(at, part)
        if isinstance(at, dict) and last:
            at[part] = compose(value, "--set").root.plain
            return root
        if isinstance(at, dict) and part in _OPENED and at.get(part) is None:
            at[part] = {}
        found = _entered(at, part)
        if found is None:
            at_once = ".".join(path[: depth + 1])
            hint = did_you_mean(part, _children(at)) or ", ".join(sorted(_children(at))[:12])
            raise BadInputError(Diagnostic("RS0501", f'--set: there is no "{at_once[:80]}"', hint=hint))
        at = found
    joined = ".".join(path)
    raise BadInputError(Diagnostic("RS0501", f"--set: {joined[:80]} is a list or a section, not a value"))


def _sole(at: Any, part: str) -> Any:
    """The only item of a list that no item of it is called by `part`."""
    if isinstance(at, list) and len(at) == 1 and part not in _children(at):
        return at[0]
    return at


def _entered(at: Any, part: str) -> Any:
    if isinstance(at, dict):
        return at.get(part)
    if isinstance(at, list):
        return next((item for item in at if part in _called(item)), None)
    return None


def _children(at: Any) -> list[str]:
    if isinstance(at, dict):
        return [str(key) for key in at]
    return [name for item in at for name in _called(item)] if isinstance(at, list) else []


def _called(item: Any) -> Iterator[str]:
    if isinstance(item, dict):
        yield from (str(item[key]) for key in _NAMES if key in item)
