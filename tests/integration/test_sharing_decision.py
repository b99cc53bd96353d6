"""Whole, MIG, MPS or time-slicing: what is not pinned is decided by numbers, and the plan says by which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from plan_checker import problems
from rightslice.ui.cli.main import main

LOW = """\
apiVersion: rightslice/v1
kind: Workload
metadata: {name: small}
models:
  - name: left
    task: transcribe
    ISOLATION
    profile: {memory: 10GB, streams: [1, 8], latency: [100ms, 300ms], measured_on: A100-SXM-80GB, sm_demand: 0.9}
    traffic: {rate: 0.5/s, slo: {e2e_p95: 3s}}
  - name: right
    task: synthesize
    ISOLATION
    profile: {memory: 10GB, streams: [1, 8], latency: [100ms, 300ms], measured_on: A100-SXM-80GB, sm_demand: 0.9}
    traffic: {rate: 0.5/s, slo: {e2e_p95: 3s}}
fleet: {providers: [gcp], platform: PLATFORM, regions: [us-central1], accelerators: {allow: [GPU]}}
environment: ENVIRONMENT
"""
CHAT = """\
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    max_context: 4096
    traffic: {rate: RATE/s, input_tokens: {mean: 500}, output_tokens: {mean: 200}, slo: {tpot_p95: 80ms}}
"""


def low(isolation: str = "", environment: str = "development", gpu: str = "L4", platform: str = "gke+operator") -> str:
    text = LOW.replace("ISOLATION", isolation or "min_replicas: 1").replace("ENVIRONMENT", environment)
    return text.replace("GPU", gpu).replace("PLATFORM", platform)


def planned(folder: Path, text: str) -> Any:
    path = folder / "workload.yaml"
    path.write_text(text)
    assert main(["plan", str(path), "-o", str(folder / "out"), "--quiet"]) == 0
    plan = json.loads((folder / "out" / "plan.json").read_text())
    assert problems(plan, plan["workload"]) == []
    return plan


def partitions(plan: Any) -> dict[str, str]:
    return {model["name"]: model["deployments"][0]["partition"] for model in plan["models"]}


def reasons(plan: Any) -> dict[str, Any]:
    return {found["model"]: found for found in plan["partitions"]}


def test_low_duty_in_development_is_time_sliced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(tmp_path, low())
    assert partitions(plan) == {"left": "time-slicing", "right": "time-slicing"}
    assert sum(pool["nodes"] * pool["gpus_per_node"] for pool in plan["pools"]) == 1
    found = reasons(plan)["left"]
    assert found["neighbours"] == ["right"]
    assert found["duty"] < 0.2
    assert 1.0 < found["slowdowns"]["time-slicing"] < found["slowdowns"]["mps"]
    dearer = next(r for r in plan["rejected"] if r["option"] == "GPUs and slices of their own")
    assert dearer["monthly_usd"] > 1.5 * plan["monthly_usd"]["value"]
    capsys.readouterr()
    assert main(["simulate", str(tmp_path / "out"), "--json"]) == 0
    slower = {c["model"]: c["e2e_ms"]["p95"] for c in json.loads(capsys.readouterr().out)["per_model"]}
    alone_ms = min(slower.values())
    assert alone_ms > 250, "the replay is beside the neighbour that the plan chose"


def test_the_manifests_of_a_chosen_group_share_its_nodes(tmp_path: Path) -> None:
    planned(tmp_path, low())
    texts = [path.read_text() for path in (tmp_path / "out" / "kubernetes").rglob("*.yaml")]
    objects = [found for text in texts for found in yaml.safe_load_all(text) if found]
    shared = [found for found in objects if "device-plugin-config" in found.get("metadata", {}).get("name", "")]
    assert any("replicas: 2" in text for found in shared for text in found["data"].values())


@pytest.mark.parametrize(
    ("isolation", "environment"),
    [("isolation: required", "development"), ("", "production"), ("isolation: preferred", "production")],
)
def test_who_is_to_be_isolated_shares_no_gpu(tmp_path: Path, isolation: str, environment: str) -> None:
    plan = planned(tmp_path, low(isolation, environment))
    assert set(partitions(plan).values()) == {"whole"}


def test_required_isolation_in_production_takes_slices(tmp_path: Path) -> None:
    plan = planned(tmp_path, low("isolation: required", "production", "A100-SXM-80GB"))
    assert all(part.endswith("gb") for part in partitions(plan).values())
    assert reasons(plan)["left"]["reason"] == "isolation required"


def test_a_platform_that_cannot_share_does_not(tmp_path: Path) -> None:
    assert set(partitions(planned(tmp_path, low(platform="gke"))).values()) == {"whole"}


def test_a_pin_stays_a_pin(tmp_path: Path) -> None:
    plan = planned(tmp_path, low("partition: whole"))
    assert set(partitions(plan).values()) == {"whole"}
    assert reasons(plan)["left"]["reason"] == "pinned"


def test_a_bound_model_beside_a_rare_one_takes_turns_and_not_slices(tmp_path: Path) -> None:
    """As on the H200 of the published case: half of the bandwidth is too little for the language model, while its
    neighbour hardly ever wants the GPU."""
    text = low(gpu="A100-SXM-80GB").replace("  - name: right", "DROP", 1).replace("0.5/s", "0.2/s")
    head, _, rest = text.partition("DROP")
    plan = planned(tmp_path, head + CHAT.replace("RATE", "5") + rest[rest.index("fleet:") :])
    assert partitions(plan) == {"left": "time-slicing", "llm": "time-slicing"}
    slower = reasons(plan)["llm"]["slowdowns"]
    assert slower["time-slicing"] < 1.3


def test_two_busy_models_take_slices_and_not_turns(tmp_path: Path) -> None:
    """As in the published case of speech on an A100: both are busy for half of the time, half of the SMs are enough."""
    text = low(gpu="A100-SXM-80GB").replace("sm_demand: 0.9", "sm_demand: 0.45").replace("0.5/s", "12/s")
    plan = planned(tmp_path, text)
    assert all(part.endswith("gb") for part in partitions(plan).values()), partitions(plan)
    assert sum(pool["nodes"] * pool["gpus_per_node"] for pool in plan["pools"]) == 1
