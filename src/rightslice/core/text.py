"""Text that a stranger wrote, made safe to show."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """The text with one visible character for each that is not printable, so that columns stay the same.

    Not printable: control characters and terminal escapes, invisible and direction-changing characters, lone
    surrogates, every space but the common one.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    if character == "\t":
        return "→"
    return chr(0x2400 + ord(character)) if character < " " else "\N{REPLACEMENT CHARACTER}"


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def plural(count: int, noun: str) -> str:
    """`1 model`, `3 models`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
