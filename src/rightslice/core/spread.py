"""A duration or rate that varies: its lowest, typical and highest value, drawn by the triangular law."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """`low <= typical <= high`, all at least 0, in the unit of the field's name. Raises ValueError otherwise.

    Published figures give ends and a middle, almost never a distribution: the triangular law is an assumption.
    """

    low: float
    typical: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.typical <= self.high < float("inf"):
            raise ValueError(f"not in order: 0 <= {self.low} <= {self.typical} <= {self.high}")

    @classmethod
    def fixed(cls, value: float) -> Spread:
        """One value without spread."""
        return cls(value, value, value)

    @classmethod
    def of(cls, points: Sequence[float]) -> Spread:
        """Extremes and median of published points. Raises ValueError without any."""
        if not points:
            raise ValueError("no points")
        return cls(min(points), statistics.median(points), max(points))

    @property
    def mean(self) -> float:
        """Mean of the triangular law: (low + typical + high) / 3."""
        return (self.low + self.typical + self.high) / 3.0

    def plus(self, other: Spread) -> Spread:
        """One after the other: ends and typical values added, so wider than a sum of independent draws."""
        return Spread(self.low + other.low, self.typical + other.typical, self.high + other.high)

    def per(self, amount: float) -> Spread:
        """What `amount` takes when this is a rate: amount / rate, slowest and fastest exchanged.

        Raises ZeroDivisionError for a rate that may be 0.
        """
        return Spread(amount / self.high, amount / self.typical, amount / self.low)

    def draw(self, rng: np.random.Generator) -> float:
        """One value; always takes one number from the generator."""
        share = float(rng.random())
        width = self.high - self.low
        if width == 0.0:
            return self.low
        peak = (self.typical - self.low) / width
        if share < peak:
            return self.low + math.sqrt(share * width * (self.typical - self.low))
        return self.high - math.sqrt((1.0 - share) * width * (self.high - self.typical))
