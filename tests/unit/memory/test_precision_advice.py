"""Advice for a precision other than the published one: risk, checkpoints, recipes; whatever a configuration says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.accuracy import MOST_LOST_PERCENT, kv_risk, weight_risk
from rightslice.catalogue.checkpoints import quantised_checkpoints
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.models import model_exists, model_names, resolve_model
from rightslice.core.engine import DTYPE_BITS, Dtype, KvDtype
from rightslice.core.errors import BadInputError
from rightslice.memory.advice import PrecisionReport, precision_report
from rightslice.memory.recipe import no_recipe, recipe

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
DEVICES = tuple(device(name) for name in ("T4", "A100-SXM-80GB", "H100-SXM-80GB", "B200-SXM-180GB"))


def report(source: str, dtype: str | None, kv_dtype: str | None = None) -> PrecisionReport:
    found = precision_report(source, resolve_model(source), (dtype, kv_dtype), DEVICES)
    assert found is not None
    return found


def test_every_format_has_a_class_that_its_first_figure_allows() -> None:
    risks = [weight_risk(dtype, "") for dtype in get_args(Dtype)] + [kv_risk(dtype) for dtype in get_args(KvDtype)]
    for risk in risks:
        if risk.figures and (lost := risk.figures[0].loss_percent):
            assert lost[0] <= lost[1] <= MOST_LOST_PERCENT[risk.risk]
        assert risk.risk == "none" or risk.figures or "not measured" in risk.note
        assert all(re.fullmatch(r"20\d\d-\d\d(-\d\d)?", figure.date) for figure in risk.figures)
    assert weight_risk("mxfp4", "mxfp4").risk == "none"


def test_every_checkpoint_is_known_and_of_the_same_network_as_its_base() -> None:
    rows = read_json("checkpoints.json")["checkpoints"]
    found = 0
    for row in rows:
        made = resolve_model(row["model"])
        assert made.quantisation
        for base in row["base"]:
            if not model_exists(base):
                continue
            original = resolve_model(base)
            named = quantised_checkpoints(base, original, made.published_dtype)
            assert row["model"] in {checkpoint.model for checkpoint in named}
            assert made.published_weights_bytes < original.published_weights_bytes
            found += 1
    assert found >= 18


@pytest.mark.parametrize(
    ("source", "dtype", "expected"),
    [
        (LLAMA, "int4", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16"),
        ("Llama-3.1-8B", "int4", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16"),
        ("meta-llama/Meta-Llama-3.1-8B", "int4", ""),
        (LLAMA, "fp8", ""),
        ("Qwen/Qwen3-235B-A22B", "fp4", "nvidia/Qwen3-235B-A22B-NVFP4"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "nvfp4", ""),
        ("MiniMaxAI/MiniMax-M2.5", "nvfp4", "nvidia/MiniMax-M2.5-NVFP4"),
    ],
)
def test_checkpoints_are_found_by_base_and_network_not_by_name(source: str, dtype: str, expected: str) -> None:
    found = report(source, dtype)
    assert [c.model for c in found.checkpoints][:1] == ([expected] if expected else [])


def test_a_folder_has_no_checkpoints_even_with_a_famous_name(tmp_path: Path) -> None:
    folder = tmp_path / "meta-llama" / "Llama-3.1-8B-Instruct"
    folder.mkdir(parents=True)
    raw = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    (folder / "config.json").write_text(json.dumps({**raw, "torch_dtype": "bfloat16", "vocab_size": 128256}))
    assert report(str(folder), "int4").checkpoints == ()


def test_advice_goes_from_a_checkpoint_to_a_recipe_to_a_measurement() -> None:
    found = report(LLAMA, "int4", "fp8")
    order = [
        next(i for i, line in enumerate(found.advice) if part in line) for part in ("use ", "-o DIR", "evaluation")
    ]
    assert order == sorted(order)
    assert any("--kv-cache-dtype fp8" in line for line in found.advice)
    assert found.weights is not None
    assert [seen.level for seen in found.weights.support] == ["stored"] * 4
    assert found.weights.risk.risk == "medium"


@pytest.mark.parametrize(
    ("asked", "told", "levels"),
    [
        (("vllm", ""), "start the engine with --kv-cache-dtype nvfp4", ["refused"] * 3 + ["native"]),
        (("vllm", "0.19.0"), "take another version: vLLM 0.19.0", ["refused"] * 4),
        (("sglang", "0.5.23"), "start the engine with --kv-cache-dtype nvfp4", ["refused"] * 3 + ["native"]),
        (("tensorrt-llm", ""), "is not established", ["refused"] * 3 + ["native"]),
    ],
)
def test_the_engine_and_version_that_are_asked_about_decide(
    asked: tuple[str, str], told: str, levels: list[str]
) -> None:
    found = precision_report(LLAMA, resolve_model(LLAMA), (None, "fp4"), DEVICES, asked)
    assert found is not None
    assert found.kv is not None
    assert [seen.level for seen in found.kv.support] == levels
    assert told in found.advice[-1]


def test_nothing_to_say_about_what_is_published() -> None:
    llama = resolve_model(LLAMA)
    assert precision_report(LLAMA, llama, ("bf16", "bf16"), DEVICES) is None
    assert precision_report(LLAMA, llama, (None, None), DEVICES) is None
    raised = report("openai/gpt-oss-20b", "bf16")
    assert raised.weights is not None
    assert raised.weights.risk.risk == "none"
    assert "nothing is saved" in raised.advice[0]
    assert not any("-o DIR" in line for line in raised.advice)


def test_fp8_needs_no_preparation_and_a_quantised_source_no_recipe() -> None:
    assert any("while it loads" in line for line in report(LLAMA, "fp8").advice)
    assert any("start from one of 16 bit" in line for line in report("MiniMaxAI/MiniMax-M2.5", "nvfp4").advice)
    assert no_recipe(resolve_model("BAAI/bge-large-en-v1.5"), "fp8").startswith("recipes are for text decoders")


def test_heads_routers_towers_and_recurrent_mixers_stay_as_published() -> None:
    """Names of linear modules as Transformers 5.17 builds the models."""
    vl, tower = "model.visual", "model.vision_tower.encoder.layers.0"
    kept = {
        "Qwen/Qwen3-VL-30B-A3B-Instruct": ("lm_head", f"{vl}.blocks.0.attn.qkv", f"{vl}.merger.linear_fc1"),
        "google/gemma-3-27b-it": ("lm_head", f"{tower}.mlp.fc1", "model.multi_modal_projector.linear"),
        "meta-llama/Llama-4-Scout-17B-16E-Instruct": ("model.layers.0.feed_forward.router", "vision_model.patch"),
        "Qwen/Qwen3-Next-80B-A3B-Instruct": ("model.layers.0.linear_attn.in_proj_qkvz", "model.layers.0.mlp.gate"),
        "Qwen/Qwen1.5-MoE-A2.7B-Chat": ("model.layers.0.mlp.shared_expert_gate", "model.layers.0.mlp.gate"),
        "ai21labs/Jamba-v0.1": ("model.layers.0.mamba.x_proj", "model.layers.0.feed_forward.router"),
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("model.layers.0.mixer.in_proj", "model.layers.0.mixer.gate"),
    }
    lowered = (
        "model.layers.0.mlp.gate_proj", "model.layers.0.self_attn.o_proj", "model.layers.0.mlp.experts.3.gate_proj",
        "model.layers.0.feed_forward.shared_expert.gate_proj", "model.layers.0.mixer.q_proj",
        "model.layers.0.mixer.o_proj", "model.layers.0.block_sparse_moe.experts.1.w1",
    )  # fmt: skip
    for model, names in kept.items():
        patterns = [re.compile(p.removeprefix("re:")) for p in recipe(resolve_model(model), "fp8").ignore]
        assert all(any(pattern.match(name) for pattern in patterns) for name in names), model
        assert not any(pattern.match(name) for pattern in patterns for name in lowered), model


@given(model=st.sampled_from(sorted(model_names())), dtype=st.sampled_from(sorted(DTYPE_BITS)))
def test_every_model_has_a_recipe_or_a_reason(model: str, dtype: str) -> None:
    found = resolve_model(model)
    reason = no_recipe(found, dtype)
    if reason:
        with pytest.raises(ValueError, match=re.escape(reason)):
            recipe(found, dtype)
        return
    made = recipe(found, dtype)
    group = made.group_size or made.method.block or 1
    assert found.hidden_size % group == 0
    assert all(width % group == 0 for width in found.dense_intermediate_sizes)
    assert "re:.*lm_head$" in made.ignore


def test_integers_take_a_narrower_group_where_128_does_not_divide() -> None:
    assert recipe(resolve_model("deepseek-ai/DeepSeek-V2-Lite"), "int4").group_size == 64
    assert recipe(resolve_model(LLAMA), "int4").group_size == 0


LLAMA_SHAPE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 192, "intermediate_size": 500,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}  # fmt: skip
GROUPS = "config_groups"
ODD: tuple[Any, ...] = (
    {"quant_method": "compressed-tensors", GROUPS: {"g": {"weights": {"num_bits": 3, "type": "int"}}}},
    {"quant_method": "compressed-tensors", GROUPS: {"g": {"weights": None}, "h": 7}, "ignore": [1, None, "re:("]},
    {"quant_method": "gptq", "bits": "four", "group_size": -1},
    {"quant_method": "quark", "global_quant_config": {}},
    {"quant_method": "fp8", "weight_block_size": [0, "x"], "quantized_layers": {"mlp": {"quant_algo": 3}}},
    {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": None, "model.layers.1.mlp": {"quant_algo": "NVFP4"}}},
    {"quant_method": ["awq"]},
    [],
    "fp8",
    0,
)


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_quantisation_never_breaks_the_advice(odd: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_SHAPE, "quantization_config": odd}))
    try:
        found = resolve_model(str(tmp_path))
    except BadInputError as refused:
        assert refused.diagnostics[0].rule == "RS2007"
        return
    for dtype in DTYPE_BITS:
        for kv_dtype in get_args(KvDtype):
            made = precision_report(str(tmp_path), found, (dtype, kv_dtype), DEVICES)
            if made is not None and made.weights is not None:
                assert made.advice
