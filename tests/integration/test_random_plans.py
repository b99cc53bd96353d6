"""Plans of random workloads keep their promises, by a checker that knows nothing of the planner.

RIGHTSLICE_SOAK=200 plans so many; `make soak` does.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import rightslice
from plan_checker import Json, problems
from random_workloads import random_workload
from rightslice import WhatIf
from rightslice.app.planning import write_plan
from rightslice.core.documents import to_jsonable

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKLOADS = int(os.environ.get("RIGHTSLICE_SOAK", "25"))


def planned(seed: int, folder: Path) -> Json:
    path = folder / "workload.yaml"
    path.write_text(json.dumps(random_workload(seed)))
    write_plan(rightslice.plan(path), folder, emit=False)
    document: Json = json.loads((folder / "plan.json").read_text())
    return document


@pytest.mark.parametrize("seed", range(WORKLOADS))
def test_a_plan_keeps_its_promises(seed: int, tmp_path: Path) -> None:
    plan = planned(seed, tmp_path)
    if not plan["feasible"]:
        assert plan["binding"]["what"], "a no without its reason"
        return
    workload = random_workload(seed)
    assert problems(plan, workload) == []
    replay = rightslice.simulate(tmp_path)
    assert replay.holds, "the simulation of the document misses an objective"
    for name, replicas in spared(plan, workload):
        less = WhatIf(changes=(f"models.{name}.replicas={replicas - 1}",))
        assert rightslice.simulate(tmp_path, less).holds, f"{name} does not hold without its spare"


def spared(plan: Json, workload: Json) -> list[tuple[str, int]]:
    """Models of production with one replica more than they need, all of a kind; and their replicas."""
    own = {m["name"] for m in workload["models"] if "min_replicas" not in m and not m.get("interruptible")}
    found = plan["models"] if workload["environment"] == "production" else []
    return [(m["name"], m["replicas"]) for m in found if m["name"] in own and len(m["deployments"]) == 1]


def test_most_random_workloads_have_a_plan(tmp_path: Path) -> None:
    """Or the checks above would check little."""
    assert sum(planned(seed, tmp_path)["feasible"] for seed in (1, 2, 4, 5, 6, 8, 9, 10)) >= 6


FAULTS: dict[str, tuple[Callable[[Json], object], str]] = {
    "a GPU twice": (lambda p: p["placements"].append(p["placements"][0]), "placed 2 times"),
    "a GPU that nobody pays for": (lambda p: p["pools"][0].update(nodes=0), "placed and paid for differ"),
    "too much memory": (lambda p: slot(p).update(used_bytes=80 * 2**30), "uses"),
    "a slice too large": (lambda p: slot(p).update(memory_bytes=50 * 2**30), "has no"),
    "slices that overlap": (lambda p: slot(p, 1).update(start=0), "cannot be"),
    "a profile beside a whole GPU": (lambda p: slot(p).update(partition="whole"), "two tenants"),
    "a layout that cannot be": (lambda p: cut(p).update(profiles={"3g.40gb": 3}), "can be cut"),
    "tenants outside their layout": (lambda p: cut(p).update(profiles={"1g.10gb": 7}), "do not fit"),
    "several profiles on gke": (
        lambda p: (
            [pool.update(platform="gke") for pool in p["pools"]],
            cut(p).update(profiles={"3g.40gb": 1, "1g.10gb": 4}),
        ),
        "one MIG profile",
    ),
    "a replica less": (lambda p: p["placements"][0]["slots"].pop(), "replicas are placed"),
    "replicas that do not add up": (lambda p: p["models"][0].update(replicas=9), "not those of its deployments"),
    "a missed objective": (
        lambda p: p["models"][0].update(
            slos=[{"subject": "a", "met": True, "achieved_share": 0.9, "slo": {"metric": "e2e", "share": 0.95}}]
        ),
        "is missed",
    ),
    "money that does not add up": (lambda p: p["monthly_usd"].update(compute=1.0), "the pools cost"),
    "parts that do not add up": (lambda p: p["monthly_usd"].update(licences=1000.0), "do not add up"),
    "a bound above the plan": (lambda p: p["bound"].update(monthly_usd=1e6), "cheaper than its bound"),
    "a wrong gap": (lambda p: p["bound"].update(gap=0.0), "is not that of"),
    "another price": (lambda p: p["pools"][0].update(hourly_usd=1.0), "is not its price"),
    "over the budget": (lambda p: p["monthly_usd"].update(value=30000.0), "over the budget"),
    "spot for who must stay": (
        lambda p: p["pools"][0].update(purchase={"capacity": "spot", "price": "spot"}), "taken away"
    ),
    "shared where isolation is required": (
        lambda p: p["models"][0]["deployments"][0].update(partition="mps"), "isolation is required"
    ),
}  # fmt: skip


def slot(plan: Json, number: int = 0) -> Json:
    """A tenant of the voice plan's cut GPU."""
    placement = next(p for p in plan["placements"] if len(p["slots"]) == 2)
    found: Json = placement["slots"][number]
    return found


def cut(plan: Json) -> Json:
    """The layout of that GPU."""
    found: Json = next(use for pool in plan["pools"] for use in pool["layouts"] if use["profiles"])
    return found


@pytest.fixture(scope="module")
def voice() -> Json:
    """Its cut GPU is in the first pool."""
    return cast("Json", to_jsonable(rightslice.plan(EXAMPLES / "voice-assistant.yaml")))


@pytest.mark.parametrize("name", FAULTS)
def test_the_checker_finds_what_is_planted(voice: Json, name: str) -> None:
    plant, says = FAULTS[name]
    workload = voice["workload"]
    assert problems(voice, workload) == []
    broken = copy.deepcopy(voice)
    plant(broken)
    found = problems(broken, workload)
    assert any(says in text for text in found), found


def test_the_checker_knows_redundancy(voice: Json) -> None:
    workload = copy.deepcopy(voice["workload"])
    for model in workload["models"]:
        del model["min_replicas"]
    assert any("production without a spare replica" in text for text in problems(voice, workload))


@pytest.mark.parametrize("name", ["candidates.yaml", "gemma-27b-chat.yaml", "shared-prompts.yaml", "260gb.yaml"])
def test_the_examples_keep_their_promises(name: str) -> None:
    plan = to_jsonable(rightslice.plan(EXAMPLES / name))
    assert problems(plan, plan["workload"]) == []
