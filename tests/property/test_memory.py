"""What must hold for every architecture: memory grows with what it holds, and shards add up."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rightslice.catalogue.accelerators import accelerators, device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.engines import engine
from rightslice.catalogue.models import model_names, resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError
from rightslice.memory.arguments import parse_arguments
from rightslice.memory.cache import rank_sequence_bytes, sequence_bytes
from rightslice.memory.computation import cache_dtype
from rightslice.memory.footprint import footprint, legal_parallelism
from rightslice.memory.reservation import cache_plan
from rightslice.memory.sizing import SizeRequest, size
from rightslice.memory.weights import lora_bytes, rank_weights_bytes, weights_bytes

SIZES = (1, 2, 4, 8, 16)
shipped = st.sampled_from(sorted(model_names())).map(resolve_model)
tokens = st.integers(min_value=1, max_value=200_000)
KINDS = ("full_attention", "sliding_attention")


@st.composite
def invented(draw: st.DrawFn) -> Architecture:
    """A decoder with grouped queries, windows and experts in any mixture."""
    layers = draw(st.integers(1, 12))
    kv_heads = draw(st.sampled_from((1, 2, 4, 8)))
    raw: dict[str, Any] = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": draw(st.sampled_from((256, 1024, 4096))),
        "head_dim": draw(st.sampled_from((64, 128))),
        "num_attention_heads": kv_heads * draw(st.sampled_from((1, 2, 4))),
        "num_key_value_heads": kv_heads,
        "num_hidden_layers": layers,
        "intermediate_size": 2048,
        "moe_intermediate_size": 512,
        "num_experts": draw(st.sampled_from((0, 8, 64))),
        "num_experts_per_tok": 2,
        "layer_types": draw(st.lists(st.sampled_from(KINDS), min_size=layers, max_size=layers)),
        "sliding_window": draw(st.sampled_from((None, 128, 4096))),
        "use_sliding_window": True,
        "max_position_embeddings": 262_144,
        "vocab_size": 32_000,
        "tie_word_embeddings": draw(st.booleans()),
        "torch_dtype": "bfloat16",
    }
    return read_architecture(raw, "invented-1b")


models = st.one_of(shipped, invented())


@given(models, tokens, tokens)
def test_cache_grows_with_the_context(model: Architecture, one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert sequence_bytes(model, short, "bf16") <= sequence_bytes(model, long, "bf16")


@given(models, tokens)
def test_cache_grows_with_the_bits(model: Architecture, length: int) -> None:
    sizes = [sequence_bytes(model, length, dtype) for dtype in ("fp4", "fp8", "bf16")]
    assert sizes == sorted(sizes)


@given(models)
def test_weights_grow_with_the_bits(model: Architecture) -> None:
    sixteen = weights_bytes(model, "bf16")
    assert weights_bytes(model, "nvfp4") <= weights_bytes(model, "fp8") <= sixteen == weights_bytes(model, "fp16")
    assert weights_bytes(model, "fp32") == 2 * sixteen


@given(models, st.booleans())
def test_shards_hold_the_whole_and_never_grow(model: Architecture, spread: bool) -> None:
    base = EngineSettings(weight_dtype="bf16", expert_parallel=spread)
    whole = weights_bytes(model, "bf16")
    before = None
    for size_ in SIZES:
        rank = rank_weights_bytes(model, replace(base, tensor_parallel_size=size_))
        assert size_ * rank >= whole
        assert before is None or rank <= before
        before = rank


@given(models, st.sampled_from(SIZES), st.sampled_from((1, 2, 4, 8)), st.booleans())
def test_ranks_of_a_replica_hold_the_whole_and_more_of_them_never_more_each(
    model: Architecture, tensor: int, ranks: int, spread: bool
) -> None:
    base = EngineSettings(tensor_parallel_size=tensor, data_parallel_size=ranks, expert_parallel=spread)
    one = rank_weights_bytes(model, base)
    assert tensor * ranks * one >= weights_bytes(model, "bf16")
    if ranks > 1 or not spread:  # the first step to replicas makes shared experts whole
        assert rank_weights_bytes(model, replace(base, data_parallel_size=2 * ranks)) <= one
    assert rank_sequence_bytes(model, 1000, base) == rank_sequence_bytes(
        model, 1000, replace(base, data_parallel_size=1)
    )


@given(models, st.sampled_from(SIZES), st.integers(1, 8), st.integers(1, 256))
def test_adapters_and_drafting_only_add(model: Architecture, tensor: int, slots: int, rank: int) -> None:
    base = EngineSettings(tensor_parallel_size=tensor, lora_slots=slots, lora_max_rank=rank)
    assert lora_bytes(model, replace(base, lora_slots=0)) == 0
    assert 0 < lora_bytes(model, base) <= lora_bytes(model, replace(base, lora_slots=slots + 1))
    assert lora_bytes(model, replace(base, tensor_parallel_size=2 * tensor)) <= lora_bytes(model, base)
    mtp = replace(base, speculative_method="mtp", speculative_tokens=1)
    assert (rank_weights_bytes(model, mtp) > rank_weights_bytes(model, base)) == (model.predictor is not None)
    assert rank_sequence_bytes(model, 1000, mtp) >= rank_sequence_bytes(model, 1000, base)


@given(
    shipped,
    st.sampled_from(SIZES),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2, 8)),
    st.booleans(),
    st.integers(1, 131_072),
    st.sampled_from(("", "ngram", "mtp")),
    st.integers(0, 8),
)
def test_flags_that_manifests_emit_are_read_back_as_the_same_settings(
    model: Architecture, tensor: int, stages: int, ranks: int, spread: bool, length: int, method: str, adapters: int
) -> None:
    facts, h100 = engine("vllm"), device("H100-SXM-80GB")
    plain = parse_arguments(model, h100, facts, facts.latest_version, "").settings
    chosen = replace(
        plain,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=stages,
        data_parallel_size=ranks,
        expert_parallel=spread,
        max_model_len=length,
        kv_dtype=cache_dtype(model, "vllm", "", "bf16", "fp8"),  # type: ignore[arg-type]
        max_num_seqs=64,
        prefix_caching=False,
        memory_fraction=0.85,
        kv_cache_memory_bytes=10_705_206_477 if spread else 0,
        speculative_method=method,
        speculative_tokens=2 if method else 0,
        lora_slots=adapters,
        lora_max_rank=16 if adapters else 0,
    )
    flags = facts.arguments(chosen, "model")
    text = shlex.join(f"{flag}={value}" if value else flag for flag, value in flags.items() if flag != "--model")
    read = parse_arguments(model, h100, facts, facts.latest_version, text)
    assert read.settings == chosen
    assert not read.others


@given(models, tokens, st.sampled_from(SIZES), st.sampled_from((1, 2, 4)))
def test_cache_shards_hold_the_whole(model: Architecture, length: int, tensor: int, stages: int) -> None:
    chosen = EngineSettings(tensor_parallel_size=tensor, pipeline_parallel_size=stages)
    assert (
        tensor * stages * rank_sequence_bytes(model, length, chosen)
        >= sequence_bytes(model, length, "bf16") * 0.999_999
    )


versions = st.sampled_from(("0.9.2", "0.11.2", "0.15.1", "0.21.0", "0.26.0", "0.32.0"))


@given(models, tokens, st.sampled_from(SIZES), versions, st.sampled_from((16, 32, 64)), st.sampled_from((2048, 8192)))
def test_an_engine_never_reserves_less_than_the_architecture_keeps(
    model: Architecture, length: int, tensor: int, version: str, block: int, step: int
) -> None:
    """Apart from indexer keys, which engines keep in eight bit, and the spare column of a convolution state."""
    lean = tuple(replace(g, indexer_elements_per_token=0) for g in model.attention)
    spare = sum(g.layers * g.spare_state_bytes_per_sequence for g in lean)
    bare = replace(model, attention=lean)
    chosen = EngineSettings(
        version=version, tensor_parallel_size=tensor, block_size_tokens=block, max_num_batched_tokens=step
    )
    plan = cache_plan(bare, chosen)
    kept = rank_sequence_bytes(bare, length, chosen) - spare
    assert min(plan.bytes_per_request(length), plan.least_room_bytes(length)) >= kept * 0.999_999


@given(models, tokens, tokens, versions)
def test_a_reservation_grows_with_the_context(model: Architecture, one: int, other: int, version: str) -> None:
    plan = cache_plan(model, EngineSettings(version=version))
    short, long = sorted((one, other))
    assert plan.bytes_per_request(short) <= plan.bytes_per_request(long)
    assert plan.least_room_bytes(short) <= plan.least_room_bytes(long)
    room = plan.least_room_bytes(short)
    assert plan.longest_tokens(room, long) >= min(short, long)
    assert plan.concurrency(room, short) >= plan.concurrency(room, long)


@given(models, tokens, st.integers(512, 16_384), st.integers(512, 16_384), versions)
def test_a_reservation_grows_with_the_tokens_in_flight(
    model: Architecture, length: int, one: int, other: int, version: str
) -> None:
    small, large = (
        cache_plan(model, EngineSettings(version=version, max_num_batched_tokens=step)).bytes_per_request(length)
        for step in sorted((one, other))
    )
    assert small <= large


@given(models, tokens, st.integers(1 << 20, 1 << 40), st.integers(2, 64), versions)
def test_more_sequences_need_more_room(model: Architecture, length: int, room: int, times: int, version: str) -> None:
    plan = cache_plan(model, EngineSettings(version=version))
    held, more = plan.concurrency(room, length), plan.concurrency(room * times, length)
    assert held <= more
    if plan.pool_blocks(room):
        assert int(held) * plan.bytes_per_request(length) <= room
        assert plan.logged_tokens(room, length) <= plan.logged_tokens(room * times, length)


@given(models, st.sampled_from(sorted(accelerators())), st.sampled_from(SIZES), st.integers(16, 100_000))
def test_a_footprint_never_overfills_its_device(model: Architecture, name: str, tensor: int, length: int) -> None:
    chosen = EngineSettings(
        tensor_parallel_size=tensor,
        weight_dtype=model.published_dtype,  # type: ignore[arg-type]
        max_model_len=length,
    )
    held = footprint(model, device(name), chosen, typical_tokens=length)
    assert held.fits == (held.reason == "")
    if held.fits:
        total = held.weights_bytes + held.activation_bytes + held.overhead_bytes + held.kv_cache_bytes
        assert total <= held.device_bytes
        assert held.max_sequences >= 1
        assert not legal_parallelism(model, chosen)
        assert held.headroom_share >= 0


@given(models, st.integers(1, 4000), st.integers(0, 4000), st.integers(1, 64))
def test_the_equation_grows_with_the_question(model: Architecture, inputs: int, outputs: int, sequences: int) -> None:
    request = SizeRequest(inputs, outputs, sequences)
    totals = [
        size(model, larger).total_bytes
        for larger in (
            request,
            replace(request, output_tokens=outputs + 100),
            replace(request, output_tokens=outputs + 100, sequences=sequences + 1),
        )
    ]
    assert totals == sorted(totals)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "sliding_window", "layer_types", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "kv_lora_rank", "q_lora_rank", "compress_ratios", "block_configs", "hybrid_override_pattern", "text_config",
    "vision_config", "quantization_config", "tie_word_embeddings", "torch_dtype", "model_type", "architectures",
    "moe_layer_freq", "attn_type_list", "mlp_layer_types", "index_head_dim", "index_n_heads", "ssm_state_size",
    "num_kv_shared_layers", "linear_attn_config", "attention_types", "max_position_embeddings", "expand",
    "hybrid_layer_ids", "adapter_rank", "num_mem_blocks",
    "encoder_sparse_step", "ffn_multipliers", "mamba_step", "version",
    "cla_share_factor", "share_q_dim", "vision_lora", "img_processor", "mm_vision_tower", "ssm_cfg", "encoder_config",
)  # fmt: skip
TYPES = (
    "llama", "deepseek_v3", "deepseek_v4", "nemotron_h", "gemma4", "mamba", "qwen3_next", "whisper", "bert", "clip",
    "wav2vec2", "t5", "kimi_linear", "mllama", "falcon", "nobody",
    "zamba2", "rwkv", "jetmoe", "xlstm", "nllb-moe", "led",
    "openelm", "plamo2", "idefics2", "granite_speech",
    "ernie4_5_vl_moe", "internvl_chat", "phi4mm", "chatglm", "hunyuan",
)  # fmt: skip


@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(KEYS), json_values, max_size=6))
def test_any_configuration_is_read_or_refused(model_type: str, changes: dict[str, Any]) -> None:
    """Whatever stands in a configuration: an architecture with sane totals, or BadInputError."""
    base = {"model_type": model_type, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    raw = json.loads(json.dumps({**base, "vocab_size": 100, **changes}), parse_constant=lambda _: None)
    try:
        found = read_architecture(raw, "any")
    except BadInputError:
        return
    assert found.parameters >= found.active_parameters >= 0
    assert found.published_weights_bytes >= 0
