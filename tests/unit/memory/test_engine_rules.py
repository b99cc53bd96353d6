"""What each engine makes of its own arguments: declared caches, recurrent states, reserves, steps, names and ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.engine_arguments import engine_arguments
from rightslice.catalogue.engines import engine
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError
from rightslice.memory.arguments import CommandLine
from rightslice.memory.computation import cache_dtype
from rightslice.memory.ladder import SizeRequest
from rightslice.memory.sizing import size
from rightslice.memory.startup import StartupReport, command_line, startup

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
DECLARED = "nvidia/Llama-3.1-70B-Instruct-FP8"
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
H100 = "H100-SXM-80GB"
GIB = 1 << 30


def asked(
    arguments: str = "", model: str = LLAMA, name: str = "vllm", version: str = "", on: str = H100
) -> StartupReport:
    return startup(resolve_model(model), device(on), engine_name=name, version=version, arguments=arguments)


def read(
    arguments: str, name: str = "vllm", version: str = "0.32.0", model: str = LLAMA, on: str = H100
) -> CommandLine:
    return command_line(resolve_model(model), device(on), engine_name=name, version=version, arguments=arguments)


def refusal(arguments: str, name: str = "vllm", version: str = "0.32.0") -> tuple[str, str]:
    with pytest.raises(BadInputError) as caught:
        read(arguments, name, version)
    assert caught.value.code == "RS0501"
    return caught.value.message, caught.value.hint


def test_a_declared_fp8_cache_halves_what_a_sequence_reserves() -> None:
    on = "B200-SXM-180GB"
    told = {text: asked(text, DECLARED, version="0.32.0", on=on) for text in ("", "--kv-cache-dtype bfloat16")}
    assert told[""].kv_bytes_needed == 20 * GIB
    assert told["--kv-cache-dtype bfloat16"].kv_bytes_needed == 40 * GIB
    assert told[""].logged_kv_tokens == 602_992
    assert told["--kv-cache-dtype bfloat16"].logged_kv_tokens == 301_488
    assert any("keeps it so unless told otherwise" in note for note in told[""].notes)


@pytest.mark.parametrize(
    ("name", "version", "method", "declared", "kept"),
    [
        ("vllm", "0.32.0", "modelopt", "fp8", "fp8"),
        ("vllm", "0.32.0", "modelopt-nvfp4", "fp4", "fp4"),
        ("vllm", "0.32.0", "compressed-tensors", "fp8", "fp8"),
        ("vllm", "0.32.0", "compressed-tensors", "fp4", "bf16"),
        ("vllm", "0.32.0", "fp8", "fp8", "bf16"),
        ("vllm", "0.14.0", "modelopt", "fp8", "fp8"),
        ("vllm", "0.14.0", "compressed-tensors", "fp8", "bf16"),
        ("vllm", "0.13.0", "modelopt", "fp8", "bf16"),
        ("sglang", "0.5.23", "modelopt-fp8", "fp8", "fp8"),
        ("sglang", "0.5.23", "compressed-tensors", "fp8", "bf16"),
        ("sglang", "0.5.2", "modelopt", "fp8", "bf16"),
        ("tensorrt-llm", "1.2.1", "modelopt", "fp8", "fp8"),
        ("nim", "", "modelopt", "fp8", "fp8"),
        ("tei", "", "modelopt", "fp8", "bf16"),
    ],
)
def test_which_declarations_an_engine_follows(name: str, version: str, method: str, declared: str, kept: str) -> None:
    model = replace(resolve_model(DECLARED), quantisation=method, kv_dtype_published=declared)
    assert cache_dtype(model, name, version, "bf16") == kept
    assert cache_dtype(model, name, version, "bf16", "bf16") == "bf16"
    assert cache_dtype(resolve_model(LLAMA), name, version, "fp16") == "fp16"


def test_what_is_not_known_of_a_declared_cache_is_said() -> None:
    unknown = asked(model=DECLARED, name="sglang", version="0.5.2", on="B200-SXM-180GB")
    assert any("is not known: counted in the format of computation" in note for note in unknown.notes)
    ignored = asked(model=DECLARED, version="0.13.0", on="B200-SXM-180GB")
    assert any("does not follow it" in note for note in ignored.notes)


def test_a_declared_cache_that_the_device_lacks_is_fixed_by_another_type() -> None:
    model = replace(resolve_model(DECLARED), kv_dtype_published="fp4")
    found = startup(model, device(H100), version="0.32.0", arguments="-tp 4 --max-model-len 4096")
    assert (found.verdict, found.fix) == ("refused", "--kv-cache-dtype bfloat16")


def test_falcon_ignores_a_cache_type() -> None:
    plain, told = (
        asked(f"-tp 8 --max-model-len 2048 {more}", "tiiuae/falcon-180B", version="0.32.0")
        for more in ("", "--kv-cache-dtype fp8")
    )
    assert told.kv_bytes_needed == plain.kv_bytes_needed
    assert any("no cache type" in note for note in told.notes)
    assert not any("no cache type" in note for note in plain.notes)


def test_recurrent_models_want_a_block_for_each_sequence() -> None:
    found = asked(model=NEMOTRON, version="0.32.0")
    assert found.verdict == "does_not_start"
    assert "1,024 sequences" in found.reason
    assert "956 fit" in found.reason
    flag, count = found.fix.split()
    assert flag == "--max-num-seqs"
    assert 860 < int(count) < 956
    assert asked(found.fix, NEMOTRON, version="0.32.0").verdict == "starts"
    assert asked("--max-num-seqs 956", NEMOTRON, version="0.32.0").verdict == "uncertain"


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ("--enforce-eager", "starts"),
        ("-cc.cudagraph_mode=piecewise", "starts"),
        ('--compilation-config \'{"cudagraph_mode": "NONE"}\'', "starts"),
        ("-O0", "starts"),
        ("-O 1", "starts"),
        ("-O2", "does_not_start"),
        ("-O0 -cc.cudagraph_mode=FULL", "does_not_start"),
        ("-cc.mode=3", "does_not_start"),
    ],
)
def test_only_whole_steps_in_cuda_graphs_want_those_blocks(arguments: str, verdict: str) -> None:
    assert asked(arguments, NEMOTRON, version="0.32.0").verdict == verdict


def test_blocks_are_counted_for_pure_recurrent_models_and_versions_that_check() -> None:
    mamba = "state-spaces/mamba-2.8b-hf"
    assert asked("--max-num-seqs 2000", mamba, version="0.32.0", on="L4").verdict == "does_not_start"
    assert asked("--max-num-seqs 500", mamba, version="0.32.0", on="L4").verdict == "starts"
    assert asked("--max-num-seqs 2000", mamba, version="0.18.0", on="L4").verdict == "starts"
    assert asked("--max-num-seqs 2000 --max-model-len 4096", version="0.32.0").verdict == "starts"


@pytest.mark.parametrize(
    ("arguments", "reserved_mib"),
    [
        ("", 512 + 1.5 * 8192 + 2 * 256 + 128),
        ("--chunked-prefill-size 16384", 512 + 1.5 * 16384 + 2 * 256 + 128),
        ("--chunked-prefill-size 1024", 10_240),
        ("--chunked-prefill-size -1", 512 + 1.5 * 16384 + 2 * 256 + 128),
        ("--cuda-graph-max-bs 1000", 512 + 1.5 * 8192 + 2 * 1000 + 128),
        ("--tp-size 4", 512 + 1.5 * 8192 + 2 * 512 + 4 * 128),
        ("--tp-size 8 --dp-size 2 --enable-dp-attention", 512 + 1.5 * 8192 + 2 * 512 + 8 * 128 + 4.5 * 512 * 2),
    ],
)
def test_the_reserve_of_sglang(arguments: str, reserved_mib: float) -> None:
    memory_mib = device(H100).memory_bytes / 2**20
    share = read(arguments, "sglang", "0.5.23").settings.memory_fraction
    assert share == round((memory_mib - reserved_mib) / memory_mib, 3)
    assert read(f"{arguments} --mem-fraction-static 0.7", "sglang", "0.5.23").settings.memory_fraction == 0.7


def test_a_larger_chunk_leaves_less_cache_and_the_default_is_that_of_one_rank() -> None:
    small, large = (asked(f"--chunked-prefill-size {size}", name="sglang") for size in (8192, 32_768))
    assert small.kv_cache_bytes - large.kv_cache_bytes > 20 * GIB
    facts = engine("sglang")
    assert (
        facts.defaults("0.5.23", device("L4")).memory_fraction
        == read("", "sglang", "0.5.23", on="L4").settings.memory_fraction
    )
    assert read("--chunked-prefill-size 16384", "sglang", "0.5.2").settings.memory_fraction == 0.88


def test_a_step_of_tensorrt_llm_is_as_long_as_it_is_told() -> None:
    rooms = [asked(f"--max_num_tokens {n}", name="tensorrt-llm").kv_cache_bytes for n in (8192, 32_768, 65_536)]
    assert rooms == sorted(rooms, reverse=True)
    assert len(set(rooms)) == 3
    fewer, more = (asked(f"--max_batch_size {n}", name="tensorrt-llm").kv_cache_bytes for n in (64, 8192))
    assert fewer > more
    notes = asked(name="tensorrt-llm").notes
    assert "prompts of more than 8,192 tokens (--max_num_tokens) are refused without --enable_chunked_prefill" in notes
    chunked = asked("--enable_chunked_prefill", name="tensorrt-llm").notes
    assert not any(note.startswith("prompts of more") for note in chunked)


def test_lengths_that_the_engine_refuses_fit_nowhere() -> None:
    def told(arguments: str, name: str, input_tokens: int) -> str:
        line, model = read(arguments, name, ""), resolve_model(LLAMA)
        return size(model, SizeRequest(input_tokens=input_tokens, line=line), (device(H100),)).too_long

    assert "exceeds a step of 8,192" in told("", "tensorrt-llm", 10_000)
    assert told("--enable_chunked_prefill", "tensorrt-llm", 10_000) == ""
    assert "longest context of 4,096" in told("--max-model-len 4096", "vllm", 8192)
    assert told("", "vllm", 8192) == ""
    bare = size(resolve_model(LLAMA), SizeRequest(input_tokens=1_000_000), (device(H100),))
    assert bare.fits == ()
    assert "1,000,256 tokens" in bare.refused[0].reason
    usual = size(resolve_model("BAAI/bge-base-en-v1.5"), SizeRequest(), (device(H100),))
    assert usual.fits


@pytest.mark.parametrize(
    ("rank", "fix"), [(3, "--max-lora-rank 8"), (24, "--max-lora-rank 32"), (513, "--max-lora-rank 512")]
)
def test_ranks_of_adapters(rank: int, fix: str) -> None:
    text = f"--max-model-len 4096 --enable-lora --max-lora-rank {rank}"
    found = asked(text, version="0.32.0")
    assert (found.verdict, found.fix) == ("refused", fix)
    assert asked(f"{text} {fix}", version="0.32.0").verdict == "starts"
    assert asked(text, version="0.9.2").verdict == "starts"
    assert engine_arguments("sglang").next_rank(rank) == rank


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--frobnicate 3", "leave it out"),
        ("--max-modle-len 8192", "--max-model-len"),
        ("--no-max-model-len", "--max-model-len"),
        ("--max-num 3", "one of --max-num-active-seqs"),
        ("-tq 2", ""),
    ],
)
def test_names_that_the_parser_does_not_take(arguments: str, told: str) -> None:
    flag, *_ = arguments.split()
    message, hint = refusal(arguments)
    assert flag in message
    assert told in hint
    assert any(flag in note for note in read(arguments, version="0.31.0").notes)
    assert read(arguments, version="0.31.0").others == (flag,)


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--max-model-l 77", "max_model_len", 77),
        ("--max_num_se 7", "max_num_seqs", 7),
        ("--tensor-p 2", "tensor_parallel_size", 2),
        ("-t 2", "tensor_parallel_size", 2),
        ("--enforce", "enforce_eager", True),
        ("--speculative-config.method ngram --speculative-config.num_speculative_tokens 3", "speculative_tokens", 3),
    ],
)
def test_abbreviations_and_keys(arguments: str, field: str, value: object) -> None:
    assert getattr(read(arguments).settings, field) == value


def test_known_names_that_do_not_bear_on_memory_are_not_refused() -> None:
    others = ("--trust-remote-code", "--no-async-scheduling", "--host", "-dcp", "--api_key")
    assert read(" ".join(others)).others == others
    assert read("--hf-overrides.a.b 1 --hf-overrides.a.c 2").others == ("--hf-overrides.a.c",)
    assert refusal("--hf-overrides.a 1 --hf-overrides.a.c 2")[0].endswith("is given twice")


def test_other_engines_only_note_what_looks_mistyped() -> None:
    assert any("did you mean --context-length" in note for note in read("--contex-length 99", "sglang", "").notes)
    assert read("--trust-remote-code", "sglang", "").notes == ()


def test_ranks_of_experts_divide_the_tensor_parallel_ones() -> None:
    moe = "Qwen/Qwen3-30B-A3B-FP8"
    assert refusal("--tp-size 2 --ep-size 4", "sglang", "") == (
        "--ep-size 4 does not divide --tp-size 2",
        "--ep-size 2",
    )
    assert refusal("--tp_size 4 --ep_size 3", "tensorrt-llm", "")[1] == "--ep_size 1"
    assert read("--tp-size 4 --ep-size 2", "sglang", "", moe).settings.expert_parallel
    assert not read("--tp-size 4 --ep-size 1", "sglang", "", moe).settings.expert_parallel


@pytest.mark.parametrize(("name", "free", "fits"), [("vllm", 40, False), ("vllm", 78, True), ("sglang", 40, True)])
def test_free_memory_holds_for_the_whole_answer(name: str, free: int, fits: bool) -> None:
    line, model = (
        read("--max-model-len 4096" if name == "vllm" else "--context-length 4096", name, ""),
        resolve_model(LLAMA),
    )
    report = size(model, SizeRequest(line=line, free_bytes=free * GIB), (device(H100),))
    assert bool(report.fits) is fits
    if not fits:
        assert "free, the engine asks for" in report.refused[0].reason
        return
    whole = size(model, SizeRequest(line=line), (device(H100),))
    if name == "sglang":
        assert report.fits[0].max_sequences < whole.fits[0].max_sequences
