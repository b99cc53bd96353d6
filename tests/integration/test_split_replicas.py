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
    assert faster["per_model"][0]["ttft_ms"] == chat["ttft_ms"]


@pytest.mark.parametrize(
    ("split", "options", "words"),
    [
        ("{prefil: 2}", (), "prefill"),
        ("{prefill: 0, decode: 1}", (), "prefill: input should be greater"),
        ("{prefill: 1, decode: 1}", ("--autoscaler", "hpa"), "no autoscaler, fault or rollout"),
    ],
)
def test_mistakes(
    plan: Path, split: str, options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(plan), "--set", f"models.llm.disaggregation={split}", *options]) == 2
    assert words in capsys.readouterr().err
