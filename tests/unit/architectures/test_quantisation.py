"""Bytes of quantised checkpoints: formats, exclusion lists, experts in a format of their own."""

from __future__ import annotations

from typing import Any

import pytest

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture

HIDDEN, INNER, LAYERS, VOCAB = 256, 512, 2, 1000
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "vocab_size": VOCAB,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
ATTENTION = 4 * HIDDEN * HIDDEN
MLP = 3 * HIDDEN * INNER
LINEAR = LAYERS * (ATTENTION + MLP)


def read(quantization: dict[str, Any] | None, hf_quant: dict[str, Any] | None = None, **changes: Any) -> Architecture:
    raw = {**CONFIG, **changes}
    if quantization is not None:
        raw["quantization_config"] = quantization
    return read_architecture(raw, "test", hf_quant=hf_quant)


def saved(found: Architecture) -> int:
    """Bytes below the 16-bit checkpoint."""
    return 2 * found.parameters - found.published_weights_bytes


@pytest.mark.parametrize(
    ("quantization", "bytes_per_weight", "dtype"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 128**2, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 0.5 + 2.5 / 128, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64, "int4"),
        (
            {
                "quant_method": "modelopt",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
            },
            0.5625,
            "nvfp4",
        ),
    ],
    ids=["fp8-block", "awq", "bnb", "nvfp4"],
)
def test_formats(quantization: dict[str, Any], bytes_per_weight: float, dtype: str) -> None:
    found = read(quantization)
    assert found.published_dtype == dtype
    assert saved(found) == pytest.approx(LINEAR * (2 - bytes_per_weight), abs=LAYERS * 7)


def test_a_group_per_input_channel_costs_an_index_with_gptq() -> None:
    awq = read({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True})
    gptq = read({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True})
    inputs = LAYERS * (6 * HIDDEN + INNER)
    assert gptq.published_weights_bytes - awq.published_weights_bytes == 4 * inputs


@pytest.mark.parametrize(
    ("listed", "kept"),
    [
        (["lm_head"], 0),
        (["model.layers.0.self_attn.q_proj"], HIDDEN * HIDDEN),
        (["model.layers.0.self_attn*"], ATTENTION),
        (["model.language_model.layers.1*"], ATTENTION + MLP),
        (["model.layers.1.*"], ATTENTION + MLP),
        (["model.layers.*.mlp"], LAYERS * MLP),
        (["re:.*mlp\\.(gate|up)_proj.*"], LAYERS * 2 * HIDDEN * INNER),
        (["re:.*self_attn.*"], LAYERS * ATTENTION),
        (["*.attn.*"], 0),  # Llama calls it self_attn
        (["gate"], 0),
        (["mtp.layers.0*", "model.layers.2*"], 0),
    ],
    ids=str,
)
def test_exclusion_lists(listed: list[str], kept: int) -> None:
    everything = saved(read({"quant_method": "modelopt", "quant_algo": "NVFP4"}))
    some = saved(read({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": listed}))
    assert everything - some == pytest.approx(kept * (2 - 0.5625), abs=1)


def test_experts_in_four_bits_under_an_eight_bit_method() -> None:
    moe: dict[str, Any] = {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLM"],
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "first_k_dense_replace": 0,
    }
    fp8 = read({"quant_method": "fp8", "weight_block_size": [128, 128]}, **moe)
    fp4 = read({"quant_method": "fp8", "weight_block_size": [128, 128]}, expert_dtype="fp4", **moe)
    saved_bytes = fp8.published_weights_bytes - fp4.published_weights_bytes
    assert saved_bytes == pytest.approx(fp8.routed_parameters * (1 + 4 / 128**2 - 0.5 - 1 / 32), rel=1e-3)


def test_mixed_precision_follows_the_list_of_each_format() -> None:
    listed = {
        "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.1.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    found = read(None, {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": listed}})
    assert saved(found) == pytest.approx(HIDDEN * INNER * 1.4375 + HIDDEN * HIDDEN, abs=8)


def test_a_declared_cache_format() -> None:
    assert read(None, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}).kv_dtype_published == "fp8"
    assert read({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}}).kv_dtype_published == "fp8"
    assert read(None).kv_dtype_published == ""


def test_a_missing_dtype_is_said() -> None:
    assert read(None, torch_dtype=None).published_dtype == "fp32"
    assert "no dtype" in read(None, torch_dtype=None).notes[0]
