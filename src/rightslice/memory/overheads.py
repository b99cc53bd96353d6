"""What an engine takes beside weights and cache: activations at the peak of a step, context, communicators, graphs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings

GIB: Final = 1 << 30
UNSURE_BYTES: Final = GIB // 2
"""Margins below this decide nothing: the constants of `engine_memory.json` were within 0.4 GiB of the logs at hand."""
_HALF_BYTES: Final = 2
_WIDE_BYTES: Final = 4
_HIDDEN_COPIES: Final = 3
"""Residual, normed input and block output are alive at the peak."""
_ROTARY_WIDTH: Final = 128
"""Wider heads rotate only a part of themselves."""
_ROTARY_POSITIONS: Final = 1 << 20
_INNER_COPIES: Final = 3
"""Gate and up in one tensor, and their product."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Constants of one engine version; see `engine_memory.json` for each figure's source. Bytes."""

    context_bytes: int
    collectives_bytes: int
    collectives_pcie_bytes: int
    graphs_bytes: int
    graphs_inside: bool
    logit_bytes: float
    assumed: bool


@cache
def engine_memory(engine: str, version: str) -> EngineMemory:
    """Constants of `engine` at `version` (newest when empty); an engine without logs takes vLLM's, marked assumed."""
    table = read_json("engine_memory.json")["engines"]
    rows = table.get(engine) or table["vllm"]
    wanted = version_key(version) if version else version_key(rows[-1]["until"])
    row = rows[0]
    for candidate in rows:
        if wanted >= version_key(candidate["from"]):
            row = candidate
    return EngineMemory(
        context_bytes=round(row["context_gib"] * GIB),
        collectives_bytes=round(row["collectives_gib"] * GIB),
        collectives_pcie_bytes=round(row["collectives_pcie_gib"] * GIB),
        graphs_bytes=round(row["graphs_gib"] * GIB),
        graphs_inside=bool(row["graphs_inside"]),
        logit_bytes=float(row["logit_bytes"]),
        assumed=engine not in table or bool(row.get("assumed")),
    )


def step_tokens(settings: EngineSettings) -> int:
    """Most tokens of one step. Without chunked prefill it holds the longest prompt, unless the engine refuses prompts
    of more tokens than a step (`EngineFacts.refuses_long_prompts`)."""
    if settings.chunked_prefill or engine(settings.engine).refuses_long_prompts:
        return settings.max_num_batched_tokens
    return max(settings.max_num_batched_tokens, settings.max_model_len)


def activation_bytes(architecture: Architecture, settings: EngineSettings) -> int:
    """Peak activations of one rank: the larger of a full prefill step and of sampling the largest batch.

    Prefill, per token in 16 bit, or in 32 where weights are: 3 x hidden + 3 x (inner width / t) for a dense block
    (reproduces 2.53 GiB of 40,000 tokens on two ranks, vllm#11251, and the 110 kB per token between the two runs of
    vllm#10517); for experts 3 x hidden + k x (max(2 x width, hidden) + width). Data-parallel ranks gather each other's
    tokens: the experts' part times the ranks, and the hidden states of all before and after (vLLM 0.32:
    workspace_shapes takes all gathered tokens, in one piece).
    Sampling: sequences x vocabulary x the engine's bytes per logit.
    """
    tokens = step_tokens(settings)
    tensor = settings.tensor_parallel_size
    hidden = architecture.hidden_size
    inner = max(architecture.dense_intermediate_sizes, default=0)
    widest = _INNER_COPIES * inner / tensor
    for group in architecture.moe:
        width = group.intermediate_size / (1 if settings.expert_parallel else tensor)
        ranks = settings.data_parallel_size
        pairs = group.experts_per_token * (max(2 * width, hidden) + width)
        widest = max(widest, ranks * (pairs + (2 * hidden if ranks > 1 else 0)))
    for mixer in architecture.attention:
        queries = mixer.query_heads * mixer.qk_head_dim + mixer.kv_heads * (mixer.qk_head_dim + mixer.v_head_dim)
        widest = max(widest, (queries + mixer.query_heads * mixer.v_head_dim) / tensor)
    width = _WIDE_BYTES if settings.weight_dtype == "fp32" else _HALF_BYTES
    prefill = tokens * width * (_HIDDEN_COPIES * hidden + widest)
    if architecture.kind not in ("decoder", "encoder-decoder"):
        return round(prefill)
    constants = engine_memory(settings.engine, settings.version)
    return round(max(prefill, settings.max_num_seqs * architecture.vocab_size * constants.logit_bytes))


def rank_step_tokens(default_tokens: int, ranks: int) -> int:
    """Tokens of one step of each of so many data-parallel ranks: as many over all as the engine gives a single one.

    Not less than its default on small devices: a choice, for the buffers of gathered tokens grow with the ranks.
    """
    return min(default_tokens, max(_LEAST_STEP_TOKENS, default_tokens // ranks))


_LEAST_STEP_TOKENS: Final = 2048


def rotary_bytes(architecture: Architecture) -> int:
    """Rotary tables: positions x head width x 2 bytes.

    14.989 GiB are logged for the 14.958 GiB of Llama-3.1-8B, whose 131,072 positions of 128 take 0.031 (vllm#10517).
    Architectures without rotary embedding have short contexts, so that the error is below a megabyte. Beyond 2**20
    positions no log was at hand: counted as 2**20.
    """
    width = max((g.qk_head_dim for g in architecture.attention if g.kind not in ("linear", "mamba")), default=0)
    return min(architecture.context_max or 0, _ROTARY_POSITIONS) * min(width, _ROTARY_WIDTH) * _HALF_BYTES


def graphs_bytes(settings: EngineSettings) -> int:
    """Captured CUDA graphs; none in eager mode."""
    return 0 if settings.enforce_eager else engine_memory(settings.engine, settings.version).graphs_bytes


def overhead_bytes(architecture: Architecture, device: Device, settings: EngineSettings) -> int:
    """Context, communicator buffers, CUDA graphs and rotary tables of one rank."""
    constants = engine_memory(settings.engine, settings.version)
    total = constants.context_bytes + graphs_bytes(settings) + rotary_bytes(architecture)
    if settings.gpus_per_replica > 1:
        linked = "nvlink" in device.accelerator.link_kind.casefold()
        total += constants.collectives_bytes if linked else constants.collectives_pcie_bytes
    return total
