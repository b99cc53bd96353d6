"""The engine's own cache plan: against vLLM's answers, published figures and the rules of older versions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine_cache import ANSWERS, NAMED, NOT_ASKED, PACKED, PACKED_ANSWERS, disagreements, packed_disagreements
from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import EngineSettings, KvDtype
from rightslice.memory.cache import rank_sequence_bytes
from rightslice.memory.reservation import cache_plan

WRITTEN = json.loads(ANSWERS.read_text())
GIB = 1 << 30


def test_every_answer_of_vllm_is_ours_to_the_last_block_and_token() -> None:
    """Groups, bytes, blocks, log line, refusal and longest length of each shipped model that its CPU build constructs.

    `make oracle` asks anew. What is not asked there is listed in `NOT_ASKED` with the reason.
    """
    assert list(disagreements(WRITTEN)) == []
    assert len(WRITTEN["models"]) >= 120
    assert set(NAMED) <= set(WRITTEN["models"])
    assert set(NOT_ASKED).isdisjoint(WRITTEN["models"])
    assert WRITTEN["not_built"] == {}
    assert any(a["kv_dtype"] == PACKED for answers in WRITTEN["models"].values() for a in answers)
    eight_bit = [name for name, answers in WRITTEN["models"].items() if any(a["kv_dtype"] == "fp8" for a in answers)]
    assert len(eight_bit) >= 20
    rooms = [room for answers in WRITTEN["models"].values() for answer in answers for room in answer["rooms"]]
    assert {room["starts"] for room in rooms} == {True, False}
    assert len(rooms) > 2000


@pytest.mark.parametrize(
    ("version", "name", "kept", "row"),
    [
        ("0.32.0", "H200-SXM-141GB", "fp8", 656),
        ("0.32.0", "B200-SXM-180GB", "fp8", 576),
        ("0.32.0", "RTX-PRO-6000", "fp8", 656),
        ("0.32.0", "RTX-PRO-6000", "bf16", 656),
        ("0.32.0", "H200-SXM-141GB", "bf16", 1152),
        ("0.20.0", "B200-SXM-180GB", "fp8", 576),
        ("0.15.1", "B200-SXM-180GB", "fp8", 656),
        ("0.9.2", "H200-SXM-141GB", "fp8", 576),
    ],
)
def test_latents_of_sparse_attention_are_packed_where_the_kernels_want_it(
    version: str, name: str, kept: KvDtype, row: int
) -> None:
    """A row per token and layer, and 128 bytes of indexer keys with a scale of four, on every rank."""
    model = resolve_model("nvidia/DeepSeek-V3.2-NVFP4")
    settings = EngineSettings(version=version, kv_dtype=kept, tensor_parallel_size=8)
    plan = cache_plan(model, settings, device(name))
    assert plan.bytes_per_request(16_384) == 16_384 * 61 * (row + 132)
    assert rank_sequence_bytes(model, 16_384, settings, device(name)) == 16_384 * 61 * (row + 132)


def test_compressed_latents_lie_beside_their_windows_and_states() -> None:
    """DeepSeek-V4 by vLLM's own planner: five groups, and as many blocks as short states in flight need."""
    written = json.loads(PACKED_ANSWERS.read_text())
    assert list(packed_disagreements(written)) == []
    assert len(written["models"]) == 4
    model = resolve_model("deepseek-ai/DeepSeek-V4-Flash")
    settings = EngineSettings(version="0.32.0", kv_dtype="fp8", max_num_batched_tokens=2048)
    per_layer = (37_440 + 8640) * 21 + 1728 * 20  # 64 entries and keys of 4 tokens each, 2 entries of 128
    assert cache_plan(model, settings).block_bytes == per_layer
    kept = rank_sequence_bytes(model, 25_600, settings) - rank_sequence_bytes(model, 25_600 - 256, settings)
    assert kept == per_layer
    assert not cache_plan(model, replace(settings, kv_dtype="bf16")).shared
    assert not cache_plan(model, replace(settings, version="0.28.0")).shared


def test_without_a_device_the_wider_row_counts() -> None:
    settings = EngineSettings(kv_dtype="fp8")
    sparse, dense = resolve_model("nvidia/DeepSeek-V3.2-NVFP4"), resolve_model("deepseek-ai/DeepSeek-V3")
    assert cache_plan(sparse, settings).bytes_per_request(16_384) == 16_384 * 61 * (656 + 132)
    assert cache_plan(dense, settings).bytes_per_request(16_384) == 16_384 * 61 * 576
    shared = resolve_model("zai-org/GLM-5.2")  # indexers in a part of the layers, sparse attention in all
    assert cache_plan(shared, settings).bytes_per_request(16_384) == 16_384 * (78 * 656 + 21 * 132)


