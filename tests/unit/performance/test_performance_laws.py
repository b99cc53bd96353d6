"""Step costs of whole models: published measurements, hardware limits, windows, parallelism, precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import performance_cases as cases
from rightslice.catalogue.architecture import AttentionGroup
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import Dtype
from rightslice.core.errors import BadInputError
from rightslice.performance import coefficients
from rightslice.performance.costs import StepCosts
from rightslice.performance.laws import step_costs

A100, H100 = cases.whole(cases.A100), cases.whole(cases.H100)
CACHE_BYTES_PER_S = (
    coefficients.attention_path(H100, "bf16").bytes_per_s * coefficients.era(H100, cases.VLLM).cache_bandwidth
)


def decode_ms(costs: StepCosts, sequences: int, context: int) -> float:
    return costs.step_time_ps(0, 0, sequences, sequences * context) / 1e9


def prefill_ms(costs: StepCosts, tokens: int) -> float:
    return costs.step_time_ps(tokens, tokens * (tokens + 1) // 2, 0, 0) / 1e9


def test_decode_of_an_8b_model_on_an_a100_is_near_the_published_one() -> None:
    """AccelMark, Llama-3-8B bf16, vLLM 0.20.1, one request of 256 + 348 tokens at a time: TPOT 10.77 ms."""
    costs = step_costs(cases.LLAMA_8B, A100, cases.VLLM, typical_tokens=430)
    assert decode_ms(costs, 1, 430) == pytest.approx(10.77, rel=costs.relative_error)


@pytest.mark.parametrize(("sequences", "tpot_ms"), [(4, 11.78), (16, 13.19)])
def test_decode_of_a_70b_model_on_four_h100_is_near_the_published_one(sequences: int, tpot_ms: float) -> None:
    """SemiAnalysis InferenceX, Llama-3.1-70B FP8, vLLM, 1,024 + 1,024 tokens (80-100 % of it), closed loop."""
    settings = replace(cases.VLLM, tensor_parallel_size=4, weight_dtype="fp8")
    costs = step_costs(cases.LLAMA_70B, H100, settings, typical_tokens=1400)
    assert decode_ms(costs, sequences, 1400) == pytest.approx(tpot_ms, rel=0.15)


def test_prefill_of_a_7b_model_on_an_a100_is_near_the_published_one() -> None:
    """TensorRT-LLM v0.9 performance overview, Mistral 7B fp16, one prompt of 2,048 tokens: 139.6 ms."""
    mistral = cases.dense(32, 4096, 32, 8, 14336, 32000)
    costs = step_costs(mistral, A100, replace(cases.VLLM, engine="tensorrt-llm"), typical_tokens=2048)
    assert prefill_ms(costs, 2048) == pytest.approx(139.6, rel=costs.relative_error)


def test_no_step_beats_the_datasheet() -> None:
    costs = step_costs(cases.LLAMA_8B, A100, cases.VLLM, typical_tokens=1000)
    read_ms = 2 * cases.LLAMA_8B.matmul_parameters / 2.039e12 * 1e3
    head = cases.LLAMA_8B.vocab_size * cases.LLAMA_8B.hidden_size
    multiply_ms = 2 * 4096 * (cases.LLAMA_8B.matmul_parameters - head) / 312e12 * 1e3
    assert costs.tokens_ps[1] / 1e9 > read_ms
    assert costs.tokens_ps[4096] / 1e9 > multiply_ms
    assert costs.kv_token_ps > 131072 / 2.039e12 * 1e12  # 128 KiB of cache a token


def test_a_windowed_layer_costs_context_below_its_window_and_a_constant_above() -> None:
    below = step_costs(cases.GEMMA, A100, cases.VLLM, typical_tokens=cases.WINDOW)
    above = step_costs(cases.GEMMA, A100, cases.VLLM, typical_tokens=4 * cases.WINDOW)
    full = replace(cases.GEMMA, attention=(replace(cases.GEMMA.attention[0], layers=48),))
    unbounded = step_costs(full, A100, cases.VLLM, typical_tokens=4 * cases.WINDOW)
    assert below.kv_token_ps == unbounded.kv_token_ps
    assert above.kv_token_ps == pytest.approx(unbounded.kv_token_ps * 8 / 48, rel=1e-3)
    windows_ps = above.sequence_ps - below.sequence_ps
    assert windows_ps == pytest.approx(unbounded.kv_token_ps * 40 / 48 * cases.WINDOW, rel=1e-3)
    # 40 of 48 layers do 7/16 of the work of a full one on a prompt of four windows
    assert above.attention_ps == pytest.approx(unbounded.attention_ps * (8 + 40 * 7 / 16) / 48, rel=0.01)


def test_decode_of_experts_grows_with_the_experts_touched() -> None:
    """Mixtral: 2 of 8 experts at one token, nearly all at 16; a dense layer reads the same weights at both."""
    costs = step_costs(cases.MIXTRAL, A100, replace(cases.VLLM, tensor_parallel_size=2), typical_tokens=500)
    growth = costs.tokens_ps[16] / costs.tokens_ps[1]
    assert 3.0 < growth < 4.0
    assert (
        step_costs(cases.LLAMA_8B, A100, cases.VLLM, typical_tokens=500).tokens_ps[16]
        < 1.1 * (step_costs(cases.LLAMA_8B, A100, cases.VLLM, typical_tokens=500).tokens_ps[1])
    )


def test_spread_experts_read_as_much_as_split_ones_at_a_full_batch() -> None:
    split = replace(cases.VLLM, tensor_parallel_size=4)
    spread = replace(split, expert_parallel=True)
    one, other = (step_costs(cases.MIXTRAL, H100, s, typical_tokens=500).tokens_ps[4096] for s in (split, spread))
    assert other == pytest.approx(one, rel=0.01)


def test_a_latent_cache_is_whole_on_every_device_and_kv_heads_are_split() -> None:
    latent = AttentionGroup("mla", 32, 32, 1, 192, 128, 576)
    mla = replace(cases.LLAMA_8B, attention=(latent,))
    tp4 = replace(cases.VLLM, tensor_parallel_size=4)
    assert step_costs(mla, H100, tp4, typical_tokens=500).kv_token_ps == pytest.approx(
        32 * 576 * 2 / CACHE_BYTES_PER_S * 1e12, rel=0.01
    )
    whole, split = (step_costs(cases.LLAMA_8B, H100, s, typical_tokens=500).kv_token_ps for s in (cases.VLLM, tp4))
    assert split == pytest.approx(whole / 4, rel=1e-3)
    tp16 = replace(cases.VLLM, tensor_parallel_size=16)  # 8 KV heads: two devices hold the same one
    assert step_costs(cases.LLAMA_8B, H100, tp16, typical_tokens=500).kv_token_ps == pytest.approx(whole / 8, rel=1e-3)


def test_recurrent_state_is_read_and_written_once_per_sequence() -> None:
    state = AttentionGroup("mamba", 32, 0, 1, 0, 0, 0, state_bytes_per_sequence=10**7)
    mamba = replace(cases.LLAMA_8B, attention=(state,))
    costs = step_costs(mamba, H100, cases.VLLM, typical_tokens=500)
    assert costs.kv_token_ps == 0
    assert costs.attention_ps == 0
    host_ps = step_costs(cases.LLAMA_8B, H100, cases.VLLM, typical_tokens=500).sequence_ps
    assert costs.sequence_ps - host_ps == pytest.approx(2 * 32 * 10**7 / CACHE_BYTES_PER_S * 1e12, rel=0.01)


def test_all_reduces_over_pcie_are_dearer_than_over_nvlink() -> None:
    tp2 = replace(cases.VLLM, tensor_parallel_size=2)
    no_link = replace(A100, link_bytes_per_s=0.0)
    bridged = replace(A100, accelerator=replace(cases.A100, link_domain_max=2))
    near = step_costs(cases.LLAMA_8B, A100, tp2, typical_tokens=500).tokens_ps
    assert step_costs(cases.LLAMA_8B, no_link, tp2, typical_tokens=500).tokens_ps[4096] > 1.5 * near[4096]
    assert np.array_equal(step_costs(cases.LLAMA_8B, bridged, tp2, typical_tokens=500).tokens_ps, near)
    tp4 = replace(cases.VLLM, tensor_parallel_size=4)
    two_pairs, four = (step_costs(cases.LLAMA_8B, d, tp4, typical_tokens=500).tokens_ps[4096] for d in (bridged, A100))
    assert two_pairs > four


def test_four_devices_compute_a_long_prompt_faster_than_one_but_not_four_times() -> None:
    one = step_costs(cases.LLAMA_8B, H100, cases.VLLM, typical_tokens=500)
    four = step_costs(cases.LLAMA_8B, H100, replace(cases.VLLM, tensor_parallel_size=4), typical_tokens=500)
    assert one.tokens_ps[4096] / 4 < four.tokens_ps[4096] < one.tokens_ps[4096]


def test_pipeline_stages_share_cache_reads_but_not_weight_reads() -> None:
    one = step_costs(cases.LLAMA_8B, H100, cases.VLLM, typical_tokens=500)
    two = step_costs(cases.LLAMA_8B, H100, replace(cases.VLLM, pipeline_parallel_size=2), typical_tokens=500)
    assert two.kv_token_ps == pytest.approx(one.kv_token_ps / 2, abs=1)
    assert two.tokens_ps[1] >= one.tokens_ps[1]
    assert two.tokens_ps[4096] < 0.6 * one.tokens_ps[4096]


def test_weights_that_the_device_cannot_multiply_save_bytes_only() -> None:
    bf16 = step_costs(cases.LLAMA_8B, A100, cases.VLLM, typical_tokens=500)
    w8a16 = step_costs(cases.LLAMA_8B, A100, replace(cases.VLLM, weight_dtype="fp8"), typical_tokens=500)
    int8 = step_costs(cases.LLAMA_8B, A100, replace(cases.VLLM, weight_dtype="int8"), typical_tokens=500)
    assert w8a16.tokens_ps[1] < 0.6 * bf16.tokens_ps[1]
    assert w8a16.tokens_ps[4096] > 0.95 * bf16.tokens_ps[4096]
    assert int8.tokens_ps[4096] < 0.7 * bf16.tokens_ps[4096]


def test_formats_for_experts_only_leave_the_rest_in_16_bit() -> None:
    mxfp4, fp4 = replace(cases.VLLM, weight_dtype="mxfp4"), replace(cases.VLLM, weight_dtype="fp4")
    dense = [step_costs(cases.LLAMA_8B, H100, s, typical_tokens=500).tokens_ps[1] for s in (mxfp4, fp4)]
    experts = [step_costs(cases.MIXTRAL, H100, s, typical_tokens=500).tokens_ps[1] for s in (mxfp4, fp4)]
    assert dense[0] == dense[1]
    assert experts[0] > experts[1]


def test_a_device_of_unknown_speed_is_named() -> None:
    blank = replace(cases.A100, name="VR-NVL72", flops={})
    with pytest.raises(BadInputError, match="VR-NVL72"):
        step_costs(cases.LLAMA_8B, cases.whole(blank), cases.VLLM, typical_tokens=500)


def test_an_unknown_engine_is_taken_as_vllm_and_not_trusted() -> None:
    known = step_costs(cases.LLAMA_8B, H100, cases.VLLM, typical_tokens=500)
    unknown = step_costs(cases.LLAMA_8B, H100, replace(cases.VLLM, engine="nim"), typical_tokens=500)
    assert unknown.step_time_ps(100, 5050, 3, 900) == known.step_time_ps(100, 5050, 3, 900)
    assert (known.provenance, unknown.provenance) == ("first-principles", "unvalidated")


def test_ranks_share_experts_and_pay_for_their_exchange() -> None:
    """Eight ranks with two sequences each read the experts that sixteen sequences touch, an eighth each."""
    alone = replace(cases.VLLM, tensor_parallel_size=1)
    ranks = replace(alone, data_parallel_size=8, expert_parallel=True)
    one, eight = (step_costs(cases.MIXTRAL, H100, s, typical_tokens=500) for s in (alone, ranks))
    assert eight.kv_token_ps == one.kv_token_ps
    assert eight.tokens_ps[2] < one.tokens_ps[2]
    sliced = step_costs(cases.MIXTRAL, H100, replace(ranks, expert_parallel=False), typical_tokens=500)
    assert sliced.tokens_ps[4096] == pytest.approx(eight.tokens_ps[4096], rel=0.01)
    far = replace(H100, accelerator=replace(H100.accelerator, link_domain_max=4))
    assert step_costs(cases.MIXTRAL, far, ranks, typical_tokens=500).tokens_ps[4096] > eight.tokens_ps[4096]


def test_eras_of_a_family_hold_from_a_version_on_and_others_share_the_engines() -> None:
    def key(device: Device, version: str, engine: str = "vllm") -> tuple[str, int]:
        return coefficients.era_key(device, replace(cases.VLLM, engine=engine, version=version))

    assert key(H100, "") == key(H100, "0.15.1") == ("vllm/hopper", 0)
    assert key(H100, "0.7.3") == key(A100, "0.7.3")
    assert key(A100, "0.15.1") == ("vllm", 2)
    assert key(H100, "3.1", engine="nobodys") == ("vllm/hopper", 0)


def test_refinements_multiply_the_coefficients_of_the_operator_tables() -> None:
    path = "families/hopper/attention/decode/16"
    try:
        coefficients.use_factors({})
        plain = coefficients.attention_path(H100, "bf16").bytes_per_s
        coefficients.use_factors({path: 0.5})
        assert coefficients.attention_path(H100, "bf16").bytes_per_s == pytest.approx(plain / 2)
    finally:
        coefficients.use_shipped_factors()
    assert coefficients.attention_path(H100, "bf16").bytes_per_s >= 0.3 * plain


def test_compiled_engines_launch_prompts_one_by_one_only_beyond_the_largest_graph() -> None:
    compiled = step_costs(cases.LLAMA_8B, H100, cases.VLLM, typical_tokens=500)
    assert compiled.prefill_step_ps == 0
    assert compiled.tokens_ps[513] - compiled.tokens_ps[512] > 10 * (compiled.tokens_ps[512] - compiled.tokens_ps[511])
    other = step_costs(cases.LLAMA_8B, H100, replace(cases.VLLM, engine="sglang"), typical_tokens=500)
    assert other.prefill_step_ps > 0


def test_a_latent_cache_has_more_launches_of_a_prompt_than_grouped_queries() -> None:
    settings = replace(cases.VLLM, engine="sglang")
    group = cases.LLAMA_8B.attention[0]
    latent = replace(cases.LLAMA_8B, attention=(replace(group, kind="mla", kv_elements_per_token=576),))
    plain, more = (coefficients.launches(m, H100, settings).prefill_s for m in (cases.LLAMA_8B, latent))
    assert more > 1.5 * plain


def test_dense_8_bit_multiplies_are_quantised_apart_unless_compiled() -> None:
    def kernels_s(engine: str, dtype: Dtype) -> float:
        settings = replace(cases.VLLM, engine=engine, weight_dtype=dtype)
        return coefficients.launches(cases.LLAMA_8B, H100, settings).kernels_s

    assert kernels_s("vllm", "fp8") == kernels_s("vllm", "bf16")
    assert kernels_s("tensorrt-llm", "fp8") > kernels_s("tensorrt-llm", "bf16")
