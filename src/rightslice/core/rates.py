"""How much one replica of one option can carry: filled by `app` from simulation, handed to the optimiser as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rightslice.core.estimate import Provenance


@dataclass(frozen=True, slots=True)
class Rate:
    """Largest rate of one replica at its SLOs. `simulated` is False for an optimistic closed-form ceiling."""

    requests_per_s: float
    simulated: bool
    provenance: Provenance = "first-principles"
    binding: str = ""


@dataclass(slots=True)
class RateTable:
    """Option key -> rate. Keys are `Option.key`: model, accelerator, partition, precision and parallelism."""

    rates: dict[str, Rate] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Rate:
        return self.rates[key]

    def update(self, entries: Mapping[str, Rate]) -> None:
        """Overwrite entries."""
        self.rates.update(entries)
