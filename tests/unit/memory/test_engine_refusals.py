"""What an engine refuses before it loads anything, with a fix that starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.engine_architectures import served_classes
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError
from rightslice.memory.startup import StartupReport, startup

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
AWQ = "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4"
PACKED = "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16"
FP8 = "Qwen/Qwen3-30B-A3B-FP8"
H100 = device("H100-SXM-80GB")


def asked(model: str, arguments: str, version: str = "0.32.0", on: str = "H100-SXM-80GB") -> StartupReport:
    return startup(resolve_model(model), device(on), version=version, arguments=arguments)


@pytest.mark.parametrize(
    ("model", "method", "fix"),
    [
        (LLAMA, "nonsense", "--quantization None"),
        (LLAMA, "marlin", "--quantization None"),
        (LLAMA, "awq", "--quantization None"),
        (LLAMA, "gptq", "--quantization None"),
        (LLAMA, "bitsandbytes", "--quantization None"),  # gone since
        (LLAMA, "fbgemm_fp8", "--quantization None"),  # deprecated
        (AWQ, "gptq", "--quantization awq"),
        (AWQ, "fp8", "--quantization awq"),
        (AWQ, "nonsense", "--quantization awq"),
        (PACKED, "awq", "--quantization compressed-tensors"),
        (FP8, "fp8_per_tensor", "--quantization fp8"),
    ],
)
def test_methods_that_do_not_read_the_checkpoint(model: str, method: str, fix: str) -> None:
    found = asked(model, f"--max-model-len 4096 --quantization {method}")
    assert (found.verdict, found.fix) == ("refused", fix)
    assert method in found.reason
    assert asked(model, f"--max-model-len 4096 --quantization {method} {found.fix}").verdict == "starts"


@pytest.mark.parametrize(
    ("model", "method", "version"),
    [
        (LLAMA, "fp8", "0.32.0"),
        (LLAMA, "bitsandbytes", "0.8.5"),
        (AWQ, "awq_marlin", "0.32.0"),
        (AWQ, "marlin", "0.32.0"),
        (AWQ, "moe_wna16", "0.32.0"),
        (FP8, "humming", "0.32.0"),
        ("openai/gpt-oss-20b", "nonsense", "0.32.0"),  # its own method overrides whatever is asked
    ],
)
def test_methods_that_do(model: str, method: str, version: str) -> None:
    assert asked(model, f"--max-model-len 4096 --quantization {method}", version).verdict == "starts"


@pytest.mark.parametrize(
    ("own", "version", "verdict"),
    [("bitsandbytes", "0.32.0", "refused"), ("bitsandbytes", "0.8.5", "starts"), ("hqq", "0.33.0", "refused"),
     ("auto-round", "0.32.0", "starts"), ("quark", "0.32.0", "starts")],
)  # fmt: skip
def test_checkpoints_of_methods_that_a_version_no_longer_reads(own: str, version: str, verdict: str) -> None:
    model = replace(resolve_model(AWQ), quantisation=own)
    found = startup(model, H100, version=version, arguments="--max-model-len 4096")
    assert found.verdict == verdict
    if verdict == "refused":
        assert own in found.reason
        assert found.fix == "another checkpoint"


def test_a_method_of_another_engine_says_what_is_not_known() -> None:
    model, where = resolve_model(LLAMA), {"engine_name": "sglang"}
    unknown = startup(model, H100, arguments="--quantization nonsense", **where)  # type: ignore[arg-type]
    assert (unknown.verdict, unknown.fix) == ("refused", "leave --quantization out")
    known = startup(model, H100, arguments="--quantization awq", **where)  # type: ignore[arg-type]
    assert known.verdict == "starts"
    assert any("is not known here" in note for note in known.notes)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ("--max-num-batched-tokens 128 --max-num-seqs 256", "--max-num-seqs 128"),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 2048", "--max-num-batched-tokens 8192"),
        ("--block-size 17", "--block-size 16"),
        ("--block-size 1", "--block-size 16"),
        ("--block-size 100", "--block-size 96"),
        ("--enable-expert-parallel", "--no-enable-expert-parallel"),
        ("--dtype bfloat16 --pipeline-parallel-size 33", "--pipeline-parallel-size 32"),
        ("-tp 3", "--tensor-parallel-size 2"),
        ("-tp 3 --block-size 7 --quantization awq",
         "--quantization None --tensor-parallel-size 2 --block-size 16"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(arguments: str, fix: str) -> None:
    whole = f"--max-model-len 8192 {arguments}"
    found = asked(LLAMA, whole)
    assert (found.verdict, found.fix) == ("refused", fix)
    assert asked(LLAMA, f"{whole} {fix}").verdict == "starts"


def test_a_legal_block_of_an_old_version_and_chunks_that_hold_the_context_are_taken() -> None:
    assert asked(LLAMA, "--block-size 8 --max-model-len 8192", "0.6.3").verdict == "starts"
    assert asked(LLAMA, "--no-enable-chunked-prefill --max-model-len 8192").verdict == "starts"


@pytest.mark.parametrize(
    ("model", "on", "arguments", "fix"),
    [
        ("google/gemma-3-1b-it", "L4", "--dtype half", "--dtype bfloat16"),
        ("google/gemma-2-2b-it", "T4", "--dtype float16", "--dtype float32"),
        ("google/gemma-2-2b-it", "T4", "--dtype bfloat16", "--dtype float32"),
        (LLAMA, "V100-32GB", "--dtype bfloat16", "--dtype half"),
        (AWQ, "L4", "--dtype float32", "--dtype auto"),
        (LLAMA, "H100-SXM-80GB", "--dtype float32 --quantization fp8", "--dtype auto"),
    ],
)
def test_formats_of_computation_that_are_refused(model: str, on: str, arguments: str, fix: str) -> None:
    whole = f"--max-model-len 2048 {arguments}"
    found = asked(model, whole, on=on)
    assert (found.verdict, found.fix) == ("refused", fix)
    assert asked(model, f"{whole} {fix}", on=on).verdict == "starts"


def test_sglang_takes_half_where_there_is_no_bfloat16_and_starts_on_nothing_older_than_turing() -> None:
    model = resolve_model("Qwen/Qwen3-1.7B")
    on = {name: startup(model, device(name), engine_name="sglang") for name in ("T4", "V100-16GB")}
    assert on["T4"].verdict == "starts"
    assert (on["V100-16GB"].verdict, on["V100-16GB"].fix) == ("refused", "another device")


def test_computing_in_32_bit_doubles_weights_cache_and_activations() -> None:
    plain, wide = (asked(LLAMA, f"--max-model-len 8192 --enforce-eager {more}") for more in ("", "--dtype float32"))
    assert wide.kv_bytes_needed == 2 * plain.kv_bytes_needed
    assert plain.kv_cache_bytes - wide.kv_cache_bytes > resolve_model(LLAMA).published_weights_bytes


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("google/flan-t5-xl", "has no T5ForConditionalGeneration"),
        ("facebook/wav2vec2-base-960h", "has no Wav2Vec2ForCTC"),
    ],
)
def test_architectures_that_vllm_does_not_serve(model: str, told: str) -> None:
    found = asked(model, "")
    assert (found.verdict, found.fix) == ("refused", "another engine")
    assert told in found.reason


@pytest.mark.parametrize(
    ("name", "version", "verdict", "told"),
    [
        ("LlamaForCausalLM", "0.33.0", "starts", ""),
        ("LlamaForSequenceClassification", "0.32.0", "starts", ""),  # an adapter around a base that is served
        ("LlamaForCausalLM", "0.9.2", "starts", "whether 0.9.2 does was not read"),
        ("SmolLM3ForCausalLM", "0.32.0", "starts", "by its Transformers backend"),
        ("PersimmonForCausalLM", "0.32.0", "starts", "dropped its own PersimmonForCausalLM after 0.25.0"),
        ("QWenLMHeadModel", "0.23.0", "starts", ""),
        ("QWenLMHeadModel", "0.32.0", "refused", "0.23.0 was the last version with it"),
        ("BartForConditionalGeneration", "0.32.0", "starts", "by its Transformers backend"),  # as a decoder it would
        ("NoSuchForCausalLM", "0.32.0", "refused", "has no NoSuchForCausalLM"),
        ("", "0.32.0", "starts", "names no architectures"),
    ],
)
def test_the_class_decides_whether_a_model_is_served(name: str, version: str, verdict: str, told: str) -> None:
    model = replace(resolve_model(LLAMA), classes=(name,) if name else ())
    found = startup(model, H100, version=version, arguments="--max-model-len 4096")
    assert found.verdict == verdict
    assert told in "; ".join((found.reason, *found.notes))


def test_a_plugin_is_named_where_only_that_serves_a_class() -> None:
    model = replace(resolve_model(LLAMA), classes=("BartModel",), kind="encoder-decoder")
    found = startup(model, H100, version="0.32.0", arguments="--max-model-len 4096")
    assert found.verdict == "refused"
    assert found.fix.startswith("the plugin https://")


def test_engines_without_a_list_say_so() -> None:
    for name in ("sglang", "tensorrt-llm"):
        found = startup(resolve_model("google/flan-t5-xl"), H100, engine_name=name)
        assert any("is not known: no list" in note for note in found.notes)


def test_the_list_of_architectures_is_of_one_version_and_has_a_source() -> None:
    table = served_classes("vllm")
    assert table is not None
    assert table.version == "0.32.0"
    assert not table.served & (table.transformers | set(table.removed) | set(table.plugins) | table.compatible)
    assert {"LlamaForCausalLM", "WhisperForConditionalGeneration", "BertModel"} <= table.served


@pytest.mark.parametrize("version", ["banana", "", "latest", "1..2", "0.9; rm", "v", "-1"])
def test_what_is_no_version_is_said(version: str) -> None:
    if not version:
        assert asked("Qwen/Qwen3-1.7B", "", version).notes == ()
        return
    with pytest.raises(BadInputError) as caught:
        asked(LLAMA, "", version)
    assert caught.value.code == "RS0501"
    assert "0.4.2 to 0.33.0" in caught.value.hint


@pytest.mark.parametrize(
    ("version", "told"),
    [("99.0", "newer than what was read"), ("0.2", "older than what was read"), ("0.6.x", ""), ("v0.11.0rc2", "")],
)
def test_versions_outside_those_that_were_read_are_noted(version: str, told: str) -> None:
    notes = "; ".join(asked("Qwen/Qwen3-1.7B", "--dtype half", version).notes)
    assert (told in notes) if told else ("what was read" not in notes)


def test_a_cache_of_given_size_must_fit_beside_the_weights() -> None:
    model, given = "meta-llama/Meta-Llama-3.1-70B", "--kv-cache-memory-bytes 20G --max-model-len 4096"
    found = asked(model, given)
    assert found.verdict == "does_not_start"
    assert "20.0 GiB that are given" in found.reason
    assert asked(model, f"{given} {found.fix}").verdict in ("starts", "uncertain")
    small = asked(LLAMA, "--kv-cache-memory-bytes 100k")
    assert small.fix.startswith("--kv-cache-memory-bytes ")
    assert asked(LLAMA, f"--kv-cache-memory-bytes 100k {small.fix}").verdict in ("starts", "uncertain")


@pytest.mark.parametrize(
    ("name", "arguments", "fix"),
    [
        ("sglang", "--context-length 131072", "--context-length"),
        ("sglang", "--tp-size 3 --context-length 4096", "--tp-size 2"),
        ("sglang", "--mem-fraction-static 0.3 --context-length 4096", "--mem-fraction-static"),
        ("tensorrt-llm", "--max_seq_len 131072", "--max_seq_len"),
        ("tensorrt-llm", "--tp_size 3 --max_seq_len 4096", "--tp_size 2"),
        ("tensorrt-llm", "--max_num_tokens 1000000 --enable_chunked_prefill --max_seq_len 4096", "--max_num_tokens"),
        ("tensorrt-llm", "--max_batch_size 1000000 --max_seq_len 4096", "--max_batch_size"),
        ("tensorrt-llm", "--kv_cache_free_gpu_memory_fraction 0.01 --max_seq_len 32768", "--max_seq_len"),
    ],
)
def test_a_fix_is_in_the_names_of_its_engine(name: str, arguments: str, fix: str) -> None:
    model, l4 = resolve_model(LLAMA), device("L4")
    found = startup(model, l4, engine_name=name, arguments=arguments)
    assert found.verdict in ("refused", "does_not_start")
    assert found.fix.startswith(fix)
    assert startup(model, l4, engine_name=name, arguments=f"{arguments} {found.fix}").verdict in ("starts", "uncertain")


def test_a_smaller_share_is_no_fix_where_nothing_fits_even_then() -> None:
    l4 = device("L4")
    found = startup(resolve_model("Qwen/Qwen3-32B"), l4, version="0.32.0", free_bytes=l4.memory_bytes // 20)
    assert found.verdict == "does_not_start"
    assert found.fix == "free memory of the device, or take another"


def test_free_memory_is_all_that_the_others_see() -> None:
    """SGLang and TensorRT-LLM take their share of what is free, so that nothing is refused outright."""
    model, card = resolve_model("Qwen/Qwen3-1.7B"), device("A100-SXM-80GB")
    for name in ("sglang", "tensorrt-llm"):
        all_free, half_free = (
            startup(model, card, engine_name=name, free_bytes=free).kv_cache_bytes
            for free in (None, card.memory_bytes // 2)
        )
        assert 0 < half_free < all_free


def test_ranks_that_gather_each_others_tokens_start_with_smaller_steps() -> None:
    """Sixteen replicas of the attention of DeepSeek-R1: what the engine takes by default is too much for 80 GB."""
    model, spread = resolve_model("deepseek-ai/DeepSeek-R1"), "-dp 16 --enable-expert-parallel"
    found = startup(model, H100, version="0.32.0", arguments=spread)
    assert found.verdict == "does_not_start"
    assert found.fix.startswith("--max-num-batched-tokens ")
    assert startup(model, H100, version="0.32.0", arguments=f"{spread} {found.fix}").verdict == "starts"


def test_legal_sizes_go_as_far_as_the_heads() -> None:
    found = asked("deepseek-ai/DeepSeek-R1", "-tp 48")
    assert found.reason.endswith("legal tensor parallel sizes: 1, 2, 4, 8, 16")
    assert asked(LLAMA, "-tp 3").reason.endswith("1, 2, 4, 8, 16, 32")


def test_the_longest_context_is_not_cut_to_whole_blocks() -> None:
    found = asked("openai/clip-vit-base-patch32", "")
    assert (found.verdict, found.max_model_len_that_fits) == ("starts", 77)
