"""One law per operator of a transformer server: seconds from tokens, bytes and rates.

Token counts may be arrays. Every law is non-decreasing in tokens. The rates are achievable ones (`coefficients`);
the forms follow fits of the measured operator tables of NVIDIA AIConfigurator core 0.12.0 (Apache-2.0).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rightslice.performance.coefficients import AttentionPath, Link, MatrixPath, Routing

Tokens = NDArray[np.float64]


def roofline_s(compute_s: Tokens, memory_s: Tokens, norm: float) -> Tokens:
    """Compute and memory traffic that overlap imperfectly.

    t = (C^p + M^p)^(1/p): the larger of the two for a large norm p, their sum for p = 1.
    """
    largest = np.maximum(compute_s, memory_s)
    smallest = np.minimum(compute_s, memory_s)
    ratio = np.divide(smallest, largest, out=np.zeros_like(largest), where=largest > 0.0)
    return np.asarray(largest * (1.0 + ratio**norm) ** (1.0 / norm))


def linear_s(tokens: Tokens, parameters: float, path: MatrixPath) -> Tokens:
    """Dense layers: weights read once a step against multiply-adds.

    C = 2 m n k / rate, M = n k w / bandwidth with m tokens, n k = `parameters`, w bytes per weight. The activations'
    traffic is in `small_kernels_s`.
    """
    read_s = np.full_like(tokens, parameters * path.weight_bytes / path.bytes_per_s)
    return roofline_s(2.0 * tokens * parameters / path.flops_per_s, read_s, path.norm)


def experts_touched(pairs: Tokens, experts: float, evenness: float) -> Tokens:
    """Experts that at least one of `pairs` (token, expert) assignments hits, where some are more popular than others.

    E (1 - (1 + pairs / (E k))^-k): experts hit at rates that are gamma distributed with shape k = `evenness` around
    pairs / E. Even routing, k without bound, gives E (1 - exp(-pairs / E)).
    """
    return np.asarray(experts * -np.expm1(-evenness * np.log1p(pairs / (experts * evenness))))


def experts_s(pairs: Tokens, experts: float, expert_parameters: float, path: MatrixPath, routing: Routing) -> Tokens:
    """Routed experts of one layer on one device.

    C = 2 (pairs + touched padding) P / rate, M = touched P w / bandwidth with touched experts, P = `expert_parameters`
    of this device's share of one expert and w bytes per weight; padding: rows that a touched expert computes beyond
    its own, because its last tile is not full.
    """
    touched = experts_touched(pairs, experts, routing.evenness)
    read_s = touched * expert_parameters * path.weight_bytes / path.bytes_per_s
    rows = pairs + touched * routing.padding_rows
    return roofline_s(2.0 * rows * expert_parameters / path.flops_per_s, read_s, path.norm)


def small_kernels_s(tokens: Tokens, bytes_per_token: float, bytes_per_s: float) -> Tokens:
    """Norms, rotary embeddings, activations: bytes per token / achievable bandwidth."""
    return np.asarray(tokens * bytes_per_token / bytes_per_s)


def decode_attention_s(elements: float, multiply_adds: float, path: AttentionPath) -> float:
    """One token of context read by one decoding sequence: the slower of cache traffic and arithmetic.

    max(elements x KV bytes / bandwidth, 2 x multiply_adds / rate).
    """
    return max(elements * path.kv_bytes / path.bytes_per_s, 2.0 * multiply_adds / path.flops_per_s)


def prefill_attention_s(multiply_adds: float, path: AttentionPath) -> float:
    """One query token against one context token: 2 x multiply_adds / rate."""
    return 2.0 * multiply_adds / path.flops_per_s


def all_reduce_s(nbytes: Tokens, link: Link) -> Tokens:
    """Sum over the devices of a tensor-parallel group: the faster of one-shot and two-shot.

    t = min(a1 + B (n - 1) / w1, a2 + 2 B (n - 1) / (n w2)), B bytes, n devices; 0 where B is 0.
    """
    n = link.devices
    one_shot = link.one_shot_s + nbytes * (n - 1) / link.one_shot_bytes_per_s
    two_shot = link.two_shot_s + 2.0 * nbytes * (n - 1) / (n * link.two_shot_bytes_per_s)
    return np.where(nbytes > 0.0, np.minimum(one_shot, two_shot), 0.0)


def gather_and_scatter_s(nbytes: Tokens, link: Link) -> Tokens:
    """Dispatch and combine of experts over data-parallel ranks, `nbytes` = B over all of them; 0 where B is 0.

    Every rank's tokens are gathered, the results reduced and scattered (the default all2all backend of vLLM 0.32):
    t = 2 (a2 + B (n - 1) / (n r w2)) for rings over the r rails of a group that reaches beyond one domain, r = 1
    inside. Against NCCL on eight H100 (the operator tables): 0.13 MB 25.5 us, by this law 27.5; 67 MB 414 us, by this
    law 378. Rails are inferred, not measured.
    """
    n = link.devices
    one_way_s = link.two_shot_s + nbytes * (n - 1) / (n * link.rails * link.two_shot_bytes_per_s)
    return np.where(nbytes > 0.0, 2.0 * one_way_s, 0.0)


def send_s(nbytes: Tokens, link: Link) -> Tokens:
    """One hop between pipeline stages: start-up and bytes of a one-shot transfer; 0 where there is nothing to send."""
    return np.where(nbytes > 0.0, link.one_shot_s + nbytes / link.one_shot_bytes_per_s, 0.0)
