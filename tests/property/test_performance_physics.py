"""No prediction beats the hardware: step costs of random models on every accelerator of the catalogue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rightslice.app.predict import Deployment, Load, predict
from rightslice.catalogue.accelerators import accelerators, device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.unknown import usual_decoder
from rightslice.core.engine import DTYPE_BITS, Dtype, EngineSettings
from rightslice.performance import coefficients
from rightslice.performance.laws import step_costs

KNOWN = [name for name, found in accelerators().items() if {"bf16", "fp16"} & set(found.flops)]
VERSIONS = {
    "vllm": ("", "0.10.0", "0.7.3", "0.2.0"),
    "tensorrt-llm": ("", "0.21", "0.20", "0.14", "0.9"),
    "sglang": ("", "0.5.1"),
    "llamacpp": ("",),
}
ENGINES = st.sampled_from([(engine, version) for engine, versions in VERSIONS.items() for version in versions])
WEIGHTS: tuple[Dtype, ...] = ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
TOKENS = 1024
BATCH = 32


@st.composite
def models(draw: st.DrawFn) -> Architecture:
    """A usual decoder of 1 to 200 billion parameters, sometimes with experts."""
    total = draw(st.sampled_from([1.0, 3.0, 8.0, 30.0, 70.0, 200.0]))
    active = total * draw(st.sampled_from([1.0, 1.0, 0.3, 0.1]))
    return usual_decoder(total * 1e9, active * 1e9)


@st.composite
def configurations(draw: st.DrawFn) -> tuple[Device, EngineSettings]:
    """An accelerator with an engine of some version in some precision."""
    where = device(draw(st.sampled_from(KNOWN)))
    engine, version = draw(ENGINES)
    weights = draw(st.sampled_from(WEIGHTS))
    tensor = draw(st.sampled_from([1, 2, 4, 8]))
    return where, EngineSettings(
        engine=engine,
        version=version,
        weight_dtype=weights,
        kv_dtype=draw(st.sampled_from(["bf16", "fp8"])),
        tensor_parallel_size=tensor,
        max_num_seqs=BATCH,
        max_num_batched_tokens=TOKENS,
    )


def peak_flops(where: Device, dtype: str) -> float:
    """The fastest unit that could multiply weights of that format."""
    names = {16: ("bf16", "fp16"), 8: ("bf16", "fp16", "fp8", "int8"), 4: ("bf16", "fp16", "fp8", "int8", "fp4")}
    return max(where.flops.get(name, 0.0) for name in names[DTYPE_BITS[dtype]])


@settings(max_examples=250)
@given(models(), configurations())
def test_no_step_beats_the_datasheet(model: Architecture, configuration: tuple[Device, EngineSettings]) -> None:
    where, engine = configuration
    costs = step_costs(model, where, engine, typical_tokens=1000)
    tensor = engine.tensor_parallel_size
    head = model.vocab_size * model.hidden_size
    layers = model.matmul_parameters - head
    active = layers + sum(g.layers * g.experts_per_token * g.expert_parameters for g in model.moe)
    flops = 2 * (TOKENS * active + BATCH * head) / tensor
    assert costs.tokens_ps[TOKENS] / 1e12 >= flops / peak_flops(where, engine.weight_dtype)
    width = DTYPE_BITS[engine.weight_dtype] / 8
    read = (layers * width + head * min(width, 2.0)) / tensor
    assert costs.tokens_ps[1] / 1e12 >= read / where.memory_bandwidth_bytes_per_s
    cache = model.cache_elements_per_token() / min(tensor, 8) * (2 if engine.kv_dtype == "bf16" else 1)
    assert (costs.kv_token_ps + 0.5) / 1e12 >= cache / where.memory_bandwidth_bytes_per_s
    assert bool(np.all(np.diff(costs.tokens_ps) >= 0))


@settings(max_examples=150)
@given(configurations(), st.sampled_from([1.0, 3.0, 8.0, 30.0]), st.floats(1.3, 8.0))
def test_a_larger_model_is_never_faster(
    configuration: tuple[Device, EngineSettings], billions: float, factor: float
) -> None:
    where, engine = configuration
    small, large = (usual_decoder(b * 1e9, b * 1e9) for b in (billions, factor * billions))
    assume(large.layers > small.layers and large.hidden_size >= small.hidden_size)
    one, other = (step_costs(m, where, engine, typical_tokens=500) for m in (small, large))
    assert bool(np.all(other.tokens_ps >= one.tokens_ps))
    assert other.step_ps >= one.step_ps
    assert other.attention_ps >= one.attention_ps


@settings(max_examples=150)
@given(models(), configurations())
def test_fp8_costs_at_most_its_quantisation_more_than_bf16(
    model: Architecture, configuration: tuple[Device, EngineSettings]
) -> None:
    where, engine = configuration
    bf16, fp8 = (step_costs(model, where, replace(engine, weight_dtype=w), typical_tokens=500) for w in ("bf16", "fp8"))
    assume(not coefficients.is_weight_only(where, "fp8"))
    assert bool(np.all(fp8.tokens_ps <= bf16.tokens_ps))
    most_us = coefficients.most_quantise_us(where, engine) * (12 * model.layers)
    assert fp8.step_ps - bf16.step_ps <= most_us * 1e6 + 1


@pytest.mark.parametrize("name", KNOWN)
def test_every_accelerator_has_a_prediction_that_obeys_littles_law(name: str) -> None:
    where = device(name)
    model = usual_decoder(1e9, 1e9)
    engine = EngineSettings(max_model_len=300, max_num_seqs=64, max_num_batched_tokens=1024)
    found = predict(Deployment(model, where, engine, 2), Load("closed", requests=32), 200, 50)
    in_flight = found.requests_per_s.mean * found.e2e_ms.mean / 1e3
    assert 32 * 0.8 <= in_flight <= 32 * 1.01  # both ends of the test have fewer, the time outside the engine counts
    flops = found.requests_per_s.mean * 2 * 250 * model.matmul_parameters
    assert flops <= 2 * peak_flops(where, "bf16")
