"""The memory answer on a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rightslice.app.sizing import ladder
from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.text import cells
from rightslice.memory.advice import precision_report
from rightslice.memory.sizing import Fit, Refusal, SizeReport
from rightslice.memory.startup import startup
from rightslice.reporting.size_text import size_text

REPORT = SizeReport(
    model="meta-llama/Llama-3.1-8B-Instruct",
    parameters=8_030_261_248,
    active_parameters=8_030_261_248,
    embedding_params=525_336_576,
    weights_bytes=16_060_522_496,
    kv_cache_bytes_per_token=131_072,
    kv_window_tokens=None,
    kv_bytes_per_token_windowed_layers=0,
    indexer_bytes_per_token=0,
    state_bytes_per_sequence=0,
    kv_cache_bytes=167_772_160,
    activation_bytes=300_000_000,
    overhead_bytes=1_500_000_000,
    total_bytes=18_028_294_656,
    context_max=131_072,
    fits=(Fit("L4", 1, 12), Fit("A100-SXM-80GB", 1, 312)),
    refused=(Refusal("T4", 16, "cannot run bf16 weights"),),
    notes=("the GKE formula gives 17.5 GB, because it counts the head width as hidden / heads",),
    not_modeled=(),
    method="exact",
    dtype="bf16",
    kv_dtype="bf16",
    source="config.json",
)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_parts_fits_and_reasons_are_all_there(width: int) -> None:
    text = size_text(REPORT, width=width)
    assert max(cells(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    for fact in ("8.03 B parameters", "16.1 GB", "18.0 GB", "131.1 kB of KV cache per token", "312", "cannot run bf16"):
        assert fact in flat
    assert "active" not in flat


def test_nothing_is_narrower_than_forty_columns() -> None:
    """Ten cells are left for the bars, and no name or amount is broken; narrower terminals get the same."""
    narrow = size_text(REPORT, width=40)
    assert [line.count("█") for line in narrow.splitlines() if "█" in line] == [9, 1, 1, 1]
    assert "  KV cache     167.8 MB  █" in narrow.splitlines()
    assert size_text(REPORT, width=12) == size_text(REPORT, width=39) == narrow


def test_bars_are_in_proportion_and_the_smallest_part_is_seen() -> None:
    drawn = [line.count("█") for line in size_text(REPORT, width=80).splitlines() if "█" in line]
    assert drawn == [45, 1, 1, 4]


def test_a_mixture_names_its_active_parameters_and_its_window() -> None:
    text = size_text(
        replace(REPORT, active_parameters=3_000_000_000, kv_window_tokens=1024, kv_bytes_per_token_windowed_layers=8192)
    )
    assert "3 B active" in text
    assert "8.2 kB for the last 1,024 tokens" in " ".join(text.split())


def test_no_accelerator_is_an_answer_with_reasons() -> None:
    many = tuple(Refusal(f"GPU-{n}", 1, "too small") for n in range(20))
    text = size_text(replace(REPORT, fits=(), refused=many), ascii_only=True)
    assert "Fits on none" in text
    assert "and 12 more" in text
    assert text.isascii()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_another_precision_names_who_runs_it_its_risk_and_what_to_do(width: int) -> None:
    source = "meta-llama/Llama-3.1-8B-Instruct"
    precision = precision_report(source, resolve_model(source), ("nvfp4", "fp4"), ladder())
    text = size_text(REPORT, precision=precision, width=width)
    assert max(cells(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    for fact in ("nvfp4 weights instead of bf16", "native RTX-PRO-4500", "risk medium", "fp4 KV cache"):
        assert fact in flat
    assert "refused T4" in flat
    assert " more" in flat
    assert "risk" not in size_text(REPORT, width=width)


def test_the_reservation_is_shown_where_it_differs() -> None:
    same = replace(REPORT, kv_bytes_per_sequence=167_772_160, kv_bytes_reserved_per_sequence=168_000_000)
    assert "reserved" not in size_text(same)
    more = replace(same, kv_bytes_reserved_per_sequence=400_000_000, kv_in_flight_tokens=4096)
    flat = " ".join(size_text(more).split())
    assert "one sequence needs 167.8 MB of KV cache, 400.0 MB are reserved by vLLM with 4,096 tokens in flight" in flat


def test_a_doubtful_fit_says_so() -> None:
    flat = " ".join(size_text(replace(REPORT, fits=(Fit("L4", 1, 12, "just fits", 1 << 28),))).split())
    assert "L4 just fits: 256.0 MiB to spare, less than is known of the engine" in flat
    assert "just fits" not in size_text(REPORT)


def test_an_engines_own_log_line_is_foretold() -> None:
    gemma = startup(resolve_model("gemma-3-27b-it"), device("H200-SXM-141GB"), version="0.33.0")
    flat = " ".join(size_text(REPORT, gemma).split())
    line = f"{gemma.logged_kv_tokens:,} tokens, maximum concurrency {gemma.logged_max_concurrency:.2f}x"
    assert f"its log will say {line}" in flat
    assert f"KV cache {gemma.kv_tokens:,} tokens" in flat
    assert gemma.kv_tokens > gemma.logged_kv_tokens
