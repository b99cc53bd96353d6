"""Classes of models at their default sizes: parameters and cache as the public implementation has them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.core.errors import BadInputError
from rightslice.memory import cache

TABLE = Path(__file__).parents[2] / "data" / "model_truth" / "families.csv"
ROWS = {row["model_type"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def read(**changes: Any) -> Architecture:
    return read_architecture({**LLAMA, **changes}, "test/model-7b")


@pytest.mark.parametrize("model_type", ROWS)
def test_defaults_of_the_class(model_type: str) -> None:
    row = ROWS[model_type]
    raw = {"model_type": model_type, "architectures": [row["class"]], **json.loads(row["parts"] or "{}")}
    found = read_architecture(raw, model_type)

    assert found.parameters == int(row["parameters"])
    assert found.approximations == ()
    if row["cache_bytes_per_token"]:
        growing = cache.growing_bytes_per_token(found, "bf16") + cache.indexer_bytes_per_token(found, "bf16")
        kept = (cache.window_tokens(found) or 0) * cache.windowed_bytes_per_token(found, "bf16")
        assert growing == float(row["cache_bytes_per_token"])
        assert kept + cache.state_bytes(found) == pytest.approx(float(row["cache_bytes_constant"]), rel=0.02)


def test_head_width_is_the_configured_one() -> None:
    assert read(head_dim=32).cache_elements_per_token() == 4 * 2 * 2 * 32
    assert read().cache_elements_per_token() == 4 * 2 * 2 * 8


def test_a_window_that_is_switched_off_or_never_binds_is_inert() -> None:
    qwen = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 512}
    assert cache.window_tokens(read(**qwen, use_sliding_window=False)) is None
    assert cache.window_tokens(read(**{**qwen, "sliding_window": 8192}, use_sliding_window=True)) is None
    some = read(**qwen, use_sliding_window=True, max_window_layers=3)
    assert [(g.kind, g.layers, g.window_tokens) for g in some.attention] == [("full", 3, 0), ("sliding", 1, 512)]


def test_patterns_may_be_strings_lists_or_numbers() -> None:
    by_list = read(layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=64)
    by_string = read(sliding_window_pattern="LG", sliding_window=64)
    assert by_list.attention == by_string.attention
    nemotron = read(
        model_type="nemotron_h",
        architectures=["NemotronHForCausalLM"],
        hybrid_override_pattern="M*-E",
        mamba_num_heads=4,
        mamba_head_dim=32,
        ssm_state_size=16,
        n_groups=1,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
    )
    assert sorted(g.kind for g in nemotron.attention) == ["full", "mamba"]
    assert [(g.layers, g.experts) for g in nemotron.moe] == [(1, 4)]


def test_expert_counts_have_many_names() -> None:
    names = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    sizes = {read(**{name: 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}).parameters for name in names}
    assert len(sizes) == 1


def test_widths_of_keys_and_values_may_differ_and_heads_too_by_kind_of_layer() -> None:
    found = read(
        model_type="mimo_v2_flash",
        architectures=["MiMoV2FlashForCausalLM"],
        head_dim=24,
        v_head_dim=16,
        swa_num_key_value_heads=4,
        hybrid_layer_pattern=[0, 1, 1, 0],
        sliding_window=128,
        n_routed_experts=4,
        num_experts_per_tok=1,
        moe_intermediate_size=32,
    )
    per_kind = {g.kind: g.kv_elements_per_token for g in found.attention}
    assert per_kind == {"full": 2 * 40, "sliding": 4 * 40}


def test_blocks_of_an_architecture_search() -> None:
    block = {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 2.0}}
    without = {"attention": {"no_op": True}, "ffn": {"no_op": True}}
    found = read(
        model_type="nemotron-nas",
        architectures=["DeciLMForCausalLM"],
        num_key_value_heads=None,
        intermediate_size=None,
        block_configs=[block, block, without, block],
    )
    assert sum(g.layers for g in found.attention) == 3
    assert found.dense_intermediate_sizes == (256,)


def test_an_unknown_class_is_flagged_never_silent() -> None:
    found = read(model_type="brand_new", architectures=["BrandNewForCausalLM"])
    assert found.parameters == read().parameters
    assert "brand_new" in found.approximations[0]
    outer: dict[str, Any] = {
        "model_type": "new_vlm",
        "architectures": ["NewVlm"],
        "text_config": LLAMA,
        "vision_config": {"hidden_size": 8, "depth": 2},
    }
    notes = " ".join(read_architecture(outer, "x").approximations)
    assert "new_vlm" in notes
    assert "vision_config" in notes


def test_the_class_in_architectures_stands_in_for_an_unknown_type() -> None:
    assert read(model_type="rebranded", architectures=["Qwen2ForCausalLM"]).approximations == ()


def test_a_class_that_is_known_to_be_read_wrongly_is_refused() -> None:
    with pytest.raises(BadInputError) as caught:
        read(model_type="reformer")
    assert caught.value.code == "RS0311"


@pytest.mark.parametrize(
    ("top", "inner", "tied"),
    [(None, None, False), (None, True, True), (False, True, False), (True, False, True)],
)
def test_tied_embeddings_inside_and_outside_the_text_part(top: bool | None, inner: bool | None, tied: bool) -> None:
    text = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}
    if inner is not None:
        text["tie_word_embeddings"] = inner
    raw: dict[str, Any] = {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": text,
    }
    if top is not None:
        raw["tie_word_embeddings"] = top
    assert read_architecture(raw, "x").tied_embeddings is tied


@pytest.mark.parametrize(
    "row", json.loads((TABLE.parent / "published_totals.json").read_text()), ids=lambda r: r["model"]
)
def test_published_totals(row: dict[str, Any]) -> None:
    """Files as public models have them, among them classes with code of their own and flat multimodal files."""
    assert read_architecture(row["config"], row["model"]).parameters == row["parameters"]
