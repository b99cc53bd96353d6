"""The one resolved engine configuration, read by memory, performance, simulation, manifests and load tests alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4", "nvfp4", "mxfp4"]
KvDtype = Literal["bf16", "fp16", "fp8", "fp4"]
"""What a user may choose; `EngineSettings` also keeps a cache in fp32, which follows from computing in it."""

DTYPE_BITS: dict[str, int] = {
    "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "fp4": 4, "nvfp4": 4, "mxfp4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine is started with. Sizes are per replica; `memory_fraction` is of the visible device memory.

    `kv_cache_memory_bytes`: the cache of one device as given, instead of what the fraction leaves; 0: not given.
    """

    engine: str = "vllm"
    version: str = ""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel: bool = False
    weight_dtype: Dtype = "bf16"
    kv_dtype: KvDtype | Literal["fp32"] = "bf16"
    max_model_len: int = 4096
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    memory_fraction: float = 0.9
    block_size_tokens: int = 16
    prefix_caching: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    chunked_prefill: bool = True
    lora_slots: int = 0
    lora_max_rank: int = 0
    speculative_method: str = ""
    speculative_model: str = ""
    speculative_tokens: int = 0
    speculative_acceptance: float = 0.0
    kv_offload_bytes: int = 0
    weights_offload_bytes: int = 0
    enforce_eager: bool = False
    kv_cache_memory_bytes: int = 0
    kv_transfer: str = ""

    @property
    def gpus_per_replica(self) -> int:
        """Accelerators (or slices) that one replica occupies."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size
