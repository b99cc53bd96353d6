"""`rightslice plan` with autoscalers: tuned over a day, recorded, shown and emitted with the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rightslice.ui.cli.main import main

WORKLOAD = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: day}
models:
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    AUTOSCALING
    traffic:
      rate: {mean: 4/s, peak: 12/s}
      shape: diurnal
      input_tokens: {mean: 1500, p95: 4000}
      output_tokens: {mean: 200}
      slo: {ttft_p95: 4s, tpot_p95: 120ms}
fleet: {providers: [gcp], regions: [us-central1], accelerators: {allow: [L4]}}
"""


def planned(folder: Path, field: str, text: str = WORKLOAD) -> Any:
    path = folder / "w.yaml"
    path.write_text(text.replace("AUTOSCALING", field))
    assert main(["plan", str(path), "-o", str(folder / "out"), "--quiet"]) == 0
    return json.loads((folder / "out" / "plan.json").read_text())


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plan with an autoscaler."""
    folder = tmp_path_factory.mktemp("scaled")
    planned(folder, "autoscaling: hpa")
    return folder / "out"


def test_the_day_costs_less_than_the_peak_and_more_than_the_bound(scaled: Path) -> None:
    (entry,) = json.loads((scaled / "plan.json").read_text())["autoscaling"]
    day = entry["day"]
    assert day["perfect_gpu_hours"] < day["gpu_hours"] < day["static_gpu_hours"]
    assert day["usd"] < day["static_usd"]
    assert day["achieved_share"] >= 0.95
    assert entry["min_replicas"] == 2  # in production a lost node leaves one
    assert day["requests"] == pytest.approx(4 * 86_400, rel=0.02)
    trials = entry["trials"]
    assert len(trials) <= 11
    assert {trial["down_window_s"] for trial in trials} == {60.0, 300.0, 900.0}
    holding = [trial["usd"] for trial in trials if trial["holds"]]
    assert holding == sorted(holding)
    assert [trial["holds"] for trial in trials] == sorted((trial["holds"] for trial in trials), reverse=True)


def test_the_manifest_has_the_numbers_of_the_plan(scaled: Path) -> None:
    plan = json.loads((scaled / "plan.json").read_text())
    (entry,) = plan["autoscaling"]
    made = list(yaml.safe_load_all((scaled / "kubernetes" / "all.yaml").read_text()))
    (hpa,) = [found["spec"] for found in made if found["kind"] == "HorizontalPodAutoscaler"]
    target = hpa["metrics"][0]["external"]["target"]["averageValue"]
    assert float(target.removesuffix("m")) / (1000.0 if target.endswith("m") else 1.0) == entry["target"]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (entry["min_replicas"], entry["max_replicas"])
    assert hpa["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == entry["down_window_s"]
    (deployment,) = [found for found in made if found["kind"] == "Deployment"]
    assert "replicas" not in deployment["spec"]
    (sizes,) = [d["replicas"] for d in plan["models"][0]["deployments"]]
    assert sizes == {"min": entry["min_replicas"], "steady": sizes["steady"], "max": entry["max_replicas"]}
    assert plan["pools"][0]["nodes_max"] > plan["pools"][0]["nodes"]


def test_the_same_settings_simulated_are_the_day_of_the_plan(
    scaled: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (entry,) = json.loads((scaled / "plan.json").read_text())["autoscaling"]
    setting = (
        f"{{kind: hpa, signal: {entry['signal']}, target: {entry['target']}, min: {entry['min_replicas']}, "
        f"max: {entry['max_replicas']}, up_window: {entry['up_window_s']}s, down_window: {entry['down_window_s']}s}}"
    )
    assert main(["simulate", str(scaled), "--autoscaler", setting, "--json"]) == 0
    found = json.loads(capfdbinary.readouterr().out)
    assert found["gpu_hours"] == pytest.approx(entry["day"]["gpu_hours"], rel=1e-6)
    assert found["requests"] == entry["day"]["requests"]


def test_the_kind_alone_takes_what_the_plan_tuned(scaled: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (entry,) = json.loads((scaled / "plan.json").read_text())["autoscaling"]
    assert main(["simulate", str(scaled), "--autoscaler", "hpa", "--json"]) == 0
    found = json.loads(capfdbinary.readouterr().out)
    assert found["gpu_hours"] == pytest.approx(entry["day"]["gpu_hours"], rel=1e-6)
    (note,) = [note for note in found["notes"] if "as the plan tuned it" in note]
    assert f"{entry['signal']} {entry['target']:g} a replica" in note
    assert main(["simulate", str(scaled), "--autoscaler", "keda", "--horizon", "2h", "--json"]) in (0, 1)
    (note,) = [
        note for note in json.loads(capfdbinary.readouterr().out)["notes"] if "the plan tuned is for hpa" in note
    ]
    assert "keda" in note


def test_terminal_and_page_tell_what_a_day_costs(
    scaled: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.yaml").write_text(WORKLOAD.replace("AUTOSCALING", "autoscaling: {kind: keda, target: 13, min: 1}"))
    assert main(["plan", str(tmp_path / "w.yaml")]) == 0
    shown = capfd.readouterr().out
    assert "KEDA, 13 requests in flight a replica, 1 to" in shown
    assert "a day of traffic: $" in " ".join(shown.split())
    page = (scaled / "report.html").read_text()
    assert "Autoscaling over a day" in page
    assert "Settings that were tried" in page


def test_stated_settings_stay(tmp_path: Path) -> None:
    plan = planned(tmp_path, "autoscaling: {kind: keda, target: 13, min: 2, max: 20, down_window: 10m}")
    (entry,) = plan["autoscaling"]
    stated = {name: entry[name] for name in ("kind", "target", "min_replicas", "max_replicas", "down_window_s")}
    assert stated == {"kind": "keda", "target": 13.0, "min_replicas": 2, "max_replicas": 20, "down_window_s": 600.0}
    assert len(entry["trials"]) == 2  # with and without a window on the way up
    assert "autoscaling" in plan["workload"]["models"][0]


def test_what_saves_nothing_is_not_autoscaled_and_the_plan_says_why(tmp_path: Path) -> None:
    plan = planned(tmp_path, "autoscaling: {kind: hpa, min: 40, max: 40}")
    assert plan["autoscaling"] == []
    (warning,) = [found for found in plan["warnings"] if found["code"] == "RS5015"]
    assert warning["message"].startswith("not autoscaled: ")
    assert "HorizontalPodAutoscaler" not in (tmp_path / "out" / "kubernetes" / "all.yaml").read_text()
