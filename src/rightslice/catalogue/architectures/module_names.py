"""Lists of module names in a quantisation configuration, matched as the method that wrote them matches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rightslice.catalogue.architectures.config import Json
from rightslice.catalogue.architectures.patterns import LONGEST, MOST_WORK, Expression, expression, wildcard
from rightslice.catalogue.architectures.spelling import ModuleName, tower_part
from rightslice.core.errors import BadInputError, Diagnostic

Rule = Literal["exact", "part", "substring"]
"""How a literal name matches: the whole name (compressed-tensors), whole parts between dots, any part of the text."""
_MAX_NAMES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names, wildcards and `re:` expressions, sorted so that a look-up costs little.

    `plain`: literal names, `ends`: their last parts.
    `trees`: modules that wildcards such as `path*` and `path.*` name with all that is inside them (`layers.1*` is not
    `layers.10`). `unread`: expressions that are none or could take for ever; they match nothing.
    """

    rule: Rule
    plain: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    wildcards: tuple[re.Pattern[str], ...] = ()
    expressions: tuple[re.Pattern[str], ...] = ()
    towers: frozenset[tuple[str, str]] = frozenset()
    unread: tuple[str, ...] = ()

    def match(self, name: ModuleName) -> bool:
        """Whether an entry of the list means this module."""
        if name.part is not None and not self.towers.isdisjoint(((name.part[0], ""), name.part)):
            return True
        if self.plain and self._literally(name):
            return True
        if self.trees and any(not self.trees.isdisjoint(_around(text)) for text in (*name.loose, *name.fused)):
            return True
        return any(_matches(p, name.loose, name.fused) for p in self.wildcards) or any(
            _matches(p, name.exact, name.fused) for p in self.expressions
        )

    def _literally(self, name: ModuleName) -> bool:
        if self.rule == "exact":
            return not self.plain.isdisjoint((*name.loose, *name.fused))
        if self.rule == "substring":
            return any(entry in text for entry in self.plain for text in name.loose if ".experts." not in text)
        return any(not self.plain.isdisjoint(_runs(text, self.ends)) for text in (*name.loose, *name.fused))


def _matches(pattern: re.Pattern[str], names: tuple[str, ...], fused: tuple[str, ...]) -> bool:
    if any(pattern.match(name) for name in names):
        return True
    return any(name.rpartition(".")[2] in pattern.pattern and pattern.match(name) for name in fused)


def _runs(name: str, ends: frozenset[str]) -> list[str]:
    """The runs of whole parts of a name that end with one of `ends`."""
    parts = name.split(".")
    return [".".join(parts[i : j + 1]) for j, part in enumerate(parts) if part in ends for i in range(j + 1)]


def _around(name: str) -> list[str]:
    """A module and those around it."""
    return [name[:i] for i, letter in enumerate(name) if letter == "."] + [name]


def names_of(values: Json, rule: Rule = "part") -> Names | None:
    """The list as `Names`; None for null. Raises BadInputError RS2007 for anything else and for too long a list."""
    if values is None:
        return None
    if not isinstance(values, Sequence) or isinstance(values, str) or any(not isinstance(v, str) for v in values):
        raise BadInputError(Diagnostic("RS2007", f"a quantisation list must hold names, not {str(values)[:40]!r}"))
    if len(values) > _MAX_NAMES:
        raise BadInputError(Diagnostic("RS2007", f"a quantisation list has {len(values)} entries"))
    plain: set[str] = set()
    trees: set[str] = set()
    found: dict[bool, list[Expression]] = {False: [], True: []}
    unread: list[str] = []
    for value in dict.fromkeys(value for value in values if isinstance(value, str)):
        written = value.startswith("re:")
        if not written and (rule == "exact" or not set("*?") & set(value)):
            plain.add(value)
            continue
        path = value.removesuffix("*").removesuffix(".")
        if not written and path and not set("*?") & set(path):
            trees.add(path)
            continue
        read = None
        if len(value) <= LONGEST:
            read = expression(value[3:]) if written else wildcard(value)
        if read is None:
            unread.append(value[:60])
        else:
            found[written].append(read)
    if sum(read.work for kind in found.values() for read in kind) > MOST_WORK:
        raise BadInputError(Diagnostic("RS2007", f"a quantisation list has {len(values)} patterns that take too long"))
    return Names(
        rule,
        frozenset(plain),
        frozenset(name.rpartition(".")[2] for name in plain),
        frozenset(trees),
        tuple(read.compiled for read in found[False]),
        tuple(read.compiled for read in found[True]),
        frozenset(part for name in plain | trees if (part := tower_part(name)) is not None),
        tuple(unread),
    )
