"""Enumerate the options of every model over what can be bought, and keep the reason of every refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import cast

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.checkpoints import quantised_checkpoints
from rightslice.catalogue.engine_arguments import engine_arguments
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import ON_ONE_GPU, SHARED, WHOLE, Device
from rightslice.catalogue.mig import takes_all_memory
from rightslice.catalogue.platforms import platforms
from rightslice.core.engine import DTYPE_BITS, Dtype, EngineSettings, KvDtype
from rightslice.core.plan import Memory, Rejection
from rightslice.core.quantities import format_bytes
from rightslice.memory.computation import cache_dtype
from rightslice.memory.footprint import custom_footprint, footprint, legal_parallelism
from rightslice.memory.legality import gains_from_replicas
from rightslice.memory.overheads import UNSURE_BYTES, rank_step_tokens
from rightslice.memory.precision import kv_support, weight_support
from rightslice.memory.room import most_decoding
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Candidates, Option
from rightslice.optimization.sharing import Group, Misfit, Reason, group_key, groups, options_of_group
from rightslice.performance.measured import replica_costs
from rightslice.performance.stages import stage_costs
from rightslice.procurement.offers import Offer
from rightslice.spec.workload import CustomMemory, Profile

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8, 16)
MAX_PIPELINE_NODES = 4
GIB = 2**30
CONTEXT_OVERHEAD_BYTES = 644_245_094
"""CUDA context and framework of one process beside a measured stage's own memory: 0.6 GiB."""


