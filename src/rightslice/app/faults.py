"""`--fault`: what goes wrong in a simulated cluster, as a person asks for it.

`KIND@RATE` (spot@0.1/h) is a rate of each machine, GPU or pod; `KIND@TIME` (gpu@10m) is one event at that time.
`KIND:NAME@…` strikes one pool of the plan alone, or one zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rightslice.app.horizons import check_instant
from rightslice.app.scenarios import Load
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.options import quantity_of
from rightslice.core.plan import Plan
from rightslice.core.quantities import parse_rate, parse_seconds
from rightslice.core.rng import generator
from rightslice.simulation.cluster_spec import Pool
from rightslice.simulation.control.faults import (
    Fault,
    FaultKind,
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
KINDS: Final = ("spot", "nodes", "gpu", "pods", "mps", "zone", "repartition")
_FAULT: Final = re.compile(r"([a-z]+)(?::([^@:]+))?(?:@([^@]+))?")
_KNOWN: Final = (
    "spot, spot@0.1/h, nodes, gpu, gpu@10m, pods@1/d, pods@10m, mps@10m, zone@10m, zone:b@10m, repartition@10m"
)

Pools = tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One option as it is written: `name` of a pool or zone, `at` a time or a rate; empty where not stated."""

    text: str
    kind: str
    name: str
    at: str

    def struck(self, pool: Pool) -> bool:
        """Whether the pool is meant."""
        return self.name in ("", pool.nodes.name)


def faulty(plan: Plan, pools: Pools, asked: Sequence[str], load: Load) -> tuple[Pools, tuple[Fault, ...]]:
    """The pools with their rates of failure, and the faults at known times. Raises BadInputError RS0501, RS0502."""
    schedules: list[Sequence[Fault]] = []
    for one in [_parsed(text, pools) for text in asked]:
        if one.kind == "zone":
            schedules.append((zone_loss(one.name or ZONES[0], _time_s(one, load), ZONE_AWAY_S),))
        elif one.kind == "repartition":
            _check_cut(plan, pools, one)
            schedules.append((Fault(_time_s(one, load), "repartition", pool=one.name),))
        elif one.kind == "mps" and "/" not in one.at:
            at_s = _time_s(one, load)
            schedules.append(tuple(Fault(at_s, "engine-crash", pool=name) for name in _by_mps(plan, pools, one)))
        elif one.kind == "mps":
            names = _by_mps(plan, pools, one)
            pools = tuple(_failing(pool, one) if pool.nodes.name in names else pool for pool in pools)
        elif one.kind == "spot":
            schedules += [_reclaims(plan, pool, one, load) for pool in _spot(pools, one)]
        elif one.at and "/" not in one.at and one.kind != "nodes":
            kind: FaultKind = "gpu-failure" if one.kind == "gpu" else "engine-crash"
            schedules.append((Fault(_time_s(one, load), kind, pool=one.name),))
        else:
            pools = tuple(_failing(pool, one) if one.struck(pool) else pool for pool in pools)
    return pools, merged(*schedules)


def _parsed(text: str, pools: Pools) -> _Asked:
    """Raises BadInputError RS0501 for a kind, pool or zone that does not exist."""
    match = _FAULT.fullmatch(text.strip())
    if match is None or match[1] not in KINDS:
        hint = did_you_mean(match[1], KINDS) if match else ""
        raise BadInputError(Diagnostic("RS0501", f'--fault "{text[:40]}" is not known', hint=hint or _KNOWN))
    kind, name, at = match[1], match[2] or "", match[3] or ""
    what, known = ("zone", ZONES) if kind == "zone" else ("pool", tuple(pool.nodes.name for pool in pools))
    if name and name not in known:
        hint = did_you_mean(name, known) or f"{what}s: {', '.join(known) or 'none that faults reach'}"
        raise BadInputError(Diagnostic("RS0501", f'--fault {text[:40]}: there is no {what} "{name[:60]}"', hint=hint))
    return _Asked(text.strip(), kind, name, at)


def _check_cut(plan: Plan, pools: Pools, asked: _Asked) -> None:
    """Raises BadInputError RS0502 where no GPU is cut, or those that are stay apart."""
    if any(pool.repartition_s and asked.struck(pool) for pool in pools):
        return
    simulated = {pool.nodes.name for pool in pools}
    cut = [pool.name for pool in plan.pools if pool.sharing == "mig" and pool.name not in simulated]
    message = f"--fault {asked.text}: no GPU of the plan is cut into slices"
    if cut:
        message = f"--fault {asked.text}: {', '.join(cut)} stays apart, for its nodes are not cut alike"
    elif asked.name:
        message = f"--fault {asked.text}: no GPU of that pool is cut into slices"
    raise BadInputError(Diagnostic("RS0502", message))


