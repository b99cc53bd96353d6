"""Service-level objectives, resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SloMetric = Literal["ttft", "tpot", "e2e"]


@dataclass(frozen=True, slots=True)
class Slo:
    """At least `share` of the class's requests over the horizon have `metric` <= `at_most_s` seconds."""

    metric: SloMetric
    at_most_s: float
    share: float = 0.95

    @property
    def name(self) -> str:
        """`ttft_p95`; `ttft_p99.9` for a share of 0.999."""
        return f"{self.metric}_p{self.share * 100:g}"
