"""How long a simulation lasts where nobody says it: long enough for percentiles, and for batches to fill."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.quantities import format_seconds
from rightslice.optimization.needs import Need

TARGET_REQUESTS, FEWEST_REQUESTS = 6000, 1500
"""Requests of the slowest class in one verification, within the horizon's bounds: p95 from 300 samples beyond it, or
from 75 where answers are long and a run takes long."""
TARGET_OUTPUT_TOKENS = 1.5e6
MIN_HORIZON_S = 600.0
MAX_HORIZON_S = 6 * 3600.0
MAX_REQUESTS = 20_000
"""Requests of one group of models in one verification, unless the least horizon brings more."""
MOST_REQUESTS_AS_PLANNED = 1_000_000
"""Of a group under another load, which is played as long as the planned one up to here."""
LEAST_HORIZON_S = 60.0
ANSWERS_PER_HORIZON = 8.0
TYPICAL_TPOT_S = 0.04
"""A horizon spans several answers of usual speed, or batches would not fill within it."""


def verified_s(needs: Sequence[Need], planned: Sequence[Need], group: frozenset[str]) -> float:
    """How long a group of models is played to verify it.

    Under more load than `planned` as long as before, for engines take as long to fill.
    """
    mine = [need for need in needs if need.name in group]
    before = [need for need in planned if need.name in group]
    most_s = MOST_REQUESTS_AS_PLANNED / max(sum(_rates_per_s(mine)), 1e-9)
    return max(_horizon_s(mine), min(_horizon_s(before), most_s) if before else 0.0)


def _rates_per_s(needs: Sequence[Need]) -> list[float]:
    """Of each class of traffic."""
    rates = [sample.rate_per_s for need in needs for sample in need.samples if need.model.traffic]
    return rates + [need.planned_rate_per_s for need in needs if need.planned_rate_per_s > 0 and not need.samples]


def _horizon_s(needs: Sequence[Need]) -> float:
    rates = _rates_per_s(needs)
    if not rates:
        return MIN_HORIZON_S
    longest = max(need.output_tokens for need in needs)
    requests = min(max(TARGET_OUTPUT_TOKENS / max(longest, 1.0), FEWEST_REQUESTS), TARGET_REQUESTS)
    wanted = min(max(requests / min(rates), MIN_HORIZON_S), MAX_HORIZON_S)
    return float(math.ceil(min(wanted, max(MAX_REQUESTS / sum(rates), *(least_horizon_s(need) for need in needs)))))


def least_horizon_s(need: Need) -> float:
    """Long enough for batches to fill: several of the model's mean answers at a usual speed."""
    return max(LEAST_HORIZON_S, ANSWERS_PER_HORIZON * TYPICAL_TPOT_S * need.output_tokens)


def check_instant(option: str, at_s: float, lasts_s: float, users: str) -> None:
    """Raises BadInputError RS0501 for a time outside a run. `users`: the population that it plays, if any.

    The hint names the nearest time that is within; `option` as it was written, `--fault gpu@10m` or `--rollout 10m`.
    """
    if 0.0 <= at_s < lasts_s:
        return
    run = f"the run of {users}" if users else "the run"
    kind = option.partition(" ")[2].rpartition("@")[0]
    nearest = "0s" if at_s < 0.0 else f"{math.ceil(lasts_s) - 1}s"
    hint = f"{kind}@{nearest}" if kind else nearest
    if at_s >= 0.0:
        hint += ", --users for one population alone, or a longer --horizon" if users else ", or a longer --horizon"
    raise BadInputError(Diagnostic("RS0501", f"{option}: {run} lasts from 0 to {format_seconds(lasts_s)}", hint=hint))
