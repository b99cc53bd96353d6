"""One request and its answer, as the client saw it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

UNFINISHED: Final = "unfinished"
"""Neither answered nor failed when the run ended."""
NAN: Final = math.nan


@dataclass(slots=True)
class Exchange:
    """Times in seconds from the start of the run, NaN where it did not come to that.

    `intended_s`: when it was meant to be sent. First byte (of the body), first chunk (of an answer, a role included)
    and first token (content or reasoning) are apart. Tokens are the server's own count where `counted` is true, else
    the number of chunks with content. `audio_s`: seconds of sound that were transcribed or spoken; the first token of
    speech is the first piece of sound. `error`: empty, or its kind; `detail` what the server or the system said.
    """

    number: int
    intended_s: float
    sent_s: float = NAN
    first_byte_s: float = NAN
    first_chunk_s: float = NAN
    first_token_s: float = NAN
    last_token_s: float = NAN
    end_s: float = NAN
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    chunks: int = 0
    counted: bool = False
    error: str = UNFINISHED
    detail: str = ""
    request_id: str = ""
    audio_s: float = 0.0
    gaps: list[float] = field(default_factory=list)
    """Seconds between chunks with content."""

    @property
    def completed(self) -> bool:
        """Whether the whole answer came."""
        return not self.error

    @property
    def ttft_s(self) -> float:
        """First token after the intended time of sending."""
        return self.first_token_s - self.intended_s

    @property
    def e2e_s(self) -> float:
        """Last token, or the end of an answer without tokens, after the intended time of sending."""
        last = self.end_s if math.isnan(self.last_token_s) else self.last_token_s
        return last - self.intended_s

    @property
    def tpot_s(self) -> float:
        """(last - first token) / (tokens - 1); NaN for one token."""
        if self.output_tokens < 2 or math.isnan(self.first_token_s):
            return NAN
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def dispatch_delay_s(self) -> float:
        """How much later than intended it was sent: what the client adds."""
        return self.sent_s - self.intended_s
