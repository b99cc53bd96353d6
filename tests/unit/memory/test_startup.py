"""Start-up verdicts against public reports: each case names the issue it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError
from rightslice.memory.arguments import Formats
from rightslice.memory.startup import startup

GIB = 1 << 30


def shown(name: str, gib: float) -> Device:
    """A device with the memory that the report printed."""
    return replace(device(name), memory_bytes=int(gib * GIB))


def llama_like(**sizes: Any) -> Architecture:
    raw: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "vocab_size": 32_000,
    }
    return read_architecture({**raw, "tie_word_embeddings": False, "max_position_embeddings": 32_768, **sizes}, "test")


@pytest.mark.parametrize(
    ("length", "verdict", "tokens"), [(29_000, "does_not_start", 23_648), (20_000, "starts", 31_232)]
)
def test_cache_too_small_for_the_context(length: int, verdict: str, tokens: int) -> None:
    """vllm#10517: 2.89 GiB and 23,648 tokens at 29,000; 3.81 GiB and 31,232 at 20,000."""
    arguments = f"--max-model-len {length} --gpu-memory-utilization 0.9"
    found = startup(resolve_model("Llama-3.1-8B"), shown("RTX-3090", 23.58), version="0.6.3", arguments=arguments)
    assert found.verdict == verdict
    assert found.kv_tokens == pytest.approx(tokens, rel=0.01)
    if verdict == "does_not_start":
        assert found.fix == f"--max-model-len {found.max_model_len_that_fits}"
        assert 20_000 < found.max_model_len_that_fits < 29_000


def test_layers_with_a_chunk_kept_everything_in_0_8() -> None:
    """vllm#16118: 24.00 GiB per device for 1,048,576 tokens on eight ranks; later versions keep the chunk."""
    scout = resolve_model("Llama-4-Scout")
    arguments = "-tp 8 --max-model-len 1048576"
    old = startup(scout, device("H100-SXM-80GB"), version="0.8.0", arguments=arguments)
    new = startup(scout, device("H100-SXM-80GB"), version="0.33.0", arguments=arguments)
    assert old.kv_bytes_needed == 24 * GIB
    assert new.kv_bytes_needed < 7 * GIB


