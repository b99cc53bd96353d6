"""`rightslice cost compare`: a plan beside hosted APIs at its own traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rightslice.ui.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
PRICES = """\
apiVersion: rightslice/v1
kind: ApiPrices
prices:
  - {name: small, for: chat, input: $0.10, output: $0.30, cached: $0.05, date: 2026-11-20, source: its price page}
  - {name: large, input: $2.50, output: $10, date: 2026-11}
"""
REQUESTS = 1.5 * 3600 * 730


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gemma")
    assert main(["plan", str(EXAMPLES / "gemma-27b-chat.yaml"), "-o", str(folder), "--quiet"]) == 0
    return folder


def answered(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, str, str]:
    capsysbinary.readouterr()
    code = main(["cost", "compare", *arguments])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def compared(capsysbinary: pytest.CaptureFixture[bytes], plan: Path, folder: Path, prices: str = PRICES) -> Any:
    file = folder / "prices.yaml"
    file.write_text(prices, "utf-8")
    code, out, err = answered(capsysbinary, str(plan), "--api", str(file), "--json")
    assert code == 0, err
    return json.loads(out)


def test_the_api_costs_its_list_price_times_the_traffic(
    capsysbinary: pytest.CaptureFixture[bytes], plan: Path, tmp_path: Path
) -> None:
    small, large = compared(capsysbinary, plan, tmp_path)["models"]
    assert small["tokens"]["input"] == pytest.approx(REQUESTS * 1500, rel=1e-3)
    assert small["tokens"]["output"] == pytest.approx(REQUESTS * 200, rel=1e-3)
    assert small["api_usd"] == pytest.approx(REQUESTS * (1500 * 0.10 + 200 * 0.30) / 1e6, rel=1e-3)
    assert large["api_usd"] == pytest.approx(REQUESTS * (1500 * 2.50 + 200 * 10) / 1e6, rel=1e-3)
    monthly = json.loads((plan / "plan.json").read_text("utf-8"))["monthly_usd"]
    assert small["own_usd"] == pytest.approx(monthly["value"])  # one model: it has all of the machines
    assert (small["price_date"], large["price_date"]) == ("2026-11-20", "2026-11")


def test_at_the_crossover_both_cost_the_same(
    capsysbinary: pytest.CaptureFixture[bytes], plan: Path, tmp_path: Path
) -> None:
    found = compared(capsysbinary, plan, tmp_path)["models"]
    for row in found:
        assert row["crossover_tokens"] * row["api_usd_per_million"] / 1e6 == pytest.approx(row["own_usd"])
    small, large = found
    assert small["crossover_tokens"] > small["carried_tokens"]  # a cheap API: the machines are full before they pay
    assert large["crossover_tokens"] < large["tokens"]["input"] + large["tokens"]["output"]


def test_cached_tokens_cost_what_the_api_says(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    assert main(["plan", str(EXAMPLES / "shared-prompts.yaml"), "-o", str(folder), "--quiet"]) == 0
    document = json.loads((folder / "plan.json").read_text("utf-8"))
    prices = PRICES.replace("for: chat, ", "")
    first = compared(capsysbinary, folder, tmp_path, prices)["models"][0]
    tokens = first["tokens"]
    assert 0.0 < tokens["cached"] < tokens["input"]
    expected = (tokens["input"] - tokens["cached"]) * 0.10 + tokens["cached"] * 0.05 + tokens["output"] * 0.30
    assert first["api_usd"] == pytest.approx(expected / 1e6)
    hits = [found["realised"] for model in document["models"] for found in model["prefix_hits"]]
    assert min(hits) - 1e-6 <= tokens["cached"] / tokens["input"] <= max(hits) + 1e-6


def test_every_dollar_has_a_date(capsysbinary: pytest.CaptureFixture[bytes], plan: Path, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES, "utf-8")
    code, out, _ = answered(capsysbinary, str(plan), "--api", str(file))
    assert code == 0
    assert "prices of 2026-08-03, exact" in out
    assert "2026-11-20" in out
    assert "own never pays as planned" in out.replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        (("for: chat", "for: chatt"), "RS0310"),
        (("$0.10", "$-1"), "RS0107"),
        (("date: 2026-11-20, ", ""), "RS0202"),
        (("2026-11-20", "yesterday"), "RS0105"),
        (("ApiPrices", "Workload"), "RS0203"),
        (("cached", "chached"), "RS0201"),
    ],
)
def test_mistakes_have_a_place(
    capsysbinary: pytest.CaptureFixture[bytes], plan: Path, tmp_path: Path, changed: tuple[str, str], rule: str
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES.replace(*changed), "utf-8")
    code, out, err = answered(capsysbinary, str(plan), "--api", str(file))
    assert (code, out) == (2, "")
    assert f"error[{rule}]" in err
    assert "prices.yaml" in err
