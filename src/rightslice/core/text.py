"""Text that a stranger wrote, made safe to show."""

from __future__ import annotations

import re
import unicodedata

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, terminal escapes, invisible and direction-changing characters, lone surrogates."""


def visible(text: str) -> str:
    """The text with every harmful character replaced by one visible character, so that columns stay the same."""
    return _HARMFUL.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\t":
        return "→"
    if character < " ":
        return chr(0x2400 + ord(character))
    return "␡" if character == "\x7f" else "\N{REPLACEMENT CHARACTER}"


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
