"""The three experiments with three A100s through the command line: plans, manifests, and the published totals."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rightslice.ui.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "gpu-sharing"
CASE = json.loads((EXAMPLES / "published.json").read_text())
DOCS = (ROOT / "docs" / "gpu-sharing.md").read_text(encoding="utf-8")

Heavy = Callable[[str], Any]


def tool() -> ModuleType:
    path = ROOT / "tools" / "gpu_sharing_case.py"
    spec = importlib.util.spec_from_file_location("gpu_sharing_case", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL: Any = tool()
FITTED = TOOL.Fitted(**CASE["fitted"])


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the three plans."""
    folder = tmp_path_factory.mktemp("gpu-sharing")
    for name in TOOL.EXPERIMENTS:
        assert main(["plan", str(EXAMPLES / f"{name}.yaml"), "-o", str(folder / name), "--quiet"]) == 0
    return {name: folder / name for name in TOOL.EXPERIMENTS}


@pytest.fixture
def heavy(plans: dict[str, Path], capfdbinary: pytest.CaptureFixture[bytes]) -> Heavy:
    """One experiment's heavy users with the fitted numbers on top."""

    def run(name: str) -> Any:
        capfdbinary.readouterr()
        changes = [word for text in FITTED.changes(name, 1.0) for word in ("--set", text)]
        main(["simulate", str(plans[name]), "--users", "heavy", *changes, "--json"])
        return json.loads(capfdbinary.readouterr().out)

    return run


def planned(folder: Path) -> Any:
    return json.loads((folder / "plan.json").read_text())


@pytest.mark.parametrize("name", TOOL.EXPERIMENTS)
def test_each_plans_what_it_pins(plans: dict[str, Path], name: str) -> None:
    plan = planned(plans[name])
    assert (EXAMPLES / f"{name}.yaml").read_text().startswith("# Question: ")
    assert plan["feasible"]
    assert plan["verification"]["failed"] == 0
    assert plan["slo_probability"] > 0.95
    gpus = sum(pool["nodes"] * pool["gpus_per_node"] for pool in plan["pools"])
    assert gpus == (3 if name == "dedicated" else 2)
    partitions = {model["name"]: model["deployments"][0]["partition"] for model in plan["models"]}
    speech = {"dedicated": "whole", "time-slicing": "time-slicing", "mig": "3g.40gb"}[name]
    assert partitions == {"asr": speech, "llm": "whole", "tts": speech}


def test_the_time_sliced_plan_says_what_it_risks_and_emits_it(plans: dict[str, Path]) -> None:
    plan = planned(plans["time-slicing"])
    assert sorted(pool["sharing"] for pool in plan["pools"]) == ["none", "time-slicing"]
    together = [p["slots"] for p in plan["placements"] if len(p["slots"]) == 2]
    assert [[slot["model"] for slot in slots] for slots in together] == [["asr", "tts"]]
    warned = {w["subject"]: w["message"] for w in plan["warnings"] if w["code"] == "RS5010"}
    assert "shares its GPU with tts by time-slicing" in warned["asr"]
    emitted = (plans["time-slicing"] / "kubernetes" / "gpu-operator" / "configmap.yaml").read_text()
    found = yaml.safe_load(yaml.safe_load(emitted)["data"]["time-slicing-2"])["sharing"]["timeSlicing"]
    assert found["renameByDefault"] is True
    assert found["failRequestsGreaterThanOne"] is True
    assert found["resources"] == [{"name": "nvidia.com/gpu", "replicas": 2}]
    cut = (plans["mig"] / "kubernetes" / "gpu-operator" / "configmap.yaml").read_text()
    assert "3g.40gb: 2" in yaml.safe_load(cut)["data"]["config.yaml"]
    report = (plans["time-slicing"] / "report.html").read_text(encoding="utf-8")
    assert "time-slicing" in report


