"""Costs of one engine step and of one measured stage, in whole picoseconds so that simulated time is exact."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rightslice.core.estimate import Provenance

PS_PER_S = 10**12


def picoseconds(seconds: float) -> int:
    """Seconds -> whole picoseconds, rounded to the nearest."""
    return round(seconds * PS_PER_S)


def _array(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """A read-only int64 copy whose first entry is 0 and which never falls; ValueError otherwise."""
    array = np.array(values, dtype=np.int64)
    if array.ndim != 1 or array.size < 2 or array[0] != 0 or bool(np.any(np.diff(array) < 0)):
        raise ValueError("costs start at 0, have at least two entries and never fall")
    array.setflags(write=False)
    return array


def _scaled(values: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    scaled: NDArray[np.int64] = np.rint(values * factor).astype(np.int64)
    return scaled


@dataclass(frozen=True, slots=True, eq=False)
class StepCosts:
    """What one engine step costs one replica.

    `tokens_ps[T]`: linear layers, experts, collectives and head for T tokens in the step (index 0 is 0, never falls;
    the last index is max_num_batched_tokens). `kv_token_ps`: per token of decode context read. `attention_ps`: prefill
    attention, per query token and context token. `sequence_ps`: per decoding sequence. `step_ps`: host and launches of
    every step. `prefill_step_ps`: further launches of a step that holds prefill. `relative_error`: half width of the
    80 % band of time, time / (1 + e) .. time * (1 + e).
    """

    tokens_ps: NDArray[np.int64]
    kv_token_ps: int
    attention_ps: int
    sequence_ps: int
    step_ps: int
    prefill_step_ps: int
    relative_error: float
    provenance: Provenance

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens_ps", _array(self.tokens_ps))
        terms = (self.kv_token_ps, self.attention_ps, self.sequence_ps, self.step_ps, self.prefill_step_ps)
        if min(terms) < 0 or self.relative_error < 0.0:
            raise ValueError("costs and errors are not negative")

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens that one step may hold."""
        return int(self.tokens_ps.size) - 1

    def scaled(self, factor: float) -> StepCosts:
        """Every cost times `factor` (a draw of the prediction error, or an interference slowdown)."""
        return replace(
            self,
            tokens_ps=_scaled(self.tokens_ps, factor),
            kv_token_ps=round(self.kv_token_ps * factor),
            attention_ps=round(self.attention_ps * factor),
            sequence_ps=round(self.sequence_ps * factor),
            step_ps=round(self.step_ps * factor),
            prefill_step_ps=round(self.prefill_step_ps * factor),
        )

    def step_time_ps(self, prefill_tokens: int, attention_work: int, sequences: int, context_tokens: int) -> int:
        """Picoseconds of one step.

        step_ps + [prefill > 0] prefill_step_ps + sequence_ps n + tokens_ps[T] + kv_token_ps S + attention_ps W, with
        n decoding sequences, T = prefill tokens + n, S = sum of the decoding sequences' contexts, W = sum over prefill
        chunks of chunk x (past + (chunk + 1) / 2). IndexError when T exceeds the step's budget.
        """
        tokens = prefill_tokens + sequences
        return (
            self.step_ps
            + (self.prefill_step_ps if prefill_tokens else 0)
            + self.sequence_ps * sequences
            + int(self.tokens_ps[tokens])
            + self.kv_token_ps * context_tokens
            + self.attention_ps * attention_work
        )


@dataclass(frozen=True, slots=True, eq=False)
class StageCosts:
    """`latency_ps[n]`: mean latency of each of n concurrent requests; the last index is the most that run at once."""

    latency_ps: NDArray[np.int64]
    relative_error: float
    provenance: Provenance

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency_ps", _array(self.latency_ps))
        if self.relative_error < 0.0:
            raise ValueError("errors are not negative")

    @property
    def max_streams(self) -> int:
        """Requests that run at once; further ones wait."""
        return int(self.latency_ps.size) - 1

    def scaled(self, factor: float) -> StageCosts:
        """Every latency times `factor`."""
        return replace(self, latency_ps=_scaled(self.latency_ps, factor))
