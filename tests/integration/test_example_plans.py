"""Every example, planned through the public interface: what the files ask for, what the plans must say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import rightslice
from rightslice.app.planning import plan_workload, write_plan
from rightslice.catalogue.mig import geometry
from rightslice.core.documents import to_json
from rightslice.core.plan import Plan
from rightslice.spec.plan_document import load_plan

EXAMPLES = Path(__file__).parents[2] / "examples"
OF_ITS_OWN = "small-model-fleet.yaml"
"""Planned on three platforms by tests of its own."""
NAMES = sorted(path.name for path in EXAMPLES.glob("*.yaml") if path.name != OF_ITS_OWN)


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: rightslice.plan(EXAMPLES / name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_feasible_and_say_which_question_they_answer(plans: dict[str, Plan], name: str) -> None:
    assert plans[name].feasible, plans[name].binding
    assert (EXAMPLES / name).read_text().startswith("# Question: ")


@pytest.mark.parametrize("name", NAMES)
def test_the_document_has_every_field_of_the_contract(plans: dict[str, Plan], name: str) -> None:
    document = json.loads(to_json(plans[name]))
    expected = {
        "schema": None,
        "feasible": None,
        "reproducible": None,
        "monthly_usd": {"value", "low", "high", "price_date", "quality", "compute", "licences", "other"},
        "usd_per_million_input_tokens": None,
        "usd_per_million_output_tokens": None,
        "slo_probability": None,
        "binding_slo": None,
        "pools": {
            "name", "provider", "region", "machine_type", "accelerator", "nodes", "nodes_max", "purchase", "hourly_usd",
            "sharing", "layouts",
        },
        "models": {"name", "replicas", "expected", "slo_met", "slo_probability", "deployments"},
        "placements": {"pool", "node", "gpu", "slots"},
        "autoscaling": None,
        "verification": {"seed", "draws", "requests", "slo_attainment"},
        "bound": {"monthly_usd", "gap", "perfect_autoscaler_gpu_hours"},
        "rejected": {"option", "code", "reason", "relaxation"},
        "alternatives": None,
        "requests_to_make": None,
        "warnings": None,
    }  # fmt: skip
    assert document["schema"] == "rightslice.plan/v1"
    for field, inner in expected.items():
        assert field in document
        first = document[field][0] if isinstance(document[field], list) and document[field] else document[field]
        if inner and first:
            assert inner <= set(first), field
    for model in document["models"]:
        assert {"ttft_ms", "tpot_ms", "e2e_ms", "requests_per_s_at_slo"} <= set(model["expected"])
        for deployment in model["deployments"]:
            assert {
                "id",
                "role",
                "pool",
                "accelerator",
                "partition",
                "gpus_per_replica",
                "replicas",
                "engine",
                "memory",
            } <= set(deployment)
            assert {"min", "steady", "max"} <= set(deployment["replicas"])
            assert {"name", "version", "args"} <= set(deployment["engine"])


@pytest.mark.parametrize("name", NAMES)
def test_two_runs_with_one_seed_are_byte_equal_and_survive_reading_back(
    plans: dict[str, Plan], name: str, tmp_path: Path
) -> None:
    again = plan_workload(EXAMPLES / name, seed=0).plan
    assert to_json(again) == to_json(plans[name])
    write_plan(again, tmp_path)
    written = (tmp_path / "plan.json").read_text()
    assert written == to_json(plans[name])
    assert to_json(load_plan(tmp_path / "plan.json")) == written


@pytest.mark.parametrize("name", NAMES)
def test_the_hardware_half_adds_up(plans: dict[str, Plan], name: str) -> None:
    plan = plans[name]
    assert plan.monthly_usd is not None
    hourly = sum(pool.nodes * pool.hourly_usd for pool in plan.pools)
    assert plan.monthly_usd.value == pytest.approx(hourly * 730.0)
    for model in plan.models:
        assert model.replicas == sum(d.replicas.steady for d in model.deployments)
        placed = {
            (slot.deployment, slot.replica) for p in plan.placements for slot in p.slots if slot.model == model.name
        }
        assert len(placed) == model.replicas
    for placement in plan.placements:
        pool = plan.pool(placement.pool)
        assert placement.node < pool.nodes
        assert placement.gpu < pool.gpus_per_node
        assert sum(slot.memory_bytes for slot in placement.slots) <= placement.memory_bytes * 1.001
        assert all(slot.used_bytes <= slot.memory_bytes for slot in placement.slots)
        _slices_do_not_overlap(pool.accelerator, [(slot.partition, slot.start) for slot in placement.slots])


def _slices_do_not_overlap(accelerator: str, slots: list[tuple[str, int]]) -> None:
    table = geometry(accelerator)
    taken: set[int] = set()
    for partition, start in slots:
        if partition == "whole":
            assert len(slots) == 1
            continue
        assert table is not None
        units = set(range(start, start + table.profile(partition).mem_units))
        assert start in table.profile(partition).starts
        assert not units & taken
        taken |= units


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_holds_and_the_objectives_are_met_in_simulation(plans: dict[str, Plan], name: str) -> None:
    plan = plans[name]
    assert plan.bound is not None
    assert plan.monthly_usd is not None
    assert plan.bound.monthly_usd <= plan.monthly_usd.value * (1 + 1e-9)
    assert plan.bound.gap == pytest.approx(plan.monthly_usd.value / plan.bound.monthly_usd - 1.0, abs=1e-6)
    results = [slo for model in plan.models for slo in model.slos] + [slo for p in plan.pipelines for slo in p.slos]
    assert all(slo.met and slo.achieved_share >= slo.slo.share for slo in results)
    assert plan.slo_probability is not None
    assert plan.slo_probability >= 0.95
    if plan.verification and results:
        assert plan.verification.draws == 50
        assert plan.verification.requests > 300


def test_the_260_gb_case_keeps_and_excludes_what_it_should(plans: dict[str, Plan]) -> None:
    plan = plans["260gb.yaml"]
    kept = {pool.accelerator for pool in plan.pools} | {a.accelerator for a in plan.alternatives}
    for family in ("A100", "RTX-PRO-6000", "H100", "H200", "B200"):
        assert any(name.startswith(family) for name in kept), (family, kept)
    reasons = {r.option.split(" for ")[0]: r for r in reversed(plan.rejected) if r.code != "RS4003"}
    assert reasons["L4"].code == "RS2001"
    assert "192" in reasons["L4"].reason
    assert "no fast link between machines" in reasons["L4"].reason
    arm = [r for r in plan.rejected if r.code == "RS4006"]
    assert any(r.option.startswith("GB200") for r in arm)
    assert not any(name.startswith("GB200") for name in kept)


def test_the_arm_machines_return_when_any_architecture_is_allowed(tmp_path: Path) -> None:
    text = (EXAMPLES / "260gb.yaml").read_text().replace("architecture: x86", "architecture: any")
    path = tmp_path / "any.yaml"
    path.write_text(text)
    plan = rightslice.plan(path)
    kept = {pool.accelerator for pool in plan.pools} | {a.accelerator for a in plan.alternatives}
    assert any(name.startswith("GB200") for name in kept)
    assert not [r for r in plan.rejected if r.code == "RS4006"]


def test_another_seed_is_another_plan_document(plans: dict[str, Plan]) -> None:
    other = rightslice.plan(EXAMPLES / "gemma-27b-chat.yaml", seed=1)
    assert other.verification != plans["gemma-27b-chat.yaml"].verification
    assert dataclasses.replace(other, seed=0).pools[0].accelerator


def test_a_large_mixture_of_experts_is_told_both_splits_of_its_two_machines(plans: dict[str, Plan]) -> None:
    (deployment,) = plans["large-moe.yaml"].models[0].deployments
    assert deployment.gpus_per_replica == 16
    (other,) = (r for r in plans["large-moe.yaml"].rejected if r.option.startswith("r1 as "))
    assert "DP 16" in other.option or "TP 8 x PP 2" in other.option
    assert "requests/s a replica" in other.reason
