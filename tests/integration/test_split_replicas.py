"""`simulate --set models.NAME.disaggregation=…` on a plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rightslice.ui.cli.main import main

WORKLOAD = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: split}
models:
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    traffic: {rate: 4/s, input_tokens: 1000, output_tokens: 100, slo: {ttft_p95: 4s}}
fleet: {providers: [gcp], regions: [us-central1], accelerators: {allow: [L4]}}
"""
KV_BYTES_PER_TOKEN = 32 * 8 * 128 * 2 * 2
"""Layers, KV heads, head size, keys and values, bf16."""

Answer = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("split")
    (folder / "w.yaml").write_text(WORKLOAD)
    assert main(["plan", str(folder / "w.yaml"), "-o", str(folder / "plan"), "--quiet"]) == 0
    return folder / "plan"


@pytest.fixture
def simulated(plan: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Answer:
    def run(split: str, *options: str) -> tuple[int, Any]:
        capfdbinary.readouterr()
        code = main(["simulate", str(plan), "--set", f"models.llm.disaggregation={split}", *options, "--json"])
        return code, json.loads(capfdbinary.readouterr().out)

    return run


def test_both_sides_work_and_the_cache_takes_its_time(simulated: Answer) -> None:
    _, found = simulated("{prefill: 2, decode: 3, link_gbps: 10}")
    busy = {(r["deployment"], r["replica"]): r["busy_share"] for r in found["replicas"]}
    assert sorted(busy) == [
        (f"llm/{k}", n) for k, count in (("decode", 3), ("link", 2), ("prefill", 2)) for n in range(count)
    ]
    assert all(share > 0.0 for share in busy.values())
    (chat,) = found["per_model"]
    mean_ms = 1000 * KV_BYTES_PER_TOKEN * 8 / 10e9 * 1e3
    assert chat["transfer_ms"]["mean"] > 0.9 * mean_ms
    assert chat["completed"] + chat["failed"] <= chat["requests"]
    assert any("aggregated, on 5 replicas: TTFT" in note for note in found["notes"])
    _, faster = simulated("{prefill: 2, decode: 3, link_gbps: 400}")
    assert faster["per_model"][0]["transfer_ms"]["mean"] < chat["transfer_ms"]["mean"] / 20
    assert faster["per_model"][0]["ttft_ms"] == pytest.approx(chat["ttft_ms"], rel=1e-3)


@pytest.mark.parametrize(
    ("split", "options", "words"),
    [
        ("{prefil: 2}", (), "prefill"),
        ("{prefill: 0, decode: 1}", (), "prefill: input should be greater"),
        ("{prefill: 1, decode: 1}", ("--autoscaler", "hpa"), "what a replica of a split model carries"),
        ("{prefill: 1, decode: 1}", ("--autoscaler", "perfect"), "what a replica of a split model carries"),
    ],
)
def test_mistakes(
    plan: Path, split: str, options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(plan), "--set", f"models.llm.disaggregation={split}", *options]) == 2
    assert words in capsys.readouterr().err


SPLIT = "{prefill: 3, decode: 3, link_gbps: 10}"


def test_both_sides_lose_what_their_zone_holds_and_nothing_is_lost_silently(simulated: Answer) -> None:
    _, found = simulated(SPLIT, "--fault", "zone@10m", "--horizon", "1h")
    assert {event["time_s"] for event in found["preemptions"]} == {600.0}
    lost = {name.rsplit("-", 1)[0] for event in found["preemptions"] for name in event["replicas"]}
    assert lost == {"llm/prefill", "llm/decode"}
    assert found["requeued"] == sum(event["requests_requeued"] for event in found["preemptions"]) > 0
    unfinished = found["requests"] - found["completed"] - found["failed"]
    assert found["lost"] == found["failed"] == 0
    assert 0 <= unfinished < 100


def test_a_crash_takes_what_is_on_the_replicas_link(simulated: Answer) -> None:
    """A slow link holds most of the requests: they are computed again, for nobody has their cache any more."""
    slow = "{prefill: 3, decode: 3, link_gbps: 0.5}"
    _, found = simulated(slow, "--fault", "pods@10m", "--horizon", "20m")
    (prefill,) = [event for event in found["preemptions"] if event["replicas"] == ["llm/prefill-0"]]
    assert prefill["requests_requeued"] > 3
    assert found["completed"] > 0


def test_each_side_follows_its_own_load(simulated: Answer) -> None:
    """Three replicas of either hold fewer than 6 prompts each and more than 6 answers."""
    asked = "{kind: hpa, target: 6, min: 1, max: 5, down_window: 1m}"
    _, found = simulated(SPLIT, "--autoscaler", asked, "--horizon", "10m")
    first = {event["model"]: event["to"] for event in reversed(found["scale_events"])}
    assert first["llm/decode"] > 3 > first["llm/prefill"]
    assert any("llm/decode: hpa" in note for note in found["notes"])


def test_an_update_reaches_both_sides(simulated: Answer) -> None:
    _, found = simulated(SPLIT, "--rollout", "10m", "--horizon", "1h")
    assert sorted(update["deployment"] for update in found["rollouts"]) == ["llm/decode", "llm/prefill"]
    assert found["lost"] == 0
