"""`rightslice accuracy` as a program, and the page made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rightslice.ui.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_the_shipped_validation_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy"]) == 0
    out = capsys.readouterr().out
    assert "groups out" in out
    assert "Llama-70B|H100-SXM-80GB" in out
    assert main(["accuracy", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["totals"]) == {"fitted", "groups", "sources"}


def test_the_page_of_the_documentation_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text("utf-8")


def test_a_table_and_its_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, bar = tmp_path / "t.csv", tmp_path / "bar.json"
    table.write_text(
        "id,model,hw,isl,osl,load,concurrency_or_batch,tpot_ms_mean,group\n"
        "1,Llama-3.1-8B,H100-SXM-80GB,500,100,closed,4,8,g\n"
    )
    bar.write_text('{"tpot": {"median_ape": 1e-9}}')
    assert main(["accuracy", str(table)]) == 0
    assert "100 % of the rows" in capsys.readouterr().out
    assert main(["accuracy", str(table), "--bar", str(bar), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["tpot"]["rows"] == 1
    assert document["missed"]


@pytest.mark.parametrize("arguments", [["--bar", "x.json"], ["t.csv", "--markdown"], ["absent.csv"]])
def test_bad_questions(arguments: list[str]) -> None:
    assert main(["accuracy", *arguments]) == 2
