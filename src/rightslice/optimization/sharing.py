"""Models that the workload puts on one GPU by time-slicing or MPS: who is with whom, and how memory is divided.

Models with the same shared `partition` and the same `gpu` label (or none) are one group. A GPU of the group holds one
replica of each; a model that is alone in its group shares GPUs with itself, two replicas on each. Nobody's memory is
limited by the hardware, so every engine gets a memory fraction of its own, and together they fill 95 % of the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.hardware import ON_ONE_GPU, Device
from rightslice.core.estimate import least_trusted
from rightslice.core.quantities import format_bytes
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option, Share
from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.performance.sharing import MOST_TENANTS, Mode, Tenant, of_engine, of_stage, relative_error
from rightslice.performance.stages import demand
from rightslice.spec.workload import Model

FILLED: Final = 0.95
"""Of a shared GPU's memory: what engines take beyond their budget is not known, and no one of them sees the others."""
WITH_ITSELF: Final = 2
"""Replicas on one GPU of a model that shares with no other; the device plugin knows no fewer."""

Reason = tuple[str, str, str]
"""Rule, reason, relaxation."""
Build = Callable[[Need, Device, float | None], Option | Reason]
"""One replica on a device, an engine with this memory fraction; None: the engine's own default."""


@dataclass(frozen=True, slots=True)
class Group:
    """Models on one GPU, in document order."""

    mode: Mode
    label: str
    needs: tuple[Need, ...]

    @property
    def each(self) -> int:
        """Replicas of one model on one GPU."""
        return WITH_ITSELF if len(self.needs) == 1 else 1

    @property
    def slots(self) -> int:
        """Replicas on one GPU."""
        return self.each * len(self.needs)


def group_key(model: Model) -> tuple[str, str] | None:
    """(partition, label) of the group of a model; None where it shares no GPU."""
    return (model.partition, model.gpu or "") if model.partition in ON_ONE_GPU else None


def groups(needs: Iterable[Need]) -> tuple[Group, ...]:
    """Every group of the workload."""
    found: dict[tuple[str, str], list[Need]] = {}
    for need in needs:
        key = group_key(need.model)
        if key is not None:
            found.setdefault(key, []).append(need)
    return tuple(Group(cast("Mode", mode), label, tuple(members)) for (mode, label), members in found.items())


@dataclass(frozen=True, slots=True)
class Misfit:
    """Who does not fit on the GPU of a group, and why."""

    need: Need
    reason: Reason


def options_of_group(group: Group, accelerator: str, build: Build) -> tuple[Option, ...] | Misfit:
    """One option for each model of the group."""
    if group.slots > MOST_TENANTS:
        reason = f"{group.slots} replicas on one GPU; at most {MOST_TENANTS} are modelled"
        return Misfit(group.needs[0], ("RS4013", reason, "gpu: LABEL divides them"))
    seen = device(accelerator, group.mode)
    fixed = {need.name: build(need, seen, None) for need in group.needs}
    room = math.floor(FILLED * seen.memory_bytes)
    fixed_bytes = {name: own_bytes(option) for name, option in fixed.items() if isinstance(option, Option)}
    left = room - group.each * sum(fixed_bytes.values())
    engines = [need for need in group.needs if need.architecture]
    least = {need.name: _one_sequence_bytes(need, fixed[need.name]) for need in engines}
    more = (left - group.each * sum(least.values())) // max(1, group.each * len(engines))
    made: list[Option] = []
    for need in group.needs:
        option = fixed[need.name]
        if need.architecture and isinstance(option, Option):
            budget = fixed_bytes[need.name] + least[need.name] + more
            option = build(need, seen, _fraction(min(budget, _most(group, seen)), seen))
        if not isinstance(option, Option):
            return Misfit(need, option)
        if option.memory.used_bytes > _most(group, seen):
            has = format_bytes(_most(group, seen), binary=True)
            reason = f"needs {format_bytes(option.memory.used_bytes, binary=True)}, MPS gives each client {has}"
            return Misfit(need, ("RS2001", reason, "partition: time-slicing or a MIG profile"))
        made.append(option)
    used = group.each * sum(option.memory.used_bytes for option in made)
    if left < 0 or used > room:
        names = ", ".join(need.name for need in group.needs)
        needed, has = format_bytes(max(used, room - left), binary=True), format_bytes(room, binary=True)
        reason = f"{names} together need {needed}, of one GPU {has} may be filled"
        return Misfit(group.needs[0], ("RS2001", reason, "gpu: LABEL divides them, or a larger accelerator"))
    return joined(list(zip(group.needs, made, strict=True)))


