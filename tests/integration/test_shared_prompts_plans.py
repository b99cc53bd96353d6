"""Shared prompts, routers, priorities and recorded blocks from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rightslice.ui.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
MOONCAKE = Path(__file__).parents[1] / "data" / "traces" / "mooncake_fast25_conversation_head.jsonl"
HEAD = "apiVersion: rightslice/v1\nkind: Workload\nmetadata: {name: w}\n"
FLEET = "fleet: {providers: [gcp], regions: [us-central1], accelerators: {allow: [A100-SXM-80GB]}}\n"

Answer = Callable[..., tuple[int, Any]]


def planned(folder: Path, traffic: str, model: str = "min_replicas: 1") -> dict[str, Any]:
    (folder / "w.yaml").write_text(
        f"{HEAD}models:\n  - name: llm\n    source: meta-llama/Llama-3.1-8B-Instruct\n    {model}\n"
        f"    traffic: {traffic}\n{FLEET}"
    )
    assert main(["plan", str(folder / "w.yaml"), "-o", str(folder), "--quiet"]) == 0
    document: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return document


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the planned example with long instructions and sessions."""
    folder = tmp_path_factory.mktemp("shared")
    assert main(["plan", str(EXAMPLES / "shared-prompts.yaml"), "-o", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture
def simulated(capfdbinary: pytest.CaptureFixture[bytes]) -> Answer:
    def run(*arguments: object) -> tuple[int, Any]:
        capfdbinary.readouterr()
        code = main(["simulate", *map(str, arguments), "--json"])
        return code, json.loads(capfdbinary.readouterr().out)

    return run


def chat(found: Any) -> dict[str, Any]:
    (only,) = found["per_model"]
    result: dict[str, Any] = only
    return result


def test_the_plan_tells_what_is_found_and_what_could_be(shared: Path, simulated: Answer) -> None:
    plan = json.loads((shared / "plan.json").read_text())
    (hits,) = plan["models"][0]["prefix_hits"]
    assert hits["traffic_class"] == "chat"
    assert 0.5 < hits["realised"] < hits["ceiling"] < 0.9
    _, found = simulated(shared)
    assert (chat(found)["prefix_hit_rate"], chat(found)["prefix_hit_ceiling"]) == (hits["realised"], hits["ceiling"])
    report = (shared / "report.html").read_text()
    assert "of prompt tokens from prefix caches" in report


def test_a_router_that_knows_prefixes_beats_one_that_does_not(shared: Path, simulated: Answer) -> None:
    found = {
        router: simulated(shared, "--set", f"models.chat.router={router}")
        for router in ("prefix_aware", "kv_aware", "power_of_two", "least_requests", "round_robin")
    }
    rates = {router: chat(answer)["prefix_hit_rate"] for router, (_, answer) in found.items()}
    assert rates["prefix_aware"] == max(rates.values())
    assert rates["round_robin"] < rates["prefix_aware"] - 0.1
    assert len(set(rates.values())) == 5
    best, worst = chat(found["prefix_aware"][1]), chat(found["round_robin"][1])
    assert best["ttft_ms"]["p95"] < 0.6 * worst["ttft_ms"]["p95"]
    assert found["prefix_aware"][0] == 0
    assert {answer["requests"] for _, answer in found.values()} == {found["prefix_aware"][1]["requests"]}


def test_stale_signals_find_less(shared: Path, simulated: Answer) -> None:
    kept = "models.chat.router={policy: kv_aware, signal_age: 60s}"
    _, fresh = simulated(shared, "--set", "models.chat.router=kv_aware")
    _, stale = simulated(shared, "--set", kept)
    assert chat(stale)["ttft_ms"]["p95"] > chat(fresh)["ttft_ms"]["p95"]


def test_without_its_cache_the_same_fleet_misses(shared: Path, simulated: Answer) -> None:
    code, found = simulated(shared, "--set", "models.chat.engine.prefix_caching=false")
    assert chat(found)["prefix_hit_rate"] == 0.0
    assert chat(found)["prefix_hit_ceiling"] > 0.5
    _, cached = simulated(shared)
    assert chat(found)["ttft_ms"]["p50"] > 3 * chat(cached)["ttft_ms"]["p50"]
    assert code == 1 or chat(found)["slo_attainment"] < chat(cached)["slo_attainment"]


def test_the_terminal_shows_both_rates(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", str(shared)])
    said = " ".join(capsys.readouterr().out.split())
    assert "of prompt tokens from prefix caches" in said
    assert "with one without limit" in said


@pytest.mark.parametrize(
    ("change", "rule", "said"),
    [
        ("models.chat.router=prefix-aware", "RS0109", "prefix_aware"),
        ("models.chat.router=round_robbin", "RS0109", "round_robin"),
        ("models.chat.router={policy: kv_aware, signal_ag: 1s}", "RS0201", "signal_age"),
        ("models.chat.router={policy: kv_aware, signal_age: 1}", "RS0108", ""),
        ("models.chat.engine.prefix_cachin=true", "RS0201", "prefix_caching"),
        ("models.chat.engine.prefix_caching=sometimes", "RS0105", "true or false"),
        ("models.chat.traffic.prefix.tokens=many", "RS0107", ""),
        ("models.chat.traffic.prefix_hit_rate=0.4", "RS0204", "prefix.tokens"),
    ],
)
def test_unknown_values_are_one_diagnostic_with_the_nearest(
    shared: Path, change: str, rule: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(shared), "--set", change]) == 2
    err = capsys.readouterr().err
    assert rule in err
    assert said in err
    assert "Traceback" not in err


def test_priorities_share_a_model_and_bring_their_flag(tmp_path: Path, simulated: Answer) -> None:
    lengths = "input_tokens: {mean: 1500, p95: 4000}, output_tokens: {mean: 200}"
    urgent = f"{{class: chat, rate: 3/s, {lengths}, priority: 5, slo: {{ttft_p95: 2s, tpot_p95: 90ms}}}}"
    nightly = '{class: nightly, tokens: 2e8, input_tokens: 2000, output_tokens: 300, deadline: "06:00", priority: 0}'
    plan = planned(tmp_path, f"[{urgent}, {nightly}]")
    (deployment,) = plan["models"][0]["deployments"]
    assert deployment["engine"]["args"]["--scheduling-policy"] == "priority"
    manifests = "".join(path.read_text() for path in (tmp_path / "kubernetes").rglob("*.yaml"))
    assert "--scheduling-policy" in manifests
    assert any("priority with each request" in warning["message"] for warning in plan["warnings"])
    code, found = simulated(tmp_path)
    by_class = {c["class"]: c for c in found["per_model"]}
    assert code == 0
    assert by_class["nightly"]["completed"] >= 0.9 * by_class["nightly"]["requests"]
    flooded = ["--set", "models.llm.traffic.nightly.tokens=1e10", "--set", "models.llm.replicas=1", "--horizon", "10m"]
    _, ranked = simulated(tmp_path, *flooded)
    _, equal = simulated(tmp_path, *flooded, "--set", "models.llm.traffic.chat.priority=0")
    first, last = ({c["class"]: c for c in run["per_model"]} for run in (ranked, equal))
    assert first["chat"]["completed"] >= 0.9 * first["chat"]["requests"]
    assert last["chat"]["completed"] < 0.5 * last["chat"]["requests"]


def test_equal_priorities_bring_no_flag_and_nothing_is_said_of_caches(tmp_path: Path) -> None:
    plan = planned(tmp_path, "{rate: 1/s, input_tokens: 900, output_tokens: 100, slo: {ttft_p95: 2s}}")
    (deployment,) = plan["models"][0]["deployments"]
    assert "--scheduling-policy" not in deployment["engine"]["args"]
    assert plan["models"][0]["prefix_hits"] == []


def test_a_timeout_is_a_failure_that_is_told(tmp_path: Path, simulated: Answer) -> None:
    planned(tmp_path, "{rate: 1/s, input_tokens: 900, output_tokens: 100, timeout: 5s, slo: {ttft_p95: 2s}}")
    code, found = simulated(tmp_path, "--rate", "200/s", "--horizon", "2m")
    assert code == 1
    assert chat(found)["timed_out"] == chat(found)["failed"] > 0


def test_recorded_blocks_give_hits(tmp_path: Path, simulated: Answer) -> None:
    (tmp_path / "t.jsonl").write_text(MOONCAKE.read_text())
    traffic = "{trace: t.jsonl, slo: {ttft_p95: 60s}}"
    plan = planned(tmp_path, traffic, "min_replicas: 2\n    router: prefix_aware\n    max_context: 131072")
    (hits,) = plan["models"][0]["prefix_hits"]
    assert 0.0 < hits["realised"] <= hits["ceiling"]
    _, found = simulated(tmp_path, "--set", "models.llm.router=round_robin")
    assert chat(found)["prefix_hit_rate"] < hits["realised"]
    assert chat(found)["prefix_block_tokens"] == 512
    _, once = simulated(tmp_path, "--trace", MOONCAKE)  # a plan's verification repeats a short trace
    assert 0.0 < chat(once)["prefix_hit_rate"] <= chat(once)["prefix_hit_ceiling"]
    assert chat(once)["requests"] < chat(found)["requests"]


def test_a_stated_rate_is_a_ceiling(tmp_path: Path) -> None:
    traffic = (
        "{class: chat, rate: 4/s, input_tokens: {mean: 1500, p95: 4000}, output_tokens: {mean: 200}, "
        "sessions: {turns: 6, gap: 30s, carries_history: true}, prefix_hit_rate: 0.3, slo: {ttft_p95: 4s}}"
    )
    plan = planned(tmp_path, traffic, "max_context: 16384")
    (hits,) = plan["models"][0]["prefix_hits"]
    assert hits["ceiling"] == pytest.approx(0.3, abs=0.03)
    assert 0.0 < hits["realised"] <= hits["ceiling"]
    assert any("limits what its sessions share" in text for text in plan["assumptions"])
