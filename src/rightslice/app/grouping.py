"""The same workload with models on shared GPUs, where the packing expects that to be cheaper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rightslice.app.answer import Asked
from rightslice.app.decide import start_quantile
from rightslice.app.judge import at_quantile
from rightslice.app.rating import ceiling, fastest_s, tolerance
from rightslice.app.state import State
from rightslice.catalogue.accelerators import device
from rightslice.catalogue.hardware import ON_ONE_GPU
from rightslice.optimization.candidates import on_shared_gpu
from rightslice.optimization.grouping import (
    Lone,
    Together,
    chosen_groups,
    groups_of,
    shared_pools,
    stable_pools,
    worth_it,
)
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.optimization.propose import problem_of
from rightslice.optimization.sharing import beside_others, own_bytes, tenant_of
from rightslice.packing.problem import PoolSpec, SharingGroup
from rightslice.performance.sharing import Mode
from rightslice.spec.workload import Workload

BURST = 1.5
"""Sequences in flight that the cache has to hold, over their mean number."""


def may_share(workload: Workload, need: Need) -> bool:
    """Whether a GPU may be shared for it without being asked: no isolation is wanted, nothing is pinned.

    `preferred` isolation gives way in development only.
    """
    wanted = need.isolation == "none" or (need.isolation == "preferred" and workload.environment == "development")
    return wanted and need.model.partition is None and need.model.memory is None


def shared_workload(asked: Asked) -> Workload | None:
    """The workload with groups of models pinned to shared GPUs; None where no group is expected to save anything."""
    question, workload = asked.question, asked.workload
    able = [need for need in question.needs if may_share(workload, need)]
    if len(able) < 2:
        return None
    state = State.optimistic(question, at_quantile(start_quantile(asked)))
    pools: list[PoolSpec] = []
    groups: list[SharingGroup] = []
    for (accelerator, mode), places in sorted(shared_pools(question.market).items()):
        lone = [one for need in able if (one := lone_on(asked, state, need, accelerator, mode))]
        stable = stable_pools(places, [one.need for one in lone], question.market)
        groups += groups_of(lone, accelerator, mode, stable)
        pools += places
    groups = list(worth_it(groups))
    if not groups:
        return None
    options = tuple(question.options.values())
    problem, _ = problem_of(question.needs, options, state.rates, state.demands, question.market)
    together = chosen_groups(problem, pools, groups, question.market)
    return pinned(workload, together) if together else None


def lone_on(asked: Asked, state: State, need: Need, accelerator: str, mode: str) -> Lone | None:
    """The model alone on a GPU that is shared so; None where it does not fit or needs more than the whole of it.

    It keeps the GPU busy while it has a request: 1 - exp(-rate x time of one) of the time, as in an M/G/infinity queue;
    one request decodes for as long as many do.
    """
    if not device(accelerator).flops:
        return None
    made = on_shared_gpu(need, device(accelerator, mode), None, asked.engines)
    if not isinstance(made, Option):
        return None
    made = replace(made, costs=beside_others(made.costs))
    demand = state.demands[need.name]
    alone = ceiling(need, made, state.slowdown(made), None).requests_per_s if need.has_load else math.inf
    if need.has_load and demand > alone:
        return None
    tenant, slower = tenant_of(need, made), state.slowdown(made)
    in_flight = demand * fastest_s(need, made, slower) if need.has_load else 0.0
    budgets = [state.budgets_s[share.pipeline.name, need.name] for share in need.shares]
    return Lone(
        need=need,
        option=made,
        tenant=tenant,
        memory_bytes=_bytes(need, made, demand),
        requests_per_s=alone,
        duty=demand / alone if need.has_load else 0.0,
        busy=tenant.busy * -math.expm1(-in_flight),
        tolerance=tolerance(need, made, min(budgets, default=None)) / slower,
    )


def _bytes(need: Need, option: Option, demand_per_s: float) -> float:
    """Its own and, for an engine, a cache for the sequences in flight and for one of the greatest length."""
    own = float(own_bytes(option))
    if option.settings is None or option.memory.kv_tokens == 0:
        return float(need.model.profile.memory) if need.model.profile else own
    in_flight = demand_per_s * fastest_s(need, option, 1.0) * BURST
    tokens = max(need.max_model_len, math.ceil(in_flight * need.typical_tokens))
    return own + tokens * option.memory.kv_cache_bytes / option.memory.kv_tokens


def pinned(workload: Workload, together: Sequence[Together]) -> Workload:
    """The workload with these groups under labels of their own."""
    taken = {model.gpu for model in workload.models}
    labels = (label for number in range(1, 10_000) if (label := f"shared-{number}") not in taken)
    where: dict[str, tuple[Mode, str]] = {}
    for group, label in zip(together, labels, strict=False):
        where |= dict.fromkeys(group.models, (group.mode, label))
    models = tuple(
        model.model_copy(update={"partition": where[model.name][0], "gpu": where[model.name][1]})
        if model.name in where
        else model
        for model in workload.models
    )
    return workload.model_copy(update={"models": models})


def sharing_text(workload: Workload) -> str:
    """`asr + tts by time-slicing`; empty where no model shares a GPU."""
    groups: dict[tuple[str, str], list[str]] = {}
    for model in workload.models:
        if model.partition in ON_ONE_GPU:
            groups.setdefault((model.partition, model.gpu or ""), []).append(model.name)
    return ", ".join(f"{' + '.join(names)} by {mode}" for (mode, _), names in groups.items())
