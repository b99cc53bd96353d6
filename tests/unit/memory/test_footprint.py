"""Bytes per device: shards, caches, and what an engine takes beside them."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.memory.cache import rank_sequence_bytes, sequence_bytes
from rightslice.memory.footprint import (
    custom_footprint,
    footprint,
    legal_parallelism,
)
from rightslice.memory.overheads import rank_step_tokens
from rightslice.memory.weights import lora_bytes, rank_weights_bytes, weights_bytes
from rightslice.spec.workload import CustomMemory

GIB = 1 << 30


def settings(model: Architecture, **changes: Any) -> EngineSettings:
    base = EngineSettings(weight_dtype=model.published_dtype, max_model_len=4096)  # type: ignore[arg-type]
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("model", "name", "changes", "kv_gib"),
    [
        # start-up logs: A100 with vLLM 0.3x (2026-10), H100 with 0.10 (2025-09), RTX 3090 with 0.6 (vllm#10517)
        ("Llama-3.1-8B", "A100-SXM-80GB", {"version": "0.33.0", "memory_fraction": 0.92}, 56.21),
        (
            "Llama-3.1-8B",
            "H100-SXM-80GB",
            {"version": "0.10.2", "max_num_seqs": 1024, "max_num_batched_tokens": 16384},
            71.27 - 14.99 - 1.97 - 0.07,
        ),
        (
            "Llama-3.1-8B",
            "RTX-3090",
            {"version": "0.6.3", "max_model_len": 20_000, "chunked_prefill": False},
            3.81 + 0.9 * (23.69 - 23.58),
        ),
        # vLLM PR 10511: one H100, 0.6.4
        ("Llama-3-8B", "H100-SXM-80GB", {"version": "0.6.4", "max_model_len": 8192, "chunked_prefill": False}, 53.29),
    ],
)
def test_room_for_the_cache_as_logged(model: str, name: str, changes: dict[str, Any], kv_gib: float) -> None:
    found = resolve_model(model)
    held = footprint(found, device(name), settings(found, **changes), typical_tokens=2048)
    assert held.kv_cache_bytes / GIB == pytest.approx(kv_gib, rel=0.03)


def test_parts_add_up_to_the_fraction_of_the_device() -> None:
    found = resolve_model("Llama-3.1-8B")
    held = footprint(found, device("A100-SXM-80GB"), settings(found, version="0.33.0"), typical_tokens=1000)
    used = held.weights_bytes + held.activation_bytes + held.overhead_bytes + held.kv_cache_bytes
    assert used == pytest.approx(0.9 * held.device_bytes, abs=2)
    assert held.kv_tokens * 131_072 == pytest.approx(held.kv_cache_bytes, rel=0.02)
    assert held.kv_blocks == held.kv_tokens // 16
    assert held.max_sequences == held.kv_cache_bytes // held.kv_bytes_per_sequence
    assert held.kv_bytes_per_sequence == 1008 * 131_072  # whole blocks of 16 tokens


def test_windows_count_once_they_are_full() -> None:
    gemma = resolve_model("google/gemma-3-27b-it")
    held = footprint(gemma, device("H100-SXM-80GB"), settings(gemma, max_model_len=32_768), typical_tokens=32_768)
    assert held.kv_bytes_per_sequence == 32_768 * 81_920 + 1024 * 425_984


def test_kv_heads_repeat_beyond_their_number_and_latents_always() -> None:
    nano = resolve_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")  # 2 KV heads
    two, eight = (settings(nano, tensor_parallel_size=t) for t in (2, 8))
    growth = [rank_sequence_bytes(nano, 2000, s) - rank_sequence_bytes(nano, 1000, s) for s in (two, eight)]
    assert growth[0] == growth[1] == 1000 * 6144 / 2

    r1 = resolve_model("DeepSeek-R1")
    assert rank_sequence_bytes(r1, 1000, settings(r1, tensor_parallel_size=8)) == sequence_bytes(r1, 1000, "bf16")


def test_pipeline_stages_split_layers_and_keep_an_end() -> None:
    found = resolve_model("Llama-3.1-70B")
    whole = rank_weights_bytes(found, settings(found))
    half = rank_weights_bytes(found, settings(found, pipeline_parallel_size=2))
    end = 128_256 * 8192 * 2
    assert whole == found.published_weights_bytes
    assert half == pytest.approx((whole - 2 * end) / 2 + end, rel=1e-4)


def test_expert_parallelism_spreads_experts_over_data_parallel_ranks() -> None:
    found = resolve_model("Qwen/Qwen3-30B-A3B")
    one = rank_weights_bytes(found, settings(found))
    sliced = rank_weights_bytes(found, settings(found, data_parallel_size=4))
    spread = rank_weights_bytes(found, settings(found, data_parallel_size=4, expert_parallel=True))
    assert sliced == spread  # vLLM slices experts over all ranks where it does not spread them
    assert one - spread == pytest.approx(found.routed_parameters * 2 * 3 / 4, rel=1e-3)


def test_replicas_of_the_attention_keep_their_own_latents_and_share_the_experts() -> None:
    r1 = resolve_model("DeepSeek-R1")
    tensor = settings(r1, tensor_parallel_size=8, max_model_len=16_384)
    replicas = settings(r1, data_parallel_size=8, expert_parallel=True, max_model_len=16_384)
    mixed = settings(r1, tensor_parallel_size=4, data_parallel_size=2)
    whole, experts = r1.published_weights_bytes, sum(g.published_bytes for g in r1.weights if g.split == "expert")
    assert rank_weights_bytes(r1, replicas) == math.ceil(whole - experts + experts / 8)
    shared = sum(g.published_bytes for g in r1.weights if g.split == "shared")
    assert shared == pytest.approx(58 * 3 * 7168 * 2048, rel=1e-3)  # one shared expert in 58 layers, FP8 with scales
    repeated = rank_weights_bytes(r1, replace(mixed, expert_parallel=True)) - rank_weights_bytes(r1, mixed)
    assert repeated == pytest.approx(shared * 3 / 4, abs=2)
    h200 = device("H200-SXM-141GB")
    one, all_ = (footprint(r1, h200, s, typical_tokens=4096) for s in (tensor, replicas))
    assert one.kv_bytes_per_sequence == all_.kv_bytes_per_sequence
    assert all_.kv_tokens == pytest.approx(8 * all_.kv_cache_bytes / 70_272, rel=1e-4)
    assert all_.max_sequences == 8 * (all_.kv_cache_bytes // all_.kv_bytes_per_sequence) > 4 * one.max_sequences


def test_other_precisions_convert_linear_layers_only() -> None:
    found = resolve_model("Llama-3.1-8B")
    linear = 6_979_321_856
    assert weights_bytes(found, "fp8") == pytest.approx(linear + (found.parameters - linear) * 2, rel=1e-3)
    assert weights_bytes(resolve_model("DeepSeek-R1"), "bf16") == 2 * 671_026_404_352


def test_fractions_mean_what_the_engine_means() -> None:
    found = resolve_model("Llama-3.1-8B")
    room = {}
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        chosen = settings(found, engine=engine, memory_fraction=0.8, version="")
        held = footprint(found, device("H100-SXM-80GB"), chosen, typical_tokens=1000)
        room[engine] = held.kv_cache_bytes
    memory = device("H100-SXM-80GB").memory_bytes
    assert room["sglang"] == pytest.approx(0.8 * memory - found.published_weights_bytes, abs=1)
    assert room["vllm"] < room["tensorrt-llm"] < 0.8 * (memory - found.published_weights_bytes)


def test_what_does_not_fit_says_why() -> None:
    found = resolve_model("Llama-3.1-70B")
    held = footprint(found, device("H100-SXM-80GB"), settings(found), typical_tokens=1000)
    assert not held.fits
    assert "131.4 GiB" in held.reason
    assert held.kv_cache_bytes == 0
    assert held.headroom_share < 0


def test_adapters_take_their_slots() -> None:
    found = resolve_model("Llama-3.1-8B")
    plain = footprint(found, device("L40S"), settings(found), typical_tokens=1000)
    with_lora = footprint(found, device("L40S"), settings(found, lora_slots=4, lora_max_rank=16), typical_tokens=1000)
    # rank 16 on all seven projections of Llama-3.1-8B: 41,943,040 parameters; on embedding and head 16 x 2 x 132,352
    assert with_lora.weights_bytes - plain.weights_bytes == 4 * 2 * (41_943_040 + 16 * 2 * (128_256 + 4096))


def test_adapters_over_ranks_keep_one_half_whole() -> None:
    """By hand from vLLM 0.32: q, k, v, gate and up keep their inputs, o and down their outputs; the rest is divided."""
    found = resolve_model("Llama-3.1-8B")
    hidden, inner, kv = 4096, 14_336, 1024
    whole = 5 * hidden + 2 * hidden
    split = hidden + 2 * kv + 2 * inner + hidden + inner
    vocabulary = 2 * (128_256 + hidden)
    four = lora_bytes(found, settings(found, tensor_parallel_size=4, lora_slots=2, lora_max_rank=8))
    assert four == 2 * 8 * 2 * (32 * (whole + split // 4) + vocabulary)


def test_every_expert_has_its_own_adapter() -> None:
    found = resolve_model("mistralai/Mixtral-8x7B-v0.1")
    one = lora_bytes(found, settings(found, lora_slots=1, lora_max_rank=16))
    experts = 32 * 8 * (2 * 4096 + 2 * 14_336 + 14_336 + 4096)
    around = 32 * (4 * 4096 + 4096 + 2 * 1024 + 4096 + 4096 + 8 - 4096)
    assert one == pytest.approx(16 * 2 * (experts + around + 2 * (32_000 + 4096)), rel=0.01)
    spread = lora_bytes(
        found, settings(found, data_parallel_size=8, expert_parallel=True, lora_slots=1, lora_max_rank=16)
    )
    assert one - spread == pytest.approx(16 * 2 * experts * 7 / 8, rel=1e-6)


def test_encoders_have_no_cache() -> None:
    found = resolve_model("BAAI/bge-large-en-v1.5")
    held = footprint(found, device("L4"), settings(found), typical_tokens=512)
    assert held.fits
    assert held.kv_bytes_per_sequence == 0
    assert held.max_sequences == 256


@pytest.mark.parametrize(
    ("model", "changes", "part"),
    [
        ("Qwen/Qwen2.5-7B", {"tensor_parallel_size": 8}, "28 attention heads"),
        ("Qwen/Qwen2.5-14B", {"tensor_parallel_size": 16}, "40 attention heads"),
        ("microsoft/phi-4-mini-instruct", {"tensor_parallel_size": 16}, "24 attention heads"),
        ("Qwen/Qwen3-30B-A3B-FP8", {"tensor_parallel_size": 8}, "768 / 8 = 96 is not a multiple"),
        ("DeepSeek-R1", {"tensor_parallel_size": 8}, ""),
        ("openai/gpt-oss-120b", {"tensor_parallel_size": 8, "expert_parallel": True}, ""),
        (
            "openai/gpt-oss-120b",
            {"tensor_parallel_size": 16, "expert_parallel": True, "data_parallel_size": 3},
            "48 ranks",
        ),
        ("Llama-3.1-8B", {"pipeline_parallel_size": 33}, "33 pipeline stages"),
        ("google/gemma-4-E2B-it", {"tensor_parallel_size": 8}, ""),
    ],
)
def test_legal_parallelism(model: str, changes: dict[str, Any], part: str) -> None:
    found = resolve_model(model)
    problem = legal_parallelism(found, settings(found, **changes))
    assert part in problem if part else problem == ""


@pytest.mark.parametrize(
    ("method", "group", "tensor", "part"),
    [
        ("gptq", 128, 2, ""),
        ("gptq", 128, 4, "11008 / 4 = 2752 is not a multiple of the quantisation block 128"),
        ("gptq", 64, 4, ""),
        ("gptq", 64, 8, "11008 / 8 = 1376 is not a multiple of the quantisation block 64"),
        ("awq", 64, 8, "legal tensor parallel sizes: 1, 2, 4"),
        ("gptq", 32, 8, ""),
        ("gptq", -1, 8, ""),
        ("gptq", 96, 1, "hidden size 4096 is not a multiple of the quantisation group 96"),
        ("gptq", 256, 2, "11008 / 2 = 5504 is not a multiple of the quantisation block 256"),
        ("gptq", 16384, 1, ""),
    ],
)
def test_groups_of_packed_integers_stay_whole(method: str, group: int, tensor: int, part: str) -> None:
    """As vLLM 0.32 checks them: inputs per rank by the group, unless one group is as wide as all inputs."""
    found = _integers(method, group, intermediate_size=11008)
    problem = legal_parallelism(found, settings(found, tensor_parallel_size=tensor))
    assert part in problem if part else problem == ""


def test_groups_of_experts_are_halved_to_fit() -> None:
    """768 / 4 = 192 inputs are no groups of 128, but groups of 64; a block of FP8 is not halved."""
    moe = {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    found = _integers("gptq", 128, architectures=["Qwen3MoeForCausalLM"], decoder_sparse_step=1, **moe)
    assert legal_parallelism(found, settings(found, tensor_parallel_size=4)) == ""
    assert "768 / 16 = 48" in legal_parallelism(found, settings(found, tensor_parallel_size=16))
    native = resolve_model("Qwen/Qwen3-30B-A3B-FP8")
    assert "768 / 4 = 192" in legal_parallelism(native, settings(native, tensor_parallel_size=4))


def _integers(method: str, group: int, **changes: Any) -> Architecture:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "hidden_size": 4096,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "vocab_size": 32_000,
        "quantization_config": {"quant_method": method, "bits": 4, "group_size": group},
    }
    return read_architecture(config | changes, method)


def test_slices_do_not_form_a_group() -> None:
    found = resolve_model("Qwen/Qwen3-1.7B")
    piece = device("A100-SXM-80GB", "3g.40gb")
    assert footprint(found, piece, settings(found), typical_tokens=1000).fits
    held = footprint(found, piece, settings(found, tensor_parallel_size=2), typical_tokens=1000)
    assert not held.fits
    assert "MIG" in held.reason


def test_custom_models() -> None:
    memory = CustomMemory(weights="200GB", kv_cache="50GB", overhead="10GB", shardable=True)
    h100 = device("H100-SXM-80GB")
    assert [custom_footprint(memory, h100, n).fits for n in (1, 2, 4, 8)] == [False, False, True, True]
    assert custom_footprint(memory, h100, 4).weights_bytes == 50_000_000_000
    whole = memory.model_copy(update={"shardable": False})
    assert "not be split" in custom_footprint(whole, h100, 4).reason


def _every_known_model() -> list[Architecture]:
    folder = Path(__file__).parents[2] / "data" / "model_truth"
    rows = csv.DictReader((folder / "families.csv").read_text().splitlines())
    raws = [
        {"model_type": r["model_type"], "architectures": [r["class"]], **json.loads(r["parts"] or "{}")} for r in rows
    ]
    raws += [row["config"] for row in json.loads((folder / "published_totals.json").read_text())]
    return [read_architecture(raw, f"model {i}") for i, raw in enumerate(raws)]


def test_the_ranks_together_hold_every_model() -> None:
    for model in _every_known_model():
        before = math.inf
        for tensor in (1, 2, 4, 8, 16):
            one = EngineSettings(tensor_parallel_size=tensor, max_model_len=4096)
            two = replace(one, pipeline_parallel_size=2)
            held = rank_weights_bytes(model, one)
            assert tensor * held >= weights_bytes(model, "bf16") * 0.999_999, model.family
            assert 2 * tensor * rank_weights_bytes(model, two) >= weights_bytes(model, "bf16") * 0.999_999, model.family
            assert held <= before, model.family
            before = held


def test_ranks_gather_the_tokens_of_all_for_their_experts() -> None:
    """Sixteen ranks of DeepSeek-R1 with 8,192 tokens each need 23 GB for it, which an H100 does not have left."""
    r1, h100 = resolve_model("DeepSeek-R1"), device("H100-SXM-80GB")
    ranks = settings(r1, data_parallel_size=16, expert_parallel=True, max_num_batched_tokens=8192)
    held = footprint(r1, h100, ranks, typical_tokens=1000)
    assert not held.fits
    assert held.activation_bytes == 2 * 8192 * (3 * 7168 + 16 * (8 * (7168 + 2048) + 2 * 7168))
    assert rank_step_tokens(8192, 16) == 2048
    assert rank_step_tokens(8192, 2) == 4096
    assert rank_step_tokens(2048, 2) == rank_step_tokens(2048, 1) == 2048
    assert footprint(r1, h100, replace(ranks, max_num_batched_tokens=2048), typical_tokens=1000).fits
