"""Emitted trees as the tools read them that will: kubectl's Kustomize, promtool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from plans import EVERY, with_objectives
from plans_scaled import gated, scaled
from rightslice.app.emitting import verified
from rightslice.core.documents import to_json
from rightslice.core.plan import Plan
from rightslice.kube.objects import identity
from rightslice.manifests.render import render
from rightslice.ui.cli.main import main

OVERLAYS = ("gke", "eks", "aks", "on-prem")
PLANS: dict[str, Callable[[], Plan]] = {**EVERY, "gated": lambda: gated(scaled("keda", least=1))}


def written(plan: Plan, folder: Path) -> dict[str, str]:
    files = dict(render(plan))
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return files


@pytest.mark.parametrize("name", sorted(PLANS))
def test_kustomize_builds_all_yaml_and_every_overlay(name: str, tmp_path: Path) -> None:
    files = written(PLANS[name](), tmp_path)

    def kustomized(folder: Path) -> dict[Any, Any]:
        done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return {identity(found): found for found in yaml.safe_load_all(done.stdout)}

    whole = {identity(found): found for found in yaml.safe_load_all(files["all.yaml"])}
    assert kustomized(tmp_path) == whole
    for overlay in OVERLAYS:
        made = kustomized(tmp_path / "overlays" / overlay)
        assert {key: made[key] for key in whole} == whole
        (gateway,) = [found for key, found in made.items() if key.kind == "Gateway"]
        expected = "gke-l7-regional-external-managed" if overlay == "gke" else "istio"
        assert gateway["spec"]["gatewayClassName"] == expected


MINUTES = 8 * 60


def input_series(alert: str, expression: str, *, firing: bool) -> Iterator[dict[str, str]]:
    """Series over eight hours, a value a minute, that make the alert fire or keep it silent."""
    count = f"x{MINUTES}"
    namespace = (re.findall(r'namespace="([^"]+)"', expression) or [""])[0]
    pattern = (re.findall(r'pod=~"\(([^)|]+)', expression) or ["x"])[0]
    grouped = "[0-9]+(-[0-9]+)?" in expression
    labels = f'namespace="{namespace}",pod="{pattern}{"-0" if grouped else "-7d9f8b6c5-x2x4z"}"'
    metrics = re.findall(r"([a-z][a-z0-9_:]+)\{", expression)
    if "Burns" in alert:
        (edge,) = set(re.findall(r'le=~"([^"|]+)', expression))
        yield {"series": f'{metrics[0]}{{{labels},le="{edge}"}}', "values": f"0+{0 if firing else 60}{count}"}
        yield {"series": f"{metrics[1]}{{{labels}}}", "values": f"0+60{count}"}
    elif alert == "RightslicePreempts":
        yield {"series": f"{metrics[0]}{{{labels}}}", "values": f"0+{6 if firing else 1}{count}"}
        yield {"series": f"{metrics[1]}{{{labels}}}", "values": f"0+60{count}"}
    elif alert == "RightsliceNoMetrics":
        name = metrics[0] if not firing else "something_else"
        yield {"series": f"{name}{{{labels}}}", "values": f"1+0{count}"}
    elif alert == "RightsliceIdle":
        for metric, busy in zip(metrics, (1, 0), strict=True):
            yield {"series": f"{metric}{{{labels}}}", "values": f"{0 if firing else busy}+0{count}"}
    elif alert == "RightsliceKvCacheFull":
        yield {"series": f"{metrics[0]}{{{labels}}}", "values": f"{0.95 if firing else 0.5}+0{count}"}
    elif alert == "RightsliceQueueGrows":
        limit = eval(expression.rpartition(">")[2])  # noqa: S307 - a product of two numbers of ours
        yield {"series": f"{metrics[0]}{{{labels}}}", "values": f"{limit + 1 if firing else 0}+0{count}"}
    elif alert == "RightsliceStartsSlowly":
        waits = f'{metrics[0]}{{condition="false",{labels}}}'
        yield {"series": waits, "values": f"{1 if firing else 0}+0{count}"}
    elif alert == "RightsliceNoReplica":
        name = re.findall(r'deployment=~"([^"|]+)', expression)[0]
        series = f'{metrics[0]}{{namespace="{namespace}",deployment="{name}"}}'
        yield {"series": series, "values": f"{0 if firing else 1}+0{count}"}
    elif alert in ("RightsliceMoreNodesThanPlanned", "RightsliceOverBudget"):
        pool = re.findall(r'label_rightslice_pool=~?"([^"|]+)', expression)[0]
        for node in range(40 if firing else 1):
            yield {
                "series": f'kube_node_labels{{node="n{node}",label_rightslice_pool="{pool}"}}',
                "values": f"1+0{count}",
            }
    else:
        raise AssertionError(f"no series for {alert}")


def _of_absence(expression: str) -> dict[str, str]:
    """`absent` has the labels that its selector states."""
    return dict(re.findall(r'(namespace)="([^"]+)"', expression)) if expression.startswith("absent(") else {}


@pytest.mark.needs_debian("prometheus")
@pytest.mark.parametrize("name", ["gated", "large-llm", "two-nodes", "voice"])
def test_every_alert_fires_and_stays_silent_as_it_should(name: str, tmp_path: Path) -> None:
    files = render(with_objectives(PLANS[name]()))
    groups = yaml.safe_load(files["components/monitoring/prometheusrule.yaml"])["spec"]["groups"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}), "utf-8")
    tests = []
    for group in groups:
        for rule in group["rules"]:
            for firing in (True, False):
                said = {
                    "exp_labels": {**rule["labels"], **_of_absence(rule["expr"])},
                    "exp_annotations": rule["annotations"],
                }
                tests.append(
                    {
                        "interval": "1m",
                        "input_series": list(input_series(rule["alert"], rule["expr"], firing=firing)),
                        "alert_rule_test": [
                            {
                                "eval_time": "7h50m",
                                "alertname": rule["alert"],
                                "exp_alerts": [said] if firing else [],
                            }
                        ],
                    }
                )
    # Each rule alone: two windows or two models give alerts of one name, which promtool would take together.
    ruled = [rule for group in groups for rule in group["rules"] for _ in (True, False)]
    for number, (test, rule) in enumerate(zip(tests, ruled, strict=True)):
        file = tmp_path / f"rule-{number}.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}), "utf-8")
        test_file = tmp_path / f"test-{number}.yaml"
        test_file.write_text(yaml.safe_dump({"rule_files": [file.name], "tests": [test]}), "utf-8")
    every = [str(tmp_path / f"test-{number}.yaml") for number in range(len(tests))]
    done = subprocess.run(
        ["promtool", "test", "rules", *every], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    names = {rule["alert"] for group in groups for rule in group["rules"]}
    assert {"RightsliceStartsSlowly", "RightsliceMoreNodesThanPlanned", "RightsliceOverBudget"} <= names
    if name == "large-llm":
        assert len(names) == 15


@pytest.mark.needs_debian("prometheus")
def test_emit_verifies_and_writes(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(EVERY["voice"]()), "utf-8")
    assert main(["emit", str(plan), "-o", str(tmp_path / "out"), "--verify", "--json"]) == 0
    found = json.loads(capsysbinary.readouterr()[0])
    assert {check["passed"] for check in found["checks"]} == {True}
    assert {"overlays/gke/", "components/monitoring/prometheusrule.yaml"} <= {c["what"] for c in found["checks"]}
    assert (tmp_path / "out" / "overlays" / "eks" / "kustomization.yaml").is_file()
    assert sorted(found["files"]) == sorted(
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    )


def test_a_check_that_cannot_run_says_how_to_get_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    checks = list(verified(render(EVERY["voice"]())))
    assert checks
    assert {check.passed for check in checks} == {None}
    assert any("kubectl is not installed" in check.said for check in checks)


def test_a_broken_tree_fails_its_check() -> None:
    files = {**render(EVERY["voice"]()), "overlays/gke/kustomization.yaml": "resources: [../../nothing]\n"}
    broken = [check for check in verified(files) if check.passed is False]
    assert [check.what for check in broken] == ["overlays/gke/"]
    assert "nothing" in broken[0].said


def test_mirrors_take_the_place_of_registries_and_hub(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(EVERY["large-llm"]()), "utf-8")
    mirrors = ("--registry-prefix", "registry.local:5000/ai", "--hub-endpoint", "https://hub.local")
    assert main(["emit", str(plan), "-o", str(tmp_path / "out"), *mirrors]) == 0
    (made,) = [
        found
        for found in yaml.safe_load_all((tmp_path / "out" / "all.yaml").read_text("utf-8"))
        if found["kind"] == "Deployment"
    ]
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert container["image"].startswith("registry.local:5000/ai/vllm/vllm-openai:v")
    assert {"name": "HF_ENDPOINT", "value": "https://hub.local"} in container["env"]
    page = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "published as `docker.io/vllm/vllm-openai:v" in page
    assert "| weights | `meta-llama/Llama-3.3-70B-Instruct` | 141" in page
    capsysbinary.readouterr()
    for option, value in (
        ("--registry-prefix", "a b\n- x"),
        ("--hub-endpoint", "javascript:alert(1)"),
        ("--hub-endpoint", "http://hub.local:70000"),
    ):
        assert main(["emit", str(plan), option, value]) == 2
        assert b"error[RS0501]" in capsysbinary.readouterr()[1]
