"""Which architecture classes an engine serves: `engine_architectures.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rightslice.catalogue.datafiles import read_json


@dataclass(frozen=True, slots=True)
class ServedClasses:
    """Classes of one version; see the head of the data file for each field."""

    version: str
    transformers_version: str
    served: frozenset[str]
    transformers: frozenset[str]
    compatible: frozenset[str]
    removed: Mapping[str, str]
    plugins: Mapping[str, str]
    suffixes: tuple[str, ...]
    fails: frozenset[str]

    def own(self, name: str) -> bool:
        """Whether the engine has the class itself, or the base of one that it adapts."""
        if name in self.served:
            return True
        ending = next((suffix for suffix in self.suffixes if name.endswith(suffix)), "")
        stem = name.removesuffix(ending)
        return ending != "" and any(f"{stem}{suffix}" in self.served for suffix in self.suffixes)


@cache
def served_classes(engine: str) -> ServedClasses | None:
    """The classes of an engine; None when no list of it was read."""
    row = read_json("engine_architectures.json")["engines"].get(engine)
    if row is None:
        return None
    return ServedClasses(
        version=row["version"],
        transformers_version=row["transformers_version"],
        served=frozenset(row["served"]),
        transformers=frozenset(row["transformers"]),
        compatible=frozenset(row["compatible"]),
        removed=row["removed"],
        plugins=row["plugins"],
        suffixes=tuple(row["suffixes"]),
        fails=frozenset(row["fails"]),
    )
