"""Lists of modules in quantisation configurations, against a plain matcher over the full names of every module."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rightslice.app.models import find_model
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError

GB = 1e9
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def compressed(ignore: list[str], targets: list[str] | None = None, **weights: Any) -> dict[str, Any]:
    group = {"targets": targets or ["Linear"], "weights": {**INT4, **weights}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": group},
            "ignore": ignore}  # fmt: skip


def read(quantization: Any, raw: dict[str, Any] = LLAMA, **changes: Any) -> Architecture:
    return read_architecture({**raw, **changes, "quantization_config": quantization}, "test", where="config.json")


@pytest.mark.parametrize(
    ("ignored", "gigabytes"),
    [
        ("lm_head", 5.70),
        (r"re:.*layers\.0\..*", 6.02),
        (r"re:^model\.layers\.0\..*", 6.02),
        ("re:model.layers.0.*", 6.02),
        (r"re:.*layers\.0\.mlp.*", 5.96),
        (r"re:.*layers\.(0|1)\.mlp\.down_proj", 5.875),
        (r"re:model\.layers\.[0-3]\..*", 7.00),
        ("model.layers.0.mlp.down_proj", 5.79),
        ("model.layers.0", 5.70),
        (r"re:layers\.0\..*", 5.70),
        (r"re:.*linear_attn.*", 5.70),
        (r"re:.*self_attn\.qkv_proj", 6.896),
        (r"re:.*[kv]_proj", 6.10),
    ],
)
def test_what_compressed_tensors_ignores(ignored: str, gigabytes: float) -> None:
    found = read(compressed(["lm_head", ignored]))
    assert found.published_weights_bytes / GB == pytest.approx(gigabytes, abs=0.006)
    assert found.published_dtype == "int4"
    assert not found.approximations


@pytest.mark.parametrize(
    ("ignored", "gigabytes"),
    [
        ("lm_head", 7.693),
        (r"re:.*layers\.0\..*", 7.954),
        (r"re:^model\.layers\.0\..*", 7.954),
        ("re:model.layers.0.mlp.*", 7.954),
        ("model.layers.0.mlp.down_proj", 7.780),
    ],
)
def test_ignored_modules_beside_named_targets(ignored: str, gigabytes: float) -> None:
    found = read(compressed(["lm_head", ignored], ["re:.*mlp.*"]))
    assert found.published_weights_bytes / GB == pytest.approx(gigabytes, abs=0.002)


def test_a_head_that_is_not_ignored_is_converted() -> None:
    eight: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    kept = read(compressed(["lm_head"], **eight)).published_weights_bytes
    assert kept - read(compressed([], **eight)).published_weights_bytes == pytest.approx(128256 * 4096, rel=1e-6)
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
    assert read({**gptq, "lm_head": True}).published_weights_bytes < read(gptq).published_weights_bytes - 128256 * 4096


def test_rules_of_single_modules_with_gptq() -> None:
    plain = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
    rules = {"-:.*mlp.down_proj.*": {}, "+:.*self_attn.*": {"bits": 8, "group_size": 32}}
    down, attention = 32 * 4096 * 14336, 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    down_bytes = down * (2 - 0.5 - 2.5 / 128) - 32 * 4 * 14336
    attention_bytes = attention * (1 + 3 / 32 - 0.5 - 2.5 / 128)
    more = read({**plain, "dynamic": rules}).published_weights_bytes - read(plain).published_weights_bytes
    assert more == pytest.approx(down_bytes + attention_bytes, rel=1e-6)
    first = {r"-:model\.layers\.0\..*": {}, r"+:model\.layers\.0\..*": {"bits": 8}}
    assert read({**plain, "dynamic": first}) == read({**plain, "dynamic": dict(list(first.items())[:1])})
    only = {**plain, "modules_in_block_to_quantize": [["mlp.up_proj"], ["mlp.gate_proj"]]}
    assert read(only).published_weights_bytes == pytest.approx(
        read({**plain, "dynamic": {r"-:.*(self_attn|down_proj)": {}}}).published_weights_bytes, rel=1e-9
    )


def test_groups_that_do_not_divide_a_row_are_refused_with_awq() -> None:
    with pytest.raises(BadInputError, match="group_size 100 does not divide the 4096 inputs") as caught:
        read({"quant_method": "awq", "bits": 4, "group_size": 100})
    assert caught.value.code == "RS2007"


def test_a_wildcard_after_a_number_is_not_a_longer_number() -> None:
    one, ten = (
        read({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": [f"model.layers.{n}"]})
        for n in ("1*", "1.*")
    )
    assert one == ten


def test_an_expression_that_could_take_for_ever_is_told_and_matches_nothing() -> None:
    evil = ["re:(a+)+$", "re:" + "(m|m)" * 40 + "X", "re:" + ".*x" * 12, "re:("]
    found = read(compressed(["lm_head", *evil]))
    assert any("not read" in text and "(a+)+$" in text for text in found.approximations)
    assert found.published_weights_bytes == read(compressed(["lm_head"])).published_weights_bytes


BASE = {"hidden_size": 256, "num_hidden_layers": 12,
        "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 512, "vocab_size": 1024, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16"}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
TEXT = {**BASE, "head_dim": 64}
HYBRID = {**TEXT, **EXPERTS, "model_type": "qwen3_next", "shared_expert_intermediate_size": 128,
          "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "full_attention_interval": 4}  # fmt: skip
LATENT = {**BASE, "model_type": "deepseek_v3", "n_routed_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 128, "n_shared_experts": 1, "first_k_dense_replace": 2, "kv_lora_rank": 128,
          "q_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "dense": {**TEXT, "model_type": "qwen3"},
    "experts": {**TEXT, **EXPERTS, "model_type": "qwen3_moe"},
    "nested": {"model_type": "qwen3_vl", "text_config": {**TEXT, "model_type": "qwen3_vl_text"},
               "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
    "latent": LATENT,
    "hybrid": HYBRID,
}  # fmt: skip
DENSE = {"gate_proj": 512 * 256, "up_proj": 512 * 256, "down_proj": 256 * 512}
ATTENTION = {"q_proj": 256 * 256, "k_proj": 128 * 256, "v_proj": 128 * 256, "o_proj": 256 * 256}
LATENT_ATTENTION = {"q_a_proj": 128 * 256, "q_b_proj": 4 * 128 * 128, "kv_a_proj_with_mqa": 192 * 256,
                    "kv_b_proj": 4 * 128 * 128, "o_proj": 256 * 256}  # fmt: skip
LINEAR_ATTENTION = {"in_proj_qkvz": 768 * 256, "in_proj_ba": 8 * 256, "out_proj": 256 * 256}


def modules(name: str) -> Iterator[tuple[str, int]]:
    """Every linear module with its elements; one expert stands for all of its layer."""
    prefix = "model.language_model.layers" if name == "nested" else "model.layers"
    for i in range(12):
        at = f"{prefix}.{i}"
        linear = name == "hybrid" and i % 4 != 3
        mixer = LINEAR_ATTENTION if linear else LATENT_ATTENTION if name == "latent" else ATTENTION
        where = "linear_attn" if linear else "self_attn"
        for matrix, size in mixer.items():
            doubled = 2 if name == "hybrid" and matrix == "q_proj" else 1
            yield f"{at}.{where}.{matrix}", size * doubled
        if name in ("dense", "nested") or (name == "latent" and i < 2):
            for matrix, size in DENSE.items():
                yield f"{at}.mlp.{matrix}", size
            continue
        yield f"{at}.mlp.experts.0.(gate_proj|up_proj)", 4 * 2 * 128 * 256
        yield f"{at}.mlp.experts.0.down_proj", 4 * 128 * 256
        if name != "experts":
            shared = "shared_experts" if name == "latent" else "shared_expert"
            for matrix in DENSE:
                yield f"{at}.mlp.{shared}.{matrix}", 128 * 256


def by_compressed_tensors(entry: str, name: str) -> bool:
    return bool(re.match(entry[3:], name)) if entry.startswith("re:") else entry == name


def by_wildcard(entry: str, name: str) -> bool:
    return fnmatchcase(name, entry) or fnmatchcase(name, f"{entry}.*")


def kept(name: str, entries: list[str], matches: Callable[[str, str], bool]) -> int:
    """Elements of the modules that an entry names; engines keep gate and up of experts in one matrix."""
    total = 0
    for module, size in modules(name):
        path, _, both = module.partition("(")
        names = [path + matrix for matrix in both.rstrip(")").split("|")]
        total += size if any(matches(entry, name) for entry in entries for name in names) else 0
    return total


def drawn(name: str, random: Random, style: str) -> str:
    """A list entry as people write them, about layers, blocks or matrices of the model."""
    module = random.choice(list(modules(name)))[0].replace("(gate_proj|up_proj)", "up_proj")
    prefix, _, rest = module.partition(".layers.")
    number, _, inside = rest.partition(".")
    block, _, matrix = inside.partition(".")
    i, j = sorted(random.sample(range(12), 2))
    if style == "names":
        return module
    if style == "expressions":
        dotted, block = re.escape(prefix), re.escape(block)
        return "re:" + random.choice([
            rf".*layers\.{i}\..*", rf".*layers\.({i}|{j})\.{block}.*", rf"{dotted}\.layers\.[0-{min(j, 9)}]\..*",
            rf"^{dotted}\.layers\.{number}\.{block}", rf".*\.{block}\.{re.escape(matrix)}$", rf"{dotted}.layers.{i}.*",
            rf".*layers\.\d+\.{block}.*", rf".*\.(?!{i}\.)\d\.{block}.*", ".*mlp.*", ".*self_attn.*", ".*linear_attn.*",
            rf"layers\.{i}\..*", r".*\.1[01]?\..*proj", r"model\.layers\.3\.", r".*experts.*", r".*lm_head",
        ])  # fmt: skip
    return random.choice([
        f"{prefix}.layers.{number}.{block}*", f"{prefix}.layers.{i}.*", f"*.{block}.*", f"*layers.{i}.{block}*",
        f"{prefix}.layers.?.{block}", f"*.{block}.{matrix}", f"*{matrix.rpartition('.')[2]}",
    ])  # fmt: skip


def windowed(model_type: str, **changes: Any) -> list[tuple[str, int]]:
    raw = {**BASE, "model_type": model_type, "sliding_window": 512, "max_position_embeddings": 32768, **changes}
    found = read_architecture(raw, "test")
    return sorted((str(group.kind), group.layers) for group in found.attention)


def test_windows_follow_the_class() -> None:
    """As the layer types that the configuration classes of Transformers 5.19 make."""
    experts = {"n_routed_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
    assert windowed("dots1", **experts) == [("full", 12)]
    assert windowed("dots1", **experts, max_window_layers=4) == [("full", 4), ("sliding", 8)]
    assert windowed("qwen3", use_sliding_window=True, max_window_layers=4) == [("full", 4), ("sliding", 8)]
    assert windowed("qwen2", use_sliding_window=True) == [("full", 12)]
    assert windowed("qwen3_moe", **experts, use_sliding_window=True, max_window_layers=12) == [("sliding", 12)]
    assert windowed("qwen2_moe", **experts, use_sliding_window=True) == [("full", 6), ("sliding", 6)]
    assert windowed("smollm3", use_sliding_window=True) == [("full", 9), ("sliding", 3)]
    assert windowed("smollm3") == [("full", 12)]


def test_an_index_without_a_total_leaves_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": "a"}}))
    found = resolve_model(str(tmp_path))
    assert found.published_weights_bytes == read(None).published_weights_bytes
    assert any("no total_size" in note for note in found.notes)


def test_architectures_must_be_a_list() -> None:
    for wrong in ("LlamaForCausalLM", [1]):
        with pytest.raises(BadInputError, match="architectures must be a list of strings"):
            read(None, architectures=wrong)


def test_an_id_that_only_the_hub_could_know_is_told_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadInputError, match="HF_HUB_OFFLINE is set") as caught:
        find_model("someorg/nomodel")
    assert caught.value.code == "RS0310"
    assert "unset HF_HUB_OFFLINE" in caught.value.hint


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("style", ["names", "expressions", "wildcards"])
def test_lists_against_a_plain_matcher(name: str, style: str) -> None:
    """120 lists for each architecture: bytes above those of the converted model are those of the named modules."""
    random = Random(f"{name} {style}")  # noqa: S311 - repeatable
    matches = by_wildcard if style == "wildcards" else by_compressed_tensors
    raw = {**MODELS[name], "architectures": ["ForCausalLM"]}
    eight: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "tensor"}

    def size(entries: list[str]) -> int:
        if style == "wildcards":
            return read(
                {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": entries}, raw
            ).published_weights_bytes
        return read(compressed(["lm_head", *entries], **eight), raw).published_weights_bytes

    nothing = size([])
    for _ in range(120):
        entries = [drawn(name, random, style) for _ in range(random.randint(1, 4))]
        assert size(entries) - nothing == pytest.approx(kept(name, entries, matches), abs=4000), entries


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("model.layers.3.mlp.c_proj", True),
        ("blocks.3.attention.query", True),
        ("transformer.blocks.3.self_attn.q_proj", True),
        ("model.layers.3.self_attn.q_proj", False),
        ("layers.3.self_attn.q_proj", False),
        ("model.layers.3.self_attn", False),
        ("model.layers.3.self_attn.qkv_proj", False),
        ("model.layers.3.input_layernorm", False),
        ("mtp.layers.0.eh_proj", False),
        ("lm_head", False),
    ],
)
def test_names_of_unknown_modules_are_told(entry: str, told: bool) -> None:
    """Whatever the list says of them is not counted, and the answer is an approximation."""
    config: dict[str, Any] = {
        "architectures": ["Starcoder2ForCausalLM"],
        "model_type": "starcoder2",
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": [entry]},
    }
    found = [text for text in read_architecture(config, "m").approximations if "not known here" in text]
    assert bool(found) is told
    assert all(entry in text and "give the folder with the weight files" in text for text in found)
