"""Step costs of one engine configuration on one device: the operators' laws added up over a model's layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rightslice.catalogue.architecture import Architecture, AttentionGroup
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.performance import accuracy, coefficients, operators
from rightslice.performance.coefficients import AttentionPath
from rightslice.performance.costs import StepCosts, picoseconds
from rightslice.performance.operators import Tokens

_ACTIVATION_BYTES = 2
"""Activations and all-reduced tensors are 16-bit in every engine modelled here."""
_LARGEST_GRAPH = 512
"""Tokens of the largest CUDA graph that engines capture by default: larger steps hold prompts."""
_HIDDEN_PASSES = 8
"""Residual stream elements read or written per token and layer: two norms (read, add, write) and the rotary pass."""
_GATED_PASSES = 3
"""Intermediate elements per token and layer: the gated activation reads two and writes one."""


def step_costs(
    architecture: Architecture, device: Device, settings: EngineSettings, *, typical_tokens: int
) -> StepCosts:
    """Costs of one step of one replica (of one data-parallel rank when there are several).

    The token term sums dense layers, experts, small kernels, head, two all-reduces a layer and pipeline sends; see
    `operators` for each formula. `typical_tokens`: length of a typical sequence, where windowed layers need one. A
    windowed layer costs `window / 2` to a full one's `typical / 2` context tokens in prefill; in decode it is charged
    per context token while the typical sequence fits its window, else as a constant of `window` tokens per sequence
    (exact for sequences longer than the window, too much for shorter ones).

    Pipeline parallelism of p stages is taken as full: p micro-batches in flight, each of T / p tokens, so that weights
    are read p times for every token of the batch, while cache reads are spread over the stages. A lone prompt still
    takes p times as long as this says (the bubble): such costs are marked `unvalidated`.

    Engines that capture mixed steps in CUDA graphs have the launches of prompts in the steps beyond the largest graph
    only.

    No gain is taken for speculative decoding and no cost for LoRA adapters. Raises BadInputError (RS2005) where the
    device's compute rate is not known.
    """
    tokens: Tokens = np.arange(settings.max_num_batched_tokens + 1, dtype=np.float64)
    micro = np.maximum(tokens / settings.pipeline_parallel_size, np.minimum(tokens, 1.0))
    seconds = (
        _dense_s(architecture, device, settings, micro)
        + _experts_s(architecture, device, settings, micro)
        + _collectives_s(architecture, device, settings, micro)
    )
    seconds[0] = 0.0
    launch = coefficients.launches(architecture, device, settings)
    in_graphs = coefficients.era(device, settings).compiles
    if in_graphs:
        seconds += np.where(micro > _LARGEST_GRAPH, launch.prefill_s, 0.0)
    token_s, sequence_s = _decode_attention(architecture, device, settings, typical_tokens)
    band = accuracy.band(architecture, device, settings)
    stages = settings.pipeline_parallel_size
    return StepCosts(
        tokens_ps=np.maximum.accumulate(np.rint(seconds * 1e12).astype(np.int64)),
        kv_token_ps=picoseconds(token_s / stages),
        attention_ps=picoseconds(_prefill_attention_s(architecture, device, settings, typical_tokens) / stages),
        sequence_ps=picoseconds(launch.sequence_s + sequence_s / stages),
        step_ps=picoseconds(stages * launch.step_s + launch.kernels_s),
        prefill_step_ps=0 if in_graphs else picoseconds(launch.prefill_s),
        relative_error=band.relative_error,
        provenance=band.provenance,
    )


def _dense_s(architecture: Architecture, device: Device, settings: EngineSettings, tokens: Tokens) -> Tokens:
    """Dense layers, output head and small kernels. The head sees one token per sequence, never a whole prompt."""
    tp = settings.tensor_parallel_size
    has_experts = bool(architecture.moe)
    generates = architecture.kind in ("decoder", "encoder-decoder")
    head = min(architecture.vocab_size * architecture.hidden_size, architecture.matmul_parameters) if generates else 0
    era = coefficients.era(device, settings)
    layers_path = coefficients.dense_path(device, settings.weight_dtype, has_experts=has_experts).times(
        era.compute, era.bandwidth
    )
    head_path = coefficients.head_path(device, settings.weight_dtype).times(era.compute, era.bandwidth)
    sampled = np.minimum(tokens, settings.max_num_seqs)
    return (
        operators.linear_s(tokens, (architecture.matmul_parameters - head) / tp, layers_path)
        + operators.linear_s(sampled, head / tp, head_path)
        + operators.small_kernels_s(
            tokens, _activation_bytes_per_token(architecture, tp), coefficients.small_kernel_bytes_per_s(device)
        )
    )


def _activation_bytes_per_token(architecture: Architecture, tensor_parallel_size: int) -> float:
    """Residual stream (whole on every device) and MLP activations (split) that small kernels move per token."""
    dense_layers = architecture.layers - sum(group.layers for group in architecture.moe)
    intermediate = dense_layers * architecture.intermediate_size + sum(
        group.layers * group.experts_per_token * group.intermediate_size for group in architecture.moe
    )
    elements = (
        _HIDDEN_PASSES * architecture.layers * architecture.hidden_size
        + _GATED_PASSES * intermediate / tensor_parallel_size
    )
    return _ACTIVATION_BYTES * elements


def _experts_s(architecture: Architecture, device: Device, settings: EngineSettings, tokens: Tokens) -> Tokens:
    """Routed experts over all ranks: whole experts with expert parallelism, else a slice of each.

    `tokens` are those of one data-parallel rank; the others are taken to hold as many.
    """
    era = coefficients.era(device, settings)
    path = coefficients.expert_path(device, settings.weight_dtype).times(era.expert_compute, era.bandwidth)
    routing = coefficients.routing()
    beyond_graphs = np.maximum(tokens - _LARGEST_GRAPH, 0.0) / np.maximum(tokens, 1.0)
    longer = 1.0 + (era.expert_prefill - 1.0) * beyond_graphs
    everyone = settings.tensor_parallel_size * settings.data_parallel_size
    ranks, width = (everyone, 1) if settings.expert_parallel else (1, everyone)
    all_tokens = tokens * settings.data_parallel_size
    total = np.zeros_like(tokens)
    for group in architecture.moe:
        pairs = all_tokens * group.experts_per_token / ranks
        one = operators.experts_s(pairs, group.experts / ranks, group.expert_parameters / width, path, routing)
        total = total + group.layers * one * longer
    return total


def _collectives_s(architecture: Architecture, device: Device, settings: EngineSettings, tokens: Tokens) -> Tokens:
    """Two all-reduces a layer, dispatch and combine of every expert layer, one send per pipeline stage."""
    nbytes = tokens * architecture.hidden_size * _ACTIVATION_BYTES
    tp, pp, dp = settings.tensor_parallel_size, settings.pipeline_parallel_size, settings.data_parallel_size
    total = np.zeros_like(tokens)
    if tp > 1:
        group = coefficients.link(device, settings.engine, tp)
        total = total + 2 * architecture.layers * operators.all_reduce_s(nbytes, group)
    if dp > 1:
        everyone = coefficients.link(device, settings.engine, tp * dp)
        expert_layers = sum(group.layers for group in architecture.moe)
        total = total + expert_layers * operators.gather_and_scatter_s(nbytes * dp, everyone)
    if pp > 1:
        total = total + pp * operators.send_s(nbytes, coefficients.link(device, settings.engine, tp * pp))
    return total


def _decode_attention(
    architecture: Architecture, device: Device, settings: EngineSettings, typical_tokens: int
) -> tuple[float, float]:
    """Seconds per context token and per sequence of one decode step, all layers on one device."""
    path, era = coefficients.attention_path(device, settings.kv_dtype), coefficients.era(device, settings)
    path = replace(path, bytes_per_s=path.bytes_per_s * era.cache_bandwidth)
    token_s = sequence_s = 0.0
    for group in architecture.attention:
        if group.kind in ("full", "mla", "sliding", "chunked"):
            one = group.layers * _read_token_s(group, settings.tensor_parallel_size, path, era.shares_heads)
            if not group.window_tokens or typical_tokens <= group.window_tokens:
                token_s += one
            else:
                sequence_s += one * group.window_tokens
        passes = 1 if group.kind == "cross" else 2  # recurrent state is read and written, encoder keys only read
        sequence_s += passes * group.layers * group.state_bytes_per_sequence / path.bytes_per_s
    return token_s, sequence_s


def _read_token_s(group: AttentionGroup, tensor_parallel_size: int, path: AttentionPath, shares_heads: bool) -> float:
    """One cached token read by one layer on one device; a latent cache is whole on every device.

    Kernels that do not share heads read a KV head once for every query head.
    """
    heads = group.query_heads / tensor_parallel_size
    if group.kind == "mla":
        latent = group.kv_elements_per_token
        return operators.decode_attention_s(latent + group.indexer_elements_per_token, heads * 2 * latent, path)
    elements = group.kv_elements_per_token or group.kv_heads * (group.qk_head_dim + group.v_head_dim)
    share = -(-group.kv_heads // tensor_parallel_size) / group.kv_heads
    if not shares_heads:
        share = max(share, heads / group.kv_heads)
    return operators.decode_attention_s(elements * share, heads * (group.qk_head_dim + group.v_head_dim), path)


def _prefill_attention_s(
    architecture: Architecture, device: Device, settings: EngineSettings, typical_tokens: int
) -> float:
    """One query token against one context token, all layers on one device.

    A layer with window w does (s w - w^2 / 2) / (s^2 / 2) of a full one's work on a prompt of s = `typical_tokens`
    longer than w; a bidirectional layer does twice the causal work.
    """
    path = coefficients.attention_path(device, settings.kv_dtype)
    multiply_adds = 0.0
    for group in architecture.attention:
        if group.kind in ("linear", "mamba", "cross"):
            continue
        share = 2.0 if group.kind == "encoder" else 1.0
        if group.window_tokens and typical_tokens > group.window_tokens:
            ratio = group.window_tokens / typical_tokens
            share *= ratio * (2.0 - ratio)
        multiply_adds += share * group.layers * group.query_heads * (group.qk_head_dim + group.v_head_dim)
    return operators.prefill_attention_s(multiply_adds / settings.tensor_parallel_size, path)
