"""Diagnostics and the exception tree.

RightsliceError            code, message, location, hint; exit_code
├── BadInputError          the user's file or option is wrong (exit 2); carries every diagnostic at once
├── InfeasibleError        the answer is no (exit 1)
└── OutsideError           an outside system failed (exit 3)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rightslice.core.rules import slug_of
from rightslice.core.text import visible

Severity = Literal["error", "warn", "info"]


@dataclass(frozen=True, slots=True)
class Location:
    """Where in a user's file: 1-based line and column, 0 when only the file is known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about one place: rule `RSnnnn`, slug `area.name`, severity, message and what to do."""

    rule: str
    message: str
    location: Location | None = None
    hint: str = ""
    severity: Severity = "error"
    excerpt: str = ""
    excerpt_width: int = 1

    @property
    def slug(self) -> str:
        """The rule's `area.name`."""
        return slug_of(self.rule)

    def one_line(self) -> str:
        """`error[RS0312] workload.yaml:12:28: message (hint)`."""
        where = f" {self.location}:" if self.location else ""
        hint = f" ({self.hint})" if self.hint else ""
        return visible(f"{self.severity}[{self.rule}]{where} {self.message}{hint}")


class RightsliceError(Exception):
    """Every failure of the public API. `code` is the rule, `location` may be None, `hint` may be empty."""

    exit_code = 2

    def __init__(self, code: str, message: str, location: Location | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.location = location
        self.hint = hint

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What to print; one by default."""
        return (Diagnostic(self.code, self.message, self.location, self.hint),)


class BadInputError(RightsliceError):
    """The user's input is wrong; all mistakes found are in `diagnostics`. `next_command` helps to mend them."""

    exit_code = 2

    def __init__(self, diagnostics: Sequence[Diagnostic] | Diagnostic, next_command: str = "") -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        first = found[0]
        super().__init__(first.rule, first.message, first.location, first.hint)
        self._diagnostics = found
        self.next_command = next_command

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Every mistake, in file order."""
        return self._diagnostics


class InfeasibleError(RightsliceError):
    """The answer is no."""

    exit_code = 1


class OutsideError(RightsliceError):
    """A cluster, registry, price API or endpoint failed."""

    exit_code = 3


def nearest(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The known names closest to `name`, best first: containment before spelling distance."""
    if len(name) > 200:
        return ()
    names = sorted(set(known))
    wanted = name.casefold()
    contained = [n for n in names if wanted and (wanted in n.casefold() or n.casefold() in wanted)]
    folded = {n.casefold(): n for n in names}
    close = [folded[m] for m in difflib.get_close_matches(wanted, folded, n=limit, cutoff=0.5)]
    return tuple(dict.fromkeys([*contained, *close]))[:limit]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean A, B or C?`, or an empty string."""
    close = nearest(name, known)
    if not close:
        return ""
    head = ", ".join(close[:-1])
    return f"did you mean {head} or {close[-1]}?" if head else f"did you mean {close[-1]}?"
