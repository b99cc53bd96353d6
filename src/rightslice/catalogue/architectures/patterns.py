"""Wildcards and regular expressions of quantisation lists, compiled only where matching them takes bounded time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import comb
from typing import Final

LONGEST: Final = 300
"""Characters of an expression; published ones have fewer than 100."""
MOST_WORK: Final = 1_400_000
"""Ways in which the expressions of one list may try to match a name, taken together: seconds at the very worst."""
_NAME: Final = 70
"""Characters of a long module name."""
_ATOM: Final = re.compile(r"\\[0-9A-Za-z]|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[:=!]|\(\?<[=!]|.", re.DOTALL)
_REPEAT: Final = re.compile(r"[*+?]|\{\d*,?\d*\}")
_NARROW: Final = re.compile(r"\\d|\[[\d\\d-]*\]|\\[^a-zA-Z]|[\w/-]")
"""Atoms that meet only short runs of a name: digits and single characters."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression and the number of ways in which it may try to match one name."""

    compiled: re.Pattern[str]
    work: int


def wildcard(text: str) -> Expression | None:
    """`*` and `?` as in file names; a whole module matches what is inside it. None where that could take for ever."""
    short = re.sub(r"\*+", "*", text)
    inside = re.escape(short).replace(r"\*", ".*").replace(r"\?", ".")
    return _bounded(inside + r"(?:\..*)?\Z", short.count("*"))


def expression(text: str) -> Expression | None:
    """A regular expression, matched from the start of a name. None where it is no expression or could take for ever."""
    short = re.sub(r"(?:\.\*){2,}", ".*", text)
    short = re.sub(r"(?<!\\)\.\*\$?\Z", "", short) if "|" not in text else short
    ways = _ways(short)
    return _bounded(short, *ways) if ways is not None else None


def _bounded(text: str, repeats: int, choices: int = 1) -> Expression | None:
    work = comb(_NAME, min(repeats, _NAME // 2)) * choices
    if len(text) > 2 * LONGEST or work > MOST_WORK:
        return None
    try:
        return Expression(re.compile(text), work)
    except (re.error, OverflowError, RecursionError):
        return None


def _ways(text: str) -> tuple[int, int] | None:
    """Repeats that may end anywhere in a name, and choices between alternatives; None for repeated groups."""
    repeats, choices, open_groups, last = 0, 1, [1], ""
    for match in _ATOM.finditer(text):
        atom = match.group()
        repeated = _REPEAT.match(text, match.start())
        if repeated and last:
            if last == ")" and repeated.group() != "?":
                return None
            repeats += last != ")" and not _NARROW.fullmatch(last)
            choices *= 2 if last == ")" else 1
        elif atom.startswith("("):
            open_groups.append(1)
        elif atom == "|":
            open_groups[-1] += 1
        elif atom == ")" and len(open_groups) > 1:
            choices *= open_groups.pop()
        last = atom
    return repeats, choices * open_groups[0]
