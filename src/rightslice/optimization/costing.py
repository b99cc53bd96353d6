"""Money of a plan: monthly cost with its range, and its split over input and output tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.catalogue.mig import geometry
from rightslice.core.plan import Deployment, MonthlyCost, Placement, Pool
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.optimization.propose import Proposal
from rightslice.performance.costs import StepCosts
from rightslice.procurement.money import hours_per_month, oldest_date, worst_quality

SECONDS_PER_HOUR = 3600.0
LITTLE_ITERATIONS = 20


def monthly_cost(proposal: Proposal, hours: Literal["always", "office"]) -> MonthlyCost:
    """USD a month of every node bought; the range is that of the prices' quality."""
    per_month = hours_per_month(hours)
    bought = [(proposal.offer_of[key], nodes) for key, nodes in sorted(proposal.packing.nodes.items()) if nodes > 0]
    value = sum(offer.usd_per_hour * nodes for offer, nodes in bought) * per_month
    low = sum(offer.usd_per_hour * offer.price_low_factor * nodes for offer, nodes in bought) * per_month
    high = sum(offer.usd_per_hour * offer.price_high_factor * nodes for offer, nodes in bought) * per_month
    dates = [offer.machine.price_date for offer, _ in bought if not offer.owned]
    qualities = [offer.machine.quality for offer, _ in bought if not offer.owned]
    return MonthlyCost(value, low, high, oldest_date(dates), worst_quality(qualities), compute=value)


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """USD per million tokens of one model or of all."""

    input_usd: float | None
    output_usd: float | None


def token_prices(
    needs: Sequence[Need],
    pools: Sequence[Pool],
    placements: Sequence[Placement],
    deployments: Mapping[str, Sequence[Deployment]],
    options: Mapping[str, Option],
) -> TokenPrice:
    """The cost of the GPUs that language models occupy, at their mean load, split by modelled GPU-seconds.

    An input token takes its share of a full prefill step, an output token its share of a decode step at the batch that
    the mean load keeps in flight. None without token traffic or with pipelines only (their rate is not offered).
    """
    spent_in = spent_out = tokens_in = tokens_out = 0.0
    for need in needs:
        if need.mean_rate_per_s <= 0 or need.architecture is None:
            continue
        usd_per_hour = hourly_share(need.name, pools, placements)
        costs = [options[k].costs for k in options if options[k].model == need.name and _runs(options[k], deployments)]
        step = next((c for c in costs if isinstance(c, StepCosts)), None)
        if step is None:
            continue
        replicas = max(1, sum(d.replicas.steady for d in deployments.get(need.name, ())))
        share = _input_share(step, need, need.mean_rate_per_s / replicas)
        per_hour = need.mean_rate_per_s * SECONDS_PER_HOUR
        spent_in += usd_per_hour * share
        spent_out += usd_per_hour * (1.0 - share)
        tokens_in += per_hour * need.input_tokens
        tokens_out += per_hour * need.output_tokens
    if tokens_in <= 0 or tokens_out <= 0:
        return TokenPrice(None, None)
    return TokenPrice(spent_in / tokens_in * 1e6, spent_out / tokens_out * 1e6)


def _runs(option: Option, deployments: Mapping[str, Sequence[Deployment]]) -> bool:
    return any(
        d.accelerator == option.accelerator and d.partition == option.partition and d.engine.settings == option.settings
        for d in deployments.get(option.model, ())
    )


def hourly_share(model: str, pools: Sequence[Pool], placements: Sequence[Placement]) -> float:
    """USD per hour of the GPUs and slices that `model` occupies; free slices are shared by the GPU's tenants."""
    by_name = {pool.name: pool for pool in pools}
    total = 0.0
    for placement in placements:
        pool = by_name[placement.pool]
        weights = [_weight(pool.accelerator, slot.partition) for slot in placement.slots]
        mine = sum(w for w, slot in zip(weights, placement.slots, strict=True) if slot.model == model)
        if mine:
            total += pool.hourly_usd / pool.gpus_per_node * mine / sum(weights)
    return total


def _weight(accelerator: str, partition: str) -> float:
    table = geometry(accelerator)
    return 1.0 if partition in (WHOLE, *ON_ONE_GPU) or table is None else float(table.profile(partition).mem_units)


def _input_share(costs: StepCosts, need: Need, rate_per_s: float) -> float:
    """Share of one replica's GPU time that prefill takes: prefill / (prefill + decode), per request.

    The decode batch n follows from Little's law: n = rate * output tokens * step time(n).
    """
    largest = len(costs.tokens_ps) - 1
    chunk = min(largest, max(1, round(need.input_tokens)))
    prefill_ps = float(costs.tokens_ps[chunk]) / chunk * need.input_tokens
    prefill_ps += costs.attention_ps * need.input_tokens**2 / 2.0
    context = need.input_tokens + need.output_tokens / 2.0
    batch, step_ps = 1, 0.0
    for _ in range(LITTLE_ITERATIONS):
        fixed_ps = costs.step_ps + float(costs.tokens_ps[batch])
        step_ps = fixed_ps + batch * (costs.sequence_ps + costs.kv_token_ps * context)
        batch = max(1, min(largest, round(rate_per_s * need.output_tokens * step_ps * 1e-12)))
    decode_ps = need.output_tokens * step_ps / batch
    return prefill_ps / (prefill_ps + decode_ps)
