"""Spellings of accelerators: Kubernetes labels, provider tables, device names, free text -> canonical names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rightslice.catalogue.datafiles import read_json

NO_GUESS: Final = ""
"""Table value of a spelling that must stay unresolved: ambiguous, or known to have no row."""
_VENDOR_PREFIX: Final = "nvidia-"
_VENDOR_PREFIX_NAMESPACES: Final = ("gfd", "device")


@dataclass(frozen=True, slots=True)
class _Rule:
    namespaces: frozenset[str]
    suffix: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Table:
    names: Mapping[tuple[str, str], str]
    namespaces: tuple[str, ...]
    rules: tuple[_Rule, ...]
    spellings: Mapping[tuple[str, str], tuple[str, ...]]


def normalised(text: str) -> str:
    """Lower case, blanks and underscores as `-`."""
    return re.sub(r"[\s_]+", "-", text.strip()).lower()


@lru_cache(maxsize=1)
def _table() -> _Table:
    document = read_json("aliases.json")
    names: dict[tuple[str, str], str] = {}
    listed: dict[tuple[str, str], tuple[str, ...]] = {}
    for canonical, spaces in document["aliases"].items():
        for space, spellings in spaces.items():
            listed[space, canonical] = tuple(spellings)
            names |= {(space, normalised(spelling)): canonical for spelling in spellings}
    for entry in (*document["ambiguous"], *document["unresolvable"]):
        names[entry["namespace"], normalised(entry["name"])] = NO_GUESS
    rules = tuple(_Rule(frozenset(r["namespaces"]), re.compile(r["match"])) for r in document["suffix_rules"])
    return _Table(names, tuple(sorted({space for space, _ in names})), rules, listed)


def split_partition(text: str, namespace: str = "") -> tuple[str, str]:
    """`H100-SXM-80GB:MIG-3g.40gb` -> (`H100-SXM-80GB`, `3g.40gb`); the second part is empty for a whole accelerator.

    The suffixes of every namespace are tried when `namespace` is empty.
    """
    base, partition = text.strip(), ""
    for rule in _table().rules:
        if namespace and namespace not in rule.namespaces:
            continue
        match = rule.suffix.search(base)
        if match:
            base = base[: match.start()]
            partition = match.groupdict().get("partition") or partition
    return base, partition


def lookup(text: str, namespace: str = "") -> str | None:
    """The canonical name that a spelling (without suffix) stands for.

    None when no namespace knows it, when it is ambiguous, or when namespaces disagree: never a guess.
    """
    found = {name for space in ([namespace] if namespace else _table().namespaces) for name in _in(space, text)}
    return next(iter(found)) if len(found) == 1 and NO_GUESS not in found else None


def _in(namespace: str, text: str) -> list[str]:
    """The entries of one namespace for a spelling: none or one."""
    key = normalised(text)
    keys = [key]
    if namespace in _VENDOR_PREFIX_NAMESPACES:
        keys += [key.removeprefix(_VENDOR_PREFIX), _VENDOR_PREFIX + key]
    known = _table().names
    return next(([known[namespace, k]] for k in keys if (namespace, k) in known), [])


def spellings(accelerator: str, namespace: str) -> tuple[str, ...]:
    """How an accelerator is written in a namespace, the one to write first; empty when it has no name there."""
    return _table().spellings.get((namespace, accelerator), ())
