"""`rightslice cost`: what it prints and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rightslice.ui.cli.main import main

PRICES = ("--reserved-usd", "4", "--alternative-usd", "10")


def answered(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, str, str]:
    code = main(["cost", *arguments])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def demand(folder: Path, text: str) -> str:
    path = folder / "demand.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_reserve_prints_the_contract_as_json(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    file = demand(tmp_path, "hour,gpus\n" + "".join(f"{h},{h % 10}\n" for h in range(100)))
    code, out, _ = answered(capsysbinary, "reserve", "--demand", file, *PRICES, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["reserve_gpus"], found["percentile"]) == (5, 0.6)
    # 40 idle of 500 reserved GPU-hours of lower demand are paid too: 500 x 4 + (6+7+8+9 - 4 x 5) x 10 x 10.
    assert found["total_usd"] == 500 * 4 + 10 * 10 * 10
    assert (found["all_on_demand_usd"], found["all_reserved_usd"]) == (4500.0, 3600.0)


def test_pools_are_sized_apart_and_add_up(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    file = demand(tmp_path, "pool,gpus\na,3\nb,1\na,3\nb,1\n")
    _, out, _ = answered(capsysbinary, "reserve", "--demand", file, *PRICES, "--json")
    found = json.loads(out)
    assert {pool["pool"]: pool["reserve_gpus"] for pool in found["pools"]} == {"a": 3, "b": 1}
    assert found["reserve_gpus"] == 4
    assert found["total_usd"] == sum(pool["total_usd"] for pool in found["pools"])


def test_reserve_for_people(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    file = demand(tmp_path, "gpus\n" + "2\n" * 48)
    code, out, err = answered(capsysbinary, "reserve", "--demand", file, *PRICES)
    assert (code, err) == (0, "")
    assert "reserve 2 GPUs" in out
    assert "60 % less than reserving none" in out.replace("60.0", "60")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "RS0202"),
        ("gpus\n", "RS0405"),
        ("gpu\n1\n", "RS0202"),
        ("gpus,gpus\n1,2\n", "RS0301"),
        ("gpus\n1\n-1\n", "RS0106"),
        ("gpus\nnan\n", "RS0106"),
        ("gpus\nten\n", "RS0106"),
        ("hour,gpus\n1\n", "RS0106"),
    ],
)
def test_a_wrong_file_ends_in_one_diagnostic(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path, text: str, rule: str
) -> None:
    code, out, err = answered(capsysbinary, "reserve", "--demand", demand(tmp_path, text), *PRICES)
    assert (code, out) == (2, "")
    assert err.count("error[") == 1
    assert f"error[{rule}]" in err


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf"])
def test_a_price_is_above_zero(capsysbinary: pytest.CaptureFixture[bytes], price: str) -> None:
    asked = ("reserve", "--demand", "x.csv", "--reserved-usd", price, "--alternative-usd", "1")
    code, _, err = answered(capsysbinary, *asked)
    assert (code, "RS0501" in err) == (2, True)


def test_own_is_the_worked_example(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, _ = answered(capsysbinary, "own", "--json")
    found = json.loads(out)
    assert code == 0
    assert round(found["usd_per_gpu_hour"], 2) == 1.95
    assert round(found["break_even_utilisation"]["azure"], 2) == 0.16
    assert {"value", "source", "quality"} <= set(found["assumptions"][0])
    _, shown, _ = answered(capsysbinary, "own")
    assert "$1.95 per GPU-hour" in shown


def test_own_takes_other_figures_and_says_that_they_are_given(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    _, out, _ = answered(capsysbinary, "own", "--years", "3", "--json")
    found = json.loads(out)
    assert round(found["usd_per_gpu_hour"], 2) == 2.34
    assert [a["quality"] for a in found["assumptions"] if a["name"] == "years"] == ["given"]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("L4",), "RS0502"),
        (("--gpus", "4"), "RS0502"),
        (("H1000",), "RS0312"),
        (("--years", "0"), "RS0501"),
        (("--pue", "0.5"), "RS0501"),
        (("--availability", "1.5"), "RS0501"),
        (("--server-usd", "nan"), "RS0501"),
    ],
)
def test_own_refuses_what_it_cannot_answer(
    capsysbinary: pytest.CaptureFixture[bytes], arguments: tuple[str, ...], rule: str
) -> None:
    code, out, err = answered(capsysbinary, "own", *arguments)
    assert (code, out) == (2, "")
    assert f"error[{rule}]" in err
