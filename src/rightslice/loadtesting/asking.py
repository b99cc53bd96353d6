"""What the requests of a run ask: drawn, as recorded, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rightslice.core.rng import generator
from rightslice.loadtesting.audio import Recording
from rightslice.loadtesting.dialects import Prompt
from rightslice.loadtesting.prompts import WORDS, TokenLaw, text_of
from rightslice.traffic.recorded import Trace

Asking = Callable[[int], Prompt]
"""Number of a request -> what it asks."""


@dataclass(frozen=True, slots=True)
class Wordings:
    """How words become tokens on a server, and the seed and number of the run that draws them."""

    law: TokenLaw
    vocabulary: tuple[str, ...] = WORDS
    seed: int = 0
    run: int = 0

    def text(self, tokens: int, number: int, shared_tokens: int = 0) -> str:
        """`tokens` tokens that no other request has, after `shared_tokens` that all have."""
        words = self.law.words(tokens)
        shared = min(self.law.words(shared_tokens), words) if shared_tokens else 0
        return text_of(words, generator(self.seed, "prompt", self.run, number), shared, self.vocabulary)


def drawn(wordings: Wordings, input_tokens: int, output_tokens: int, shared_tokens: int = 0) -> Asking:
    """Prompts of one length, and answers of one length."""
    return lambda number: Prompt(wordings.text(input_tokens, number, shared_tokens), output_tokens)


def recorded(wordings: Wordings, trace: Trace) -> Asking:
    """Prompts and answers as long as the trace's; equal blocks of its prompts are equal words."""

    def ask(number: int) -> Prompt:
        tokens, answer = int(trace.input_tokens[number]), max(int(trace.output_tokens[number]), 1)
        if trace.prefix is None:
            return Prompt(wordings.text(tokens, number), answer)
        words, size = wordings.law.words(tokens), trace.prefix.block_tokens
        each = max(round(size / wordings.law.per_word), 1)
        blocks = [int(block) for block in trace.prefix.of(number)][: words // each]
        known = [text_of(each, generator(wordings.seed, "block", b), 0, wordings.vocabulary) for b in blocks]
        rest = words - each * len(blocks)
        own = text_of(rest, generator(wordings.seed, "prompt", wordings.run, number), 0, wordings.vocabulary)
        return Prompt(" ".join([*known, *([own] if rest else [])]), answer)

    return ask


def given(prompts: Sequence[Prompt], output_tokens: int) -> Asking:
    """The user's own in turn; answers as long as each says, else `output_tokens`."""

    def ask(number: int) -> Prompt:
        prompt = prompts[number % len(prompts)]
        return Prompt(prompt.text, prompt.output_tokens or output_tokens, prompt.recording, prompt.messages)

    return ask


def played(recordings: Sequence[Recording]) -> Asking:
    """Sound to be transcribed, in turn."""
    return lambda number: Prompt("", 0, recordings[number % len(recordings)])
