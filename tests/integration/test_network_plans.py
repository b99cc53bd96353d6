"""Clients far from where they are served: in plans, replays and over two regions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rightslice.catalogue.regions import round_trip_s
from rightslice.ui.cli.main import main

WORKLOAD = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: far}
models:
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    min_replicas: 2
    traffic: {rate: 2/s, input_tokens: 500, output_tokens: 100, slo: {ttft_p95: 4s}, from: {europe-west4: 1}}
fleet:
  providers: [gcp]
  regions: [us-central1, europe-west4]
  accelerators: {allow: [L4]}
  quota:
    - {provider: gcp, region: us-central1, accelerator: L4, gpus: 1}
    - {provider: gcp, region: europe-west4, accelerator: L4, gpus: 1}
"""
OCEAN_MS = (round_trip_s("europe-west4", "us-central1") or 0.0) * 1e3

Answer = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan with one replica on either side of the ocean."""
    folder = tmp_path_factory.mktemp("far")
    (folder / "w.yaml").write_text(WORKLOAD)
    assert main(["plan", str(folder / "w.yaml"), "-o", str(folder / "plan"), "--quiet"]) == 0
    return folder / "plan"


@pytest.fixture
def simulated(capfdbinary: pytest.CaptureFixture[bytes]) -> Answer:
    def run(*arguments: object) -> tuple[int, Any]:
        capfdbinary.readouterr()
        code = main(["simulate", *map(str, arguments), "--json"])
        return code, json.loads(capfdbinary.readouterr().out)

    return run


def ttft_ms(found: Any, statistic: str) -> float:
    (only,) = found["per_model"]
    return float(only["ttft_ms"][statistic])


def test_the_ocean_takes_what_light_takes() -> None:
    assert 100.0 < OCEAN_MS < 130.0


def test_a_plan_counts_the_farthest_region_and_says_so(spread: Path) -> None:
    plan = json.loads((spread / "plan.json").read_text())
    assert {pool["region"] for pool in plan["pools"]} == {"us-central1", "europe-west4"}
    (warning,) = [found for found in plan["warnings"] if found["code"] == "RS5016"]
    assert f"{OCEAN_MS:.0f} ms from europe-west4" in warning["message"]
    assert plan["models"][0]["expected"]["ttft_ms"]["value"] > OCEAN_MS


@pytest.mark.parametrize(
    ("ttft", "region", "code", "words"),
    [
        ("4s", "us-central1", "RS4003", ("works too, for $", "a month more than us-central1")),
        ("200ms", "europe-west4", "RS4001", ("ttft_p95 <= 200 ms", f"{OCEAN_MS:.0f} ms from europe-west4 and back")),
    ],
)
def test_a_region_is_chosen_by_its_price_and_the_way_there(
    tmp_path: Path, ttft: str, region: str, code: str, words: tuple[str, str]
) -> None:
    """The far region is the cheaper one; it goes as soon as its way breaks an objective."""
    text = (
        WORKLOAD.partition("  quota:")[0]
        .replace("ttft_p95: 4s", f"ttft_p95: {ttft}")
        .replace("[L4]", "[A100-SXM-40GB]")
    )
    (tmp_path / "w.yaml").write_text(text.replace("rate: 2/s", "rate: 0.5/s"))
    assert main(["plan", str(tmp_path / "w.yaml"), "-o", str(tmp_path / "plan"), "--no-emit", "--quiet"]) == 0
    plan = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert {pool["region"] for pool in plan["pools"]} == {region}
    (other,) = {"us-central1", "europe-west4"} - {region}
    (rejected,) = [found for found in plan["rejected"] if found["option"].startswith("region")]
    assert (rejected["option"], rejected["code"]) == (f"region {other}", code)
    assert all(part in rejected["reason"] for part in words)


def test_near_replicas_are_preferred_and_load_spills_over(spread: Path, simulated: Answer) -> None:
    """Without load hardly anybody crosses the ocean; with it some do, and a router by name takes half of them there."""
    _, calm = simulated(spread, "--set", "models.llm.traffic.rate=0.2/s")
    _, blind = simulated(spread, "--set", "models.llm.traffic.rate=0.2/s", "--set", "models.llm.router=round_robin")
    difference_ms = ttft_ms(blind, "mean") - ttft_ms(calm, "mean")
    assert 0.3 * OCEAN_MS < difference_ms < 0.7 * OCEAN_MS
    assert f"network: {OCEAN_MS:.0f} ms from europe-west4 to us-central1" in calm["notes"][0]
    _, busy = simulated(spread, "--set", "models.llm.traffic.rate=8/s")
    replicas = {found["deployment"]: found["busy_share"] for found in busy["replicas"]}
    assert min(replicas.values()) > 0.3


def test_a_measured_way_is_taken(spread: Path, simulated: Answer) -> None:
    router = ("--set", "models.llm.router=round_robin")
    ways = "fleet.network=[{from: europe-west4, to: us-central1, round_trip: 900ms}]"
    _, found = simulated(spread, *router, "--set", ways)
    assert "network: 900 ms from europe-west4 to us-central1, there and back, as stated" in found["notes"]
    assert ttft_ms(found, "p95") > 900.0


def test_unknown_places_are_told(spread: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(spread), "--set", "models.llm.traffic.from={me-central2: 1}"]) == 2
    assert "no place of me-central2 is known" in capsys.readouterr().err


def test_where_to_serve_must_be_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.yaml").write_text(WORKLOAD.replace("  regions: [us-central1, europe-west4]\n", ""))
    assert main(["plan", str(tmp_path / "w.yaml")]) == 2
    assert "near to most of them: europe-west4" in capsys.readouterr().err
