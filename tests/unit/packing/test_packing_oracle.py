"""`solve` against optima that CP-SAT found with another model (tools/record_packing_oracle.py)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from packing_helpers import HALVES, MIXED, SEVEN, WHOLE_GPU, check
from rightslice.packing.problem import Client, Demand, OptionSpec, PoolSpec, Problem, SharingGroup
from rightslice.packing.solve import solve

INSTANCES = json.loads(
    gzip.decompress((Path(__file__).parents[2] / "data" / "packing" / "oracle.json.gz").read_bytes())
)
LAYOUTS = {layout.name: layout for layout in (SEVEN, HALVES, MIXED)}


def problem_of(row: dict[str, Any]) -> Problem:
    pools = []
    for given in row["pools"]:
        menu = () if given["sharing"] else (WHOLE_GPU, *(LAYOUTS[name] for name in given["layouts"]))
        pools.append(PoolSpec(**{**given, "layouts": menu, "limits": tuple(given["limits"])}))
    groups = tuple(
        SharingGroup(
            given["key"],
            given["accelerator"],
            "mps",
            tuple(Client(f"{c['model']}/mps", c["model"], c["requests_per_s"]) for c in given["clients"]),
        )
        for given in row["groups"]
    )
    options = tuple(OptionSpec(**given) for given in row["options"])
    demands = tuple(Demand(**given) for given in row["demands"])
    return Problem(tuple(pools), options, demands, row["limits"], groups)


def test_there_are_enough_instances_of_every_kind() -> None:
    assert len(INSTANCES) >= 200
    solved = [row for row in INSTANCES if row["usd_per_hour"] is not None]
    assert len(solved) >= 150
    assert len(solved) < len(INSTANCES)
    for kind in ("groups", "limits"):
        assert sum(bool(row[kind]) for row in solved) >= 50


@pytest.mark.parametrize("chunk", range(8))
def test_agrees_with_cp_sat(chunk: int) -> None:
    for row in INSTANCES[chunk::8]:
        problem = problem_of(row)
        found = solve(problem)
        if row["usd_per_hour"] is None:
            assert found.status == "infeasible", row["seed"]
            assert found.binding
            continue
        assert found.status == "optimal", row["seed"]
        assert found.usd_per_hour == pytest.approx(row["usd_per_hour"], abs=1e-6), row["seed"]
        assert found.bound_usd_per_hour <= row["usd_per_hour"] + 1e-6
        check(problem, found)
