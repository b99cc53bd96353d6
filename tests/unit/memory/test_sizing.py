"""`size`: the equation, the formula of the GKE guide, and what fits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.documents import to_json
from rightslice.core.errors import BadInputError
from rightslice.core.quantities import format_bytes
from rightslice.memory.sizing import Fit, SizeReport, SizeRequest, size

H100 = device("H100-SXM-80GB")


def fits_of(model: str, name: str, **changes: object) -> Fit | str:
    report = size(resolve_model(model), SizeRequest(**changes), [device(name)])  # type: ignore[arg-type]
    return report.fits[0] if report.fits else report.refused[0].reason


def test_the_worked_example_of_the_gke_guide() -> None:
    gemma = resolve_model("google/gemma-3-27b-it")
    report = size(gemma, SizeRequest(1500, 200, method="gke"))
    terms = (report.weights_bytes, report.overhead_bytes, report.activation_bytes, report.kv_cache_bytes)
    assert [round(term / 1e9, 2) for term in terms] == [54.0, 1.0, 0.31, 1.13]
    assert report.total_bytes / 1e9 == pytest.approx(56.44, abs=0.05)
    assert "168" in report.notes[0]


def test_the_exact_method_says_what_differs_and_by_how_much() -> None:
    gemma = resolve_model("google/gemma-3-27b-it")
    report = size(gemma, SizeRequest(1500, 200))
    assert report.weights_bytes == 2 * 27_432_406_640
    assert report.kv_cache_bytes == 1700 * 81_920 + 1024 * 425_984
    assert report.total_bytes == (
        report.weights_bytes + report.kv_cache_bytes + report.activation_bytes + report.overhead_bytes
    )
    weights, heads, windows = report.notes[:3]
    assert "27.4 B real parameters" in weights
    assert "+864.8 MB" in weights
    assert "head width 128" in heads
    assert "-269.8 MB" in heads
    assert "52 of 62 layers keep only 1,024 tokens" in windows
    assert "-288.0 MB" in windows


@pytest.mark.parametrize(
    ("model", "dtype", "accelerator", "count"),
    [
        ("Llama-4-Scout", None, "H100-SXM-80GB", 4),
        ("Llama-4-Scout", "fp8", "H100-SXM-80GB", 2),
        ("DeepSeek-R1", None, "H100-SXM-80GB", 16),
        ("DeepSeek-R1", None, "H200-SXM-141GB", 8),
        ("Llama-3.1-8B", None, "L4", 1),
        ("google/gemma-3-27b-it", None, "RTX-PRO-6000", 1),
        ("Qwen/Qwen3-0.6B", None, "T4", 0),
    ],
)
def test_the_ladder(model: str, dtype: str | None, accelerator: str, count: int) -> None:
    if count == 0:
        with pytest.raises(BadInputError):
            fits_of(model, accelerator)
        return
    found = fits_of(model, accelerator, dtype=dtype)
    assert isinstance(found, Fit)
    assert found.count == count
    assert found.max_sequences >= 1


def test_scout_is_218_gb_not_113() -> None:
    report = size(resolve_model("Llama-4-Scout"), SizeRequest())
    assert report.weights_bytes / 1e9 == pytest.approx(217.3, abs=0.1)
    assert any("18.04 B parameters work per token" in note for note in report.notes)


def test_r1_fits_one_node_of_eight_h200_or_b200_but_not_h100() -> None:
    r1 = resolve_model("DeepSeek-R1")
    on_b200 = size(r1, SizeRequest(), [device("B200-SXM-180GB")]).fits[0]
    assert on_b200.count <= 8
    refusal = fits_of("DeepSeek-R1", "H100-SXM-80GB", dtype="bf16")
    assert isinstance(refusal, str)
    assert "1,342 GB of weights, 16 x H100-SXM-80GB = 1,360 GB" in refusal


def test_more_sequences_need_more_devices() -> None:
    few, many = (fits_of("Llama-3.1-8B", "L4", sequences=n) for n in (1, 200))
    assert isinstance(few, Fit)
    assert isinstance(many, Fit)
    assert few.count < many.count
    assert many.max_sequences >= 200


def test_a_precision_without_hardware_names_the_way_out() -> None:
    assert fits_of("Llama-3.1-8B", "T4") == "cannot run bf16 weights; --dtype fp16 can"
    assert isinstance(fits_of("Llama-3.1-8B", "T4", dtype="fp16"), Fit)


def test_slices_are_tried_alone() -> None:
    piece = device("A100-SXM-80GB", "3g.40gb")
    fit = size(resolve_model("Llama-3.1-8B"), SizeRequest(), [piece]).fits[0]
    assert (fit.accelerator, fit.count) == ("A100-SXM-80GB:MIG-3g.40gb", 1)
    assert size(resolve_model("Llama-3.1-70B"), SizeRequest(), [piece]).refused[0].count == 1


def test_the_json_form_has_the_promised_fields() -> None:
    report = size(resolve_model("nvidia/DeepSeek-V3.2-NVFP4"), SizeRequest(sequences=2), [H100])
    document = json.loads(to_json(report))
    promised = {
        "model", "parameters", "active_parameters", "embedding_params", "weights_bytes", "kv_cache_bytes_per_token",
        "kv_window_tokens", "kv_bytes_per_token_windowed_layers", "indexer_bytes_per_token",
        "state_bytes_per_sequence", "kv_cache_bytes", "activation_bytes", "overhead_bytes", "total_bytes",
        "context_max", "fits", "notes", "not_modeled", "method",
    }  # fmt: skip
    assert promised <= set(document)
    assert document["kv_cache_bytes_per_token"] == 70_272
    assert document["indexer_bytes_per_token"] == 15_616
    assert document["kv_cache_bytes"] == 2 * 1280 * (70_272 + 15_616)
    assert set(document["fits"][0]) == {"accelerator", "count", "max_sequences", "verdict", "margin_bytes", "split"}
    assert document["kv_bytes_per_sequence"] == 1280 * (70_272 + 15_616)
    assert document["kv_bytes_reserved_per_sequence"] == 1280 * (70_272 + 61 * 132)  # eight-bit keys and their scale
    assert any("declares a KV cache in fp8" in note for note in document["notes"])
    assert to_json(report) == to_json(
        size(resolve_model("nvidia/DeepSeek-V3.2-NVFP4"), SizeRequest(sequences=2), [H100])
    )


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"input_tokens": 0}, "RS0106"),
        ({"output_tokens": -1}, "RS0106"),
        ({"sequences": 0}, "RS0106"),
        ({"dtype": "fp9"}, "RS0109"),
        ({"kv_dtype": "int3"}, "RS0109"),
        ({"method": "guess"}, "RS0109"),
    ],
)
def test_impossible_questions(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(BadInputError) as caught:
        size(resolve_model("Llama-3.1-8B"), SizeRequest(**changes))  # type: ignore[arg-type]
    assert caught.value.code == rule


def test_a_context_beyond_the_model_is_said() -> None:
    report: SizeReport = size(resolve_model("Llama-2-7B"), SizeRequest(8000, 1000))
    assert "9,000 tokens asked, the model's context is 4,096" in report.notes


def test_approximations_are_shown() -> None:
    report = size(resolve_model("DeciLM-7B"), SizeRequest())
    assert any("KV heads differ by layer" in note for note in report.notes)


@pytest.mark.parametrize(
    ("model", "kept_bytes"),
    [
        ("gemma-3-27b-it", 24_964_497_408),
        ("DeepSeek-V3", 18_421_383_168),
        ("Qwen3-32B", 68_719_476_736),
        ("gpt-oss-120b", 9_701_425_152),
    ],
)
def test_the_cache_of_eight_long_sequences_to_the_byte(model: str, kept_bytes: int) -> None:
    """Eight sequences of 32,768 tokens in 16 bit: windows, a latent, head width 128 of hidden 5,120, half windows."""
    assert size(resolve_model(model), SizeRequest(32_768, 0, sequences=8)).kv_cache_bytes == kept_bytes


def test_a_margin_within_the_error_of_the_constants_only_just_fits() -> None:
    """The fit turns from sure to doubtful to none as sequences are added; each device's margin is what is left."""
    model, a100 = resolve_model("Qwen/Qwen3-8B"), device("A100-SXM-40GB")
    most = size(model, SizeRequest(), [a100]).fits[0].max_sequences
    sure = size(model, SizeRequest(sequences=most // 2), [a100]).fits[0]
    full = size(model, SizeRequest(sequences=most), [a100]).fits[0]
    assert (sure.verdict, full.verdict, full.count) == ("fits", "just fits", 1)
    assert 0 <= full.margin_bytes < 1 << 29 < sure.margin_bytes
    assert size(model, SizeRequest(sequences=most + 1), [a100]).fits[0].count == 2


def test_two_splits_of_a_latent_cache_side_by_side() -> None:
    """64 sequences of 8,256 tokens: on sixteen H100 they fit only where each rank keeps its own."""
    request = SizeRequest(8000, 256, 64)
    report = size(resolve_model("DeepSeek-R1"), request, [H100, device("H200-SXM-141GB")])
    found = {(fit.accelerator, fit.split): fit for fit in report.fits}
    assert found["H100-SXM-80GB", "replicas"].count == 16
    assert ("H100-SXM-80GB", "tensor") not in found
    one, other = (found["H200-SXM-141GB", split] for split in ("tensor", "replicas"))
    assert one.count == other.count == 8
    assert other.max_sequences > 5 * one.max_sequences
    assert report.refused == ()
    assert {fit.split for fit in size(resolve_model("Qwen/Qwen3-30B-A3B"), request, [H100]).fits} == {"tensor"}


def test_published_weights_that_are_often_told_wrong() -> None:
    """Llama-4-Scout has 109 B parameters, 218 GB in BF16; DeepSeek-R1 in BF16 is more than sixteen H100 have."""
    scout = size(resolve_model("Llama-4-Scout"), SizeRequest())
    assert scout.weights_bytes / 1e9 == pytest.approx(218, rel=0.005)
    r1 = resolve_model("DeepSeek-R1")
    for name in ("H200-SXM-141GB", "B200-SXM-180GB"):
        assert size(r1, SizeRequest(), [device(name)]).fits[0].count <= 8  # one machine
    refused = fits_of("DeepSeek-R1", "H100-SXM-80GB", dtype="bf16")
    assert isinstance(refused, str)
    assert "1,342 GB of weights, 16 x H100-SXM-80GB = 1,360 GB" in refused


def test_the_formula_stands_beside_the_exact_answer_term_by_term() -> None:
    model, request = resolve_model("gemma-3-27b-it"), SizeRequest(1500, 200)
    exact = size(model, request)
    notes = size(model, replace(request, method="gke")).notes
    beside = next(note for note in notes if note.startswith("the exact method"))
    for term in (exact.weights_bytes, exact.kv_cache_bytes, exact.activation_bytes, exact.overhead_bytes):
        assert format_bytes(term) in beside
    assert set(exact.notes) <= set(notes)
