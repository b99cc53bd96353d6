"""Weight files beside a configuration: believed where they are whole and describe the same model, told where not."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.reader import stored_weights
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LAYER = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
PARAMETERS = 2 * 1000 * 64 + 2 * LAYER + 64
WIDTHS = {"BF16": 2, "F32": 4, "F16": 2, "I32": 4}


def tensors_of(dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    names = {"model.embed_tokens.weight": [1000, 64], "lm_head.weight": [1000, 64], "model.norm.weight": [64]}
    names |= {f"model.layers.{i}.all": [LAYER] for i in range(2)}
    return {name: (dtype, shape) for name, shape in names.items()}


def write(path: Path, tensors: dict[str, tuple[str, list[int]]], *, data: float = 1.0) -> None:
    """A safetensors file; `data` is the part of its tensors that is there."""
    entries, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = WIDTHS[dtype] * math.prod(shape)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(int(end * data)))


def index(folder: Path, total: object, files: dict[str, str]) -> None:
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": files})
    (folder / "model.safetensors.index.json").write_text(text)


def read(folder: Path, **changes: Any) -> Architecture:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return resolve_model(str(folder))


def told(found: Architecture) -> str:
    return " ".join((*found.notes, *found.approximations))


def test_whole_files_count_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"kv_cache_quant_algo": "FP8"}}))
    extra = {"model.layers.2.mtp_head": ("BF16", [7]), "mtp.x": ("BF16", [3]), "model.position_ids": ("F32", [5])}
    write(tmp_path / "model-00001-of-00002.safetensors", tensors_of())
    write(tmp_path / "model-00002-of-00002.safetensors", extra)
    write(tmp_path / "consolidated.safetensors", {"again": ("BF16", [1000])})
    found, stored = read(tmp_path), stored_weights(tmp_path, 2)

    assert found.parameters == PARAMETERS
    assert found.published_weights_bytes == 2 * PARAMETERS + 20
    assert sum(group.published_bytes for group in found.weights) == found.published_weights_bytes
    assert found.kv_dtype_published == "fp8"
    assert stored is not None
    assert (stored.extra_bytes, stored.elements, stored.main_dtype, stored.remark) == (20, PARAMETERS + 5, "bf16", "")
    assert f"{PARAMETERS + 5:,} elements" in told(found)


def test_another_precision_than_the_configuration_says_is_taken_from_the_files(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", tensors_of("F16"))
    found = read(tmp_path, torch_dtype="float32")
    assert (found.published_dtype, found.published_weights_bytes) == ("fp16", 2 * PARAMETERS)
    assert "the files count" in told(found)


def test_files_settle_what_a_configuration_leaves_open(tmp_path: Path) -> None:
    packed = {name: ("I32", [max(1, math.prod(shape) // 8)]) for name, (_, shape) in tensors_of().items()}
    write(tmp_path / "model.safetensors", packed)
    size = sum(4 * shape[0] for _, shape in packed.values())
    found = read(tmp_path, quantization_config={"quant_method": "made_up"})
    assert found.published_weights_bytes == size
    assert "made_up" in told(found)


@pytest.mark.parametrize("total", [2 * PARAMETERS, int(2.1 * PARAMETERS)])
def test_an_index_alone_gives_the_total(tmp_path: Path, total: int) -> None:
    index(tmp_path, total, {"a": "model-00001-of-00001.safetensors"})
    assert read(tmp_path).published_weights_bytes == total
    assert resolve_model(str(tmp_path / "config.json")).published_weights_bytes == 2 * PARAMETERS


@pytest.mark.parametrize("total", [5, 2 * PARAMETERS // 20, 100 * PARAMETERS])
def test_an_index_that_contradicts_the_configuration_is_told(tmp_path: Path, total: int) -> None:
    index(tmp_path, total, {})
    found = read(tmp_path)
    assert found.published_weights_bytes == 2 * PARAMETERS
    assert "are not counted" in told(found)
    assert found.approximations


@pytest.mark.parametrize(
    "tensors",
    [{"model.norm.weight": ("BF16", [4])}, {"big": ("BF16", [9 * PARAMETERS])}, {"half": ("BF16", [PARAMETERS // 2])}],
    ids=["almost-nothing", "another-model", "half"],
)
def test_tensors_that_contradict_the_configuration_are_told(
    tmp_path: Path, tensors: dict[str, tuple[str, list[int]]]
) -> None:
    write(tmp_path / "model.safetensors", tensors)
    found = read(tmp_path)
    assert found.published_weights_bytes == 2 * PARAMETERS
    assert "another model or to a part of this one" in told(found)


def test_one_of_several_numbered_shards(tmp_path: Path) -> None:
    write(tmp_path / "model-00001-of-00004.safetensors", {"model.embed_tokens.weight": ("BF16", [1000, 64])})
    found = read(tmp_path)
    assert found.published_weights_bytes == 2 * PARAMETERS
    assert "3 of 4 are missing, such as model-00002-of-00004.safetensors" in told(found)


def test_shards_that_the_index_names_and_are_not_there(tmp_path: Path) -> None:
    write(tmp_path / "model-a.safetensors", {"model.embed_tokens.weight": ("BF16", [1000, 64])})
    index(tmp_path, 2 * PARAMETERS, {"x": "model-a.safetensors", "y": "model-b.safetensors"})
    found = read(tmp_path)
    assert found.published_weights_bytes == 2 * PARAMETERS
    assert "safetensors index" in told(found)


def test_a_download_that_broke_off(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", tensors_of(), data=0.3)
    found = read(tmp_path)
    assert found.published_weights_bytes == 2 * PARAMETERS
    assert "ends before its last tensor" in told(found)


def test_pointers_of_git_lfs_are_no_weights(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n"
    (tmp_path / "model-00001-of-00001.safetensors").write_bytes(pointer)
    found = read(tmp_path)
    assert found.published_weights_bytes == 2 * PARAMETERS
    assert "1 of 1 are missing" in told(found)
    index(tmp_path, 2 * PARAMETERS + 64, {"x": "model-00001-of-00001.safetensors"})
    assert read(tmp_path).published_weights_bytes == 2 * PARAMETERS + 64


@pytest.mark.parametrize("offsets", [[0, 10**12], [5, 5], [100, 0]], ids=str)
def test_a_span_that_contradicts_the_shape_is_refused(tmp_path: Path, offsets: list[int]) -> None:
    text = json.dumps({"x": {"dtype": "BF16", "shape": [8], "data_offsets": offsets}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    with pytest.raises(BadInputError) as caught:
        read(tmp_path)
    assert caught.value.code == "RS2007"
    assert "its shape takes 16" in caught.value.message
