"""Every answer with a dollar in it says of what date its prices are, or that they are the user's own."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from rightslice.ui.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
DOLLAR = re.compile(r"\$\s?\d|usd", re.IGNORECASE)
DATED = re.compile(
    r"prices? (?:list )?of 20\d\d(?:-[0-9H]{2})*|price_date|price_dates|\(yours\)|figures of 20\d\d|20\d\d-\d\d"
)
PRICES = """\
apiVersion: rightslice/v1
kind: ApiPrices
prices: [{name: api, input: $1, output: $3, date: 2026-11}]
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dated")
    assert main(["plan", str(EXAMPLES / "gemma-27b-chat.yaml"), "-o", str(folder / "out"), "--quiet"]) == 0
    (folder / "prices.yaml").write_text(PRICES, "utf-8")
    (folder / "demand.csv").write_text("gpus\n" + "".join(f"{i % 9}\n" for i in range(48)), "utf-8")
    return folder


COMMANDS = {
    "plan": ("plan", str(EXAMPLES / "gemma-27b-chat.yaml")),
    "plan-quiet": ("plan", str(EXAMPLES / "gemma-27b-chat.yaml"), "--quiet"),
    "plan-json": ("plan", str(EXAMPLES / "gemma-27b-chat.yaml"), "--json"),
    "simulate": ("simulate", "{out}"),
    "simulate-json": ("simulate", "{out}", "--json"),
    "simulate-day": ("simulate", "{out}", "--autoscaler", "hpa"),
    "simulate-tune": ("simulate", "{out}", "--autoscaler", "hpa", "--tune"),
    "diff": ("diff", "{out}", "{out}"),
    "diff-json": ("diff", "{out}", "{out}", "--json"),
    "reserve": ("cost", "reserve", "--demand", "{demand}", "--reserved-usd", "4", "--alternative-usd", "7"),
    "own": ("cost", "own"),
    "own-json": ("cost", "own", "--json"),
    "compare": ("cost", "compare", "{out}", "--api", "{prices}"),
    "compare-json": ("cost", "compare", "{out}", "--api", "{prices}", "--json"),
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_answers_date_their_prices(name: str, plan: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    places = {"out": str(plan / "out"), "prices": str(plan / "prices.yaml"), "demand": str(plan / "demand.csv")}
    capsysbinary.readouterr()
    assert main([word.format(**places) for word in COMMANDS[name]]) in (0, 1)
    out = capsysbinary.readouterr()[0].decode()
    assert DOLLAR.search(out), "nothing to date: not a case for this test"
    assert DATED.search(re.sub(r"\s+", " ", out)), out[:2000]


def test_files_date_their_prices(plan: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["simulate", str(plan / "out"), "-o", str(tmp_path / "day")]) == 0
    tuned = ("--autoscaler", "hpa", "--tune", "-o", str(tmp_path / "tuned"))
    assert main(["simulate", str(plan / "out"), *tuned]) in (0, 1)
    capsysbinary.readouterr()
    checked = 0
    for folder in (plan / "out", tmp_path):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".html", ".json", ".md", ".yaml") and path.is_file():
                text = re.sub(r"<style>.*?</style>", "", html.unescape(path.read_text("utf-8")), flags=re.DOTALL)
                if re.search(r"\$\d|\busd\b|_usd", text) and "RightsliceStartsSlowly" not in text:
                    assert DATED.search(re.sub(r"\s+", " ", text)), path
                    checked += 1
    assert checked >= 5


def test_a_document_says_date_and_quality(plan: Path) -> None:
    document = json.loads((plan / "out" / "plan.json").read_text("utf-8"))
    assert document["monthly_usd"]["price_date"] == "2026-08-03"
    assert document["monthly_usd"]["quality"] == "exact"
    for pool in document["pools"]:
        assert (pool["price_date"], pool["price_quality"]) == ("2026-08-03", "exact")