DATA_PARALLEL_ENGINES = ("vllm",)
"""Engines whose `data_parallel_size` replicates attention and spreads experts; SGLang counts these ranks as part of its
tensor-parallel size and is not offered so."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Parallel sizes of one replica. With `data` > 1 experts are spread over `tensor` x `data` ranks. `node_gpus`: GPUs
    that must share a node (0: all)."""

    tensor: int
    pipeline: int = 1
    data: int = 1
    node_gpus: int = 0

    @property
    def gpus(self) -> int:
        """Accelerators of the replica."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True)
class Site:
    """One accelerator as it can be had: the largest machine, whether nodes reach each other fast, what MIG makes, how
    processes can share it."""

    accelerator: str
    machine_sizes: tuple[int, ...]
    fabrics: frozenset[str]
    fast_network: bool
    partitions: tuple[str, ...]
    largest_machine: str
    sharing: tuple[str, ...] = ()

    @property
    def largest(self) -> int:
        """Accelerators in the largest machine on offer."""
        return max(self.machine_sizes)


def sites(offers: Sequence[Offer], platform_of: Mapping[str, str]) -> tuple[Site, ...]:
    """Group offers by accelerator, in a fixed order. `platform_of` maps provider -> platform name."""
    grouped: dict[str, list[Offer]] = {}
    for offer in offers:
        grouped.setdefault(offer.machine.accelerator, []).append(offer)
    return tuple(_site(name, grouped[name], platform_of) for name in sorted(grouped))


def _site(name: str, offers: Sequence[Offer], platform_of: Mapping[str, str]) -> Site:
    machines = [offer.machine for offer in offers]
    makers = sorted({platform_of[m.provider] for m in machines})
    profiles = dict.fromkeys(profile for maker in makers for profile in platforms()[maker].partitions(name))
    largest = max(machines, key=lambda m: (m.accelerator_count, m.machine_type))
    return Site(
        accelerator=name,
        machine_sizes=tuple(sorted({int(m.accelerator_count) for m in machines})),
        fabrics=frozenset(m.fabric for m in machines),
        fast_network=any(m.gpudirect not in ("none", "") for m in machines),
        partitions=(WHOLE, *profiles),
        largest_machine=largest.machine_type,
        sharing=tuple(mode for mode in ON_ONE_GPU if any(platforms()[maker].shares(mode) for maker in makers)),
    )


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

    def build(need: Need, seen: Device, fraction: float | None) -> Option | Reason:
        if need.model.profile:
            return _stage_option(need, need.model.profile, seen)
        if need.architecture is None:
            reason = "only measured stages and served models share a GPU"
            return "RS4013", reason, "profile: {memory, streams, latency}, or remove partition"
        dtype = _weight_dtypes(need, need.architecture)[0]
        settings = _settings(
            need, engines[0], seen, Shape(1), dtype, _kv_dtypes(need, need.architecture, engines[0])[0]
        )
        if fraction is not None:
            settings = replace(settings, memory_fraction=min(fraction, settings.memory_fraction))
        return option_of(need, need.architecture, settings, seen, 0)

    return options_of_group(group, site.accelerator, build)


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
    for parallelism in (_inside_a_machine, _across_machines):
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
                for weight_dtype in _weight_dtypes(need, architecture):
                    for kv_dtype in _kv_dtypes(need, architecture, engine_name):
                        yield _settings(need, engine_name, seen, shape, weight_dtype, kv_dtype), seen, shape


def _inside_a_machine(site: Site, partition: str, architecture: Architecture) -> list[Shape]:
    """Shapes within one machine, smallest first; one process on a slice."""
    if partition != WHOLE:
        return [Shape(1)]
    plain = [Shape(tensor) for tensor in TENSOR_PARALLEL_SIZES if tensor <= site.largest]
    return sorted([*plain, *_replicated(architecture, site.largest, 1)], key=_by_gpus)


def _across_machines(site: Site, partition: str, architecture: Architecture) -> list[Shape]:
    """Only for what no machine holds: tensor parallel inside a machine and pipeline parallel across, or replicas of the
    attention with experts over all."""
    if partition != WHOLE or not site.fast_network:
        return []
    nodes = (2, MAX_PIPELINE_NODES)
    plain = [Shape(site.largest, pipeline=n, node_gpus=site.largest) for n in nodes]
    return sorted([*plain, *(s for n in nodes for s in _replicated(architecture, site.largest, n))], key=_by_gpus)


def _replicated(architecture: Architecture, machine: int, nodes: int) -> list[Shape]:
    """Attention replicas over all GPUs of up to one machine, or of several whole ones."""
    if not gains_from_replicas(architecture):
        return []
    if nodes > 1:
        return [Shape(t, data=machine * nodes // t, node_gpus=machine) for t in TENSOR_PARALLEL_SIZES if t <= machine]
    sizes = [size for size in TENSOR_PARALLEL_SIZES if size <= machine]
    return [Shape(t, data=n // t) for n in sizes for t in sizes if t < n]


def _by_gpus(shape: Shape) -> int:
    return shape.gpus


def _weight_dtypes(need: Need, architecture: Architecture) -> tuple[Dtype, ...]:
    if need.model.precision:
        return need.model.precision
    published = architecture.published_dtype
    return (published,) if published in DTYPE_BITS else ("bf16",)  # type: ignore[return-value]


def _kv_dtypes(need: Need, architecture: Architecture, engine_name: str) -> tuple[KvDtype, ...]:
    """What the workload asks for, each as the engine would keep it; untold what the engine chooses."""
    found = (cache_dtype(architecture, engine_name, "", "bf16", asked) for asked in need.model.kv_precision or ("",))
    return tuple(dict.fromkeys(cast("KvDtype", dtype) for dtype in found))


def _settings(
    need: Need,
    engine_name: str,
    seen: Device,
    shape: Shape,
    weight_dtype: Dtype,
    kv_dtype: KvDtype,
) -> EngineSettings:
    facts = engine(engine_name)
    defaults = facts.defaults(facts.latest_version, seen)
    lora = need.model.lora
    wanted = need.model.engine
    speculative = need.model.speculative
    return EngineSettings(
        engine=engine_name,
        version=facts.latest_version,
        tensor_parallel_size=shape.tensor,
        pipeline_parallel_size=shape.pipeline,
        data_parallel_size=shape.data,
        expert_parallel=shape.data > 1,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        max_model_len=need.max_model_len,
        max_num_seqs=defaults.max_num_seqs,
        max_num_batched_tokens=rank_step_tokens(defaults.max_num_batched_tokens, shape.data),
        memory_fraction=defaults.memory_fraction,
        block_size_tokens=defaults.block_size_tokens,
        prefix_caching=defaults.prefix_caching if wanted.prefix_caching is None else wanted.prefix_caching,
        scheduling_policy="priority" if len(need.priorities) > 1 else "fcfs",
        chunked_prefill=defaults.chunked_prefill,
        lora_slots=lora.adapters if lora else 0,
        lora_max_rank=(engine_arguments(engine_name).next_rank(lora.max_rank) or lora.max_rank) if lora else 0,
        speculative_method=speculative.method if speculative else "",
        speculative_model=(speculative.model or "") if speculative else "",
        speculative_tokens=speculative.tokens if speculative else 0,
        speculative_acceptance=(speculative.acceptance or 0.0) if speculative else 0.0,
    )


def option_of(
    need: Need, architecture: Architecture, settings: EngineSettings, seen: Device, node_gpus: int
) -> Option | tuple[str, str, str]:
    """One replica of `need` with these settings on these devices, or (rule, reason, relaxation)."""
    if not seen.flops:
        return "RS4011", f"the compute rate of {seen.accelerator.name} is not published", "another accelerator"
    if unsupported := _unsupported(need, architecture, settings, seen):
        return unsupported
    illegal = legal_parallelism(architecture, settings)
    if illegal:
        return "RS2006", illegal, "another accelerator or tensor parallel size"
    if most := most_decoding(architecture, seen, settings, UNSURE_BYTES):
        settings = replace(settings, max_num_seqs=min(settings.max_num_seqs, most))
    held = footprint(architecture, seen, settings, typical_tokens=need.typical_tokens)
    gpus = settings.gpus_per_replica
    if not held.fits:
        return "RS2001", f"{gpus} x {seen.name}: {held.reason}", "a smaller max_context or precision"
    kept = Memory(
        device_bytes=held.device_bytes,
        weights_bytes=held.weights_bytes,
        activation_bytes=held.activation_bytes,
        overhead_bytes=held.overhead_bytes,
        kv_cache_bytes=held.kv_cache_bytes,
        kv_tokens=held.kv_tokens,
        max_sequences=min(held.max_sequences, settings.max_num_seqs * settings.data_parallel_size),
    )
    typical, known = need.typical_tokens, need.calibrated
    costs = (
        replica_costs(architecture, seen, settings, typical_tokens=typical, calibrated=known) if need.has_load else None
    )
    lowered = DTYPE_BITS[settings.weight_dtype] < DTYPE_BITS.get(architecture.published_dtype, 16)
    return Option(
        key=option_key(need.name, seen, settings, gpus),
        model=need.name,
        device=seen,
        gpus=gpus,
        engine=settings.engine,
        engine_version=settings.version,
        settings=settings,
        memory=kept,
        costs=costs,
        precision_lowered=lowered,
        cache_overridden=settings.kv_dtype != cache_dtype(architecture, settings.engine, settings.version, "bf16"),
        node_gpus=node_gpus,
    )


def _unsupported(
    need: Need, architecture: Architecture, settings: EngineSettings, seen: Device
) -> tuple[str, str, str] | None:
    """Why these formats cannot run on this device or from this checkpoint."""
    asked = settings.engine, settings.version
    for support in (
        weight_support(seen, settings.weight_dtype, *asked),
        kv_support(seen, settings.kv_dtype, *asked),
    ):
        if support.level == "refused":
            return "RS2005", support.reason, "another precision"
    dtype = settings.weight_dtype
    if dtype in (architecture.published_dtype, "fp8", "bf16", "fp16"):
        return None
    reason = f"the checkpoint is {architecture.published_dtype}; {dtype} needs a checkpoint of its own"
    return "RS2005", reason, quantised_source(need.source, architecture, dtype)


def quantised_source(source: str, architecture: Architecture, dtype: str) -> str:
    """How to come by a checkpoint in `dtype`: the catalogue's, else the command that writes its recipe."""
    known = quantised_checkpoints(source, architecture, dtype)
    if known:
        return " or ".join(f"source: {found.model}" for found in known)
    return (
        f"a checkpoint of your own as source: rightslice size {quote(source)} --dtype {dtype} -o DIR writes its recipe"
    )


def option_key(model: str, seen: Device, settings: EngineSettings | None, gpus: int) -> str:
    """The name of one way to run a replica; options are simulated in its order."""
    if settings is None:
        return f"{model}/{seen.name}/x{gpus}"
    further = (("pp", settings.pipeline_parallel_size), ("dp", settings.data_parallel_size))
    parallel = f"tp{settings.tensor_parallel_size}" + "".join(f"{name}{size}" for name, size in further if size > 1)
    return f"{model}/{seen.name}/{settings.engine}/{settings.weight_dtype}-{settings.kv_dtype}/{parallel}"
