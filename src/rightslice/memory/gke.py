"""The memory formula of Google's guide to inference on GKE, term by term.

Required memory = weights + overhead + activations + KV cache per batch x batch size, with
weights = advertised parameters x bytes per weight, overhead = 1 GB,
activations = sequences x tokens x (18 x hidden + 4 x intermediate) bytes,
KV = 2 x sequences x tokens x KV heads x (hidden / heads) x layers x bytes per element.
Source: "Best practices for inference on GKE", section on accelerator memory, with Gemma 3 27B as its example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.core.engine import DTYPE_BITS
from rightslice.memory.cache import KV_BYTES

OVERHEAD_BYTES: Final = 10**9


@dataclass(frozen=True, slots=True)
class GkeTerms:
    """The four terms and what goes into the cache term."""

    weights_bytes: int
    overhead_bytes: int
    activation_bytes: int
    kv_cache_bytes: int
    kv_bytes_per_token: int
    head_dim: int

    @property
    def total_bytes(self) -> int:
        """Their sum."""
        return self.weights_bytes + self.overhead_bytes + self.activation_bytes + self.kv_cache_bytes


def gke_terms(
    architecture: Architecture, *, tokens: int, sequences: int, dtype: str = "", kv_dtype: str = "bf16"
) -> GkeTerms:
    """The terms for `sequences` requests of `tokens` tokens in and out together."""
    billions = architecture.advertised_parameters_b
    parameters = billions * 1e9 if billions is not None else float(architecture.parameters)
    bits = DTYPE_BITS.get(dtype or architecture.published_dtype, 16)
    hidden, heads = architecture.hidden_size, max(1, architecture.query_heads)
    head_dim = hidden // heads
    per_token = round(2 * architecture.kv_heads * head_dim * architecture.layers * KV_BYTES[kv_dtype])
    return GkeTerms(
        weights_bytes=round(parameters * bits / 8),
        overhead_bytes=OVERHEAD_BYTES,
        activation_bytes=sequences * tokens * (18 * hidden + 4 * architecture.intermediate_size),
        kv_cache_bytes=sequences * tokens * per_token,
        kv_bytes_per_token=per_token,
        head_dim=head_dim,
    )
