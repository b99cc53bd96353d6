"""`rightslice compare`: the same traffic and objectives on several models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rightslice.ui.cli.main import main

GEMMA = Path(__file__).parents[2] / "examples" / "gemma-27b-chat.yaml"
VOICE = Path(__file__).parents[2] / "examples" / "voice-assistant.yaml"
MODELS = "google/gemma-3-27b-it,Qwen/Qwen3-32B,meta-llama/Llama-3.1-8B-Instruct"
SCORES = """\
apiVersion: rightslice/v1
kind: ModelScores
scores:
  - {model: google/gemma-3-27b-it, name: own test, value: 0.81, date: 2026-11, source: our evaluation}
  - {model: Qwen/Qwen3-32B, name: own test, value: 0.79, date: 2026-11, source: our evaluation}
  - {model: meta-llama/Llama-3.1-8B-Instruct, name: own test, value: 0.62, date: 2026-11, source: our evaluation}
"""


def answered(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, str, str]:
    capsysbinary.readouterr()
    code = main(["compare", *arguments])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def compared(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> Any:
    code, out, err = answered(capsysbinary, *arguments, "--json")
    assert code in (0, 1), err
    return json.loads(out)


def test_each_model_costs_what_its_own_plan_does(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    found = compared(capsysbinary, str(GEMMA), "--models", MODELS)
    by_name = {one["model"]: one for one in found["models"]}
    assert [one["monthly_usd"] for one in found["models"]] == sorted(one["monthly_usd"] for one in found["models"])
    for source in ("google/gemma-3-27b-it", "Qwen/Qwen3-32B"):
        file = tmp_path / "workload.yaml"
        file.write_text(GEMMA.read_text("utf-8").replace("google/gemma-3-27b-it", source), "utf-8")
        capsysbinary.readouterr()
        assert main(["plan", str(file), "--json"]) == 0
        plan = json.loads(capsysbinary.readouterr()[0])
        assert by_name[source]["monthly_usd"] == pytest.approx(plan["monthly_usd"]["value"])
        assert by_name[source]["usd_per_million_output_tokens"] == plan["usd_per_million_output_tokens"]
    assert (found["price_date"], found["price_quality"]) == ("2026-08-03", "exact")
    assert by_name["meta-llama/Llama-3.1-8B-Instruct"]["parameters"] == 8_030_261_248


def test_the_frontier_is_of_cost_and_the_first_score(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    """Qwen3-32B is dearer than Gemma here, and no better by this score."""
    file = tmp_path / "scores.yaml"
    file.write_text(SCORES, "utf-8")
    found = compared(capsysbinary, str(GEMMA), "--models", MODELS, "--scores", str(file))
    marked = {one["model"] for one in found["models"] if one["frontier"]}
    assert marked == {"meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it"}
    code, out, _ = answered(capsysbinary, str(GEMMA), "--models", MODELS, "--scores", str(file))
    assert code == 0
    assert "own test: our evaluation, 2026-11" in out
    assert "prices of 2026-08-03, exact" in out


def test_a_model_that_cannot_be_had_says_what_binds(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    file = tmp_path / "workload.yaml"
    text = GEMMA.read_text("utf-8").replace("ttft_p95: 2s", "ttft_p95: 60ms").replace("max_context: 16384", "")
    file.write_text(text, "utf-8")
    found = compared(capsysbinary, str(file), "--models", "google/gemma-3-27b-it")
    (one,) = found["models"]
    assert not one["holds"]
    assert one["monthly_usd"] is None
    assert one["where"]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--models", "nobody/nothing"), "RS0310"),
        (("--models", "google/gemma-3-27b-it,google/gemma-3-27b-it"), "RS0501"),
        (("--models", "google/gemma-3-27b-it", "--for", "chatt"), "RS0310"),
        (("--models", "google/gemma-3-27b-it", "--scores", "/nowhere.yaml"), "RS0401"),
    ],
)
def test_mistakes(capsysbinary: pytest.CaptureFixture[bytes], arguments: tuple[str, ...], rule: str) -> None:
    code, out, err = answered(capsysbinary, str(GEMMA), *arguments)
    assert (code, out) == (2, "")
    assert f"error[{rule}]" in err


def test_a_stage_that_is_the_only_one_with_a_source_needs_no_name(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    found = compared(capsysbinary, str(VOICE), "--models", "meta-llama/Llama-3.1-8B-Instruct")
    assert found["models"][0]["monthly_usd"] == pytest.approx(11_101, rel=1e-3)
