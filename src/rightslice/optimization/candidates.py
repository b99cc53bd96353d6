"""Enumerate the options of every model over what can be bought, and keep the reason of every refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import SHARED, WHOLE, Device
from rightslice.catalogue.mig import takes_all_memory
from rightslice.core.engine import EngineSettings
from rightslice.core.plan import Memory, Rejection
from rightslice.core.quantities import format_bytes
from rightslice.memory.footprint import custom_footprint
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Candidates, Option
from rightslice.optimization.served import kv_dtypes, option_key, option_of, settings_of, weight_dtypes
from rightslice.optimization.sharing import Group, Misfit, Reason, group_key, groups, options_of_group
from rightslice.optimization.sites import Shape, Site, across_machines, inside_a_machine
from rightslice.performance.stages import stage_costs
from rightslice.spec.workload import CustomMemory, Profile

GIB = 2**30
CONTEXT_OVERHEAD_BYTES = 644_245_094
"""CUDA context and framework of one process beside a measured stage's own memory: 0.6 GiB."""


DATA_PARALLEL_ENGINES = ("vllm",)
"""Engines whose `data_parallel_size` replicates attention and spreads experts; SGLang counts these ranks as part of its
tensor-parallel size and is not offered so."""


def candidates(needs: Iterable[Need], found: Sequence[Site], engines: Sequence[str]) -> Candidates:
    """Every legal, fitting option of every need, with rejections aggregated per accelerator."""
    options: list[Option] = []
    rejections: list[Rejection] = []
    wanted = tuple(needs)
    for need in wanted:
        for site in found if group_key(need.model) is None else ():
            good, bad = _of_site(need, site, engines)
            options += good
            if not good:
                rejections += bad
            elif need.model.partition and need.model.partition != WHOLE:
                rejections += [r for r in bad if r.code == "RS2001"]
    for group in groups(wanted):
        for site in found:
            together = _together(group, site, engines)
            options += together if isinstance(together, tuple) else ()
            rejections += () if isinstance(together, tuple) else [_refusal(together.need, site, *together.reason)]
    return Candidates(tuple(options), tuple(rejections))


def _together(group: Group, site: Site, engines: Sequence[str]) -> tuple[Option, ...] | Misfit:
    """One option for each model of a group that shares the site's GPUs."""
    strict = next((need for need in group.needs if need.model.isolation == "required"), None)
    if strict:
        reason = f"{group.mode} isolates neither memory nor faults, and isolation is required"
        return Misfit(strict, ("RS4002", reason, "isolation: preferred, or a MIG profile"))
    if group.mode not in site.sharing:
        reason = f"no platform here shares {site.accelerator} by {group.mode} with the GPU Operator"
        return Misfit(group.needs[0], ("RS4007", reason, "platform: gke+operator, eks or on-prem"))
    if not device(site.accelerator).flops:
        reason = f"the compute rate of {site.accelerator} is not published"
        return Misfit(group.needs[0], ("RS4011", reason, "another accelerator"))

    return options_of_group(
        group, site.accelerator, lambda need, seen, fraction: on_shared_gpu(need, seen, fraction, engines)
    )


def on_shared_gpu(need: Need, seen: Device, fraction: float | None, engines: Sequence[str]) -> Option | Reason:
    """One replica on a GPU that others use too; an engine with this memory fraction, None for its default."""
    if need.model.profile:
        return _stage_option(need, need.model.profile, seen)
    if need.architecture is None:
        reason = "only measured stages and served models share a GPU"
        return "RS4013", reason, "profile: {memory, streams, latency}, or remove partition"
    dtype, kv_dtype = weight_dtypes(need, need.architecture)[0], kv_dtypes(need, need.architecture, engines[0])[0]
    settings = settings_of(need, engines[0], seen, Shape(1), dtype, kv_dtype)
    if fraction is not None:
        settings = replace(settings, memory_fraction=min(fraction, settings.memory_fraction))
    return option_of(need, need.architecture, settings, seen, 0)


def _of_site(need: Need, site: Site, engines: Sequence[str]) -> tuple[list[Option], list[Rejection]]:
    if need.model.memory:
        return _custom(need, site, need.model.memory)
    if need.model.profile:
        return _staged(need, site, need.model.profile)
    if need.architecture:
        return _served(need, site, engines, need.architecture)
    raise ValueError(f"{need.name} has neither memory, profile nor architecture")


def _partitions(need: Need, site: Site) -> tuple[str, ...]:
    """The pinned one; else all but the slice that is a whole GPU with fewer SMs, which nothing speaks for."""
    pinned = need.model.partition
    if pinned:
        return tuple(p for p in site.partitions if p == pinned)
    return tuple(p for p in site.partitions if not takes_all_memory(site.accelerator, p))


def _unmade(need: Need, site: Site) -> tuple[str, str]:
    """Why the pinned partition is no option here, and what would be."""
    if need.model.partition in SHARED:
        return f"sharing a GPU by {need.model.partition} is not modelled", "partition: time-slicing, mps, a MIG profile"
    return f"partition {need.model.partition} cannot be made on {site.accelerator} here", "remove partition"


def _refusal(need: Need, site: Site, code: str, reason: str, relaxation: str = "") -> Rejection:
    return Rejection(f"{site.accelerator} for {need.name}", need.name, code, reason, relaxation)


