"""Plans of shared GPUs are verified beside busy neighbours: what holds alone may need more GPUs together."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightslice.app.planning import plan_workload, write_plan
from rightslice.app.scenarios import share_groups
from rightslice.app.simulating import read_asked as asked
from rightslice.app.simulating import simulate_plan
from rightslice.app.what_if import WhatIf
from rightslice.core.plan import Plan

TEXT = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: together}
models:
  - name: left
    task: transcribe
    PARTITION
    profile: {memory: 10GB, streams: [1], latency: [100ms], measured_on: A100-SXM-80GB, sm_demand: DEMAND}
    traffic: {rate: 3/s, slo: {e2e_p95: 500ms}}
  - name: right
    task: synthesize
    PARTITION
    profile: {memory: 10GB, streams: [1], latency: [100ms], measured_on: A100-SXM-80GB, sm_demand: DEMAND}
    traffic: {rate: 3/s, slo: {e2e_p95: 500ms}}
fleet: {providers: [gcp], platform: gke+operator, regions: [us-central1], accelerators: {allow: [A100-SXM-80GB]}}
environment: development
"""


def planned(folder: Path, partition: str, demand: float) -> Plan:
    path = folder / "workload.yaml"
    path.write_text(TEXT.replace("PARTITION", f"partition: {partition}").replace("DEMAND", str(demand)))
    plan = plan_workload(path).plan
    assert plan.feasible, plan.binding
    return plan


def replicas(plan: Plan) -> list[int]:
    return [model.replicas for model in plan.models]


def test_neighbours_that_fill_the_gpu_need_more_of_it(tmp_path: Path) -> None:
    """30 % busy each: on a GPU of its own one replica is enough, by turns on one GPU it is not."""
    alone = planned(tmp_path, "whole", 1.0)
    together = planned(tmp_path, "time-slicing", 1.0)
    assert replicas(alone) == [1, 1]
    assert min(replicas(together)) > 1
    assert together.verification is not None
    assert together.verification.failed == 0
    assert {pool.sharing for pool in together.pools} == {"time-slicing"}
    for model in together.models:
        rate = model.deployments[0].max_rate
        assert rate is not None
        assert rate.value < 0.6 * alone.models[0].deployments[0].max_rate.value  # type: ignore[union-attr]


def test_the_simulation_pairs_replicas_as_the_plan_places_them(tmp_path: Path) -> None:
    plan = planned(tmp_path, "time-slicing", 1.0)
    write_plan(plan, tmp_path / "out")
    servers = asked(tmp_path / "out", WhatIf()).servers
    groups = share_groups(
        {key: found.replicas for key, found in servers.items()}, {key: found.option for key, found in servers.items()}
    )
    on_gpus = {frozenset((s.deployment, s.replica) for s in p.slots) for p in plan.placements if p.slots}
    assert len(on_gpus) == min(replicas(plan)) > 1
    assert {frozenset(group.members) for group in groups} == on_gpus


def test_production_is_told_that_a_shared_gpu_isolates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    text = TEXT.replace("PARTITION", "partition: time-slicing").replace("DEMAND", "0.2")
    path.write_text(text.replace("development", "production"))
    warned = {w.subject: w.message for w in plan_workload(path).plan.warnings if w.code == "RS5010"}
    assert "shares its GPU with right by time-slicing: memory is limited by nobody" in warned["left"]
    assert "production asks for isolation" in warned["left"]


def test_neighbours_that_leave_room_share_one_gpu(tmp_path: Path) -> None:
    together = planned(tmp_path, "time-slicing", 0.3)
    assert replicas(together) == [1, 1]
    assert sum(pool.nodes * pool.gpus_per_node for pool in together.pools) == 1
    assert together.pools[0].layouts[0].profiles == {"time-slicing": 2}


@pytest.mark.parametrize(("partition", "demand"), [("time-slicing", 0.8), ("time-slicing", 1.0), ("mps", 0.8)])
def test_a_shared_plan_simulated_is_its_own_verification(tmp_path: Path, partition: str, demand: float) -> None:
    plan = planned(tmp_path, partition, demand)
    write_plan(plan, tmp_path / "out")
    replay = simulate_plan(tmp_path / "out", WhatIf())
    assert plan.verification is not None
    assert replay.holds
    assert replay.requests == plan.verification.requests
    shares = [c.slo_attainment for result in replay.results for c in result.per_class]
    assert min(shares) == plan.verification.slo_attainment
