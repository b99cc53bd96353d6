"""vLLM's own answers about its KV cache, and where ours differ from them.

Every shipped model is asked about a cache in 16 bit, and one model of each family about a cache in FP8: with sparse
attention over latents both as Blackwell keeps it and packed, as Hopper does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.memory.cache import is_sparse
from rightslice.memory.computation import cache_dtype
from rightslice.memory.legality import legal_parallelism
from rightslice.memory.reservation import cache_plan

ANSWERS: Final = Path(__file__).parent / "data" / "engine_cache" / "vllm.json"
PACKED_ANSWERS: Final = ANSWERS.parent / "packed.json"
_OWN_ATTENTION: Final = "the CPU build has attention of its own for it: see `packed_questions`"
NOT_ASKED: Final = {
    "Deci--DeciLM-7B": "vLLM 0.32 has no class for it: its DeciLMForCausalLM wants block_configs",
    "google--flan-t5-xl": "vLLM 0.32 has no class for it, and its Transformers backend cannot trace T5",
    "deepseek-ai--DeepSeek-V4-Flash": _OWN_ATTENTION,
    "nvidia--DeepSeek-V4-Pro-NVFP4": _OWN_ATTENTION,
    "sgl-project--DeepSeek-V4-Flash-FP8": _OWN_ATTENTION,
    "sgl-project--DeepSeek-V4-Pro-FP8": _OWN_ATTENTION,
    "microsoft--Phi-3.5-MoE-instruct": "no class of its own: traced through Transformers for many minutes",
    "microsoft--Phi-mini-MoE-instruct": "no class of its own: traced through Transformers for many minutes",
}
NAMED: Final = {
    "microsoft--Phi-4-mini-instruct": "a window as long as the context is no window to us: one block fewer",
}
"""Models whose answers differ, and why; each must differ by exactly that."""
PACKED: Final = "fp8_ds_mla"
_ROOMS: Final = (3 * 2**30, 40 * 2**30 + 12_345)
_STAGED: Final = (
    "Qwen--Qwen3-32B",
    "Qwen--Qwen3-Next-80B-A3B-Instruct",
    "deepseek-ai--DeepSeek-V3",
    "google--gemma-3-27b-it",
    "meta-llama--Meta-Llama-3.1-8B",
    "openai--gpt-oss-120b",
)


def questions() -> dict[str, Any]:
    """Every shipped configuration of a model with a cache, with the engines and lengths to ask about."""
    root = files("rightslice.catalogue") / "data" / "architectures"
    found, families = {}, set()
    for item in sorted(root.iterdir(), key=lambda i: i.name):
        name = item.name.removesuffix(".json")
        model = resolve_model(name)
        if model.kind not in ("decoder", "encoder-decoder") or name in NOT_ASKED:
            continue
        sizes = [t for t in (1, 2, 8) if not legal_parallelism(model, EngineSettings(tensor_parallel_size=t))]
        states = any(g.kind in ("mamba", "linear") for g in model.attention)
        engines = [(t, 1, True, "auto") for t in sizes] + ([(1, 1, False, "auto")] if states else [])
        engines += [(1, 2, True, "auto")] if name in _STAGED else []
        eight_bit = ["fp8", PACKED] if is_sparse(model) and any(g.kind == "mla" for g in model.attention) else ["fp8"]
        engines += [(1, 1, True, kept) for kept in eight_bit] if model.family not in families else []
        families.add(model.family)
        context = model.context_max or 2048
        lengths = [min(context, 131_072), min(context, 40_960), max(1, context // 3)]
        found[name] = {
            "config": json.loads(item.read_text()), "engines": engines, "rooms": list(_ROOMS),
            "lengths": lengths, "steps": [16_384, 2048, 8192], "blocks": [16, 16, 32],
        }  # fmt: skip
    return found


def packed_questions() -> dict[str, Any]:
    """The models with compressed latents, whose caches are described to the engine instead of built by it."""
    root = files("rightslice.catalogue") / "data" / "architectures"
    found = {}
    for name in (name for name, reason in NOT_ASKED.items() if reason == _OWN_ATTENTION):
        raw = json.loads((root / f"{name}.json").read_text())
        ratios = raw["compress_ratios"][: resolve_model(name).layers]
        found[name] = {
            "ratios": ratios, "lengths": [131_072, 40_960, 1_000_000, 300], "steps": [16_384, 2048, 8192, 2048],
        }  # fmt: skip
    return found


def packed_disagreements(answers: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """(model, longest length, figure) of every answer on compressed latents that is not ours."""
    for name, asked in answers["models"].items():
        for answer in asked:
            length = answer["max_model_len"]
            step = answer["max_num_batched_tokens"]
            settings = EngineSettings(
                version=answers["vllm"], max_model_len=length, max_num_batched_tokens=step, kv_dtype="fp8"
            )
            plan = cache_plan(resolve_model(name), settings)
            ours = {
                "groups": sorted([g.layers, g.block_tokens] for g in plan.groups),
                "block_bytes": plan.block_bytes,
                "bytes_per_request": plan.bytes_per_request(length),
            }
            yield from ((name, length, key) for key in ours if ours[key] != answer[key])


def disagreements(answers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(model, what differs) for every answer that is not ours to the last block and token."""
    for name, asked in answers["models"].items():
        for answer in asked:
            if text := _difference(name, answers["vllm"], answer):
                yield name, text