def _custom(need: Need, site: Site, memory: CustomMemory) -> tuple[list[Option], list[Rejection]]:
    """Memory-only models: the fewest whole accelerators of one machine that hold them."""
    whole = device(site.accelerator)
    sizes = [n for n in site.machine_sizes if memory.shardable or n == 1] or list(site.machine_sizes[:1])
    counts = sorted({n for n in range(1, max(sizes) + 1) if n & (n - 1) == 0} if memory.shardable else {1})
    for gpus in counts:
        held = custom_footprint(memory, whole, gpus)
        if held.fits:
            key = option_key(need.name, whole, None, gpus)
            kept = Memory(
                device_bytes=held.device_bytes,
                weights_bytes=held.weights_bytes,
                activation_bytes=held.activation_bytes,
                overhead_bytes=held.overhead_bytes,
                kv_cache_bytes=held.kv_cache_bytes,
                kv_tokens=0,
                max_sequences=0,
            )
            return [Option(key, need.name, whole, gpus, "custom", "", None, kept, None)], []
    return [], [_custom_refusal(need, site, memory, whole)]


def _custom_refusal(need: Need, site: Site, memory: CustomMemory, whole: Device) -> Rejection:
    """Why not even the largest machine holds it, in the advertised sizes that people compare."""
    total = format_bytes(memory.total_bytes)
    each = round(whole.accelerator.advertised_memory_bytes / GIB)
    if not memory.shardable:
        reason = f"needs {total} on one accelerator of {each} GB"
        return _refusal(need, site, "RS2001", reason, "memory.shardable: true if it can be split")
    held = f"{site.largest} x {each} = {site.largest * each} GB"
    reason = f"needs {total}; the largest machine, {site.largest_machine}, has {held}"
    if site.largest * each * GIB >= memory.total_bytes:
        usable = format_bytes(site.largest * whole.memory_bytes, binary=True)
        reason += f" as advertised: {usable} are visible, 95 % of them may be filled"
    if site.fast_network:
        return _refusal(need, site, "RS2001", reason + "; a model that we cannot read is not split over machines")
    return _refusal(
        need, site, "RS2001", reason + ", and there is no fast link between machines to spread it over several"
    )


def _staged(need: Need, site: Site, profile: Profile) -> tuple[list[Option], list[Rejection]]:
    """Measured stages: one process on one whole accelerator or slice."""
    if not device(site.accelerator).flops:
        reason = f"the compute rate of {site.accelerator} is not published"
        return [], [_refusal(need, site, "RS4011", reason, "another accelerator")]
    good: list[Option] = []
    largest = 0
    for partition in _partitions(need, site):
        seen = device(site.accelerator, partition)
        largest = max(largest, seen.memory_bytes)
        if profile.memory + CONTEXT_OVERHEAD_BYTES <= seen.memory_bytes:
            good.append(_stage_option(need, profile, seen))
    if good:
        return good, []
    if largest == 0:
        return [], [_refusal(need, site, "RS4013", *_unmade(need, site))]
    reason = f"needs {format_bytes(profile.memory + CONTEXT_OVERHEAD_BYTES)}, it has {format_bytes(largest)}"
    return [], [_refusal(need, site, "RS2001", reason)]


def _stage_option(need: Need, profile: Profile, seen: Device) -> Option:
    kept = Memory(seen.memory_bytes, profile.memory, 0, CONTEXT_OVERHEAD_BYTES, 0, 0, max(profile.streams))
    costs = stage_costs(profile, seen) if need.has_load else None
    return Option(option_key(need.name, seen, None, 1), need.name, seen, 1, "custom", "", None, kept, costs)


def _served(
    need: Need, site: Site, engines: Sequence[str], architecture: Architecture
) -> tuple[list[Option], list[Rejection]]:
    """Models that an engine serves: every partition, precision and parallelism that is legal and fits."""
    good: list[Option] = []
    bad: list[Rejection] = []
    for parallelism in (inside_a_machine, across_machines):
        for settings, seen, shape in _configurations(need, site, engines, architecture, parallelism):
            option = option_of(need, architecture, settings, seen, shape.node_gpus)
            if isinstance(option, Option):
                good.append(option)
            else:
                code, reason, relaxation = option
                bad.append(_refusal(need, site, code, reason, relaxation))
        if good:
            return good, []
    if not bad:
        bad.append(_refusal(need, site, "RS4013", *_unmade(need, site)))
    return [], bad[-1:]


def _configurations(
    need: Need,
    site: Site,
    engines: Sequence[str],
    architecture: Architecture,
    parallelism: Callable[[Site, str, Architecture], list[Shape]],
) -> Iterator[tuple[EngineSettings, Device, Shape]]:
    """Smallest first, so that the last refusal is the one of the largest configuration."""
    for engine_name in engines:
        for partition in reversed(_partitions(need, site)):
            seen = device(site.accelerator, partition)
            for shape in parallelism(site, partition, architecture):
                if shape.data > 1 and engine_name not in DATA_PARALLEL_ENGINES:
                    continue
                for weight_dtype in weight_dtypes(need, architecture):
                    for kv_dtype in kv_dtypes(need, architecture, engine_name):
                        yield settings_of(need, engine_name, seen, shape, weight_dtype, kv_dtype), seen, shape
