"""Facts that change with the version of a program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

VersionKey = tuple[tuple[int, ...], int, int]
_STAGES: Final = {"dev": -4, "a": -3, "b": -2, "rc": -1, "": 0, "post": 1}
_VERSION: Final = re.compile(r"v?(\d+(?:\.\d+)*)(?:[.-]?(dev|a|b|rc|post)(\d*))?")
_NEWEST: Final[VersionKey] = ((10**9,), 0, 0)


def version_key(version: str) -> VersionKey:
    """A key that orders versions: `0.6.6rc1` < `0.6.6` < `0.6.6.post1` < `0.10.0`.

    Text without a number (`latest`) counts as newer than every version.
    """
    match = _VERSION.match(version.strip())
    if match is None:
        return _NEWEST
    release = [int(part) for part in match[1].split(".")]
    while release and release[-1] == 0:
        release.pop()
    return tuple(release), _STAGES[match[2] or ""], int(match[3] or 0)


def minor_version(version: str) -> str:
    """`1.9.3` -> `1.9`."""
    return ".".join(version.split(".")[:2])


@dataclass(frozen=True, slots=True)
class Tier:
    """One value and the conditions on the device under which it holds."""

    value: Any = None
    min_memory_gib: float = 0.0
    below_memory_gib: float = float("inf")
    name_lacks: tuple[str, ...] = ()

    def holds(self, memory_gib: float, device_name: str) -> bool:
        """Whether a device of that memory and name (lower case) falls into this tier."""
        inside = self.min_memory_gib <= memory_gib < self.below_memory_gib
        return inside and not any(part in device_name for part in self.name_lacks)


@dataclass(frozen=True, slots=True)
class Era:
    """What holds from one version on, until the next era begins. The first tier that holds decides."""

    since: VersionKey
    tiers: tuple[Tier, ...]
    note: str = ""


def eras(rows: Sequence[Mapping[str, Any]]) -> tuple[Era, ...]:
    """Eras of a data file, oldest first."""
    made = [
        Era(
            version_key(row["from"]),
            tuple(Tier(**{**tier, "name_lacks": tuple(tier.get("name_lacks", ()))}) for tier in row["tiers"]),
            row.get("note", ""),
        )
        for row in rows
    ]
    return tuple(sorted(made, key=lambda era: era.since))


def era_of(known: Sequence[Era], version: str) -> Era:
    """The era of a version; versions older than the first era take the first. KeyError when there is none."""
    if not known:
        raise KeyError(version)
    wanted = version_key(version)
    return next((era for era in reversed(known) if era.since <= wanted), known[0])
