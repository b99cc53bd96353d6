"""Rows of measurements become deployments and loads; what cannot be predicted says why."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from rightslice.app.predict_rows import COLUMNS, deployment_of, load_of, predicted_rows, read_rows, table
from rightslice.core.errors import BadInputError

ROW = {
    "id": "a-1", "model": "Llama-3.1-8B", "params_b": "8.03", "active_params_b": "8.03", "hw": "H100-SXM-80GB",
    "n_gpus": "1", "tp": "1", "pp": "1", "ep": "", "dp": "", "precision": "fp16/fp16", "engine": "vllm",
    "engine_version": "0.15.1", "isl": "512", "osl": "64", "concurrency_or_batch": "4", "request_rate": "",
    "load": "closed", "task": "llm", "source": "x",
}  # fmt: skip


def predicted(**changes: str) -> dict[str, str]:
    """The one line of the table for ROW with changes."""
    text = table(predicted_rows([{**ROW, **changes}]))
    return next(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"load": "static_batch"},
        {"load": "burst", "concurrency_or_batch": "40"},
        {"load": "saturated", "concurrency_or_batch": ""},
        {"load": "open", "concurrency_or_batch": "", "request_rate": "2.5"},
        {"tp": "", "n_gpus": "8", "load": "saturated"},
        {"model": "Nobody-9B", "params_b": "9"},
        {"model": "Nobody-MoE", "params_b": "100", "active_params_b": "10", "n_gpus": "4", "tp": "4", "ep": "4"},
        {"engine": "llama.cpp", "precision": "q4_k_m/fp16", "engine_version": "2024-05", "hw": "RTX-3090-24GB"},
        {"engine": "exllamav2", "precision": "int8/fp16", "engine_version": "2024-04"},
        {"engine": "1cat-vllm", "engine_version": "1.0.0+flash_attn", "hw": "V100-PCIe-32GB"},
        {"hw": "H100-SXM-80GB:MIG-3g.40gb"},
        {"hw": "H200-NVL-141GB:MIG-71GB"},
        {"hw": "MI300X-192GB"},
        {"hw": "Gaudi2-96GB", "engine": "optimum-habana-deepspeed", "engine_version": "mid-2024 (unstated)"},
        {
            "n_gpus": "8",
            "tp": "1",
            "dp": "8",
            "ep": "8",
            "model": "DeepSeek-R1",
            "precision": "fp8/auto",
            "hw": "H200-SXM-141GB",
        },
        {"osl": "1"},
    ],
)
def test_every_kind_of_row_is_predicted(changes: dict[str, str]) -> None:
    line = predicted(**changes)
    assert line["error"] == ""
    for name in ("output_tokens_s_total", "ttft_ms_mean", "e2e_ms_mean", "requests_s"):
        low, mean, high = (float(line[f"pred_{name}{end}"]) for end in ("_low", "", "_high"))
        assert 0.0 < low < mean < high
    assert float(line["pred_ttft_ms_mean_high95"]) > float(line["pred_ttft_ms_mean"])
    assert line["cell"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hw": "Abacus-9000"}, "unknown accelerator"),
        ({"model": "Nobody-9B", "params_b": ""}, "unknown model"),
        ({"task": "asr"}, "no measured run"),
        ({"task": "painting"}, "known are llm"),
        ({"isl": "many"}, "isl"),
        ({"load": "sideways"}, "unknown load"),
        ({"load": "open", "request_rate": ""}, "request_rate"),
        ({"precision": "fp3"}, "unknown precision"),
        ({"model": "Llama-3.1-405B"}, "weights of"),
        ({"concurrency_or_batch": "-3"}, "is '-3'"),
        ({"hw": "H100-SXM-80GB:MIG-9g.9gb"}, "unknown partition"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why(changes: dict[str, str], reason: str) -> None:
    line = predicted(**changes)
    assert reason in line["error"]
    assert line["id"] == "a-1"
    assert line["pred_ttft_ms_mean"] == ""


def test_an_unknown_model_and_a_slice_by_its_memory_are_unvalidated() -> None:
    assert predicted(model="Nobody-9B", params_b="9")["provenance"] == "unvalidated"
    assert deployment_of({**ROW, "hw": "H200-NVL-141GB:MIG-71GB"}).device.sm_share < 0.6


def test_lengths_vary_where_the_harness_draws_them() -> None:
    assert load_of({**ROW, "source": "inferencex-via-x"}).shortest_share == pytest.approx(0.8)
    assert load_of(ROW).shortest_share == 1.0


def test_years_become_releases_and_builds_their_numbers() -> None:
    versions = {
        "mid-2024 (unstated)": "0.5.0",
        "2023 (paper)": "0.2.0",
        "vLLM 0.9.0.2.dev108+g71faa1880.d20250730.rocm641, Pytorch 2.": "0.9.0.2.dev108",
        "nightly-dev-20260216-d3bae71e": "",
        "0.19.0": "0.19.0",
        "": "",
    }
    for text, version in versions.items():
        assert deployment_of({**ROW, "engine_version": text}).settings.version == version


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,model\n1,x\n")
    with pytest.raises(BadInputError, match="columns are missing: hw, isl, osl, load"):
        read_rows(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="UTF-8"):
        read_rows(path)


def test_ragged_lines_and_blanks_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,model,hw,isl,osl,load\n1, Llama-3.1-8B ,H100-SXM-80GB,100,10,saturated,extra,more\n2\n")
    found = list(predicted_rows(read_rows(path)))
    assert found[0][1] is not None
    assert found[1][1] is None
    assert table(found).startswith(",".join(COLUMNS) + "\n")


def test_a_measured_stage_answers_for_its_own_server_and_widely_for_others() -> None:
    speech = {"task": "asr", "model": "Parakeet-CTC-1.1B", "engine": "nim-riva", "isl": "", "osl": "", "precision": ""}
    own = predicted(**speech, notes="offline mode")
    assert (own["error"], own["provenance"]) == ("", "measured")
    assert float(own["pred_e2e_ms_mean"]) == pytest.approx(99.0)
    assert float(own["pred_rtfx"]) == pytest.approx(304.0)
    other = predicted(**speech, notes="offline mode", hw="L4-24GB")
    assert other["provenance"] == "unvalidated"
    assert float(other["pred_e2e_ms_mean"]) > float(own["pred_e2e_ms_mean"])
    assert float(other["pred_rtfx_high"]) >= 1.5 * float(other["pred_rtfx"])


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"source": "inferencex-via-aiconfigurator", "engine": "tensorrt-llm", "engine_version": "1.2.0"}, 640),
        ({"source": "aiconfigurator-silicon-nvidia"}, 1028),
        ({"source": "aiconfigurator-silicon-nvidia", "engine": "tensorrt-llm", "engine_version": "1.0.0rc3"}, 1028),
        ({"source": "aiconfigurator-silicon-nvidia", "engine": "sglang", "engine_version": "0.5.6"}, 16384),
        ({"source": "aiconfigurator-silicon-nvidia", "hw": "B200-SXM-180GB"}, 8192),
        ({"notes": "max_num_seqs=128, max_num_batched_tokens=2048; failures=0"}, 2048),
        ({}, 8192),
    ],
)
def test_what_is_known_of_a_harness_sets_the_token_budget(changes: dict[str, str], tokens: int) -> None:
    assert deployment_of({**ROW, **changes}).settings.max_num_batched_tokens == tokens


def test_what_is_known_of_a_harness_sets_the_load() -> None:
    audited = load_of({**ROW, "source": "mlperf-inference-v5.1", "load": "open", "request_rate": "2"})
    assert audited.sustained
    assert audited.lasts_s == 600.0
    counted = load_of({**ROW, "load": "open", "request_rate": "2", "notes": "F online, 200 requests; SLA met"})
    assert (counted.sent, counted.sustained) == (200, False)
    waiting = {"source": "inferencex-x", "engine": "tensorrt-llm", "engine_version": "1.2.0", "dp": "4"}
    assert load_of({**ROW, **waiting}).waiting_steps == 30.0
    assert load_of({**ROW, "source": "aiconfigurator-silicon-nvidia", "hw": "B200-SXM-180GB"}).shortest_share == 0.8
    shared = {"notes": "11 system prompts of 100 tok, 4 users each) with prefix caching; max_num_seqs=128"}
    assert load_of({**ROW, **shared}).cached_tokens == 100.0
    assert load_of({**ROW, "notes": "system prompts of 100 tok"}).cached_tokens == 0.0
    assert deployment_of({**ROW, **shared}).settings.max_num_seqs == 128


def test_a_script_without_an_interval_lets_no_request_wait() -> None:
    row = {**ROW, "source": "inferencex-x", "engine": "sglang", "engine_version": "0.5.9"}
    assert load_of(row).waiting_steps == 30.0
    assert load_of({**row, "model": "GLM-5"}).waiting_steps == 0.0


def test_ranks_that_a_source_does_not_name_are_taken_for_models_with_experts() -> None:
    row = {**ROW, "source": "trtllm-perf-overview-v1.0", "n_gpus": "4", "tp": "4", "engine": "tensorrt-llm"}
    dense = deployment_of(row).settings
    assert (dense.tensor_parallel_size, dense.data_parallel_size) == (4, 1)
    experts = deployment_of({**row, "model": "Mixtral-8x7B"}).settings
    assert (experts.tensor_parallel_size, experts.data_parallel_size, experts.expert_parallel) == (1, 4, True)
    one = deployment_of({**row, "model": "Mixtral-8x7B", "n_gpus": "1", "tp": "1"}).settings
    assert (one.data_parallel_size, one.expert_parallel) == (1, False)


def test_a_cached_prefix_brings_first_tokens_earlier() -> None:
    notes = "9 system prompts of 400 tok, 5 users each) with prefix caching"
    cached, whole = predicted(notes=notes), predicted()
    assert float(cached["pred_ttft_ms_mean"]) < float(whole["pred_ttft_ms_mean"])
