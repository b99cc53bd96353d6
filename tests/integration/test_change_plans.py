"""`plan --current` and `diff` through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rightslice.ui.cli.main import main

VOICE = Path(__file__).parents[2] / "examples" / "voice-assistant.yaml"
LAYOUT = """\
apiVersion: rightslice/v1
kind: Layout
nodes:
  - name: node-a
    machine_type: a2-ultragpu-1g
    gpus:
      - accelerator: A100-SXM-80GB
        slots: [{partition: 3g.40gb, start: 0, model: asr}, {partition: 3g.40gb, start: 4, model: tts}]
  - name: node-c
    machine_type: g2-standard-4
    gpus: [{accelerator: L4, slots: [{partition: whole, model: asr}]}]
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    assert main(["plan", str(VOICE), "-o", str(folder), "--no-emit", "--quiet"]) == 0
    return folder


def busier(folder: Path, users: int = 75) -> Path:
    text = VOICE.read_text()
    assert "concurrent: 50" in text
    path = folder / "busier.yaml"
    path.write_text(text.replace("concurrent: 50", f"concurrent: {users}"))
    return path


def test_the_plan_of_today_stays(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(VOICE), "--current", str(first), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert changes["gpus_kept"] == changes["gpus_today"] == 3
    assert changes["steps"] == []


@pytest.mark.parametrize("users", [75, 90])
def test_more_users_change_no_more_gpus_than_planning_afresh(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], users: int
) -> None:
    """The two searches are different ones: at 75 users that for today's GPUs alone ended a third dearer."""
    wanted = busier(tmp_path, users)
    for name, more in (("fresh", []), ("held", ["--current", str(first)])):
        assert main(["plan", str(wanted), "-o", str(tmp_path / name), "--no-emit", "--quiet", *more]) == 0
    capsys.readouterr()
    found = {}
    for name in ("fresh", "held"):
        assert main(["diff", str(first), str(tmp_path / name), "--json"]) == 0
        found[name] = json.loads(capsys.readouterr().out)
    assert found["held"]["changes"]["gpus_cut"] <= found["fresh"]["changes"]["gpus_cut"]
    assert found["held"]["monthly_usd"]["new"] <= found["fresh"]["monthly_usd"]["new"] * 1.001
    planned = json.loads((tmp_path / "held" / "plan.json").read_text())["changes"]
    assert planned == found["held"]["changes"]
    page = (tmp_path / "held" / "report.html").read_text()
    assert "From what runs now" in page
    assert "Why there" in page
    assert "From what runs now" not in (tmp_path / "fresh" / "report.html").read_text()


def test_a_layout_file_is_a_start_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(LAYOUT)
    assert main(["plan", str(VOICE), "--current", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "1 of 2 GPUs stay as they are, 2 are added, 1 is given up" in shown
    assert "drain, remove" in shown
    assert "node-c" in shown


def test_diff_tells_cost_gpus_and_replicas(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(busier(tmp_path)), "-o", str(tmp_path), "--no-emit", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["diff", str(first), str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "a month" in shown
    assert "A100-SXM-80GB" in shown
    assert main(["diff", str(first), str(first)]) == 0
    shown = capsys.readouterr().out
    assert "no change" in shown
    assert "3 of 3 GPUs stay as they are" in shown


def test_an_increase_beyond_the_limit_is_a_no(first: Path, tmp_path: Path) -> None:
    dearer = json.loads((first / "plan.json").read_text())
    dearer["monthly_usd"]["value"] *= 1.06
    (tmp_path / "plan.json").write_text(json.dumps(dearer))
    assert main(["diff", str(first), str(tmp_path), "--max-increase", "5%", "--json"]) == 1
    assert main(["diff", str(first), str(tmp_path), "--max-increase", "7%", "--json"]) == 0
    assert main(["diff", str(tmp_path), str(first), "--max-increase", "0%", "--json"]) == 0


@pytest.mark.parametrize("share", ["5", "-1%", "nan%", "much"])
def test_a_limit_that_is_no_share_is_refused(first: Path, share: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(first), str(first), f"--max-increase={share}"]) == 2
    assert "RS0501" in capsys.readouterr().err


def test_what_is_no_plan_is_refused(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(first), str(VOICE)]) == 2
    assert main(["plan", str(VOICE), "--current", str(VOICE)]) == 2
    assert "error[" in capsys.readouterr().err
