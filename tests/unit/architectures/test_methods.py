"""Every quantisation method: read by its keys, approximated with a remark, or refused; never silently 16 bit."""

from __future__ import annotations

from typing import Any

import pytest

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.core.errors import BadInputError

HIDDEN, INNER, LAYERS = 256, 512, 2
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LINEAR = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER)
ROWS = LAYERS * (5 * HIDDEN + 2 * INNER)
COLUMNS = LAYERS * (6 * HIDDEN + INNER)


def read(quantization: Any, **changes: Any) -> Architecture:
    return read_architecture({**CONFIG, "quantization_config": quantization, **changes}, "test", where="config.json")


def bits(found: Architecture) -> float:
    """Mean bits of a converted weight, scales included."""
    return 16 - 8 * (2 * found.parameters - found.published_weights_bytes) / LINEAR


@pytest.mark.parametrize(
    ("quantization", "expected", "dtype"),
    [
        ({"quant_method": "gptq", "bits": 3, "group_size": 128, "sym": True},
         3 + 19 / 128 + 32 * COLUMNS / LINEAR, "int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1},
         8 + (24 * ROWS + 32 * COLUMNS) / LINEAR, "int8"),
        ({"quant_method": "auto-round", "bits": 2, "group_size": 32, "sym": True}, 2 + 18 / 32, "int4"),
        ({"quant_method": "intel/auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32}, 4.25, "mxfp4"),
        ({"quant_method": "inc", "bits": 8, "data_type": "mx_fp", "group_size": 32}, 8.25, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, 8 + 16 * ROWS / LINEAR, "fp8"),
        ({"quant_method": "ptpc_fp8"}, 8 + 16 * ROWS / LINEAR, "fp8"),
        ({"quant_method": "eetq"}, 8 + 16 * ROWS / LINEAR, "int8"),
        ({"quant_method": "bitnet", "quantization_mode": "offline"}, 2, "int4"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, 4.5, "int4"),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}}, 4.5,
         "int4"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8WeightOnlyConfig", "_data": {}}}},
         8 + 16 * ROWS / LINEAR, "fp8"),
        ({"quant_method": "quark", "exclude": ["lm_head"],
          "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}}, 8, "fp8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, 4.25,
         "mxfp4"),
        ({"quant_method": "quanto", "weights": "int4"}, 4.25, "int4"),
        ({"quant_method": "higgs", "bits": 4, "group_size": 256}, 4.125, "int4"),
        ({"quant_method": "fp_quant", "forward_dtype": "nvfp4"}, 4.5, "nvfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 4.125, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 64}, 4.25, "int4"),
        ({"quant_method": "modelopt_fp4"}, 4.5, "nvfp4"),
        ({"quant_method": "modelopt_mxfp8", "quant_algo": "MXFP8"}, 8.25, "fp8"),
        ({"bits": 4, "group_size": 64}, 4.5, "int4"),
    ],
    ids=lambda value: str(value)[:70] if isinstance(value, dict) else "",
)  # fmt: skip
def test_methods_with_published_meaning(quantization: dict[str, Any], expected: float, dtype: str) -> None:
    found = read(quantization)
    assert found.published_dtype == dtype
    assert bits(found) == pytest.approx(expected, rel=0.02)
    assert found.quantisation


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "made_up"}, 16),
        ({"quant_method": "made_up", "bits": 4}, 4),
        ({"quant_method": "made_up_fp8"}, 8),
        ({"quant_algo": "W2A16_NEW"}, 16),
        ({"quant_algo": "W4A99_NEW"}, 4),
        ({"quant_method": "modelopt"}, 16),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, 16),
        ({"quant_method": "bitsandbytes"}, 16),
        ({"quant_method": "compressed-tensors"}, 16),
        ({"quant_method": "torchao", "quant_type": "something_new"}, 16),
        ({"quant_method": "quark"}, 16),
        ({"quant_method": "vptq"}, 16),
        ({"quant_method": "vptq", "config_for_layers": {
            "model.layers.0.q_proj": {"num_centroids": [-1, 65536], "num_res_centroids": [-1, 256],
                                      "vector_lens": [-1, 8]}}}, 3.15),
        ({"quant_method": "spqr", "bits": 3}, 5),
    ],
    ids=lambda value: str(value)[:70] if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_is_not_known_is_said_with_what_to_supply(quantization: dict[str, Any], expected: float) -> None:
    found = read(quantization)
    assert bits(found) == pytest.approx(expected, rel=0.08)
    assert any("weight files" in text for text in found.approximations)