def faulty(folder: Path, fault: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    capfdbinary.readouterr()
    main(["simulate", str(folder), "--users", "heavy", "--fault", fault, "--json"])
    return json.loads(capfdbinary.readouterr().out)


def test_a_node_with_whole_and_cut_gpus_is_cut_anew(
    plans: dict[str, Path], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    cuts = [use["profiles"] for pool in planned(plans["mig"])["pools"] for use in pool["layouts"]]
    assert {"3g.40gb": 2} in cuts
    assert {} in cuts
    found = faulty(plans["mig"], "repartition@2m", capfdbinary)
    assert found["lost"] == 0
    waited = [found["pipelines"][0]["e2e_ms"]["p99"], faulty(plans["mig"], "zone:b@2m", capfdbinary)]
    assert waited[0] > 60_000 > waited[1]["pipelines"][0]["e2e_ms"]["p99"]  # nothing stands in the other zone


def test_clients_of_mps_crash_together(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = (EXAMPLES / "time-slicing.yaml").read_text().replace("partition: time-slicing", "partition: mps")
    (tmp_path / "w.yaml").write_text(text)
    assert main(["plan", str(tmp_path / "w.yaml"), "-o", str(tmp_path / "plan"), "--no-emit", "--quiet"]) == 0
    calm = faulty(tmp_path / "plan", "mps@6m", capfdbinary)
    found = faulty(tmp_path / "plan", "mps@2m", capfdbinary)
    (crash,) = found["preemptions"]
    assert (crash["time_s"], crash["cause"]) == (120.0, "pod")
    assert sorted(crash["replicas"]) == ["asr-0", "tts-0"]  # one event, both clients of the GPU
    assert found["requeued"] == crash["requests_requeued"] > 0
    assert found["lost"] == found["failed"] == 0
    assert found["completed"] < calm["completed"]


@pytest.mark.parametrize("faults", [["mps@2m"], ["mps@2m", "gpu@1m"]])
def test_mps_faults_need_mps_and_no_other_fault(
    plans: dict[str, Path], faults: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    options = [word for fault in faults for word in ("--fault", fault)]
    assert main(["simulate", str(plans["time-slicing"]), *options, "--json"]) == 2
    assert "RS0502" in capfdbinary.readouterr().out.decode()


def test_three_fitted_numbers_give_the_published_totals(heavy: Heavy) -> None:
    """1.52 : 2.00 requests/s, 0.76 and 1.00 per GPU, within 5 %; every request answered."""
    assert len(CASE["fitted"]) <= 3
    totals = {}
    for name in ("time-slicing", "mig"):
        found, published = heavy(name), CASE["published"][name]
        totals[name] = found["pipelines"][0]["requests_per_s"]
        assert found["requests_per_s_per_gpu"] == pytest.approx(published["requests_per_s_per_gpu"], rel=0.05)
        assert totals[name] == pytest.approx(2 * published["requests_per_s_per_gpu"], rel=0.05)
        assert found["completed"] == found["requests"]
        llm_ms = found["pipelines"][0]["per_stage"][1]["e2e_ms"]["mean"]
        assert llm_ms == pytest.approx(1e3 * CASE["published"]["llm_s"], rel=0.05)
    assert totals["time-slicing"] / totals["mig"] == pytest.approx(1.52 / 2.00, rel=0.05)


def test_speech_comes_faster_from_a_shared_gpu_than_from_a_slice(heavy: Heavy) -> None:
    """144.7 against 168.2 ms: nobody is in the way most of the time, and a slice has fewer SMs all the time."""
    for name in ("time-slicing", "mig"):
        tts_ms = heavy(name)["pipelines"][0]["per_stage"][2]["e2e_ms"]["mean"]
        assert tts_ms == pytest.approx(CASE["published"][name]["tts_ms"], rel=0.02)


def test_no_published_time_explains_the_gap_between_the_mechanisms() -> None:
    """Without the fitted numbers the laws see no difference of throughput; 7 s of a cycle are left over."""
    gap_s = TOOL.USERS / 1.52 - TOOL.USERS / 2.00
    assert gap_s == pytest.approx(7.1, abs=0.05)
    assert CASE["fitted"]["more_with_time_slicing_s"] == pytest.approx(gap_s, rel=0.15)


def test_the_light_run_of_the_harness_needs_no_fit() -> None:
    """193 requests, 1.462 a second: from its own stage times within 5 %."""
    run = CASE["light_run"]
    assert run["llm_ttft_ms"] + run["tts_ms"] == pytest.approx(run["first_audio_ms"])
    found = TOOL.light_run(run)
    assert found.completed == pytest.approx(run["requests"], rel=0.05)
    assert found.requests_per_s == pytest.approx(run["requests_per_s"], rel=0.05)
    assert found.e2e_ms is not None
    assert found.e2e_ms.mean == pytest.approx(run["total_ms"], rel=0.05)


def test_the_page_shows_the_four_parts_as_the_tool_prints_them(plans: dict[str, Path]) -> None:
    results = {name: TOOL.replayed(plans[name], name, FITTED, 1.0) for name in TOOL.EXPERIMENTS}
    table = TOOL.table(results, CASE, FITTED)
    assert table in DOCS
    for part in ("published", "derived", "fitted", "unexplained"):
        assert f"| {part} |" in table


def test_the_plans_do_not_know_the_fitted_numbers(plans: dict[str, Path]) -> None:
    for folder in plans.values():
        text = (folder / "plan.json").read_text()
        assert str(CASE["fitted"]["answer_tokens"]) not in json.dumps(json.loads(text)["workload"])
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert "published.json" not in sources


def test_more_tenants_than_the_gpu_has_room_for_are_an_honest_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES / "time-slicing.yaml").read_text().replace("memory: 9.6GB", "memory: 70GB")
    path = tmp_path / "crowded.yaml"
    path.write_text(text)
    assert main(["plan", str(path)]) == 1
    assert "together need 78.9 GiB, of one GPU 75.3 GiB may be filled" in " ".join(capsys.readouterr().out.split())
