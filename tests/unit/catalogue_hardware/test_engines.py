"""Engines: defaults by version and device, arguments, images."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.engines import engine, engines
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings

VLLM = engine("vllm")


def test_versions_are_ordered_as_numbers() -> None:
    ordered = ["0.4.2", "0.6.6rc1", "0.6.6", "0.6.6.post1", "0.7.0.dev3", "0.7", "0.9.2", "0.10.0", "1.2.1", "26.07"]
    shuffled = ordered[5:] + ordered[:5]
    assert sorted(shuffled, key=version_key) == ordered
    assert version_key("v0.33.0") == version_key("0.33")
    assert version_key("latest") > version_key("99.0")


@pytest.mark.parametrize(
    ("version", "name", "partition", "fraction", "sequences", "tokens"),
    [
        ("0.33.0", "H100-SXM-80GB", "whole", 0.92, 1024, 8192),
        ("0.33.0", "A100-SXM-80GB", "whole", 0.92, 256, 2048),  # A100 left the large tier in 0.9.0
        ("0.8.5", "A100-SXM-80GB", "whole", 0.90, 1024, 8192),
        ("0.9.0", "A100-SXM-80GB", "whole", 0.90, 256, 2048),
        ("0.33.0", "B200-SXM-180GB", "whole", 0.92, 1024, 16384),
        ("0.27.1", "B200-SXM-180GB", "whole", 0.92, 1024, 8192),
        ("0.33.0", "L4", "whole", 0.92, 256, 2048),
        ("0.33.0", "H100-SXM-80GB", "3g.40gb", 0.92, 256, 2048),  # a slice is a device of its own memory
        ("0.19.1", "H100-SXM-80GB", "whole", 0.90, 1024, 8192),  # between two versions that were read
        ("0.5.0", "H100-SXM-80GB", "whole", 0.90, 256, 2048),
        ("9.9.9", "H100-SXM-80GB", "whole", 0.92, 1024, 8192),
    ],
)
def test_vllm_defaults(version: str, name: str, partition: str, fraction: float, sequences: int, tokens: int) -> None:
    found = VLLM.defaults(version, device(name, partition))
    assert (found.memory_fraction, found.max_num_seqs, found.max_num_batched_tokens) == (fraction, sequences, tokens)
    assert found.block_size_tokens == 16


@pytest.mark.parametrize(("version", "on"), [("0.7.3", False), ("0.8.0", True), ("0.33.0", True)])
def test_the_v1_engine_chunks_prefill_and_caches_prefixes(version: str, on: bool) -> None:
    found = VLLM.defaults(version, device("L4"))
    assert (found.chunked_prefill, found.prefix_caching) == (on, on)


def test_sglang_reserves_memory_by_the_size_of_the_device() -> None:
    """80 GiB: 512 + 1.5 x 8192 + 2 x 256 + 128 MiB of 81082; 24 GiB: at least the chunk of 2048 or 4096."""
    sglang = engine("sglang")
    assert sglang.defaults("0.5.9", device("H100-SXM-80GB")).memory_fraction == pytest.approx(0.834)
    assert sglang.defaults("0.5.9", device("L4")).max_num_batched_tokens == 2048
    assert sglang.defaults("0.5.23", device("L4")).max_num_batched_tokens == 4096
    assert sglang.defaults("0.5.23", device("B200-SXM-180GB")).max_num_batched_tokens == 16384
    assert sglang.memory_fraction_of == "weights-and-kv"


def test_nim_takes_the_defaults_of_vllm_and_says_so() -> None:
    h100 = device("H100-SXM-80GB")
    inside = VLLM.defaults(VLLM.latest_version, h100)
    found = engine("nim").defaults("1.13.0", h100)
    assert replace(found, note=inside.note) == inside
    assert "not seen" in found.note


@pytest.mark.parametrize("name", ["triton", "tei", "llamacpp"])
def test_defaults_that_nobody_established_raise(name: str) -> None:
    with pytest.raises(KeyError):
        engine(name).defaults("1.0", device("L4"))


def test_unknown_engines_raise_key_error() -> None:
    assert set(engines()) == {"vllm", "sglang", "tensorrt-llm", "nim", "triton", "tei", "llamacpp"}
    with pytest.raises(KeyError):
        engine("vlm")


def test_vllm_arguments_say_everything_that_was_planned() -> None:
    settings = EngineSettings(
        version="0.33.0", tensor_parallel_size=2, kv_dtype="fp8", max_model_len=8192, max_num_seqs=128,
        max_num_batched_tokens=4096, memory_fraction=0.92, lora_slots=4, lora_max_rank=16,
        speculative_method="ngram", speculative_tokens=3, kv_offload_bytes=16 * 2**30,
    )  # fmt: skip
    args = VLLM.arguments(settings, "meta-llama/Llama-3.1-8B-Instruct")
    assert json.loads(args.pop("--speculative-config")) == {"method": "ngram", "num_speculative_tokens": 3}
    assert args == {
        "--model": "meta-llama/Llama-3.1-8B-Instruct",
        "--tensor-parallel-size": "2",
        "--dtype": "bfloat16",
        "--kv-cache-dtype": "fp8",
        "--max-model-len": "8192",
        "--max-num-seqs": "128",
        "--max-num-batched-tokens": "4096",
        "--gpu-memory-utilization": "0.92",
        "--enable-prefix-caching": "",
        "--enable-chunked-prefill": "",
        "--enable-lora": "",
        "--max-loras": "4",
        "--max-lora-rank": "16",
        "--kv-offloading-size": "16",
    }


@pytest.mark.parametrize(("name", "written"), [("vllm", "bfloat16"), ("sglang", "bf16")])
def test_a_cache_in_16_bit_is_said_only_where_the_engine_would_choose_another(name: str, written: str) -> None:
    assert "--kv-cache-dtype" not in engine(name).arguments(EngineSettings(engine=name), "m")
    assert engine(name).arguments(EngineSettings(engine=name), "m", override=True)["--kv-cache-dtype"] == written


def test_what_is_switched_off_is_switched_off_explicitly() -> None:
    args = VLLM.arguments(EngineSettings(prefix_caching=False, chunked_prefill=False), "m")
    assert {"--no-enable-prefix-caching", "--no-enable-chunked-prefill"} <= set(args)
    assert not {"--enable-prefix-caching", "--enable-lora", "--kv-cache-dtype", "--speculative-config"} & set(args)


def test_quantising_while_loading_is_asked_for_only_then() -> None:
    settings = EngineSettings(weight_dtype="fp8")
    assert "--quantization" not in VLLM.arguments(settings, "org/model-fp8")
    assert VLLM.arguments(settings, "org/model", quantise=True)["--quantization"] == "fp8"
    assert "--dtype" not in VLLM.arguments(settings, "org/model-fp8")


def test_engines_that_bind_to_loopback_are_opened() -> None:
    settings = EngineSettings(expert_parallel=True, tensor_parallel_size=8, chunked_prefill=False)
    sglang = engine("sglang").arguments(settings, "m")
    assert (sglang["--host"], sglang["--enable-metrics"], sglang["--ep-size"]) == ("0.0.0.0", "", "8")  # noqa: S104
    trt = engine("tensorrt-llm").arguments(settings, "org/model")
    assert next(iter(trt.items())) == ("org/model", "")
    assert engine("nim").arguments(settings, "m") == {}
    assert engine("nim").environment(settings, "m")["NIM_MAX_MODEL_LEN"] == "4096"


def test_flags_name_fields_of_the_settings() -> None:
    known = {f.name for f in fields(EngineSettings)} | {"source"}
    for facts in engines().values():
        assert set(facts.flags) <= known
        for argument in (*facts.argument_table, *facts.environment_table):
            assert argument.field in known or argument.constant is not None
    assert VLLM.flags["max_model_len"] == "--max-model-len"
    assert VLLM.flags["prefix_caching"] == "--enable-prefix-caching"


@pytest.mark.parametrize(
    ("name", "version", "accelerator", "image"),
    [
        ("vllm", "0.33.0", "", "docker.io/vllm/vllm-openai:v0.33.0"),
        ("triton", "26.07", "", "nvcr.io/nvidia/tritonserver:26.07-py3"),
        ("tei", "1.9.3", "L4", "ghcr.io/huggingface/text-embeddings-inference:89-1.9"),
        ("tei", "1.9.3", "A100-SXM-80GB", "ghcr.io/huggingface/text-embeddings-inference:1.9"),
        ("tei", "1.9.3", "", "ghcr.io/huggingface/text-embeddings-inference:cuda-1.9"),
    ],
)
def test_images(name: str, version: str, accelerator: str, image: str) -> None:
    assert engine(name).image(version, device(accelerator) if accelerator else None) == image


def test_metric_names_and_shutdown_follow_the_version() -> None:
    assert VLLM.metrics("0.8.5")["kv_use"] == "vllm:gpu_cache_usage_perc"
    assert VLLM.metrics("0.33.0")["kv_use"] == "vllm:kv_cache_usage_perc"
    assert (VLLM.drain_flag("0.17.1"), VLLM.drain_flag("0.18.0")) == ("", "--shutdown-timeout")
    assert "nvfp4" in VLLM.kv_dtypes("0.33.0")
    assert (VLLM.min_capability("0.11.0", "fp8"), VLLM.min_capability("0.33.0", "fp8")) == (8.0, 7.5)
    with pytest.raises(KeyError):
        engine("nim").metrics("1.13.0")
