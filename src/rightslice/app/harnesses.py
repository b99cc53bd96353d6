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
_BALANCE_STEPS: Final = 60.0
"""InferenceX lets data-parallel ranks of TensorRT-LLM wait up to 60 steps for prompts of the others (timeout_iters)."""
AUDITED_S: Final = 600.0
_TOKENS_ABOVE, _TOKENS_MULTIPLE = 64, 64
_NVIDIA_VLLM_TOKENS: Final = 4096
"""NVIDIA's runs of vLLM on Hopper; the source does not say it: first tokens are those of steps of this size, where the
default of 8,192 lets whole waves of requests march in step."""


def shortest_share(row: Mapping[str, str]) -> float:
    """Lengths are drawn between this share of the nominal ones and all of them."""
    return _SHORTEST if _is_inferencex(row) else 1.0


def waiting_steps(row: Mapping[str, str], engine: str, version: str) -> float:
    """Decode steps before the engine looks at a new request, on average."""
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


def is_audited(row: Mapping[str, str]) -> bool:
    """MLPerf's server scenario runs for ten minutes and counts only if nearly all requests meet their limits."""
    return row.get("source", "").startswith("mlperf")


def batched_tokens(row: Mapping[str, str], engine: str, usual: int) -> int:
    """Most tokens of a step. InferenceX gives TensorRT-LLM room for one prompt beside the others' tokens."""
    if engine == "tensorrt-llm" and _is_inferencex(row):
        try:
            tokens = float(row["isl"]) + float(row.get("concurrency_or_batch") or 0.0)
        except ValueError:
            return usual
        return int((tokens + _TOKENS_ABOVE) // _TOKENS_MULTIPLE + 1) * _TOKENS_MULTIPLE
    if engine == "vllm" and row.get("source", "").startswith(_NVIDIA) and not _is_inferencex(row):
        return _NVIDIA_VLLM_TOKENS
    return usual


def _is_inferencex(row: Mapping[str, str]) -> bool:
    source = row.get("source", "")
    return source.startswith(_INFERENCEX) or (source.startswith(_NVIDIA) and row.get("hw", "").startswith(("B2", "B3")))
