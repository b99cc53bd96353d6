"""The measured time of an engine's iteration, and what it was measured on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepLaw:
    """Milliseconds of one iteration: `step_ms` + `token_ms` x tokens computed + `context_token_ms` x context tokens of
    the decoding sequences + `attention_ms` x prompt tokens x their contexts. `request_ms`: outside of the engine, of
    each request.
    """

    step_ms: float
    token_ms: float
    context_token_ms: float
    attention_ms: float = 0.0
    request_ms: float = 0.0

    @property
    def terms(self) -> tuple[float, ...]:
        """The coefficients in the order of the fields."""
        return self.step_ms, self.token_ms, self.context_token_ms, self.attention_ms, self.request_ms


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A law of one replica: the architecture's name, the device, the parallelism and precision it was measured with.

    `relative_error`: half width of the 80 % band of time, time / (1 + e) .. time x (1 + e). `source`: the file.
    """

    architecture: str
    accelerator: str
    partition: str
    tensor_parallel_size: int
    weight_dtype: str
    law: StepLaw
    relative_error: float
    source: str
