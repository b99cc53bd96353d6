"""Availability and its price: a replica more, and a second node."""

from __future__ import annotations

from pathlib import Path

import pytest

import rightslice
from rightslice.core.plan import Plan

TEXT = """\
apiVersion: rightslice/v1
kind: Workload
metadata: {name: spares}
models:
  - name: asr
    task: transcribe
    profile: {memory: 5GB, streams: [1, 8], latency: [100ms, 300ms], measured_on: A100-SXM-80GB, sm_demand: 0.1}
    traffic: {rate: 2/s, slo: {e2e_p95: 3s}}
  - name: tts
    task: synthesize
    MINIMUM
    profile: {memory: MEMORY, streams: [1, 8], latency: [100ms, 300ms], measured_on: A100-SXM-80GB, sm_demand: 0.1}
    traffic: {rate: 2/s, slo: {e2e_p95: 3s}}
fleet: {providers: [gcp], platform: gke+operator, regions: [us-central1], accelerators: {allow: [A100-SXM-80GB]}}
environment: production
"""


def planned(folder: Path, minimum: str = "", memory: str = "5GB") -> Plan:
    path = folder / "workload.yaml"
    path.write_text(TEXT.replace("MINIMUM", minimum or "isolation: required").replace("MEMORY", memory))
    plan = rightslice.plan(path)
    assert plan.feasible, plan.binding
    return plan


def warning(plan: Plan) -> str:
    return next((w.message for w in plan.warnings if w.code == "RS5004"), "")


def test_the_second_node_is_what_costs_where_slices_are_left(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    together = plan.spares[0]
    assert together.model == "all"
    assert together.replica_usd == pytest.approx(0.0, abs=1.0)
    assert together.node_usd > 1000
    assert plan.monthly_usd is not None
    assert together.node_usd == pytest.approx(plan.monthly_usd.value / 2)
    assert "for two nodes" in warning(plan)
    assert {spare.model for spare in plan.spares[1:]} == {"asr", "tts"}


def test_the_replica_costs_where_each_takes_a_gpu(tmp_path: Path) -> None:
    plan = planned(tmp_path, memory="50GB")
    alone = {spare.model: spare for spare in plan.spares}
    assert alone["tts"].replica_usd > 1000
    assert "tts alone" in warning(plan)


def test_without_spares_there_is_no_price(tmp_path: Path) -> None:
    text = TEXT.replace("production", "development").replace("MINIMUM", "isolation: required").replace("MEMORY", "5GB")
    path = tmp_path / "workload.yaml"
    path.write_text(text)
    plan = rightslice.plan(path)
    assert plan.spares == ()
    assert not warning(plan)
