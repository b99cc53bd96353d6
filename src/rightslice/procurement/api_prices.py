"""A hosted API beside machines of one's own: what it costs at some traffic, and where the two cost the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """USD per million tokens as its owner lists them. `cached`: of prompt tokens found in a cache, None as `input`."""

    name: str
    input_usd: float
    output_usd: float
    cached_usd: float | None
    price_date: str
    source: str

    def usd(self, tokens: Tokens) -> float:
        """What so many tokens cost."""
        cached = self.input_usd if self.cached_usd is None else self.cached_usd
        fresh = tokens.input - tokens.cached
        return (fresh * self.input_usd + tokens.cached * cached + tokens.output * self.output_usd) / 1e6


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a month; `cached` is a part of `input`."""

    input: float
    cached: float
    output: float

    @property
    def total(self) -> float:
        """All that are read or written."""
        return self.input + self.output

    def times(self, factor: float) -> Tokens:
        """The same mix, more or less of it."""
        return Tokens(self.input * factor, self.cached * factor, self.output * factor)


def crossover(price: ApiPrice, tokens: Tokens, own_usd: float) -> float | None:
    """Tokens a month, of the same mix, at which the API costs `own_usd`; None where it costs nothing."""
    asked = price.usd(tokens)
    return tokens.total * own_usd / asked if asked > 0.0 else None


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """One model of the plan beside one API, at the plan's mean traffic.

    `tokens`: of a month. `own_usd`: of the GPUs that the model occupies, idle room included. `crossover_tokens`: a
    month at which both cost the same; `carried_tokens`: what the planned replicas carry at most.
    """

    model: str
    api: str
    tokens: Tokens
    own_usd: float
    api_usd: float
    own_usd_per_million: float
    api_usd_per_million: float
    crossover_tokens: float | None
    carried_tokens: float | None
    price_date: str
    source: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """`price_date`, `price_quality`: of the plan's machines."""

    plan: str
    price_date: str
    price_quality: str
    models: tuple[ModelComparison, ...]
    notes: tuple[str, ...]
