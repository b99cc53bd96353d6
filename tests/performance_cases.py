"""Hand-written devices and models for the performance tests."""

from __future__ import annotations

from dataclasses import replace

from rightslice.catalogue.architecture import Architecture, AttentionGroup, MoeGroup
from rightslice.catalogue.hardware import WHOLE, Accelerator, Device
from rightslice.core.engine import EngineSettings


def _accelerator(name: str, flops: dict[str, float], **changes: object) -> Accelerator:
    base = Accelerator(
        name=name,
        vendor="nvidia",
        arch="Ampere",
        form_factor="sxm",
        advertised_memory_bytes=80 * 10**9,
        visible_memory_bytes=80 * 10**9,
        visible_assumed=False,
        memory_bandwidth_bytes_per_s=2.039e12,
        sm_count=108,
        l2_cache_bytes=None,
        flops=flops,
        link_kind="nvlink3",
        link_bytes_per_s=600e9,
        link_domain_max=8,
        pcie_bytes_per_s=31.5e9,
        tdp_w=None,
        compute_capability="8.0",
        mig=True,
        source="test",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


A100 = _accelerator("A100-SXM-80GB", {"bf16": 312e12, "fp16": 312e12, "int8": 624e12, "fp32": 19.5e12})
H100 = _accelerator(
    "H100-SXM-80GB",
    {"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "int8": 1979e12, "fp32": 67e12},
    arch="Hopper",
    memory_bandwidth_bytes_per_s=3.35e12,
    sm_count=132,
    link_bytes_per_s=900e9,
    pcie_bytes_per_s=63e9,
    compute_capability="9.0",
)
L40S = _accelerator(
    "L40S",
    {"bf16": 362e12, "fp8": 733e12},
    memory_bandwidth_bytes_per_s=0.864e12,
    sm_count=142,
    link_kind="none",
    link_bytes_per_s=0.0,
    link_domain_max=1,
    compute_capability="8.9",
)
MI300X = _accelerator(
    "MI300X",
    {"bf16": 1307e12, "fp8": 2614e12},
    vendor="amd",
    memory_bandwidth_bytes_per_s=5.3e12,
    sm_count=304,
    link_kind="xgmi",
    link_bytes_per_s=896e9,
    compute_capability="gfx942",
)


def whole(accelerator: Accelerator) -> Device:
    """The undivided accelerator."""
    return Device(
        accelerator,
        WHOLE,
        accelerator.visible_memory_bytes,
        accelerator.sm_count,
        accelerator.memory_bandwidth_bytes_per_s,
        accelerator.flops,
        accelerator.link_bytes_per_s,
    )


def mig_slice(accelerator: Accelerator, partition: str, sms: int, memory_share: float) -> Device:
    """A MIG slice of that many SMs and that share of memory and bandwidth."""
    share = sms / (accelerator.sm_count or sms)
    return Device(
        accelerator,
        partition,
        int(accelerator.visible_memory_bytes * memory_share),
        sms,
        accelerator.memory_bandwidth_bytes_per_s * memory_share,
        {unit: rate * share for unit, rate in accelerator.flops.items()},
        0.0,
    )


A100_3G = mig_slice(A100, "3g.40gb", 42, 0.5)
H100_1G = mig_slice(H100, "1g.10gb", 16, 0.125)


def dense(layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, vocabulary: int) -> Architecture:
    """A Llama-shaped decoder with head dimension 128."""
    attention = 2 * hidden * (heads + kv_heads) * 128
    head = vocabulary * hidden
    matmul = layers * (attention + 3 * hidden * intermediate) + head
    return Architecture(
        name="dense",
        family="llama",
        kind="decoder",
        hidden_size=hidden,
        intermediate_size=intermediate,
        layers=layers,
        vocab_size=vocabulary,
        query_heads=heads,
        kv_heads=kv_heads,
        tied_embeddings=False,
        parameters=matmul + head,
        active_parameters=matmul + head,
        embedding_parameters=head,
        vision_parameters=0,
        matmul_parameters=matmul,
        attention=(AttentionGroup("full", layers, heads, kv_heads, 128, 128, 2 * kv_heads * 128),),
        moe=(),
        context_max=131072,
        published_dtype="bf16",
        published_weights_bytes=2 * (matmul + head),
    )


LLAMA_8B = dense(32, 4096, 32, 8, 14336, 128256)
LLAMA_70B = dense(80, 8192, 64, 8, 28672, 128256)


def _mixtral() -> Architecture:
    base = dense(32, 4096, 32, 8, 14336, 32000)
    expert = 3 * 4096 * 14336
    return replace(
        base,
        parameters=base.parameters + 32 * 7 * expert,
        matmul_parameters=base.matmul_parameters - 32 * expert,
        moe=(MoeGroup(32, 8, 2, expert, 0, 14336),),
    )


MIXTRAL = _mixtral()
WINDOW = 1024


def _gemma() -> Architecture:
    """Five sliding layers to each full one, as Gemma 3."""
    base = dense(48, 3840, 16, 8, 15360, 262208)
    layer = base.attention[0]
    sliding = replace(layer, kind="sliding", layers=40, window_tokens=WINDOW)
    return replace(base, attention=(replace(layer, layers=8), sliding))


GEMMA = _gemma()
VLLM = EngineSettings(engine="vllm", max_num_batched_tokens=4096)
