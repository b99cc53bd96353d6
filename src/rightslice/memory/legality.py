"""Parallel sizes that an engine refuses before it loads anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import WHOLE, Device
from rightslice.core.engine import EngineSettings

_POWERS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_LEAST_LISTED: Final = 16


def legal_parallelism(architecture: Architecture, settings: EngineSettings) -> str:
    """Empty when the parallel sizes are legal, else the reason with the sizes that are.

    Query heads must divide by the tensor parallel size t; KV heads must divide it or be divided by it; every sharded
    width must divide by t, and what is left by the quantisation group (inputs) or the FP8 block (inputs and outputs:
    validate_fp8_block_shape of vLLM 0.32); with expert parallelism the experts must divide by the ranks. A pipeline
    needs a layer per stage. Whole GPUs: see `slice_parallelism`.
    """
    if problem := stages_problem(architecture, settings):
        return problem
    problem = next(_problems(architecture, settings, settings.tensor_parallel_size), "")
    if not problem:
        return ""
    legal = [str(size) for size in legal_sizes(architecture, settings)]
    return f"{problem}; legal tensor parallel sizes: {', '.join(legal) or 'none'}"


def stages_problem(architecture: Architecture, settings: EngineSettings) -> str:
    """Empty when every pipeline stage has a layer, else the reason."""
    stages, layers = settings.pipeline_parallel_size, max(1, architecture.layers)
    return f"{stages} pipeline stages for {layers} layers" if stages > layers else ""


def legal_sizes(architecture: Architecture, settings: EngineSettings) -> list[int]:
    """Legal tensor parallel sizes: of the powers of two and the divisors of the query heads, up to the heads."""
    heads = max((group.query_heads for group in architecture.attention), default=0)
    sizes = {size for size in _POWERS if size <= max(_LEAST_LISTED, heads)}
    sizes |= {size for size in range(1, heads + 1) if heads % size == 0}
    return [size for size in sorted(sizes) if not any(_problems(architecture, settings, size))]


def gains_from_replicas(architecture: Architecture) -> bool:
    """Whether data-parallel attention with spread experts saves cache: a latent repeats on every tensor-parallel rank,
    so that each rank can as well serve its own sequences."""
    return bool(architecture.moe) and any(group.kind == "mla" for group in architecture.attention)


def slice_parallelism(device: Device, settings: EngineSettings) -> str:
    """Empty when the device can take part: MIG slices have no path to each other, so one rank only."""
    ranks = settings.gpus_per_replica
    if device.partition != WHOLE and ranks > 1:
        return f"{ranks} ranks over MIG slices: slices have no path to each other (vllm#7211, NVIDIA/nccl#1716)"
    return ""


def _problems(architecture: Architecture, settings: EngineSettings, tensor: int) -> Iterator[str]:
    block = _block(architecture, settings)
    if block and _in_integers(architecture):
        yield from _whole_inputs(architecture, block)
    if tensor == 1:
        return
    for group in architecture.attention:
        if group.query_heads % tensor and group.kind not in ("linear", "mamba"):
            yield f"{group.query_heads} attention heads do not divide by tensor parallel size {tensor}"
        heads = group.kv_heads
        if heads and group.kind not in ("mla", "mamba", "linear") and heads % tensor and tensor % heads:
            yield f"{heads} KV heads neither divide tensor parallel size {tensor} nor are divided by it"
        if group.kind in ("linear", "mamba") and heads > 1 and heads % tensor:
            yield f"{heads} recurrent heads do not divide by tensor parallel size {tensor}"
    yield from _width_problems(architecture, settings, tensor)


def _block(architecture: Architecture, settings: EngineSettings) -> int:
    """The quantisation group or block of the weights that are loaded, 0 without one."""
    return architecture.quantisation_block if settings.weight_dtype == architecture.published_dtype else 0


def _in_integers(architecture: Architecture) -> bool:
    return architecture.published_dtype in ("int4", "int8")


def _whole_inputs(architecture: Architecture, block: int) -> Iterator[str]:
    """Inputs that are no whole groups on one device either: no kernel takes them (vLLM 0.32: choose_mp_linear_kernel).

    One group may be as wide as all inputs, or wider.
    """
    widths = ((architecture.hidden_size, "hidden size"), *_dense_widths(architecture))
    for width, name in widths:
        if block < width and width % block:
            yield f"{name} {width} is not a multiple of the quantisation group {block}"


def _dense_widths(architecture: Architecture) -> tuple[tuple[int, str], ...]:
    return tuple((width, "intermediate size") for width in architecture.dense_intermediate_sizes)


def _width_problems(architecture: Architecture, settings: EngineSettings, tensor: int) -> Iterator[str]:
    block = _block(architecture, settings)
    widths = [(width, name, block) for width, name in _dense_widths(architecture)]
    for group in architecture.moe:
        if not settings.expert_parallel:
            widths.append((group.intermediate_size, "expert width", _expert_block(architecture, block)))
        elif group.experts % (ranks := tensor * settings.data_parallel_size):
            yield f"{group.experts} experts do not divide by {ranks} ranks"
    for width, name, shared in widths:
        if width % tensor:
            yield f"{name} {width} does not divide by tensor parallel size {tensor}"
        elif shared and width // tensor % shared:
            yield f"{name} {width} / {tensor} = {width // tensor} is not a multiple of the quantisation block {shared}"
    if block:
        yield from _cut_heads(architecture, tensor, block)


def _expert_block(architecture: Architecture, block: int) -> int:
    """Groups of experts in GPTQ and AWQ are halved while loading until they divide the shard, down to 32 (vLLM 0.32:
    moe_wna16.py)."""
    halved = any(word in architecture.quantisation for word in ("gptq", "awq"))
    while halved and block > _LEAST_GROUP and block % 2 == 0:
        block //= 2
    return block


_LEAST_GROUP: Final = 32


def _cut_heads(architecture: Architecture, tensor: int, block: int) -> Iterator[str]:
    """Attention projections whose shard cuts a group of inputs or, in FP8, a block of outputs."""
    for group in architecture.attention:
        if group.kind not in ("full", "sliding", "chunked"):
            continue
        found = [("inputs of the output projection", group.query_heads * group.v_head_dim // tensor)]
        if architecture.published_dtype == "fp8":
            keys = max(1, group.kv_heads // tensor) * group.qk_head_dim
            found += [("queries", group.query_heads * group.qk_head_dim // tensor), ("keys", keys)]
        for name, width in found:
            if width % block:
                yield f"{width} {name} per rank are not a multiple of the quantisation block {block}"
