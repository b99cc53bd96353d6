"""Plans made with measured times: `plan --calibration`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rightslice.app.calibrate import simulated
from rightslice.core.calibrated import StepLaw
from rightslice.core.documents import to_json
from rightslice.loadtesting.calibration import Calibration, Engine, Errors, PointCheck
from rightslice.loadtesting.imports import Measured
from rightslice.ui.cli.main import main

GEMMA = Path(__file__).parents[2] / "examples" / "gemma-27b-chat.yaml"
LAW = StepLaw(step_ms=34.0, token_ms=0.09, context_token_ms=0.0003, attention_ms=0.00001, request_ms=5.0)
CALIBRATION = Calibration(
    model="google/gemma-3-27b-it",
    accelerator="A100-SXM-80GB",
    coefficients=LAW,
    engine=Engine(256, 8192),
    points=8,
    before=Errors(0.1, 0.1, 0.2),
    after=Errors(0.03, 0.03, 0.1),
    leave_one_out=Errors(0.04, 0.05, 0.1),
    repeat_spread=0.02,
    checks=tuple(PointCheck("a", 40.0, 40.0 * (1.0 + i / 100), 9000.0, 9000.0) for i in range(10)),
    accepted=True,
    reasons=(),
    notes=(),
)


def written(folder: Path, calibration: Calibration) -> str:
    path = folder / "calibration.json"
    path.write_text(to_json(calibration), "utf-8")
    return str(path)


def test_a_plan_uses_measured_times_and_its_simulation_keeps_them(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    assert (
        main(["plan", str(GEMMA), "--calibration", written(tmp_path, CALIBRATION), "-o", str(folder), "--quiet"]) == 0
    )
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    used = {(d["accelerator"], d["gpus_per_replica"], d["provenance"]) for d in plan["models"][0]["deployments"]}
    assert used == {("A100-SXM-80GB", 1, "calibrated")}
    assert any("as measured (calibration.json), four in five within 5%" in text for text in plan["assumptions"])
    capsysbinary.readouterr()
    assert main(["simulate", str(folder), "--rate", "0.02/s", "--horizon", "2h", "--json"]) == 0
    slow = json.loads(capsysbinary.readouterr()[0])["per_model"][0]["tpot_ms"]["p50"]
    alone = simulated(LAW, Measured("", 1, 1500, 200, 0, 1, 1, 1), CALIBRATION.engine)
    assert alone is not None
    assert alone.tpot_ms is not None
    assert slow == pytest.approx(alone.tpot_ms.mean, rel=0.02)


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        (replace(CALIBRATION, accepted=False, reasons=("repeats differ by 30 %",)), "repeats differ by 30 %"),
        (replace(CALIBRATION, accelerator="H900"), "unknown accelerator"),
        (replace(CALIBRATION, accelerator=""), "does not say what was measured"),
        (replace(CALIBRATION, model="meta-llama/Llama-3.1-8B-Instruct"), "which the workload does not serve"),
        (replace(CALIBRATION, coefficients=StepLaw(-1.0, 0.0, 0.0)), "numbers of at least 0"),
    ],
)
def test_calibrations_that_cannot_be_used(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path, calibration: Calibration, said: str
) -> None:
    assert main(["plan", str(GEMMA), "--calibration", written(tmp_path, calibration)]) == 2
    assert said in capsysbinary.readouterr()[1].decode()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"model": 3}', '{"a": ' * 4000])
def test_files_that_are_no_calibration(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text, "utf-8")
    assert main(["plan", str(GEMMA), "--calibration", str(path)]) == 2
    assert b"error[RS0203]" in capsysbinary.readouterr()[1]
