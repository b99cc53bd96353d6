"""One replica of a model that an engine serves: its settings, whether they are legal, what memory they leave."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import cast

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.checkpoints import quantised_checkpoints
from rightslice.catalogue.engine_arguments import engine_arguments
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import DTYPE_BITS, Dtype, EngineSettings, KvDtype
from rightslice.core.plan import Memory
from rightslice.memory.computation import cache_dtype
from rightslice.memory.footprint import footprint, legal_parallelism
from rightslice.memory.overheads import UNSURE_BYTES, rank_step_tokens
from rightslice.memory.precision import kv_support, weight_support
from rightslice.memory.room import most_decoding
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option
from rightslice.optimization.sites import Shape
from rightslice.performance.measured import replica_costs


def weight_dtypes(need: Need, architecture: Architecture) -> tuple[Dtype, ...]:
    """What the workload allows; untold as published."""
    if need.model.precision:
        return need.model.precision
    published = architecture.published_dtype
    return (published,) if published in DTYPE_BITS else ("bf16",)  # type: ignore[return-value]


def kv_dtypes(need: Need, architecture: Architecture, engine_name: str) -> tuple[KvDtype, ...]:
    """What the workload asks for, each as the engine would keep it; untold what the engine chooses."""
    found = (cache_dtype(architecture, engine_name, "", "bf16", asked) for asked in need.model.kv_precision or ("",))
    return tuple(dict.fromkeys(cast("KvDtype", dtype) for dtype in found))


def settings_of(
    need: Need,
    engine_name: str,
    seen: Device,
    shape: Shape,
    weight_dtype: Dtype,
    kv_dtype: KvDtype,
) -> EngineSettings:
    """The engine's defaults on this device with what the workload and the shape say."""
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
