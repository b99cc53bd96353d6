"""`--fault`: what goes wrong in a simulated cluster, as a person asks for it.

`KIND@RATE` (spot@0.1/h) is a rate of each machine, GPU or pod; `KIND@TIME` (gpu@10m) is one event at that time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rightslice.app.horizons import check_instant
from rightslice.app.scenarios import Load
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.options import quantity_of
from rightslice.core.plan import Plan
from rightslice.core.quantities import parse_rate, parse_seconds
from rightslice.core.rng import generator
from rightslice.simulation.cluster_spec import Pool
from rightslice.simulation.control.faults import (
    Fault,
    machine_reclaims_per_hour,
    merged,
    published_rates,
    spot_reclaims,
    zone_loss,
)

ZONES: Final = ("a", "b")
"""Nodes are spread over two zones in turn; a plan does not name them."""
ZONE_AWAY_S: Final = 3600.0
MOST_PER_HOUR: Final = 3600.0
"""Faults of one kind that are played; more would take the place of the traffic."""
_FAULT: Final = re.compile(r"(spot|nodes|gpu|pods|zone|repartition)(?:@([^@]+))?")
_KNOWN: Final = "spot, spot@0.1/h, nodes, gpu, gpu@10m, pods@1/d, pods@10m, zone@10m, repartition@10m"

Pools = tuple[Pool, ...]


def faulty(plan: Plan, pools: Pools, asked: Sequence[str], load: Load) -> tuple[Pools, tuple[Fault, ...]]:
    """The pools with their rates of failure, and the faults at known times. Raises BadInputError RS0501, RS0502."""
    schedules: list[Sequence[Fault]] = []
    for text in asked:
        match = _FAULT.fullmatch(text.strip())
        if match is None:
            raise BadInputError(Diagnostic("RS0501", f'--fault "{text[:40]}" is not known', hint=_KNOWN))
        kind, at = match[1], match[2]
        if kind == "zone":
            schedules.append((zone_loss(ZONES[0], _time_s(text, at or "10m", load), ZONE_AWAY_S),))
        elif kind == "repartition":
            if not any(pool.repartition_s for pool in pools):
                raise BadInputError(Diagnostic("RS0502", "--fault repartition: no GPU of the plan is cut into slices"))
            schedules.append((Fault(_time_s(text, at or "10m", load), "repartition"),))
        elif kind == "spot":
            schedules += [_reclaims(plan, pool, at, load) for pool in pools if pool.capacity == "spot"]
            if not any(pool.capacity == "spot" for pool in pools):
                raise BadInputError(Diagnostic("RS0502", "--fault spot: the plan has no spot machines"))
        elif at is not None and "/" not in at and kind != "nodes":
            schedules.append((Fault(_time_s(text, at, load), "gpu-failure" if kind == "gpu" else "engine-crash"),))
        else:
            pools = tuple(_failing(pool, kind, at) for pool in pools)
    return pools, merged(*schedules)


def _failing(pool: Pool, kind: str, rate: str | None) -> Pool:
    """With failures of its nodes, GPUs or engines. Only the hardware's are published; `nodes` brings the GPUs' too."""
    now, known = pool.failures, published_rates()
    if kind == "nodes":
        if rate is not None:
            raise BadInputError(Diagnostic("RS0501", "--fault nodes takes no rate: the published one is used"))
        return replace(pool, failures=replace(now, gpu_per_hour=known.gpu_per_hour, node_per_hour=known.node_per_hour))
    if kind == "gpu":
        per_hour = known.gpu_per_hour if rate is None else _per_hour(f"gpu@{rate}", rate)
        return replace(pool, failures=replace(now, gpu_per_hour=per_hour))
    if rate is None:
        message = "nobody published how often engines crash"
        raise BadInputError(Diagnostic("RS0502", f"--fault pods: {message}", hint="--fault pods@1/d states a rate"))
    return replace(pool, failures=replace(now, engine_per_hour=_per_hour(f"pods@{rate}", rate)))


def _time_s(text: str, at: str, load: Load) -> float:
    at_s = quantity_of("--fault", parse_seconds, at)
    check_instant(f"--fault {text}", at_s, load.horizon_s, load.users)
    return at_s


def _per_hour(text: str, rate: str) -> float:
    per_hour = quantity_of("--fault", parse_rate, rate) * 3600.0
    if per_hour <= 0.0:
        raise BadInputError(Diagnostic("RS0501", f"--fault {text}: the rate is above zero"))
    if per_hour > MOST_PER_HOUR:
        raise BadInputError(Diagnostic("RS0501", f"--fault {text}: at most one a second is played", hint="1/s"))
    return per_hour


def _reclaims(plan: Plan, pool: Pool, rate: str | None, load: Load) -> Sequence[Fault]:
    """Waves of reclaims at the rate given, or that of the catalogue's interruption band."""
    planned = plan.pool(pool.nodes.name)
    per_hour = machine_reclaims_per_hour(planned.provider, planned.region, planned.machine_type)
    if rate is not None:
        per_hour = _per_hour(f"spot@{rate}", rate)
    if per_hour is None:
        message = f"no interruption rate of {planned.machine_type} in {planned.region} is published"
        raise BadInputError(Diagnostic("RS0502", message, hint="--fault spot@0.05/h states one"))
    rng = generator(load.seed, "reclaims", pool.nodes.name)
    return spot_reclaims(pool.nodes.name, ZONES, per_hour, pool.notice, load.horizon_s, rng)
