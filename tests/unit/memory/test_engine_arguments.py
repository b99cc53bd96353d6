"""Command lines of three engines: names, numbers, and the defaults that follow from other arguments."""

from __future__ import annotations

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.engine_arguments import engine_arguments, names_of_all
from rightslice.catalogue.engines import engine
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError
from rightslice.memory.arguments import CommandLine, parse_arguments
from rightslice.memory.values import whole_number

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def read(arguments: str, name: str = "vllm", model: str = LLAMA, on: str = "H100-SXM-80GB") -> CommandLine:
    facts = engine(name)
    return parse_arguments(resolve_model(model), device(on), facts, facts.latest_version, arguments)


@pytest.mark.parametrize(
    ("text", "value"),
    [("32k", 32_000), ("32K", 32_768), ("25.6k", 25_600), ("1G", 1 << 30), ("1g", 10**9), ("2M", 2 << 20),
     ("1t", 10**12), ("4_096", 4096), (" 7 ", 7)],
)  # fmt: skip
def test_suffixes_are_those_of_the_engine(text: str, value: int) -> None:
    assert whole_number("--max-model-len", text, suffixed=True) == value


@pytest.mark.parametrize("text", ["1.5K", "32kB", "1e3", "", "k", "--", "1.5", "0x10", "9" * 80])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        whole_number("--max-model-len", text, suffixed=True)
    assert caught.value.code == "RS0501"


def test_a_decimal_before_a_capital_is_told_the_small_letter() -> None:
    with pytest.raises(BadInputError) as caught:
        whole_number("--max-model-len", "1.5K", suffixed=True)
    assert caught.value.hint == "1.5k"


@pytest.mark.parametrize(
    ("engine_name", "arguments"),
    [("vllm", "--max-num-seqs 1k"), ("sglang", "--context-length 32K"), ("tensorrt-llm", "--max_seq_len 8k")],
)
def test_suffixes_hold_for_some_arguments_only(engine_name: str, arguments: str) -> None:
    with pytest.raises(BadInputError):
        read(arguments, engine_name)
    assert read("--max-num-batched-tokens 4K --max-model-len 8k").settings.max_num_batched_tokens == 4096


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm"])
def test_every_name_of_an_engine_is_read_and_the_first_is_how_it_is_written(name: str) -> None:
    spelling = engine_arguments(name)
    for own, common in spelling.names.items():
        assert spelling.names[spelling.spelled(common)] == common
        assert names_of_all()[own] == common
    for field in ("tensor_parallel_size", "pipeline_parallel_size", "max_model_len", "max_num_seqs", "memory_fraction",
                  "max_num_batched_tokens"):  # fmt: skip
        assert engine(name).flags[field] in spelling.names  # what manifests emit is read


@pytest.mark.parametrize(
    ("name", "flag", "hint"),
    [
        ("sglang", "--max-model-len", "--context-length"),
        ("sglang", "--max_num_tokens", "--chunked-prefill-size"),
        ("vllm", "--mem-fraction-static", "--gpu-memory-utilization"),
        ("tensorrt-llm", "--tensor-parallel-size", "--tp_size"),
        ("tensorrt-llm", "--quantization", "leave it out: TensorRT-LLM has none like it"),
        ("vllm", "--enable-dp-attention", "leave it out: vLLM has none like it"),
    ],
)
def test_a_name_of_another_engine_is_told_the_right_one(name: str, flag: str, hint: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read(f"{flag} 8", name)
    assert (caught.value.code, caught.value.hint) == ("RS0501", hint)


def test_what_no_engine_calls_so_is_passed_over() -> None:
    assert read("--trust-remote-code --seed 7 -tp 2", "vllm").others == ("--trust-remote-code", "--seed")


def test_underscores_stand_for_dashes_in_vllm() -> None:
    assert read("--max_model_len=4096 --tensor_parallel_size 2").settings.max_model_len == 4096


def test_the_last_of_equal_arguments_holds() -> None:
    line = read("--dtype float32 --kv-cache-dtype fp8 --quantization fp8 --dtype auto --kv-cache-dtype auto -q None")
    assert (line.settings.weight_dtype, line.settings.kv_dtype, line.quantization) == ("bf16", "bf16", "")


@pytest.mark.parametrize(
    ("arguments", "weights", "kv"),
    [
        ("--dtype float32", "fp32", "fp32"),
        ("--dtype half", "fp16", "fp16"),
        ("--dtype float32 --kv-cache-dtype fp8", "fp32", "fp8"),
        ("--quantization fp8_per_tensor", "fp8", "bf16"),
        ("--quantization mxfp4", "mxfp4", "bf16"),
    ],
)
def test_the_cache_follows_the_computation(arguments: str, weights: str, kv: str) -> None:
    settings = read(arguments).settings
    assert (settings.weight_dtype, settings.kv_dtype) == (weights, kv)


@pytest.mark.parametrize(
    ("model", "on", "dtype"),
    [
        ("allenai/OLMo-2-1124-7B", "H100-SXM-80GB", "bf16"),  # published in fp32
        ("allenai/OLMo-2-1124-7B", "T4", "fp16"),
        ("FacebookAI/roberta-base", "H100-SXM-80GB", "fp16"),  # pools
        (LLAMA, "T4", "fp16"),
        ("google/gemma-3-1b-it", "T4", "fp32"),  # refuses fp16
        ("google/gemma-3-1b-it", "L4", "bf16"),
    ],
)
def test_the_engine_chooses_a_format_that_model_and_device_can_use(model: str, on: str, dtype: str) -> None:
    assert read("", model=model, on=on).settings.weight_dtype == dtype


def test_steps_and_sequences_follow_from_each_other() -> None:
    """EngineArgs of vLLM 0.32: the smaller of step and all sequences; at least a prompt where none is chunked."""
    assert read("--max-num-batched-tokens 100").settings.max_num_seqs == 100
    assert read("--max-num-seqs 2 --max-model-len 512").settings.max_num_batched_tokens == 1024
    assert read("--no-enable-chunked-prefill --max-model-len 50000").settings.max_num_batched_tokens == 50_000
    given = read("--max-num-batched-tokens 100 --max-num-seqs 200").settings
    assert (given.max_num_batched_tokens, given.max_num_seqs) == (100, 200)


def test_attention_ranks_of_sglang_are_a_part_of_the_tensor_ranks() -> None:
    inside = read("--tp-size 16 --dp-size 8 --enable-dp-attention", "sglang", "deepseek-ai/DeepSeek-R1")
    assert (inside.settings.tensor_parallel_size, inside.settings.data_parallel_size) == (2, 8)
    assert inside.settings.gpus_per_replica == 16
    beside = read("--tp-size 4 --dp-size 2", "sglang")
    assert (beside.settings.tensor_parallel_size, beside.settings.data_parallel_size) == (4, 1)
    assert beside.notes == ("2 data-parallel replicas of 4 devices each: the answer is for one",)
    with pytest.raises(BadInputError) as caught:
        read("--tp-size 4 --dp-size 3 --enable-dp-attention", "sglang")
    assert caught.value.hint == "--dp-size 1"