def _difference(name: str, version: str, answer: dict[str, Any]) -> str:
    model, asked = resolve_model(name), answer["kv_dtype"].replace("auto", "bf16")  # quantisation was taken out
    seen = device("H200-SXM-141GB" if asked == PACKED else "B200-SXM-180GB")
    asked = asked.replace(PACKED, "fp8")
    kept = cache_dtype(model, "vllm", version, "bf16", asked)
    settings = EngineSettings(
        version=version,
        tensor_parallel_size=answer["tensor"],
        pipeline_parallel_size=answer["stages"],
        max_model_len=answer["max_model_len"],
        max_num_batched_tokens=answer["max_num_batched_tokens"],
        block_size_tokens=answer["block_size"],
        kv_dtype=kept,  # type: ignore[arg-type]
        prefix_caching=answer["prefix_caching"],
    )
    plan, length = cache_plan(model, settings, seen), answer["max_model_len"]
    more = plan.block_bytes if name in NAMED else 0
    ours: dict[str, Any] = {
        "in_flight_tokens": plan.in_flight_tokens,
        "groups": sorted([g.layers, g.block_tokens] for g in plan.groups),
        "block_bytes": plan.block_bytes,
        "bytes_per_request": plan.bytes_per_request(length) + more,
    }
    theirs = {key: answer[key] for key in ours} | {"groups": sorted(answer["groups"])}
    wrong = [f"{key}: {ours[key]} is not {theirs[key]}" for key in ours if ours[key] != theirs[key]]
    if not more:
        for room in answer["rooms"]:
            starts = plan.least_room_bytes(length) <= room["room_bytes"]
            said: dict[str, Any] = {"starts": starts, "longest": plan.longest_tokens(room["room_bytes"], length)}
            if starts and room["starts"]:
                said["blocks"] = plan.pool_blocks(room["room_bytes"])
                said["tokens"] = plan.logged_tokens(room["room_bytes"], length)
                said["concurrency"] = plan.concurrency(room["room_bytes"], length)
            wrong += [f"room {room['room_bytes']}, {k}: {said[k]} is not {room[k]}" for k in said if said[k] != room[k]]
    engine = f"tp {answer['tensor']} pp {answer['stages']} {answer['kv_dtype']} {length}"
    return f"{engine}: {'; '.join(wrong)}" if wrong else ""


def updating() -> bool:
    """Whether answers are to be written down anew."""
    return os.environ.get("RIGHTSLICE_UPDATE_GOLDEN") == "1"
