"""Bands: what was measured keeps its figure, everything else is wide and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

import performance_cases as cases
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.performance import accuracy

H100 = cases.whole(cases.H100)
VLLM = replace(cases.VLLM, version="0.33.0")


@pytest.mark.parametrize(
    ("device", "settings", "name"),
    [
        (H100, VLLM, "dense/datacentre/vllm"),
        (H100, replace(VLLM, version=""), "dense/datacentre/vllm"),
        (H100, replace(VLLM, version="nightly-5b8c30d"), "dense/datacentre/vllm"),
        (H100, replace(VLLM, version="0.7.3"), "dense/datacentre/vllm<0.8.0"),
        (H100, replace(VLLM, version="0.10.2"), "dense/datacentre/vllm"),
        (cases.A100_3G, VLLM, "dense/datacentre/vllm+slice"),
        (cases.whole(cases.L40S), VLLM, "dense/workstation/vllm"),
        (cases.whole(cases.MI300X), VLLM, "dense/amd/vllm"),
        (cases.whole(cases.MI300X), replace(VLLM, version="0.7.3"), "dense/amd/vllm<0.8.0"),
        (H100, replace(VLLM, pipeline_parallel_size=2), "dense/datacentre/vllm+pipeline"),
        (cases.whole(cases.A100), replace(VLLM, weight_dtype="fp8"), "dense/datacentre/vllm+weight-only"),
    ],
)
def test_a_configuration_falls_into_one_cell(device: Device, settings: EngineSettings, name: str) -> None:
    assert accuracy.cell_name(cases.LLAMA_8B, device, settings) == name
    band = accuracy.band(cases.LLAMA_8B, device, settings)
    measured = name in accuracy.document().cells
    assert (band.provenance == "unvalidated") is not measured
    assert measured or band.relative_error >= 0.4


def test_a_load_beyond_control_has_a_cell_of_its_own() -> None:
    assert accuracy.cell_name(cases.LLAMA_8B, H100, VLLM, "open") == "dense/datacentre/vllm+open"
    assert accuracy.cell_name(cases.LLAMA_8B, H100, VLLM, "closed") == "dense/datacentre/vllm"


def test_bands_by_metric_are_those_of_the_cell_or_wide() -> None:
    known = accuracy.bands(cases.LLAMA_8B, H100, VLLM, "closed").metrics
    assert known["tpot"].relative_error < known["ttft"].relative_error
    assert known["tpot"].provenance == "first-principles"
    guessed = accuracy.bands(cases.LLAMA_8B, H100, VLLM, "closed", guessed=True).metrics
    unknown = accuracy.bands(cases.LLAMA_8B, cases.whole(cases.MI300X), replace(VLLM, engine="triton")).metrics
    for band in (*guessed.values(), *unknown.values()):
        assert band.provenance == "unvalidated"
        assert band.relative_error >= 0.4
        assert band.relative_error95 > band.relative_error


def test_experts_are_less_certain_than_dense_models() -> None:
    engine = replace(VLLM, engine="tensorrt-llm", version="")
    dense, experts = (accuracy.band(a, H100, engine).relative_error for a in (cases.LLAMA_8B, cases.MIXTRAL))
    assert dense < experts


def test_every_unvalidated_band_is_at_least_forty_percent() -> None:
    for architecture in (cases.LLAMA_8B, cases.MIXTRAL):
        for accelerator in (cases.A100, cases.L40S, cases.MI300X):
            band = accuracy.band(architecture, cases.whole(accelerator), replace(VLLM, engine="triton"))
            assert band.provenance == "unvalidated"
            assert band.relative_error >= 0.4
