"""What vLLM refuses about steps, blocks and experts before it loads anything."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_arguments import COMMON
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.memory.problems import Problem, Remedy

_KERNEL_BLOCK = 16
_OLD_BLOCKS = (1, 8)
"""Legal block sizes that are no multiples of 16 before they were read to be none."""
_BLOCKS_READ = "0.32.0"


def scheduling_problems(architecture: Architecture, settings: EngineSettings) -> Iterator[Problem]:
    """The problems, in the order in which they are found.

    Without chunked prefill a step holds a whole prompt, and it always holds a token of every sequence (vLLM 0.32:
    SchedulerConfig.verify_max_model_len); attention kernels take blocks of a multiple of 16 tokens; experts can only
    be spread where there are some.
    """
    if settings.engine != COMMON:
        return
    if settings.expert_parallel and not architecture.moe:
        remedy: Remedy = (("--no-enable-expert-parallel", ""),)
        yield Problem("experts", "expert parallelism needs experts, and the model has none", (remedy,))
    step, sequences, length = settings.max_num_batched_tokens, settings.max_num_seqs, settings.max_model_len
    if not settings.chunked_prefill and step < length:
        reason = f"without chunked prefill a step of {step:,} tokens must hold the longest context of {length:,}"
        remedies: tuple[Remedy, ...] = ((("--max-num-batched-tokens", f"{length}"),), (("--max-model-len", f"{step}"),))
        yield Problem("step", reason, remedies)
    if step < sequences:
        reason = f"a step of {step:,} tokens must hold one of each of {sequences:,} sequences"
        remedies = ((("--max-num-seqs", f"{step}"),), (("--max-num-batched-tokens", f"{sequences}"),))
        yield Problem("step", reason, remedies)
    block = settings.block_size_tokens
    if _caches(architecture) and block % _KERNEL_BLOCK and not _was_legal(settings):
        nearest = max(1, block // _KERNEL_BLOCK) * _KERNEL_BLOCK
        reason = f"blocks of {block} tokens are no multiple of {_KERNEL_BLOCK}, as attention kernels need"
        yield Problem("block", reason, ((("--block-size", f"{nearest}"),),))


def _caches(architecture: Architecture) -> bool:
    return any(group.kind in ("full", "mla", "sliding", "chunked") for group in architecture.attention)


def _was_legal(settings: EngineSettings) -> bool:
    return settings.block_size_tokens in _OLD_BLOCKS and version_key(settings.version) < version_key(_BLOCKS_READ)
