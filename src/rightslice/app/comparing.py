"""`rightslice cost compare PLAN`: the plan beside hosted APIs at its own traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rightslice.app.simulating import Asked, read_asked
from rightslice.app.what_if import WhatIf
from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean
from rightslice.optimization.costing import hourly_share
from rightslice.optimization.needs import Need
from rightslice.procurement.api_prices import ApiPrice, Comparison, ModelComparison, Tokens, crossover
from rightslice.procurement.money import hours_per_month
from rightslice.spec.api_prices import ListedPrice, load_api_prices

SECONDS_PER_HOUR: Final = 3600.0


def compare(path: Path, prices: Path) -> Comparison:
    """Every price of the file beside the models it may take the place of.

    Raises BadInputError for an unreadable plan or price list, and for a model that the plan does not have.
    """
    asked = read_asked(path, WhatIf())
    listed = load_api_prices(prices).prices
    names = [need.name for need in asked.needs]
    for row in listed:
        if row.model is not None and row.model not in names:
            message = f'"{row.name[:60]}" is for model {row.model}, which the plan does not have'
            place = Location(str(prices)[:200])
            raise BadInputError(Diagnostic("RS0310", message, place, did_you_mean(row.model, names)))
    found = tuple(_compared(asked, listed))
    cost = asked.plan.monthly_usd
    notes = ["an API's answers are not those of your model: compare their quality on your own tasks"]
    if not found:
        notes.append("no model of the plan generates text at a known rate: nothing to compare")
    return Comparison(
        asked.plan.name, cost.price_date if cost else "", cost.quality if cost else "", found, tuple(notes)
    )


def _compared(asked: Asked, listed: Sequence[ListedPrice]) -> Iterator[ModelComparison]:
    hours = hours_per_month(asked.workload.hours)
    for need in asked.needs:
        if need.mean_rate_per_s <= 0.0 or need.architecture is None:
            continue
        tokens = tokens_of(asked, need, hours)
        own_usd = hourly_share(need.name, asked.plan.pools, asked.plan.placements) * hours
        for row in listed:
            if row.model in (None, need.name):
                yield _beside(asked, need, row, tokens, own_usd)


def tokens_of(asked: Asked, need: Need, hours: float) -> Tokens:
    """Tokens of a month at the mean rate; those that the plan's own prefix cache finds count as cached."""
    requests = need.mean_rate_per_s * SECONDS_PER_HOUR * hours
    inputs = requests * need.input_tokens
    return Tokens(inputs, inputs * _found_share(asked, need), requests * need.output_tokens)


def _found_share(asked: Asked, need: Need) -> float:
    """Share of prompt tokens that the simulated prefix caches found; classes count by the prompt tokens they send."""
    planned = next(model for model in asked.plan.models if model.name == need.name)
    realised = {found.traffic_class: found.realised for found in planned.prefix_hits}
    sent = {
        c.name: c.rate.mean * c.input_tokens.mean for c in need.model.traffic if c.rate is not None and c.input_tokens
    }
    total = sum(sent.values())
    return sum(share * realised.get(name, 0.0) for name, share in sent.items()) / total if total else 0.0


def _beside(asked: Asked, need: Need, row: ListedPrice, tokens: Tokens, own_usd: float) -> ModelComparison:
    price = ApiPrice(row.name, row.input, row.output, row.cached, row.date, row.source)
    api_usd = price.usd(tokens)
    carried = _carried(asked, need)
    return ModelComparison(
        model=need.name,
        api=price.name,
        tokens=tokens,
        own_usd=own_usd,
        api_usd=api_usd,
        own_usd_per_million=own_usd / tokens.total * 1e6,
        api_usd_per_million=api_usd / tokens.total * 1e6,
        crossover_tokens=crossover(price, tokens, own_usd),
        carried_tokens=None if carried is None else tokens.total * carried / need.mean_rate_per_s,
        price_date=price.price_date,
        source=price.source,
    )


def _carried(asked: Asked, need: Need) -> float | None:
    """Requests/s that all planned replicas carry at most; None where a rate is not known."""
    planned = next(model for model in asked.plan.models if model.name == need.name)
    rates = [(d.max_rate, d.replicas.steady) for d in planned.deployments]
    if any(rate is None for rate, _ in rates):
        return None
    return sum(rate.value * count for rate, count in rates if rate is not None)
