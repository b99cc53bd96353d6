"""Synthetic prompts of a wanted number of tokens.

A prompt is a row of common words, each one token in the vocabularies in use. How many words make how many tokens of a
given server is found by asking it twice and reading its own count: tokens = overhead + per_word x words. Where it has a
tokenizer's interface, only words that are equally long there are used, and the law is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

WORDS: Final = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company",
    "system", "program", "question", "work", "government", "number", "night", "point", "home", "water", "room",
    "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word",
    "business", "issue", "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game",
    "line", "end", "member", "law", "car", "city", "community", "name", "president", "team", "minute", "idea",
    "body", "information", "back", "parent", "face", "others", "level", "office", "door", "health", "person", "art",
    "war", "history", "party", "result", "change", "morning", "reason", "research", "girl", "guy", "moment", "air",
    "teacher", "force", "education",
)  # fmt: skip
LEAST_WORDS: Final = 16
PROBES: Final = (32, 160)
"""Words of the two prompts that are asked for."""


@dataclass(frozen=True, slots=True)
class TokenLaw:
    """tokens = overhead + per_word x words of a server's chat template and tokenizer."""

    overhead: float = 0.0
    per_word: float = 1.0

    @staticmethod
    def through(first: tuple[int, int], second: tuple[int, int]) -> TokenLaw:
        """The line through two (words, tokens). Raises ValueError when more words are not more tokens."""
        per_word = (second[1] - first[1]) / (second[0] - first[0])
        if per_word <= 0.0:
            raise ValueError("the server counts no tokens of a prompt")
        return TokenLaw(first[1] - per_word * first[0], per_word)

    def words(self, tokens: int) -> int:
        """How many words make a prompt of `tokens`; at least one."""
        return max(round((tokens - self.overhead) / self.per_word), 1)


def text_of(words: int, rng: np.random.Generator, prefix: int = 0, vocabulary: Sequence[str] = WORDS) -> str:
    """`words` words of the vocabulary, of which the first `prefix` are the same in every prompt."""
    shared = [vocabulary[i % len(vocabulary)] for i in range(min(prefix, words))]
    own = rng.integers(len(vocabulary), size=words - len(shared))
    return " ".join([*shared, *(vocabulary[i] for i in own)])


def equally_long(tokens_of: Mapping[str, int]) -> tuple[str, ...]:
    """The words of the most common length in tokens; every word where too few are alike."""
    lengths = Counter(tokens_of.values())
    if not lengths:
        return WORDS
    length = max(lengths, key=lambda tokens: (lengths[tokens], -tokens))
    alike = tuple(word for word in WORDS if tokens_of.get(word) == length)
    return alike if len(alike) >= LEAST_WORDS else WORDS
