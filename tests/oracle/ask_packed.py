"""Runs inside the oracle's environment: vLLM's own plan for the compressed caches of DeepSeek-V4, as JSON.

    python ask_packed.py QUESTIONS.json ANSWERS.json

The CPU build has attention of its own for these models, so their layers cannot be asked. What they would say on a GPU
is written here as the same objects that `models/deepseek_v4` makes (attention.py, compressor.py) with the FP8 rows
that are its default; grouping, padding and bytes are the engine's. Question: {name: {ratios, lengths, steps}}.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import ask_vllm

_CARRIER = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 100,
    "max_position_embeddings": 1 << 20, "torch_dtype": "bfloat16",
}  # fmt: skip
"""A small model whose configuration carries lengths and steps; none of its layers is asked."""
_WIDTH, _INDEX, _WINDOW, _ROW, _ALIGNMENT = 512, 128, 128, 584, 576


def _specs(ratios: list[int]) -> dict[str, Any]:
    import torch
    from vllm.v1.kv_cache_interface import MLAAttentionSpec, SlidingWindowMLASpec

    def far(ratio: int, width: int, row: int | None) -> Any:
        return MLAAttentionSpec(
            num_kv_heads=1, max_tp_shards=1, block_size=256, head_size=width, dtype=torch.uint8,
            tokens_per_state=ratio, alignment=_ALIGNMENT, state_content_bytes=row,
        )  # fmt: skip

    def near(window: int, block: int, width: int, dtype: Any, row: int | None = None) -> Any:
        return SlidingWindowMLASpec(
            num_kv_heads=1, max_tp_shards=1, block_size=block, head_size=width, dtype=dtype, sliding_window=window,
            alignment=_ALIGNMENT, state_content_bytes=row,
        )  # fmt: skip

    found = {}
    for i, ratio in enumerate(ratios):
        name = f"model.layers.{i}.attn"
        found[f"{name}.swa_cache"] = near(_WINDOW, 64, _WIDTH, torch.uint8, _ROW)
        if ratio <= 1:
            continue
        overlap = 2 if ratio == 4 else 1
        block = 4 if ratio == 4 else 8
        found[name] = far(ratio, _WIDTH, _ROW)
        found[f"{name}.compressor"] = near(overlap * ratio, block, 2 * overlap * _WIDTH, torch.float32)
        if ratio == 4:
            found[f"{name}.indexer"] = far(ratio, _INDEX + 4, None)
            found[f"{name}.indexer.compressor"] = near(overlap * ratio, block, 2 * overlap * _INDEX, torch.float32)
    return found


def _answers(question: dict[str, Any], folder: str) -> list[dict[str, Any]]:
    from vllm.v1.core import kv_cache_utils as utils

    specs, found = _specs(question["ratios"]), []
    for length, step in zip(question["lengths"], question["steps"], strict=True):
        config = ask_vllm._config(folder, (1, 1, True, "auto"), length)
        config.model_config.max_model_len = length
        config.scheduler_config.max_num_batched_tokens = step
        config.cache_config.kv_cache_layout = "BLHNC"
        groups = utils.get_kv_cache_groups(config, dict(specs))
        found.append({
            "max_model_len": length,
            "max_num_batched_tokens": step,
            "groups": sorted([len(g.layer_names), g.kv_cache_spec.block_size] for g in groups),
            "block_bytes": utils._pool_bytes_per_block(config, groups),
            "bytes_per_request": utils._max_memory_usage_bytes_from_groups(config, groups),
        })  # fmt: skip
    return found


def main(questions: str, answers: str) -> None:
    found: dict[str, Any] = {"vllm": ask_vllm.prepare(), "models": {}}
    ask_vllm._groups(1, 1, 0)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_CARRIER))
        for name, question in json.loads(Path(questions).read_text()).items():
            found["models"][name] = _answers(question, folder)
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
