"""What a configuration says that no single number can: it stands in the notes."""

from __future__ import annotations

from typing import Any

from rightslice.catalogue.architectures.assemble import read_architecture

LONGCAT: dict[str, Any] = {
    "architectures": ["LongcatFlashForCausalLM"],
    "model_type": "longcat_flash",
    "hidden_size": 6144,
    "num_layers": 28,
    "n_routed_experts": 512,
    "moe_topk": 12,
    "zero_expert_num": 256,
    "vocab_size": 131072,
    "torch_dtype": "bfloat16",
}


def test_experts_that_compute_nothing_make_active_parameters_a_range() -> None:
    """Published: 560 B parameters, 18.6 to 31.3 B active without the ends."""
    found = read_architecture(LONGCAT, "longcat")
    assert round(found.parameters / 1e9) == 561
    (note,) = [note for note in found.notes if "compute nothing" in note]
    (kept,) = found.attention  # vLLM 0.32 reserves 2,113,929,216 bytes for 32,768 tokens
    assert 2 * 32_768 * kept.layers * kept.kv_elements_per_token == 2_113_929_216
    blocks = {**{k: v for k, v in LONGCAT.items() if k != "num_layers"}, "num_hidden_layers": 56}
    assert read_architecture(blocks, "longcat").attention == found.attention
    assert "19.5 to 32.2 B parameters work per token, 28.0 B if all are chosen alike" in note


MLLAMA: dict[str, Any] = {
    "architectures": ["MllamaForConditionalGeneration"],
    "model_type": "mllama",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "mllama_text_model",
        "hidden_size": 4096,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
        "tie_word_embeddings": False,
    },
    "vision_config": {"model_type": "mllama_vision_model", "image_size": 560, "max_num_tiles": 4},
}


def test_cross_attention_layers_keep_the_image_and_not_the_answer() -> None:
    """Published: 10,670,220,835 parameters (21,340,441,670 bytes of weights in the index of the 11 B checkpoint)."""
    found = read_architecture(MLLAMA, "mllama")
    assert found.parameters == 10_670_220_835
    assert found.published_weights_bytes == 21_340_441_670
    assert found.cache_elements_per_token() == 32 * 2 * 8 * 128
    assert [(g.kind, g.layers) for g in found.attention] == [("full", 32), ("cross", 8)]
    (note,) = [note for note in found.notes if "image" in note]
    assert "4 tiles is 6,404 tokens to the language model: 209.8 MB of cross-attention cache" in note
    text = {k: v for k, v in MLLAMA["text_config"].items() if k != "cross_attention_layers"}
    assert read_architecture({**MLLAMA, "text_config": text}, "mllama").attention == found.attention


def test_only_draft_heads_know_fewer_words() -> None:
    found = read_architecture(LLAMA, "m")
    assert not any("draft_vocab_size" in note for note in found.notes)
    assert read_architecture({**LLAMA, "draft_vocab_size": 32_000}, "m").parameters == found.parameters


LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def _of_the_head(quantization: dict[str, Any], **changes: Any) -> list[str]:
    config = {**LLAMA, **changes, "quantization_config": {"quant_method": "modelopt", **quantization}}
    return [note for note in read_architecture(config, "m").notes if "output head" in note]


def test_a_head_that_the_checkpoint_lists_as_quantised_is_told() -> None:
    (note,) = _of_the_head({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": {"quant_algo": "NVFP4"}}})
    assert "as nvfp4; it is counted in bf16: 755.2 MB less where the file and the engine have it in nvfp4" in note


def test_a_head_that_no_list_leaves_out_is_told() -> None:
    """Engines convert what is not excluded; Model Optimizer excludes heads by itself."""
    (note,) = _of_the_head({"quant_algo": "FP8", "ignore": ["model.layers.0.self_attn*"]})
    assert "does not leave its output head out; it is counted in bf16, as usual: 525.3 MB less" in note
    assert _of_the_head({"quant_algo": "FP8", "ignore": ["lm_head"]}) == []
    assert _of_the_head({"quant_algo": "FP8"}, tie_word_embeddings=True) == []


def test_a_class_that_is_the_language_model_alone_has_no_tower() -> None:
    """The figure is that of the class in Transformers 5.19, built on the meta device."""
    found = read_architecture({**MLLAMA, "architectures": ["MllamaForCausalLM"]}, "mllama")
    assert found.parameters == 9_775_192_080
    assert not found.approximations
    assert read_architecture(MLLAMA, "mllama").parameters > found.parameters
