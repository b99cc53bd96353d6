"""Careful access to values that a stranger wrote: what has another type than expected counts as absent."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Value = Any
"""What a document holds at some path: text, number, boolean, None, list or mapping."""
Path = tuple[str | int, ...]

_SUFFIXES: Final[Mapping[str, float]] = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]i?|Ki)?)"
)
_FILLED_IN: Final = re.compile(r"\$\{|\$\(|\{\{|<[A-Za-z][\w -]*>|^\$[A-Z_]+$")
_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def dig(value: Value, *path: str | int) -> Value:
    """The value at a path, None where there is none."""
    for step in path:
        if isinstance(step, str) and isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and 0 <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def fields(value: Value) -> Mapping[str, Value]:
    """`value` where it is a mapping, else nothing."""
    return value if isinstance(value, Mapping) else {}


def entries(value: Value) -> Sequence[Value]:
    """`value` where it is a list, else nothing."""
    return value if isinstance(value, list) else ()


def text(value: Value) -> str:
    """`value` where it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def shown(value: Value) -> str:
    """A scalar as text, at most 60 characters; empty for anything else."""
    return str(value)[:60] if isinstance(value, str | int | float) else ""


def placeholder(value: Value) -> bool:
    """Whether somebody fills it in before it is applied: `${NAME}`, `$(NAME)`, `{{ name }}`, `<name>`."""
    return isinstance(value, str) and _FILLED_IN.search(value) is not None


def quantity(value: Value) -> float | None:
    """A Kubernetes quantity (`500m`, `16Gi`, `1e3`, `2`) as a number; None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _float(value)
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= 64 else None
    if match is None:
        return None
    if match[2]:
        return _float(float(match[1] + match[2]))
    return _float(float(match[1]) * _SUFFIXES[match[3] or ""])


def _float(value: float) -> float | None:
    """None for what is no finite number of that size."""
    try:
        made = float(value)
    except OverflowError:
        return None
    return made if math.isfinite(made) else None


def whole(value: Value) -> int | None:
    """A whole number, also as text; None for anything else."""
    number = quantity(value)
    return int(number) if number is not None and abs(number) < 1e15 and number == int(number) else None


def seconds(value: Value) -> float | None:
    """`30s`, `5m`, `1h30m` as Go and Prometheus write durations; a number counts as seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _float(value)
    if not isinstance(value, str) or not 0 < len(value) <= 40:
        return None
    if value.isdecimal() and value.isascii():
        return float(value)
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def walk(value: Value, path: Path = ()) -> Iterator[tuple[Path, Value]]:
    """Every value with its path, outer ones first."""
    waiting: list[tuple[Path, Value]] = [(path, value)]
    while waiting:
        at, found = waiting.pop()
        yield at, found
        if isinstance(found, Mapping):
            waiting += [((*at, key), inner) for key, inner in reversed(list(found.items()))]
        elif isinstance(found, list):
            waiting += [((*at, index), found[index]) for index in reversed(range(len(found)))]
