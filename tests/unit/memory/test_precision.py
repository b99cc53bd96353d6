"""Which formats run where, by engine version."""

from __future__ import annotations

import pytest

from rightslice.catalogue.accelerators import accelerators, device
from rightslice.catalogue.engines import engine
from rightslice.core.engine import DTYPE_BITS
from rightslice.memory.cache import KV_BYTES
from rightslice.memory.precision import kv_support, weight_support


@pytest.mark.parametrize(
    ("name", "dtype", "version", "level"),
    [
        ("H100-SXM-80GB", "fp8", "", "native"),
        ("A100-SXM-80GB", "fp8", "", "stored"),
        ("A100-SXM-80GB", "fp8", "0.5.1", "refused"),
        ("H100-SXM-80GB", "fp8", "0.5.1", "native"),
        ("A100-SXM-80GB", "fp8", "0.5.2", "stored"),
        ("T4", "fp8", "0.19.0", "refused"),
        ("T4", "fp8", "0.20.2", "stored"),
        ("T4", "bf16", "", "refused"),
        ("T4", "fp16", "", "native"),
        ("T4", "int8", "", "native"),
        ("B200-SXM-180GB", "nvfp4", "", "native"),
        ("H100-SXM-80GB", "nvfp4", "", "stored"),
        ("H100-SXM-80GB", "nvfp4", "0.8.5", "refused"),
        ("B200-SXM-180GB", "nvfp4", "0.8.5", "native"),
        ("B200-SXM-180GB", "nvfp4", "0.4.2", "refused"),
        ("H100-SXM-80GB", "mxfp4", "0.10.1", "stored"),
        ("H100-SXM-80GB", "mxfp4", "0.6.3", "refused"),
        ("T4", "mxfp4", "", "refused"),
        ("V100-32GB", "fp8", "", "refused"),
        ("L4", "int4", "", "stored"),
        ("MI300X", "fp8", "", "native"),
        ("MI300X", "nvfp4", "", "refused"),
        ("MI300X", "int4", "", "stored"),
    ],
)
def test_weights(name: str, dtype: str, version: str, level: str) -> None:
    support = weight_support(device(name), dtype, "vllm", version)
    assert support.level == level
    assert support.reason


@pytest.mark.parametrize(
    ("name", "dtype", "asked", "level"),
    [
        ("H100-SXM-80GB", "fp8", ("vllm", ""), "native"),
        ("A100-SXM-80GB", "fp8", ("vllm", ""), "stored"),
        ("H100-SXM-80GB", "fp4", ("vllm", ""), "refused"),
        ("B200-SXM-180GB", "fp4", ("vllm", ""), "native"),
        ("B200-SXM-180GB", "fp4", ("vllm", "0.32.0"), "native"),
        ("B200-SXM-180GB", "fp4", ("vllm", "0.31.0"), "refused"),
        ("B200-SXM-180GB", "fp4", ("sglang", "0.5.23"), "native"),
        ("B200-SXM-180GB", "fp8", ("tensorrt-llm", ""), "native"),
        ("T4", "bf16", ("vllm", ""), "native"),
    ],
)
def test_kv_cache(name: str, dtype: str, asked: tuple[str, str], level: str) -> None:
    assert kv_support(device(name), dtype, *asked).level == level


def test_a_refusal_names_the_version_and_both_capabilities() -> None:
    reason = weight_support(device("T4"), "fp8", "vllm", "0.19.0").reason
    assert reason == "T4 cannot run fp8 weights with vllm 0.19.0: compute capability 8.0 is needed, it has 7.5"
    assert "sglang" in weight_support(device("T4"), "mxfp4", "sglang").reason


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm", "nim", "tei"])
def test_every_format_has_an_answer_everywhere(name: str) -> None:
    levels = set()
    for accelerator in accelerators():
        seen = device(accelerator)
        levels |= {weight_support(seen, dtype, name).level for dtype in (*DTYPE_BITS, "fp6")}
        levels |= {kv_support(seen, dtype, name).level for dtype in KV_BYTES}
    assert levels == {"native", "stored", "refused"}


def test_what_the_engine_is_told_to_do_says_whether_it_quantises() -> None:
    facts = engine("vllm")
    assert facts.quantises({"--model": "a/b", "--quantization": "fp8"})
    assert not facts.quantises({"--model": "a/b", "--dtype": "bfloat16"})
    assert not facts.quantises({"--quantization": "awq"})
