"""What keeps an engine from starting, and what could be changed about it."""

from __future__ import annotations

from dataclasses import dataclass

Remedy = tuple[tuple[str, str], ...]
"""Arguments, by vLLM's names, and their values; empty values are bare words."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`remedies`: what to try, best first; `otherwise`: what to do when no argument helps."""

    kind: str
    reason: str
    remedies: tuple[Remedy, ...] = ()
    otherwise: str = ""
