"""What the requests of a run ask: drawn, as recorded, or the user's own. Callable by a request's number, and picklable,
so that several processes can send parts of a run.
"""

from __future__ import annotations

from collections.abc import Callable
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


@dataclass(frozen=True, slots=True)
class Drawn:
    """Prompts of one length, and answers of one length."""

    wordings: Wordings
    input_tokens: int
    output_tokens: int
    shared_tokens: int = 0

    def __call__(self, number: int) -> Prompt:
        """The request of that number."""
        return Prompt(self.wordings.text(self.input_tokens, number, self.shared_tokens), self.output_tokens)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Prompts and answers as long as the trace's; equal blocks of its prompts are equal words."""

    wordings: Wordings
    trace: Trace

    def __call__(self, number: int) -> Prompt:
        """The request of that number."""
        trace, wordings = self.trace, self.wordings
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


@dataclass(frozen=True, slots=True)
class Given:
    """The user's own in turn; answers as long as each says, else `output_tokens`."""

    prompts: tuple[Prompt, ...]
    output_tokens: int

    def __call__(self, number: int) -> Prompt:
        """The request of that number."""
        prompt = self.prompts[number % len(self.prompts)]
        return Prompt(prompt.text, prompt.output_tokens or self.output_tokens, prompt.recording, prompt.messages)


@dataclass(frozen=True, slots=True)
class Played:
    """Sound to be transcribed, in turn."""

    recordings: tuple[Recording, ...]

    def __call__(self, number: int) -> Prompt:
        """The request of that number."""
        return Prompt("", 0, self.recordings[number % len(self.recordings)])


@dataclass(frozen=True, slots=True)
class EveryNth:
    """The requests first, first + step, …: one process's part of a run."""

    asking: Asking
    first: int
    step: int

    def __call__(self, number: int) -> Prompt:
        """The request of that number within the part."""
        return self.asking(self.first + number * self.step)
