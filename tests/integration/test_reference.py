"""`simulate --reference`: what was stated of a deployment beside its simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rightslice.ui.cli.main import main

SHARING = Path(__file__).parents[2] / "examples" / "gpu-sharing"
FITTED = (
    *("--set", "pipelines.voice.lengths.llm.output_tokens={mean: 660, p95: 660}"),
    *("--set", "pipelines.voice.users.heavy.think_time=13.6s"),
)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mig")
    assert main(["plan", str(SHARING / "mig.yaml"), "-o", str(folder), "--quiet"]) == 0
    return folder


def test_published_derived_fitted_and_unexplained_stand_apart(
    plan: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    reference = str(SHARING / "mig.reference.yaml")
    capsysbinary.readouterr()
    main(["simulate", str(plan), "--users", "heavy", *FITTED, "--reference", reference, "-o", str(tmp_path / "day")])
    shown = capsysbinary.readouterr()[0].decode()
    assert "Against what was stated (NVIDIA blog, 2026-03-25)" in shown
    found = json.loads((tmp_path / "day" / "replay.json").read_text("utf-8"))["stated"]
    assert {row["part"] for row in found} == {"published", "derived", "fitted"}
    by_name = {row["what"].split(",")[0]: row for row in found}
    total, cycle = by_name["requests/s in all"], by_name["cycle of a user less think time: 45 users over the total"]
    assert total["simulated"] == pytest.approx(2.0, rel=0.05)
    assert total["unexplained"] == pytest.approx(total["stated"] - total["simulated"])
    assert cycle["unexplained"] > 10.0  # seconds of a cycle that no published latency accounts for
    assert by_name["success"]["simulated"] == 1.0
    assert by_name["tokens of an answer"]["simulated"] is None
    page = (tmp_path / "day" / "report.html").read_text("utf-8")
    assert "Against what was stated" in page
    assert page.count('<td class="keep" data-title="Part">published</td>') == 4


@pytest.mark.parametrize(
    ("changed", "rule", "said"),
    [
        (("stage:tts", "stage:ttts"), "RS0109", "stage:tts"),
        (("published", "rumoured"), "RS0109", "published"),
        (("value: 9", "value: nine"), "RS0105", "number"),
        (("kind: Reference", "kind: Workload"), "RS0203", ""),
    ],
)
def test_mistakes_have_a_place(
    plan: Path,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    changed: tuple[str, str],
    rule: str,
    said: str,
) -> None:
    file = tmp_path / "reference.yaml"
    file.write_text((SHARING / "mig.reference.yaml").read_text("utf-8").replace(*changed), "utf-8")
    capsysbinary.readouterr()
    assert main(["simulate", str(plan), "--users", "light", "--reference", str(file)]) == 2
    error = capsysbinary.readouterr()[1].decode()
    assert f"error[{rule}]" in error
    assert said in error
