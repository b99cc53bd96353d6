"""What is known of how published sources measured, beyond what their rows say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rightslice.catalogue.versions import version_key

_INFERENCEX: Final = "inferencex"
_NVIDIA: Final = "aiconfigurator-silicon"
_SHORTEST: Final = 0.8
"""InferenceX draws lengths uniformly between this share of the nominal ones and all of them. NVIDIA's own runs on
Blackwell repeat figures and lengths of InferenceX: they are taken to come from the same harness."""
_RECEIVE_STEPS: Final = (("0.5.10", 20.0), ("0.5.7", 30.0), ("", 0.0))
"""Since a version of SGLang; one that is not stated is taken as 0.5.9. Both start it with --scheduler-recv-interval:
measured first tokens come so many steps
later than prefill explains, in proportion to the time of a step."""
_NO_INTERVAL: Final = ("GLM-",)
"""Models whose scripts have none: first tokens come in a quarter of the time that it would take."""
_BALANCE_STEPS: Final = 30.0
"""InferenceX lets data-parallel ranks of TensorRT-LLM wait up to 60 steps for prompts of the others (timeout_iters)."""
AUDITED_S: Final = 600.0
_TOKENS_ABOVE, _TOKENS_MULTIPLE = 64, 64
_NVIDIA_PROMPTS: Final = 2
"""Prompts that a step of NVIDIA's own runs of vLLM and TensorRT-LLM on Hopper has room for beside the others' tokens.
The source does not say it. First tokens of waves of 8 to 128 equal prompts on one Qwen3-32B, of 1,024 and of 2,048
tokens alike, come as if two prompts shared a step; the default of 8,192 tokens would let whole waves march in step."""
_NVIDIA_SGLANG_TOKENS: Final = 16_384
"""NVIDIA's own runs of SGLang on Hopper: its largest prefill (max_prefill_tokens), prompts not cut into chunks."""


def shortest_share(row: Mapping[str, str]) -> float:
    """Lengths are drawn between this share of the nominal ones and all of them."""
    return _SHORTEST if _is_inferencex(row) else 1.0


def waiting_steps(row: Mapping[str, str], engine: str, version: str) -> float:
    """Decode steps before the engine looks at a new request, on average."""
    if row.get("model", "").startswith(_NO_INTERVAL):
        return 0.0
    if engine == "sglang" and row.get("source", "").startswith((_INFERENCEX, _NVIDIA)):
        asked = version_key(version or "0.5.9")
        return next(steps for since, steps in _RECEIVE_STEPS if not since or asked >= version_key(since))
    if engine == "tensorrt-llm" and _is_inferencex(row) and row.get("dp", "") not in ("", "1"):
        return _BALANCE_STEPS
    return 0.0


def requests_sent(row: Mapping[str, str]) -> int:
    """Requests of an open test, where the row's notes tell it; else 0."""
    found = re.search(r"\bonline, (\d{1,6}) requests\b", row.get("notes", ""))
    return int(found[1]) if found else 0


def cached_tokens(row: Mapping[str, str]) -> float:
    """Of a prompt that all requests share, where the row's notes tell it and that prefixes are cached."""
    found = re.search(r"system prompts of (\d{1,5}) tok\b.*with prefix caching", row.get("notes", ""))
    return float(found[1]) if found else 0.0


def stated(row: Mapping[str, str], setting: str, usual: int) -> int:
    """An engine's setting that the row's notes name, `max_num_seqs=128`; else the usual one."""
    found = re.search(rf"\b{setting}=(\d{{1,6}})\b", row.get("notes", ""))
    return int(found[1]) if found else usual


def splits_requests(row: Mapping[str, str]) -> bool:
    """Whether attention of models with experts is data-parallel though the source gives the size as tensor parallel.

    The overview of TensorRT-LLM 1.0 does not say it. On two to eight RTX PRO 6000, whose links are slow, Qwen3-30B-A3B
    is 1.3 to 3 times as fast as all-reduces allow, and as fast as ranks with an exchange of experts' inputs alone.
    """
    return row.get("source", "") == "trtllm-perf-overview-v1.0"


def is_audited(row: Mapping[str, str]) -> bool:
    """MLPerf's server scenario runs for ten minutes and counts only if nearly all requests meet their limits."""
    return row.get("source", "").startswith("mlperf")


def batched_tokens(row: Mapping[str, str], engine: str, usual: int) -> int:
    """Most tokens of a step, those of the notes or what is known of the source.

    InferenceX gives TensorRT-LLM room for one prompt beside the others' tokens.
    """
    try:
        prompt, others = float(row["isl"]), float(row.get("concurrency_or_batch") or 0.0)
    except ValueError:
        return usual
    if _is_inferencex(row):
        if engine != "tensorrt-llm":
            return usual
        return int((prompt + others + _TOKENS_ABOVE) // _TOKENS_MULTIPLE + 1) * _TOKENS_MULTIPLE
    if not row.get("source", "").startswith(_NVIDIA):
        return stated(row, "max_num_batched_tokens", usual)
    return _NVIDIA_SGLANG_TOKENS if engine == "sglang" else int(_NVIDIA_PROMPTS * prompt + others)


def _is_inferencex(row: Mapping[str, str]) -> bool:
    source = row.get("source", "")
    return source.startswith(_INFERENCEX) or (source.startswith(_NVIDIA) and row.get("hw", "").startswith(("B2", "B3")))