def _most(group: Group, seen: Device) -> int:
    """What one replica may take: under MPS the device plugin limits each client to its part."""
    return seen.memory_bytes // group.slots if group.mode == "mps" else math.floor(FILLED * seen.memory_bytes)


def own_bytes(option: Option) -> int:
    """What it needs whatever its cache: a stage all it has, an engine its weights and what comes with them."""
    return option.memory.used_bytes - (option.memory.kv_cache_bytes if option.settings else 0)


def _one_sequence_bytes(need: Need, option: Option | Reason) -> int:
    """Cache of one sequence of the greatest length, which an engine must have before the rest is divided."""
    if not isinstance(option, Option) or option.memory.kv_tokens == 0:
        return 0
    return math.ceil(need.max_model_len * option.memory.kv_cache_bytes / option.memory.kv_tokens)


def _fraction(budget_bytes: int, seen: Device) -> float:
    """Memory fraction in hundredths, as an engine is told it; never above what it takes when alone."""
    return max(0, math.floor(100 * budget_bytes / seen.memory_bytes)) / 100


def joined(members: Sequence[tuple[Need, Option]]) -> tuple[Option, ...]:
    """The options with what they share their GPUs with; those on GPUs or slices of their own unchanged."""
    together: dict[tuple[str, str, str], list[Option]] = {}
    for need, option in members:
        if option.partition in ON_ONE_GPU:
            together.setdefault((option.partition, need.model.gpu or "", option.accelerator), []).append(option)
    shares: dict[str, Share] = {}
    tenants = {option.key: tenant_of(need, option) for need, option in members if option.partition in ON_ONE_GPU}
    for (mode, label, _), options in together.items():
        each = WITH_ITSELF if len(options) == 1 else 1
        largest = max(option.memory.used_bytes for option in options)
        room = FILLED * options[0].device.memory_bytes
        for option in options:
            slots = [other.key for other in options for _ in range(each)]
            slots.remove(option.key)
            shares[option.key] = Share(
                mode=cast("Mode", mode),
                label=label,
                tenant=tenants[option.key],
                neighbours=tuple(tenants[key] for key in slots),
                each=each,
                anywhere=largest * (len(slots) + 1) <= room,
            )
    return tuple(
        replace(option, share=share, costs=beside_others(option.costs)) if (share := shares.get(option.key)) else option
        for _, option in members
    )


def beside_others(costs: StageCosts | StepCosts | None) -> StageCosts | StepCosts | None:
    """The band is wider by the largest error of the laws of sharing, which interpolate between published cases."""
    if costs is None:
        return None
    error = (1.0 + costs.relative_error) * (1.0 + relative_error()) - 1.0
    return replace(costs, relative_error=error, provenance=least_trusted(costs.provenance, "interpolated"))


def tenant_of(need: Need, option: Option) -> Tenant:
    """The lone profile that the law of sharing reads. One without a load is never busy."""
    if option.costs is None:
        return Tenant(0.0, 0.0)
    if isinstance(option.costs, StepCosts):
        sequences = max(1, min(option.memory.max_sequences, option.costs.max_tokens))
        context = round(sequences * (need.input_tokens + need.output_tokens / 2.0))
        return of_engine(option.costs, sequences, max(1, context))
    if need.model.profile is None:
        return Tenant(1.0, 1.0)
    return of_stage(demand(need.model.profile, option.device))