def test_codebooks_count() -> None:
    found = read({"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16})
    codebooks = 7 * LAYERS * 2**16 * 8 * 2
    assert 2 * found.parameters - found.published_weights_bytes == pytest.approx(LINEAR * 1.75 - codebooks, rel=0.01)
    assert "2 bits per weight" in found.notes[0]


@pytest.mark.parametrize(
    ("quantization", "told"),
    [
        ({"quant_method": "gptq", "bits": 0}, "bits = 0"),
        ({"quant_method": "gptq", "bits": -4}, "bits = -4"),
        ({"quant_method": "gptq", "bits": 7}, "bits = 7"),
        ({"quant_method": "awq", "bits": "four"}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size = 0"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -5}, "group_size = -5"),
        ({"quant_method": "hqq", "nbits": 9}, "nbits = 9"),
        ({"quant_method": "hqq", "nbits": 5}, "nbits = 5"),
        ({"quant_method": "eetq", "weights": "int4"}, "int4"),
        ({"quant_method": "quanto", "weights": "int5"}, "int5"),
        ({"quant_method": "fp_quant", "forward_dtype": "fp3"}, "fp3"),
        ({"quant_method": "aqlm", "num_codebooks": 0}, "num_codebooks = 0"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": 5}, "quant_method"),
        ({"quant_algo": 8}, "quant_algo"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 0}}}}, "num_bits = 0"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": 4}}}, "weights"),
        ({"quant_method": "compressed-tensors", "config_groups": [4]}, "config_groups"),
        ("fp8", "quantization_config"),
        ([8], "quantization_config"),
    ],
    ids=str,
)  # fmt: skip
def test_nonsense_is_refused_with_its_place(quantization: object, told: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read(quantization)
    assert caught.value.code == "RS2007"
    assert told in caught.value.message
    assert caught.value.location is not None


def test_sizes_that_stand_in_another_file_are_asked_for() -> None:
    with pytest.raises(BadInputError) as caught:
        read({"quant_method": "gguf"})
    assert caught.value.code == "RS0311"
    assert "--dtype" in caught.value.hint


@pytest.mark.parametrize("quantization", [None, {}, {"quant_method": "bitnet", "quantization_mode": "online"}], ids=str)
def test_no_quantisation(quantization: object) -> None:
    found = read(quantization)
    assert (found.published_dtype, found.approximations) == ("bf16", ())
    assert found.published_weights_bytes == 2 * found.parameters


def test_only_the_cache_is_quantised() -> None:
    found = read({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}})
    assert (found.published_dtype, found.kv_dtype_published, found.approximations) == ("bf16", "fp8", ())


def test_unusual_groups_and_missing_keys_are_told() -> None:
    assert any("group_size 100" in n for n in read({"quant_method": "gptq", "bits": 4, "group_size": 100}).notes)
    missing = " ".join(read({"quant_method": "awq"}).notes)
    assert "bits not given, 4 is the default of the class" in missing
    assert "group_size not given, 128 is the default of the class" in missing


def test_modules_with_bits_of_their_own() -> None:
    usual: dict[str, Any] = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
    extra = {"model.layers.0.mlp.up_proj": {"bits": 16}, "model.layers.1.mlp.up_proj": {"bits": 8}}
    more = read({**usual, "extra_config": extra}).published_weights_bytes - read(usual).published_weights_bytes
    each = HIDDEN * INNER
    assert more == pytest.approx(each * (2 - 0.5 - 2.5 / 128) + each * 0.5, rel=0.01)


@pytest.mark.parametrize("value", ["float64", "int8", "torch.complex64", 16, ["bfloat16"]], ids=str)
def test_types_that_no_engine_serves(value: object) -> None:
    with pytest.raises(BadInputError) as caught:
        read(None, torch_dtype=value)
    assert caught.value.code == "RS2007"
    assert "torch_dtype" in caught.value.message
    assert caught.value.hint


def test_an_unknown_algorithm_beside_the_configuration() -> None:
    raw = {"quantization": {"quant_algo": "INT3_SPECIAL"}}
    found = read_architecture(CONFIG, "test", hf_quant=raw)
    assert found.published_weights_bytes == 2 * found.parameters
    assert "INT3_SPECIAL" in found.approximations[0]
    with pytest.raises(BadInputError):
        read_architecture(CONFIG, "test", hf_quant={"quantization": "FP8"})