@pytest.mark.parametrize(
    ("model", "in_flight", "gigabytes"),
    [
        ("gemma-3-27b-it", 2048, 32.00),
        ("gemma-3-27b-it", 8192, 52.94),
        ("gemma-3-27b-it", 16_384, 80.85),
        ("gpt-oss-120b", 2048, 10.31),
        ("gpt-oss-120b", 8192, 12.12),
        ("gpt-oss-120b", 16_384, 14.54),
    ],
)
def test_tokens_in_flight_multiply_the_cache_of_windows(model: str, in_flight: int, gigabytes: float) -> None:
    """Eight sequences of 32,768 tokens by vLLM 0.33's own classes, groups and padding apart."""
    plan = cache_plan(resolve_model(model), EngineSettings(version="0.33.0", max_num_batched_tokens=in_flight // 2))
    assert plan.in_flight_tokens == in_flight
    unpadded = sum(g.blocks(32_768, in_flight) * g.block_bytes for g in plan.groups)
    assert 8 * unpadded / 1e9 == pytest.approx(gigabytes, abs=0.005)
    assert plan.bytes_per_request(32_768) >= unpadded


def test_windows_cost_as_much_as_everything_before_they_were_kept_apart() -> None:
    settings = EngineSettings(version="0.9.2", max_num_batched_tokens=2048)
    gemma = resolve_model("gemma-3-27b-it")
    plan = cache_plan(gemma, settings)
    assert [g.layers for g in plan.groups] == [62]
    assert plan.bytes_per_request(32_768) == 32_768 * 62 * 16 * 128 * 2 * 2
    assert plan.logged_tokens(20 * GIB, 32_768) == 20 * GIB // plan.block_bytes * 16
    assert cache_plan(gemma, replace(settings, version="0.10.0")).bytes_per_request(32_768) < 8 * GIB


def test_the_log_line_of_windows_changed_and_the_room_did_not() -> None:
    """vllm#40691 and #43308: Gemma 4 printed a tenth of the tokens until the line followed the concurrency."""
    gemma = resolve_model("google/gemma-4-31B-it")
    old, new = (
        cache_plan(gemma, EngineSettings(version=version, max_num_batched_tokens=2048))
        for version in ("0.20.0", "0.21.0")
    )
    room, length = 50 * GIB, 262_144
    assert old.bytes_per_request(length) == new.bytes_per_request(length)
    assert old.concurrency(room, length) == new.concurrency(room, length)
    assert new.logged_tokens(room, length) == int(new.concurrency(room, length) * length)
    assert new.logged_tokens(room, length) > 4 * old.logged_tokens(room, length)


def test_levels_of_groups_changed_with_the_version() -> None:
    """13 layers with a window and 12 without are two groups of 13 where levelled, and 12 wide with padding before."""
    gpt = resolve_model("gpt-oss-20b")
    window, full = gpt.attention
    uneven = replace(gpt, attention=(replace(window, layers=13), full))
    widths = {
        version: [g.layers for g in cache_plan(uneven, EngineSettings(version=version)).groups]
        for version in ("0.11.2", "0.12.0", "0.32.0")
    }
    assert widths == {"0.11.2": [7, 6, 12], "0.12.0": [13, 12], "0.32.0": [13, 12]}


@pytest.mark.parametrize(("version", "batches"), [("0.11.2", 1), ("0.25.1", 1), ("0.26.0", 2), ("0.33.0", 2)])
def test_steps_in_flight_by_version(version: str, batches: int) -> None:
    plan = cache_plan(resolve_model("gemma-3-27b-it"), EngineSettings(version=version, max_num_batched_tokens=4096))
    assert plan.in_flight_tokens == 4096 * batches


def test_a_state_is_kept_twice_while_prefixes_are_cached() -> None:
    model = resolve_model("Qwen/Qwen3-Next-80B-A3B-Instruct")
    cached, plain = (
        cache_plan(model, EngineSettings(version="0.32.0", prefix_caching=caching)) for caching in (True, False)
    )
    assert [g.block_tokens for g in cached.groups if g.keeps == "all"] == [1056]
    assert cached.blocks_per_request(4096) - plain.blocks_per_request(4096) == 3


def test_kv_heads_repeat_beyond_their_number_and_a_latent_is_whole() -> None:
    def block(model: str, size: int) -> int:
        return cache_plan(resolve_model(model), EngineSettings(tensor_parallel_size=size)).block_bytes

    assert block("Qwen/Qwen2.5-7B", 1) == 4 * block("Qwen/Qwen2.5-7B", 4) == 4 * block("Qwen/Qwen2.5-7B", 8)
    assert block("DeepSeek-V3", 1) == block("DeepSeek-V3", 8) == 61 * 16 * 576 * 2


def test_an_engine_whose_pool_is_not_known_reserves_the_architectures_bytes_in_blocks() -> None:
    settings = EngineSettings(engine="sglang", version="0.5.3")
    gemma = resolve_model("gemma-3-27b-it")
    plan = cache_plan(gemma, settings)
    assert not plan.shared
    assert plan.bytes_per_request(32_768) == rank_sequence_bytes(gemma, 32_768, settings)
    assert (plan.pool_blocks(GIB), plan.logged_tokens(GIB, 32_768)) == (0, 0)
    assert plan.concurrency(10 * plan.bytes_per_request(4096), 4096) == 10


def test_a_model_without_a_cache_reserves_nothing() -> None:
    plan = cache_plan(resolve_model("BAAI/bge-base-en-v1.5"), EngineSettings())
    assert (plan.bytes_per_request(512), plan.concurrency(GIB, 512), plan.logged_tokens(GIB, 512)) == (0, 0.0, 0)
    assert plan.longest_tokens(0, 512) == 512
