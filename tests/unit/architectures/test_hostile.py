"""Files that are broken or hostile: a diagnostic within a second and bounded memory, never a traceback."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rightslice.catalogue.models import model_exists, resolve_model
from rightslice.core.errors import BadInputError

GOOD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
SECONDS = 1.0
MEMORY_BYTES = 64 << 20


def refused(path: Path) -> BadInputError:
    """The error of reading `path`, which must come quickly and without eating memory."""
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(BadInputError) as caught:
        resolve_model(str(path))
    used_s = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used_s < SECONDS
    assert peak < MEMORY_BYTES
    return caught.value


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": 10**12},
        {"hidden_size": "4096"},
        {"hidden_size": [1, 2]},
        {"hidden_size": {"a": 1}},
        {"hidden_size": 0},
        {"hidden_size": 1.5},
        {"hidden_size": True},
        {"vocab_size": 10**30},
        {"intermediate_size": "big"},
        {"num_key_value_heads": 3},
        {"layer_types": ["full_attention"]},
        {"layer_types": ["full_attention", "mystery"]},
        {"layer_types": [1, 2]},
        {"num_local_experts": 4, "num_experts_per_tok": 8},
        {"num_local_experts": 10**9, "num_experts_per_tok": 1},
        {"tie_word_embeddings": "no"},
        {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["x"] * 200_000}},
        {"text_config": 5},
    ],
    ids=lambda change: str(change)[:60],
)
def test_wrong_values(tmp_path: Path, change: dict[str, Any]) -> None:
    error = refused(written(tmp_path, json.dumps({**GOOD, **change})))
    assert error.code == "RS2007"
    assert error.location is not None or "quantization_config" in change


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_missing_values(tmp_path: Path, key: str) -> None:
    unknown = {"model_type": "x", "architectures": ["XForCausalLM"]}
    error = refused(written(tmp_path, json.dumps({k: v for k, v in GOOD.items() if k != key} | unknown)))
    assert error.code == "RS2007"
    assert key.removeprefix("num_") in error.message or key in error.message


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "RS0405"),
        ("{", "RS0408"),
        (json.dumps(GOOD)[:60], "RS0408"),
        ("[1, 2]", "RS0104"),
        ('{"hidden_size": NaN}', "RS0408"),
        ('{"hidden_size": Infinity}', "RS0408"),
        ('{"hidden_size": ' + "9" * 100_000 + "}", "RS0408"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "RS0408"),
        (b"\xff\xfe\x00bad", "RS0403"),
    ],
    ids=["empty", "open", "truncated", "list", "nan", "infinity", "long-number", "deep", "binary"],
)
def test_broken_text(tmp_path: Path, text: str | bytes, rule: str) -> None:
    assert refused(written(tmp_path, text)).code == rule


def test_nested_parts_without_end(tmp_path: Path) -> None:
    nested: dict[str, Any] = dict(GOOD)
    for _ in range(300):
        nested = {"text_config": nested}
    error = refused(written(tmp_path, json.dumps(nested)))
    assert error.code == "RS2007"


def test_a_file_of_200_mb_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as handle:
        handle.truncate(200_000_000)
    assert refused(path).code == "RS0404"


def test_patterns_that_would_backtrack_for_ever(tmp_path: Path) -> None:
    evil = ["re:(a+)+$", "re:(.|.)*X", "re:" + ".*" * 40 + "X", "*" * 200 + "X", "re:("]
    config = {
        "quant_method": "compressed-tensors",
        "ignore": evil,
        "config_groups": {"g": {"weights": {"num_bits": 8}}},
    }
    started = time.process_time()
    resolve_model(str(written(tmp_path, json.dumps({**GOOD, "quantization_config": config}))))
    assert time.process_time() - started < SECONDS


def test_a_folder_without_configuration(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert error.code == "RS0401"
    assert "config.json" in error.message


@pytest.mark.parametrize("source", ["", "\0", "x" * 10_000, "no/such-model", "./missing.json", "/nowhere/config.json"])
def test_names_that_lead_nowhere(source: str) -> None:
    assert not model_exists(source)
    with pytest.raises(BadInputError) as caught:
        resolve_model(source)
    assert caught.value.code in {"RS0310", "RS0401"}


def header(tensors: dict[str, Any]) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 10 << 30) + b"{}",
        b"",
        b"\x01\x02",
        struct.pack("<Q", 500) + b"{}",
        header({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 1]}}),
        header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 1]}}),
        header({"a": {"dtype": "F32", "shape": "12"}}),
        header({"a": 5}),
        struct.pack("<Q", 3) + b"[1]",
    ],
    ids=["claims-10-gib", "empty", "short", "truncated", "dtype", "negative", "shape", "entry", "list"],
)
def test_broken_weight_files(tmp_path: Path, data: bytes) -> None:
    written(tmp_path, json.dumps(GOOD))
    (tmp_path / "model.safetensors").write_bytes(data)
    assert refused(tmp_path).code in {"RS2007", "RS0408", "RS0104"}


@pytest.mark.parametrize("size", [-5, "big", 1e400, None, 10**30])
def test_broken_index(tmp_path: Path, size: object) -> None:
    written(tmp_path, json.dumps(GOOD))
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": {}})
    (tmp_path / "model.safetensors.index.json").write_text(text)
    assert refused(tmp_path).code in {"RS2007", "RS0408"}


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ({"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 16}, "a PEFT adapter of org/base"),
        ({"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.30.0", "num_layers": 19}, "diffusion"),
        ({"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096}, "a tokenizer"),
        ({"image_processor_type": "SiglipImageProcessor", "do_resize": True}, "a preprocessor"),
        ({"do_sample": True, "temperature": 0.6, "transformers_version": "5.0"}, "settings of generation"),
        ({"metadata": {"total_size": 5}, "weight_map": {}}, "an index of weight files"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "a quantisation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_of_something_else_are_named(tmp_path: Path, raw: dict[str, Any], what: str) -> None:
    error = refused(written(tmp_path, json.dumps(raw)))
    assert error.code == "RS2007"
    assert what in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("adapter_config.json", "PEFT"),
        ("model_index.json", "diffusion"),
        ("m.gguf", "GGUF"),
        ("params.json", "Mistral"),
    ],
)
def test_folders_of_something_else_are_named(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).write_text("{}")
    error = refused(tmp_path)
    assert error.code == "RS0401"
    assert what in error.message


HYBRID: dict[str, Any] = {
    **GOOD,
    "model_type": "nemotron_h",
    "architectures": ["NemotronHForCausalLM"],
    "mamba_num_heads": 4,
    "mamba_head_dim": 32,
    "ssm_state_size": 16,
}


@pytest.mark.parametrize("change", [{"hybrid_override_pattern": ""}, {"layer_types": []}, {}], ids=str)
def test_hybrids_without_a_pattern(tmp_path: Path, change: dict[str, Any]) -> None:
    error = refused(written(tmp_path, json.dumps({**HYBRID, **change})))
    assert error.code == "RS2007"
    assert "layer_types" in (error.message + error.hint) or "one word" in error.hint


def test_sizes_left_to_the_class_are_told(tmp_path: Path) -> None:
    raw = {k: v for k, v in GOOD.items() if k not in ("intermediate_size", "vocab_size")}
    notes = " ".join(resolve_model(str(written(tmp_path, json.dumps(raw)))).notes)
    assert "default of the class llama" in notes
    assert "intermediate_size 11008" in notes
    assert "vocab_size 32000" in notes


def test_null_where_the_class_wants_a_number_is_a_guess(tmp_path: Path) -> None:
    found = resolve_model(str(written(tmp_path, json.dumps({**GOOD, "intermediate_size": None}))))
    assert any("intermediate_size 256 (null in the file; from hidden_size)" in text for text in found.approximations)


def test_text_configurations_nested_twice_keep_their_type_and_dtype(tmp_path: Path) -> None:
    outer = {"model_type": "llava", "text_config": {"text_config": GOOD}}
    found = resolve_model(str(written(tmp_path, json.dumps(outer))))
    assert (found.hidden_size, found.published_dtype) == (64, "bf16")
