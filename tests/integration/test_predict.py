"""`rightslice predict` as a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rightslice.ui.cli.main import main

ONE = ["predict", "Llama-3.1-8B", "--accelerator", "H100-SXM-80GB", "--isl", "100", "--osl", "20"]


def test_one_deployment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONE, "--concurrency", "4"]) == 0
    assert "80 % interval" in capsys.readouterr().out
    assert main([*ONE, "--rate", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["load"]["kind"] == "open"
    assert document["requests_per_s"]["low"] < document["requests_per_s"]["mean"] < document["requests_per_s"]["high"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (ONE, "is needed"),
        ([*ONE, "--concurrency", "4", "--saturated"], "is needed"),
        ([*ONE, "--concurrency", "0"], "out of range"),
        ([*ONE, "--rate", "nan"], "out of range"),
        (["predict", "Llama-3.1-8B"], "are needed"),
        (["predict", "Llama-3.1-8B", "--rows", "x.csv"], "names its models"),
        (["predict", "--rows", "absent.csv"], "No such file"),
    ],
)
def test_bad_questions(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_what_does_not_fit_is_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "Llama-3.1-405B", "--accelerator", "L4", "--batch", "1"]) == 1
    assert "weights of" in capsys.readouterr().err


def test_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, out = tmp_path / "in.csv", tmp_path / "out.csv"
    rows.write_text(
        "id,model,hw,isl,osl,load,concurrency_or_batch\n"
        "a,Llama-3.1-8B,H100-SXM-80GB,100,20,closed,4\nb,Llama-3.1-8B,Nothing,100,20,closed,4\n"
    )
    assert main(["predict", "--rows", str(rows), "-o", str(out)]) == 0
    assert "1 of 2 rows" in capsys.readouterr().err
    lines = out.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["id", "a", "b"]
    assert "unknown accelerator" in lines[2]
    assert main(["predict", "--rows", str(rows)]) == 0
    assert capsys.readouterr().out == out.read_text()
    assert main(["predict", "--rows", str(rows), "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["a", "b"]
