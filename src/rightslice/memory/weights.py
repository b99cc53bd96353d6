"""Weight bytes: of the whole model in any precision, and of one rank under tensor, pipeline and expert parallelism."""

from __future__ import annotations

import math
from typing import Final

from rightslice.catalogue.architecture import Architecture, WeightGroup
from rightslice.core.engine import EngineSettings
from rightslice.memory.speculation import drafter_of

BASE_BYTES: Final[dict[str, float]] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
_CONVERTED_BYTES: Final[dict[str, float]] = {
    "fp8": 1.0 + 4.0 / (128 * 128),
    "int8": 1.0 + 2.0 / 4096,
    "int4": 0.5 + 2.5 / 128,
    "fp4": 0.5 + 1.0 / 16,
    "nvfp4": 0.5 + 1.0 / 16,
    "mxfp4": 0.5 + 1.0 / 32,
}
"""Bytes per converted weight, scales included: FP8 in blocks of 128 x 128, INT8 per channel, INT4 in groups of 128 with
a packed zero, NVFP4 in groups of 16, MXFP4 in groups of 32."""
_ADAPTER_BYTES: Final = 2
_KEPT: Final = ("embedding", "head", "outside", "tower")
"""Parts that quantisers leave at 16 bit."""


def stored_bytes(architecture: Architecture, group: WeightGroup, dtype: str) -> float:
    """Bytes of one group when the weights are held in `dtype`.

    As published: the checkpoint's own bytes. 16 or 32 bit: every parameter at that width. Quantised: the linear
    weights of the layers in `dtype` with scales, the rest at 16 bit.
    """
    if not dtype or dtype == architecture.published_dtype:
        return float(group.published_bytes)
    if dtype in BASE_BYTES:
        return group.parameters * BASE_BYTES[dtype]
    converted = 0 if group.part in _KEPT else group.linear_parameters
    return converted * _CONVERTED_BYTES[dtype] + (group.parameters - converted) * BASE_BYTES["bf16"]


def weights_bytes(architecture: Architecture, dtype: str = "") -> int:
    """Bytes of the whole model in `dtype` (default: as published)."""
    return round(sum(stored_bytes(architecture, group, dtype) for group in architecture.weights))


def rank_weights_bytes(architecture: Architecture, settings: EngineSettings) -> int:
    """Weight bytes of the fullest rank.

    Tensor parallelism of t divides matrices and the vocabulary by t; KV projections by min(t, KV heads), since heads
    are repeated beyond that; norms, routers and latent down-projections stay whole. Experts are spread over
    t x data parallel ranks, whole ones with expert parallelism and slices of each without. Shared experts are whole
    where both sizes exceed 1 and experts are spread, for each rank then takes its part of the tokens (vLLM 0.32:
    flatten_tp_across_dp_and_pcp, use_sequence_parallel_moe). Pipeline parallelism of p leaves ceil(layers / p) layers
    and the larger of the two ends (embedding and towers, or head) on one rank. What drafts tokens comes on top: it is
    not split into stages. What is offloaded to the host's memory is not on the device.
    """
    whole = max(0, _rank_bytes(architecture, settings) - settings.weights_offload_bytes)
    drafter = drafter_of(architecture, settings)
    return whole + (_rank_bytes(drafter.architecture, drafter.settings) if drafter else 0)


def _rank_bytes(architecture: Architecture, settings: EngineSettings) -> int:
    tensor, stages = settings.tensor_parallel_size, settings.pipeline_parallel_size
    first = last = repeated = layers = 0.0
    for group in architecture.weights:
        part = stored_bytes(architecture, group, settings.weight_dtype) * _share(group, settings, tensor)
        if group.part == "layers":
            layers += part
        elif group.part == "head":
            last += part
        else:
            first += part
            if group.part == "embedding" and architecture.tied_embeddings:
                repeated += part  # the last stage needs the table too
    if stages == 1:
        return math.ceil(layers + first + last)
    count = max(1, architecture.layers)
    return math.ceil(layers * math.ceil(count / stages) / count + max(first, last + repeated))


def _share(group: WeightGroup, settings: EngineSettings, tensor: int) -> float:
    if group.split == "replicate":
        return 1.0
    if group.split == "kv":
        return 1.0 / min(tensor, max(1, group.kv_heads))
    if group.split == "expert":
        return 1.0 / (tensor * settings.data_parallel_size)
    if group.split == "shared" and settings.expert_parallel and settings.data_parallel_size > 1:
        return 1.0
    return 1.0 / tensor


def lora_bytes(architecture: Architecture, settings: EngineSettings) -> int:
    """Adapter slots of one rank in 16 bit: slots x rank x the widths of `LoraWidths`.

    `max_loras` slots are allocated at start and filled with the adapters in use; those of `max_cpu_loras` are in host
    memory (vLLM 0.32: create_lora_weights; fully_sharded_loras is off by default). Stages of a pipeline hold theirs.
    """
    if not settings.lora_slots:
        return 0
    widths, tensor = architecture.lora, settings.tensor_parallel_size
    ranks = tensor * settings.data_parallel_size
    elements = widths.whole + widths.split / tensor + widths.kv / min(tensor, max(1, architecture.kv_heads))
    elements += widths.experts_whole / (ranks if settings.expert_parallel else 1) + widths.experts_split / ranks
    stages, count = settings.pipeline_parallel_size, max(1, architecture.layers)
    share = math.ceil(count / stages) / count
    return math.ceil(settings.lora_slots * settings.lora_max_rank * elements * share * _ADAPTER_BYTES)
