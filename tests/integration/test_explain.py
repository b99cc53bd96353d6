"""`explain` through the command line: reasons, why not, and what would turn the choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rightslice.ui.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
Run = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name in ("gemma-27b-chat", "candidates", "260gb"):
        found[name] = tmp_path_factory.mktemp(name)
        arguments = ["plan", str(EXAMPLES / f"{name}.yaml"), "-o", str(found[name]), "--no-emit", "--quiet"]
        assert main(arguments) == 0
    return found


def explained(folder: Path, capsys: Run, *more: str) -> Any:
    capsys.readouterr()
    assert main(["explain", str(folder), "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_planning_again_gives_the_plan(folders: dict[str, Path], capsys: Run) -> None:
    found = explained(folders["gemma-27b-chat"], capsys)
    assert found["planned_usd"] == pytest.approx(found["monthly_usd"]["value"])
    assert found["notes"] == []
    assert found["bound"]["gap"] > 0
    assert found == explained(folders["gemma-27b-chat"], capsys)


@pytest.mark.parametrize("name", ["260gb"])
def test_a_price_that_turns_the_choice_makes_both_cost_the_same(
    folders: dict[str, Path], capsys: Run, name: str
) -> None:
    plan = json.loads((folders[name] / "plan.json").read_text())
    rivals = {alternative["accelerator"]: alternative["monthly_usd"] for alternative in plan["alternatives"]}
    used = {pool["accelerator"] for pool in plan["pools"]}
    prices = [flip for flip in explained(folders[name], capsys)["flips"] if flip["input"].startswith("price of")]
    assert prices
    for flip in prices:
        accelerator = flip["input"].removeprefix("price of ")
        mine, theirs = plan["monthly_usd"]["value"], rivals[flip["rival"]]
        assert (mine * flip["factor"] if accelerator in used else mine) == pytest.approx(
            theirs * flip["factor"] if accelerator not in used else theirs
        )
        assert "dearer" in flip["text"] or "cheaper" in flip["text"]


def test_another_source_wins_when_it_is_faster_than_predicted(folders: dict[str, Path], capsys: Run) -> None:
    flips = {flip["rival"]: flip for flip in explained(folders["candidates"], capsys)["flips"]}
    source = next(flip for rival, flip in flips.items() if rival.startswith("chat as"))
    assert source["input"] in ("its efficiency", "the plan's efficiency", "traffic", "output length")
    assert source["factor"] > 1.0
    assert len(flips) <= 3


def test_why_not_tells_of_that_alone(folders: dict[str, Path], capsys: Run) -> None:
    found = explained(folders["gemma-27b-chat"], capsys, "--why-not", "H100-SXM-80GB")
    assert found["rejected"]
    assert all("H100" in f"{r['option']} {r['reason']}" for r in found["rejected"])
    assert found["flips"] == []
    used = json.loads((folders["gemma-27b-chat"] / "plan.json").read_text())["pools"][0]["accelerator"]
    assert main(["explain", str(folders["gemma-27b-chat"]), "--why-not", used]) == 0
    assert main(["explain", str(folders["gemma-27b-chat"]), "--why-not", "H1O0"]) == 2
    assert "nothing of that name was considered" in capsys.readouterr().err


def test_the_text_names_cost_bound_and_what_turns_it(folders: dict[str, Path], capsys: Run) -> None:
    capsys.readouterr()
    assert main(["explain", str(folders["gemma-27b-chat"])]) == 0
    shown = capsys.readouterr().out
    for words in ("COST", "BOUND", "BINDS", "What would turn the choice", "Not chosen", "RS4003"):
        assert words in shown


def test_a_plan_that_is_none_says_what_binds(tmp_path: Path, capsys: Run) -> None:
    text = (EXAMPLES / "gemma-27b-chat.yaml").read_text().replace("ttft_p95: 2s", "ttft_p95: 60ms")
    (tmp_path / "slow.yaml").write_text(text)
    assert main(["plan", str(tmp_path / "slow.yaml"), "-o", str(tmp_path), "--quiet"]) == 1
    found = explained(tmp_path, capsys)
    assert "ttft_p95" in found["notes"][0]
    assert found["planned_usd"] is None
    assert found["rejected"]


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    assert main(["explain", str(tmp_path)]) == 2
    assert main(["explain", str(tmp_path / "missing.json")]) == 2