def test_four_bit_weights_do_not_shrink_the_cache() -> None:
    """QwenLM/Qwen3#16: 512 KiB per token without grouped queries; 24,320 tokens fit, 32,768 do not."""
    quantised = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
    sizes = {"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32}
    model = llama_like(**sizes, quantization_config=quantised, vocab_size=151_936)
    found = startup(model, shown("RTX-3090", 23.69), version="0.4.2", arguments="--quantization gptq")
    assert found.verdict == "does_not_start"
    assert found.kv_bytes_needed == 16 * GIB
    assert found.kv_tokens == pytest.approx(24_320, rel=0.1)


def test_a_second_tenant_does_not_start_for_lack_of_free_memory() -> None:
    """ovg-project/kvcached#110: 67.24 of 79.25 GiB free is less than 0.9 of the device = 71.33."""
    model = resolve_model("Llama-3.1-8B")
    arguments = "--gpu-memory-utilization 0.9 --max-model-len 8192"
    found = startup(model, device("A100-SXM-80GB"), version="0.9.2", arguments=arguments, free_bytes=int(67.24 * GIB))
    assert found.verdict == "does_not_start"
    assert "71.3 GiB" in found.reason
    assert found.fix == "--gpu-memory-utilization 0.84"


@pytest.mark.parametrize(
    ("sizes", "tensor", "legal"),
    [
        # vllm#2652: LLaMA-33B, 52 heads on 8
        ({"hidden_size": 6656, "intermediate_size": 17_920, "num_attention_heads": 52}, 8, "1, 2, 4"),
        # vllm#4232: 40 heads, 8 KV heads on 6
        (
            {"hidden_size": 5120, "intermediate_size": 27_392, "num_attention_heads": 40, "num_key_value_heads": 8},
            6,
            "1, 2, 4, 8",
        ),
        # vllm#17569: experts of 1,536 in FP8 blocks of 128 on 8
        (
            {
                "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 4096,
                "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
                "num_experts_per_tok": 8, "moe_intermediate_size": 1536,
                "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            },
            8,
            "1, 2, 4",
        ),
        # vllm#21695: width 29,568 in AWQ groups of 128 on 2
        (
            {
                "hidden_size": 8192, "intermediate_size": 29_568, "num_attention_heads": 64, "num_key_value_heads": 8,
                "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
            },
            2,
            "1",
        ),
    ],
    ids=["heads-52", "tp-6", "fp8-block", "awq-group"],
)  # fmt: skip
def test_parallel_sizes_that_do_not_divide(sizes: dict[str, Any], tensor: int, legal: str) -> None:
    found = startup(llama_like(num_hidden_layers=2, **sizes), device("H100-SXM-80GB"), arguments=f"-tp {tensor}")
    assert found.verdict == "refused"
    assert found.reason.endswith(f"legal tensor parallel sizes: {legal}")
    largest = max(int(size) for size in legal.split(", ") if int(size) <= tensor)
    assert found.fix == f"--tensor-parallel-size {largest}"


@pytest.mark.parametrize(
    ("version", "accelerator", "verdict"),
    [("0.4.2", "RTX-3090", "refused"), ("0.6.3", "A100-SXM-80GB", "starts"), ("0.4.2", "L4", "starts")],
)
def test_eight_bit_weights_before_and_after_they_could_be_stored_anywhere(
    version: str, accelerator: str, verdict: str
) -> None:
    """vllm#4327 and #6979: refused at capability 8.6 by 0.4, stored without speed-up since 0.5.2."""
    model = resolve_model("Qwen/Qwen3-1.7B")
    arguments = "--quantization fp8 --max-model-len 4096"
    assert startup(model, device(accelerator), version=version, arguments=arguments).verdict == verdict


def test_bfloat16_needs_ampere() -> None:
    """vllm#1157: refused on a T4; half works. 0.32 takes half by itself, unless it is told otherwise."""
    model, asked = resolve_model("Qwen/Qwen3-1.7B"), "--max-model-len 4096"
    for version, arguments in (("0.4.2", asked), ("0.32.0", f"{asked} --dtype bfloat16")):
        refused = startup(model, device("T4"), version=version, arguments=arguments)
        assert (refused.verdict, refused.fix) == ("refused", "--dtype half")
        taken = startup(model, device("T4"), version=version, arguments=f"{arguments} {refused.fix}")
        assert taken.verdict == "starts"
    assert startup(model, device("T4"), version="0.32.0", arguments=asked).verdict == "starts"


def test_slices_do_not_form_a_group() -> None:
    """vllm#7211, NVIDIA/nccl#1716."""
    piece = device("A100-SXM-80GB", "3g.40gb")
    found = startup(resolve_model("Qwen/Qwen3-1.7B"), piece, arguments="-tp 2")
    assert found.verdict == "refused"
    assert found.fix == "--tensor-parallel-size 1"


def test_a_narrow_margin_is_uncertain() -> None:
    model, whole = resolve_model("Llama-3.1-8B"), device("RTX-3090")
    longest = startup(model, whole, arguments="--max-model-len 8192").max_model_len_that_fits
    assert startup(model, whole, arguments=f"--max-model-len {longest}").verdict == "uncertain"
    assert startup(model, whole, arguments=f"--max-model-len={longest + 8192}").verdict == "does_not_start"


def test_more_devices_are_the_fix_when_no_context_fits() -> None:
    found = startup(resolve_model("DeepSeek-R1"), device("H100-SXM-80GB"), arguments="-tp 8 --trust-remote-code")
    assert found.verdict == "does_not_start"
    assert found.max_model_len_that_fits == 0
    assert found.fix == "--tensor-parallel-size 16"
    assert found.not_considered == ("--trust-remote-code",)


def test_constants_without_a_log_are_said_to_be_assumed() -> None:
    found = startup(resolve_model("Qwen/Qwen3-1.7B"), device("L4"), engine_name="sglang", arguments="--tp-size 1")
    assert any("assumed" in note for note in found.notes)


@pytest.mark.parametrize(
    ("engine", "arguments", "rule"),
    [
        ("nosuch", "", "RS0315"),
        ("vllm", "--max-model-len many", "RS0501"),
        ("vllm", "--gpu-memory-utilization 1.5", "RS0501"),
        ("vllm", "--gpu-memory-utilization", "RS0501"),
        ("vllm", "--dtype quarter", "RS0501"),
        ("vllm", "--max-model-len 'open", "RS0501"),
        ("vllm", "-tp 0", "RS0501"),
        ("vllm", "--max-num-seqs 99999999999999999999", "RS0501"),
    ],
)
def test_arguments_that_make_no_sense(engine: str, arguments: str, rule: str) -> None:
    with pytest.raises(BadInputError) as caught:
        startup(resolve_model("Qwen/Qwen3-1.7B"), device("L4"), engine_name=engine, arguments=arguments)
    assert caught.value.code == rule


@pytest.mark.parametrize("length", [3_276_800, 131_072, 60_000])
def test_a_fix_holds_when_it_is_taken(length: int) -> None:
    model, l4 = resolve_model("meta-llama/Llama-3.1-8B-Instruct"), device("L4")
    found = startup(model, l4, version="0.33.0", arguments=f"--max-model-len {length}")
    assert found.verdict in ("refused", "does_not_start")
    assert startup(model, l4, version="0.33.0", arguments=found.fix).verdict != "does_not_start"


def test_a_cache_format_that_the_device_or_version_lacks_is_refused_before_anything_loads() -> None:
    llama = resolve_model("meta-llama/Llama-3.1-8B-Instruct")
    asked = "--kv-cache-dtype nvfp4 --max-model-len 4096"
    for name, version, verdict in (
        ("H100-SXM-80GB", "0.33.0", "refused"),
        ("B200-SXM-180GB", "0.33.0", "starts"),
        ("B200-SXM-180GB", "0.31.0", "refused"),
    ):
        found = startup(llama, device(name), version=version, arguments=asked)
        assert found.verdict == verdict
        assert found.fix == ("--kv-cache-dtype auto" if verdict == "refused" else "")


def test_fewer_tokens_in_flight_are_the_fix_where_windows_keep_them() -> None:
    """Gemma 3 27B on one A100: 16,384 tokens in flight beside each window are what does not fit, not the context."""
    gemma, a100 = resolve_model("gemma-3-27b-it"), device("A100-SXM-80GB")
    asked = "--max-model-len 65536"
    found = startup(gemma, a100, version="0.33.0", arguments=f"{asked} --max-num-batched-tokens 16384")
    assert (found.verdict, found.fix) == ("does_not_start", "--max-num-batched-tokens 8192")
    assert found.logged_max_concurrency < 1
    assert found.logged_kv_tokens < 65_536 < found.kv_tokens
    taken = startup(gemma, a100, version="0.33.0", arguments=f"{asked} {found.fix}")
    assert taken.verdict == "starts"
    assert taken.kv_bytes_needed == taken.kv_bytes_reserved_per_sequence < found.kv_bytes_needed


def test_a_smaller_step_is_no_fix_without_windows() -> None:
    arguments = "--max-model-len 131072 --max-num-batched-tokens 8192"
    found = startup(resolve_model("Llama-3.1-8B"), device("L4"), version="0.33.0", arguments=arguments)
    assert found.fix == f"--max-model-len {found.max_model_len_that_fits}"
    assert found.logged_kv_tokens == pytest.approx(found.kv_tokens, rel=0.001)


def test_a_pool_that_is_not_known_is_said() -> None:
    found = startup(resolve_model("gemma-3-27b-it"), device("H200-SXM-141GB"), engine_name="sglang")
    assert any("divides the cache" in note for note in found.notes)
    assert (found.logged_kv_tokens, found.logged_max_concurrency) == (0, 0.0)


def test_stages_are_counted_apart_and_the_engine_that_did_not_is_predicted() -> None:
    """vllm#34076: 24.0 GiB asked of one stage of Qwen3-Coder-30B at 262,144 tokens, 96 KiB a token."""
    model = resolve_model("Qwen/Qwen3-30B-A3B-FP8")
    model = replace(model, context_max=262_144)
    arguments = "-pp 2 --max-model-len 262144 --gpu-memory-utilization 0.9"
    card = shown("RTX-5090", 31.4)
    old, new = (startup(model, card, version=version, arguments=arguments) for version in ("0.15.1", "0.16.0"))
    assert old.kv_bytes_needed == 24 * GIB
    assert new.kv_bytes_needed == 12 * GIB
    assert old.kv_cache_bytes == new.kv_cache_bytes
    assert old.verdict == "does_not_start"
    assert "stage by stage" in old.notes[0]
    assert "12.0 GiB" in old.notes[0]
    assert new.max_model_len_that_fits == 262_144
    assert old.max_model_len_that_fits == pytest.approx(old.kv_cache_bytes / (96 * 1024), abs=16)
    assert not any("stage" in note for note in new.notes)


@pytest.mark.parametrize(
    ("sizes", "tensor", "reason"),
    [
        # FP8 in blocks of 128: 8 KV heads of 64 on 8 ranks leave 64 outputs of a block
        ({"head_dim": 64, "num_key_value_heads": 8, "quantization_config": {"quant_method": "fp8",
          "weight_block_size": [128, 128]}}, 8, "64 keys per rank"),
        # AWQ in groups of 128: 14 heads of 64 on 2 ranks leave 448 inputs of the output projection
        ({"num_attention_heads": 14, "head_dim": 64, "num_key_value_heads": 2, "quantization_config": {
          "quant_method": "awq", "bits": 4, "group_size": 128}}, 2, "448 inputs of the output projection"),
        ({"head_dim": 64, "num_key_value_heads": 8}, 8, ""),
    ],
    ids=["fp8-keys", "awq-heads", "bf16"],
)  # fmt: skip
def test_heads_must_not_cut_a_quantisation_block(sizes: dict[str, Any], tensor: int, reason: str) -> None:
    base = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32}
    found = startup(llama_like(**{**base, **sizes}), device("H100-SXM-80GB"), arguments=f"-tp {tensor}")
    assert found.verdict == ("refused" if reason else "starts")
    assert reason in found.reason


def test_an_engine_told_to_fit_takes_the_longest_context() -> None:
    model, card = resolve_model("Llama-3.1-8B"), device("RTX-3090")
    found = startup(model, card, arguments="--max-model-len auto")
    assert found.verdict == "starts"
    assert found.fix == ""
    assert 20_000 < found.max_model_len_that_fits < 131_072
    assert startup(model, card, arguments="--max-model-len -1") == found


def test_eager_mode_and_offloaded_weights_leave_more_cache() -> None:
    model, card = resolve_model("Llama-3.1-8B"), device("RTX-3090")
    plain, eager, offloaded = (
        startup(model, card, arguments=f"--max-model-len 8192 {more}").kv_cache_bytes
        for more in ("", "--enforce-eager", "--cpu-offload-gb 10")
    )
    assert eager - plain == pytest.approx(0.7 * GIB, rel=0.01)
    assert offloaded - plain == 10 * GIB


@pytest.mark.parametrize(
    "model", ["mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-9b-it"]
)
@pytest.mark.parametrize("accelerator", ["T4", "L4", "RTX-4090"])
@pytest.mark.parametrize("arguments", ["", "--max-model-len 16384", "-tp 2 --max-model-len 200000"])
def test_a_fix_of_several_steps_holds_when_all_are_taken(model: str, accelerator: str, arguments: str) -> None:
    found = startup(resolve_model(model), device(accelerator), arguments=arguments)
    if found.verdict in ("refused", "does_not_start"):
        assert found.fix.startswith("--")
        assert ", then" not in found.fix
        taken = startup(resolve_model(model), device(accelerator), arguments=f"{arguments} {found.fix}")
        assert taken.verdict in ("starts", "uncertain")


def test_formats_given_beside_the_arguments_count() -> None:
    """DeepSeek-R1 in 16 bit is 1,342 GB: sixteen H100 do not hold it; Llama 4 Scout in FP8 runs on two."""
    h100 = device("H100-SXM-80GB")
    wide = startup(resolve_model("DeepSeek-R1"), h100, arguments="-tp 8 -pp 2", formats=Formats("bf16"))
    assert wide.verdict == "does_not_start"
    scout, asked = resolve_model("Llama-4-Scout"), "-tp 2 --max-model-len 16384"
    assert startup(scout, h100, arguments=asked).verdict == "does_not_start"
    assert startup(scout, h100, arguments=asked, formats=Formats("fp8")).verdict == "starts"


def test_adapters_switched_on_take_a_slot() -> None:
    model, l4 = resolve_model("Llama-3.1-8B"), device("L4")
    plain, on, said = (
        startup(model, l4, arguments=f"--max-model-len 4096 {more}").kv_cache_bytes
        for more in ("", "--enable-lora --max-lora-rank 64", "--enable-lora --max-lora-rank 64 --max-loras 1")
    )
    assert on == said < plain


@pytest.mark.parametrize("ranks", ["-pp 2", "-dp 2", "-tp 2 -pp 2"])
def test_the_fix_on_a_slice_names_what_makes_the_ranks(ranks: str) -> None:
    piece, asked = device("A100-SXM-80GB", "3g.40gb"), f"{ranks} --max-model-len 4096"
    found = startup(resolve_model("Qwen/Qwen3-1.7B"), piece, arguments=asked)
    assert found.verdict == "refused"
    assert startup(resolve_model("Qwen/Qwen3-1.7B"), piece, arguments=f"{asked} {found.fix}").verdict == "starts"


def test_deepseek_v4_keeps_its_cache_in_rows_of_its_own() -> None:
    """vLLM takes FP8 for `auto` and refuses 16 bit, unless another attention backend is chosen."""
    model, seen = resolve_model("deepseek-ai/DeepSeek-V4-Flash"), device("H200-SXM-141GB")
    untold = startup(model, seen, arguments="-tp 8 --max-model-len 131072 --max-num-batched-tokens 2048")
    assert untold.verdict == "starts"
    assert any("in fp8 rows of its own" in note for note in untold.notes)
    assert untold.kv_bytes_reserved_per_sequence == 1_002_240 * (512 + 2 * 67 + 1027 + 529)
    refused = startup(model, seen, arguments="-tp 8 --kv-cache-dtype bfloat16")
    assert (refused.verdict, refused.fix) == ("refused", "--kv-cache-dtype fp8")
    other = "-tp 8 --kv-cache-dtype bfloat16 --attention-backend FLASHINFER_MLA_SPARSE_DSV4"
    assert startup(model, seen, arguments=other).verdict == "starts"
