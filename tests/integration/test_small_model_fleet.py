"""Fourteen small models on three platforms: what each can make, and what its limits cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plan_checker import problems
from rightslice.reporting.terminal import plan_text
from rightslice.spec.plan_document import load_plan
from rightslice.ui.cli.main import main

EXAMPLE = (Path(__file__).parents[2] / "examples" / "small-model-fleet.yaml").read_text()
FLEETS = {
    "gke": "providers: [gcp]\n  platform: gke\n  regions: [us-central1]",
    "eks": "providers: [aws]\n  platform: eks\n  regions: [us-east-1]",
    "on-prem": "providers: [on-prem]\n  platform: on-prem\n"
    "  owned: [{machine_type: a2-ultragpu-1g, count: 4}, {machine_type: g2-standard-4, count: 12}]",
}
SHARED = {"time-slicing", "mps"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The plan of the example on each platform."""
    assert FLEETS["gke"] in EXAMPLE
    found = {}
    for name, fleet in FLEETS.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / "workload.yaml").write_text(EXAMPLE.replace(FLEETS["gke"], fleet))
        assert main(["plan", str(folder / "workload.yaml"), "-o", str(folder), "--quiet"]) == 0
        found[name] = folder
    return found


def planned(folder: Path) -> Any:
    return json.loads((folder / "plan.json").read_text())


@pytest.mark.parametrize("name", FLEETS)
def test_each_plan_keeps_its_promises(folders: dict[str, Path], name: str) -> None:
    plan = planned(folders[name])
    assert len(plan["models"]) == 14
    assert problems(plan, plan["workload"]) == []
    assert plan["verification"]["failed"] == 0


@pytest.mark.parametrize("name", FLEETS)
def test_customers_are_kept_apart(folders: dict[str, Path], name: str) -> None:
    for model in planned(folders[name])["models"]:
        parts = {deployment["partition"] for deployment in model["deployments"]}
        if model["name"] in ("chat", "summaries", "guard", "calls"):
            assert not parts & SHARED
            assert model["replicas"] >= 2


def test_googles_own_stack_shares_nothing_and_says_what_that_costs(folders: dict[str, Path]) -> None:
    plan = planned(folders["gke"])
    assert not {pool["sharing"] for pool in plan["pools"]} & SHARED
    (found,) = plan["platform_costs"]
    assert (found["platform"], found["instead"]) == ("gke", "gke+operator")
    assert found["monthly_usd"] + found["difference_usd"] == pytest.approx(plan["monthly_usd"]["value"])
    assert found["difference_usd"] > 0.2 * plan["monthly_usd"]["value"]
    shown = plan_text(load_plan(folders["gke"] / "plan.json"), width=200)
    assert "a month more than gke+operator" in shown
    assert "the GPU Operator pays while running it costs less than that" in shown


def test_with_the_operator_tools_share_gpus(folders: dict[str, Path]) -> None:
    plan = planned(folders["eks"])
    assert {pool["sharing"] for pool in plan["pools"]} & SHARED
    assert plan["platform_costs"] == []
    alone = next(r for r in plan["rejected"] if r["option"] == "GPUs and slices of their own")
    assert alone["monthly_usd"] > plan["monthly_usd"]["value"]


def test_own_machines_are_cut_by_several_profiles(folders: dict[str, Path]) -> None:
    plan = planned(folders["on-prem"])
    assert {pool["purchase"]["capacity"] for pool in plan["pools"]} == {"owned"}
    assert plan["platform_costs"] == []
