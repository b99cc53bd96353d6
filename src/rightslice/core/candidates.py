"""Candidate models for the same traffic: what each takes, costs and is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model under the workload's traffic and objectives, on the cheapest hardware that keeps them.

    `where`: machines, or why it cannot be had. Money and latencies (p95) are None where nothing holds. `scores` are the
    user's; `frontier`: no other that holds is both cheaper and better by the first score.
    """

    model: str
    parameters: int
    active_parameters: int
    dtype: str
    context_max: int | None
    weights_bytes: int
    holds: bool
    where: str
    monthly_usd: float | None
    usd_per_million_input_tokens: float | None
    usd_per_million_output_tokens: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    slo_probability: float | None
    scores: Mapping[str, float]
    frontier: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """The cheapest that holds first. `score`: the name of the first score, empty without; `sources`: where scores are
    from, with their dates."""

    workload: str
    task: str
    price_date: str
    price_quality: str
    models: tuple[Candidate, ...]
    score: str
    sources: tuple[str, ...]