def _spot(pools: Pools, asked: _Asked) -> list[Pool]:
    """The pools of spot machines that are meant. Raises BadInputError RS0502 where there is none."""
    every = [pool for pool in pools if pool.capacity == "spot"]
    found = [pool for pool in every if asked.struck(pool)]
    if not found:
        message = "the plan has no spot machines" if not every else f"{asked.name} has no spot machines"
        hint = "" if not every else f"spot:{every[0].nodes.name}"
        raise BadInputError(Diagnostic("RS0502", f"--fault spot: {message}", hint=hint))
    return found


def _by_mps(plan: Plan, pools: Pools, asked: _Asked) -> list[str]:
    """The pools that are meant and whose GPUs are shared by MPS. Raises BadInputError RS0502 where there is none."""
    names = [pool.nodes.name for pool in pools if asked.struck(pool) and plan.pool(pool.nodes.name).sharing == "mps"]
    if not names:
        message = f"--fault {asked.text}: no GPU of the plan is shared by MPS, or not by one replica of each model"
        raise BadInputError(Diagnostic("RS0502", message, hint="--fault pods@10m crashes engines one by one"))
    return names


def crashes_shared(asked: Sequence[str]) -> bool:
    """Whether engines that share GPUs crash, which then can move nowhere. Raises BadInputError RS0502 beside others."""
    kinds = {match[1] for text in asked if (match := _FAULT.fullmatch(text.strip()))}
    if "mps" in kinds and kinds != {"mps"}:
        message = "--fault mps goes with no other fault: replicas on shared GPUs stay where they are"
        raise BadInputError(Diagnostic("RS0502", message, hint="one run for each"))
    return "mps" in kinds


def _failing(pool: Pool, asked: _Asked) -> Pool:
    """With failures of its nodes, GPUs or engines. Only the hardware's are published; `nodes` brings the GPUs' too."""
    now, known = pool.failures, published_rates()
    if asked.kind == "nodes":
        if asked.at:
            message = "--fault nodes takes no rate or time: the published rate is used"
            raise BadInputError(Diagnostic("RS0501", message, hint="--fault nodes"))
        return replace(pool, failures=replace(now, gpu_per_hour=known.gpu_per_hour, node_per_hour=known.node_per_hour))
    if asked.kind == "gpu":
        per_hour = _per_hour(asked) if asked.at else known.gpu_per_hour
        return replace(pool, failures=replace(now, gpu_per_hour=per_hour))
    if not asked.at:
        message = "nobody published how often engines crash"
        raise BadInputError(Diagnostic("RS0502", f"--fault pods: {message}", hint="--fault pods@1/d states a rate"))
    return replace(pool, failures=replace(now, engine_per_hour=_per_hour(asked)))


def _time_s(asked: _Asked, load: Load) -> float:
    """When it happens; after ten minutes unless stated. Raises BadInputError RS0501 outside the run."""
    at_s = quantity_of(f"--fault {asked.text}", parse_seconds, asked.at or "10m")
    check_instant(f"--fault {asked.text}", at_s, load.horizon_s, load.users)
    return at_s


def _per_hour(asked: _Asked) -> float:
    per_hour = quantity_of(f"--fault {asked.text}", parse_rate, asked.at) * 3600.0
    if per_hour <= 0.0:
        hint = f"{asked.text.split('@')[0]}@1/d"
        raise BadInputError(Diagnostic("RS0501", f"--fault {asked.text}: the rate is above zero", hint=hint))
    if per_hour > MOST_PER_HOUR:
        hint = f"{asked.text.split('@')[0]}@1/s"
        raise BadInputError(Diagnostic("RS0501", f"--fault {asked.text}: at most one a second is played", hint=hint))
    return per_hour


def _reclaims(plan: Plan, pool: Pool, asked: _Asked, load: Load) -> Sequence[Fault]:
    """Waves of reclaims at the rate given, or that of the catalogue's interruption band."""
    planned = plan.pool(pool.nodes.name)
    per_hour = machine_reclaims_per_hour(planned.provider, planned.region, planned.machine_type)
    if asked.at:
        per_hour = _per_hour(asked)
    if per_hour is None:
        message = f"no interruption rate of {planned.machine_type} in {planned.region} is published"
        raise BadInputError(Diagnostic("RS0502", message, hint="--fault spot@0.05/h states one"))
    rng = generator(load.seed, "reclaims", pool.nodes.name)
    return spot_reclaims(pool.nodes.name, ZONES, per_hour, pool.notice, load.horizon_s, rng)
