"""Whatever the command line: a fix made of arguments starts when it is appended."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError
from rightslice.memory.startup import startup

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it", "google/gemma-3-1b-it", "deepseek-ai/DeepSeek-R1",
    "Qwen/Qwen3-30B-A3B-FP8", "openai/gpt-oss-20b", "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4",
    "Qwen/Qwen3-Next-80B-A3B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
    "openai/whisper-small", "google/flan-t5-xl", "openai/clip-vit-base-patch32",
    "state-spaces/mamba-2.8b-hf", "nvidia/Qwen3-235B-A22B-NVFP4", "FacebookAI/roberta-base",
)  # fmt: skip
DEVICES = ("T4", "V100-16GB", "L4", "A100-SXM-80GB", "H100-SXM-80GB", "B200-SXM-180GB")
SIZES = st.sampled_from(("1", "2", "3", "4", "8", "16", "33", "128"))
TOKENS = st.sampled_from(("1", "77", "1000", "4096", "32768", "131072", "10000000"))
SHARES = st.sampled_from(("0.01", "0.3", "0.9", "1.0"))
DTYPES = st.sampled_from(("auto", "half", "bfloat16", "float32"))
METHODS = st.sampled_from(("awq", "gptq", "fp8", "mxfp4", "nonsense", "compressed-tensors"))
FLAGS = {
    "vllm": {
        "-tp": SIZES, "-pp": SIZES, "-dp": SIZES, "--max-model-len": TOKENS, "--max-num-seqs": TOKENS,
        "--max-num-batched-tokens": TOKENS, "--block-size": SIZES, "--gpu-memory-utilization": SHARES,
        "--dtype": DTYPES, "--quantization": METHODS, "--kv-cache-dtype": st.sampled_from(("auto", "fp8", "nvfp4")),
        "--enable-expert-parallel": st.just(""), "--no-enable-chunked-prefill": st.just(""),
        "--kv-cache-memory-bytes": st.sampled_from(("100k", "1G", "64G")), "--enable-lora": st.just(""),
        "--max-lora-rank": SIZES, "-cc.cudagraph_mode": st.sampled_from(("NONE", "PIECEWISE", "FULL")),
    },
    "sglang": {
        "--tp-size": SIZES, "--pp-size": SIZES, "--dp-size": SIZES, "--context-length": TOKENS, "--ep-size": SIZES,
        "--max-running-requests": TOKENS, "--chunked-prefill-size": TOKENS, "--mem-fraction-static": SHARES,
        "--dtype": DTYPES, "--quantization": METHODS, "--enable-dp-attention": st.just(""),
        "--cuda-graph-max-bs": SIZES,
    },
    "tensorrt-llm": {
        "--tp_size": SIZES, "--pp_size": SIZES, "--ep_size": SIZES, "--max_seq_len": TOKENS, "--max_batch_size": TOKENS,
        "--max_num_tokens": TOKENS, "--kv_cache_free_gpu_memory_fraction": SHARES,
        "--enable_chunked_prefill": st.just(""),
    },
}  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, str]:
    """(engine, arguments)"""
    name = draw(st.sampled_from(tuple(FLAGS)))
    chosen = draw(st.lists(st.sampled_from(tuple(FLAGS[name])), max_size=5, unique=True))
    return name, " ".join(f"{flag} {draw(FLAGS[name][flag])}".rstrip() for flag in chosen)


@settings(max_examples=200)
@given(st.sampled_from(MODELS), st.sampled_from(DEVICES), lines(), st.sampled_from((0.0, 0.0, 0.1, 0.8)))
def test_a_fix_made_of_arguments_starts_when_it_is_appended(
    model: str, on: str, line: tuple[str, str], free_share: float
) -> None:
    name, arguments = line
    card = device(on)
    free = int(free_share * card.memory_bytes) or None
    try:
        found = startup(resolve_model(model), card, engine_name=name, arguments=arguments, free_bytes=free)
    except BadInputError as error:
        assert error.code == "RS0501"
        return
    if found.verdict == "starts":
        assert found.fix == ""
    elif found.verdict != "uncertain":
        assert found.fix
    if found.fix.startswith("-"):
        more = f"{arguments} {found.fix}"
        taken = startup(resolve_model(model), card, engine_name=name, arguments=more, free_bytes=free)
        assert taken.verdict in ("starts", "uncertain")
