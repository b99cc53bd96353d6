"""`rightslice trace`: what it says, what it writes, what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rightslice.reporting.canvas import Style, sparkline
from rightslice.traffic.traces import read_trace
from rightslice.ui.cli.main import main

DATA = Path(__file__).parents[2] / "data" / "traces"
MOONCAKE = str(DATA / "mooncake_fast25_conversation_head.jsonl")
CODE = str(DATA / "azure_llm_2023_code_head.csv")
CLIENTS = str(DATA / "servegen_clients_r1_2h.csv")
LENGTHS = str(DATA / "servegen_lengths_r1.csv")


def answered(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, str, str]:
    code = main(["trace", *arguments])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def document(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> dict[str, Any]:
    code, out, _ = answered(capsysbinary, *arguments, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_trace_is_described(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = answered(capsysbinary, MOONCAKE)
    assert (code, err) == (0, "")
    assert "Mooncake trace" in out.replace("\n", " ")
    assert "300 in 102 s" in out
    assert "of 8,490 blocks of 512 tokens came before" in out
    assert "█" in out


def test_skipped_rows_are_told(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    _, out, _ = answered(capsysbinary, str(DATA / "burstgpt_1_head.csv"))
    assert "1 with no input tokens" in out
    assert "ChatGPT 16, GPT-4 5" in out


def test_json_holds_the_same_after_changes(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    whole = document(capsysbinary, CODE)["summary"]
    fast = document(capsysbinary, CODE, "--scale", "4")["summary"]
    assert fast["requests_per_s"] == pytest.approx(4 * whole["requests_per_s"])
    cut = document(capsysbinary, CODE, "--start", "2min", "--window", "5min")["summary"]
    assert cut["span_s"] < 300 < whole["span_s"]
    assert cut["requests"] < whole["requests"]
    one, two, other = (
        document(capsysbinary, CODE, "--sample", "0.3", "--seed", seed)["summary"]["requests"] for seed in "112"
    )
    assert one == two != other


@pytest.mark.parametrize(("to", "name"), [("mooncake", "o.jsonl"), ("csv", "o.csv.gz")])
def test_it_converts(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path, to: str, name: str) -> None:
    code, _, err = answered(capsysbinary, MOONCAKE, "--to", to, "-o", str(tmp_path / name))
    assert (code, err) == (0, f"Wrote {tmp_path / name}\n")
    before, after = read_trace(MOONCAKE), read_trace(tmp_path / name)
    assert after.input_tokens.tolist() == before.input_tokens.tolist()
    assert after.prefix is not None
    assert before.prefix is not None
    assert after.prefix.ids.tolist() == before.prefix.ids.tolist()
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_requests_are_drawn_from_client_laws(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    drawn = document(capsysbinary, CLIENTS, "--lengths", LENGTHS, "--window", "20min", "--only", "reason/deepseek-r1")
    rows = [row.split(",") for row in Path(CLIENTS).read_text().splitlines()[1:]]
    published = sum(float(row[3]) for row in rows if float(row[2]) < 1200.0) / 2.0  # two windows of ten minutes
    assert drawn["summary"]["requests_per_s"] == pytest.approx(published, rel=0.02)
    assert "Drawn from the laws of 26 clients (seed 0): 20 min 0 s" in drawn["notes"][0]
    target = tmp_path / "o.jsonl"
    _, _, err = answered(
        capsysbinary, CLIENTS, "--lengths", LENGTHS, "--window", "1min", "--to", "mooncake", "-o", str(target)
    )
    assert "no place for it: model, class" in err
    assert "Written without hash_ids" in err
    assert target.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((MOONCAKE, "--to", "csv"), "--to and -o go together"),
        ((MOONCAKE, "-o", "x"), "--to and -o go together"),
        ((MOONCAKE, "--scale", "0"), "--scale 0 is out of range"),
        ((MOONCAKE, "--sample", "2"), "--sample 2 is not a share"),
        ((MOONCAKE, "--window", "5"), "--window: "),
        ((MOONCAKE, "--window", "0s"), "--window is empty"),
        ((MOONCAKE, "--start=-5s"), "--start -5s is negative"),
        ((MOONCAKE, "--start", "9h"), "no request is left"),
        ((MOONCAKE, "--only", "x"), "client laws only"),
        ((CLIENTS,), "no law of input_tokens"),
        ((CLIENTS, "--lengths", LENGTHS, "--only", "deepseek"), 'no model class "deepseek"'),
        ((CLIENTS, "--lengths", CLIENTS), "not a table of lengths"),
        ((CLIENTS, "--lengths", LENGTHS, "--start", "9h"), "nobody is active"),
        (("nothing.csv",), "no such file"),
        ((str(DATA),), "not a file"),
    ],
)
def test_bad_input_is_refused(
    capsysbinary: pytest.CaptureFixture[bytes], arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = answered(capsysbinary, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_bad_file_leaves_what_was_there(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    bad, target = tmp_path / "bad.csv.gz", tmp_path / "out.csv"
    bad.write_bytes(gzip.compress(b"t_s,input_tokens,output_tokens\n0,1,2\n0,x,2\n"))
    target.write_text("kept")
    code, _, err = answered(capsysbinary, str(bad), "--to", "csv", "-o", str(target))
    assert (code, target.read_text()) == (2, "kept")
    assert f'{bad}:3:1: input_tokens "x" is not a whole number' in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv.gz", "out.csv"]


def test_a_sparkline_fits_and_shows_the_highest() -> None:
    assert sparkline([0.0, 1.0, 2.0, 4.0], Style()) == "▁▃▅█"
    assert sparkline([0.0, 0.0], Style(ascii_only=True)) == "__"
    assert sparkline([1.0] * 60, Style(width=40)) == "█" * 30
