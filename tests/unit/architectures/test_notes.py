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
    assert "19.5 to 32.2 B parameters work per token, 28.0 B if all are chosen alike" in note


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
