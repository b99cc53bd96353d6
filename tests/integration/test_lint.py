"""`rightslice lint` as people and pipelines run it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lint_objects import Object, config_map, server, service
from plans import EVERY
from plans_scaled import gated, scaled
from rightslice.app.linting import lint_paths, lint_rules
from rightslice.core.plan import Plan
from rightslice.kube.lint.documents import parse
from rightslice.kube.lint.run import lint
from rightslice.manifests.render import render
from rightslice.reporting.lint_rules import rules_page
from rightslice.reporting.lint_text import sarif
from rightslice.ui.cli.main import main

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "data" / "lint" / "field_cases"
FLOATING = {"image": "vllm/vllm-openai:latest"}


def written(folder: Path, *objects: Object, name: str = "app.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return path


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    main(["lint", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_exit_codes(tmp_path: Path) -> None:
    good = str(written(tmp_path, server(), name="good.yaml"))
    warn = str(written(tmp_path, server(FLOATING), name="warn.yaml"))
    bad = str(CASES / "d01_mistral7b_on_11gb.yaml")
    assert main(["lint", good]) == 0
    assert main(["lint", warn]) == 0
    assert main(["lint", warn, "--fail-on", "warn"]) == 1
    assert main(["lint", bad]) == 1
    assert main(["lint", bad, "--fail-on", "never"]) == 0
    assert main(["lint", str(tmp_path / "absent.yaml")]) == 2
    assert main(["lint", good, "--select", "no-such-rule"]) == 2
    assert main(["lint", good, "--accelerator", "H1000"]) == 2
    assert main(["lint"]) == 2


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, str(CASES / "d17_alert_rate_on_gauge.yaml"))
    assert {"findings", "files", "objects", "rules"} == set(found)
    keys = {"rule", "slug", "severity", "file", "line", "object", "message", "fix"}
    assert all(set(finding) == keys for finding in found["findings"])
    gauge = next(finding for finding in found["findings"] if finding["slug"] == "alert.rate-on-gauge")
    assert (gauge["rule"], gauge["severity"], gauge["line"]) == ("RS6603", "error", 12)
    assert gauge["object"] == "PrometheusRule/monitoring/gpu.rules"


def test_rules_are_selected_and_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    case = str(CASES / "d01_mistral7b_on_11gb.yaml")

    def slugs(*options: str) -> set[str]:
        return {finding["slug"] for finding in document(capsys, case, *options)["findings"]}

    everything = slugs()
    assert slugs("--select", "probe,image.floating-tag") == {"probe.no-startup", "image.floating-tag"}
    assert slugs("--select", "RS61") == {
        slug
        for slug in everything
        if slug in ("mem.weights-do-not-fit", "gpu.dtype-unsupported", "host.memory-limit-low")
    }
    assert slugs("--ignore", "probe", "--ignore", "RS6901") == everything - {"probe.no-startup", "image.floating-tag"}


def test_the_accelerator_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, server(pod={"nodeSelector": "(removed)"})))
    assert document(capsys, path)["findings"] == []
    found = document(capsys, path, "--accelerator", "T4")["findings"]
    assert "mem.weights-do-not-fit" in {finding["slug"] for finding in found}


def test_files_of_a_folder_are_one_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, server(pod={"enableServiceLinks": "(removed)"}), name="app/deployment.yaml")
    written(tmp_path, service("vllm"), name="net/service.yml")
    (tmp_path / "ci.yaml").write_text("a: !reference [b]\n")
    found = document(capsys, str(tmp_path))
    assert [finding["slug"] for finding in found["findings"]] == ["net.service-env-collision"]
    assert found["findings"][0]["file"].endswith("service.yml")


def test_patches_of_a_kustomization_are_no_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"}, "spec": {"replicas": 2}}
    written(tmp_path, part, name="more.yaml")
    written(tmp_path, server(), name="app.yaml")
    kustomization = {"kind": "Kustomization", "resources": ["app.yaml"], "patches": [{"path": "more.yaml"}]}
    written(tmp_path, {"apiVersion": "kustomize.config.k8s.io/v1beta1", **kustomization}, name="kustomization.yaml")
    assert document(capsys, str(tmp_path))["findings"] == []


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import io  # noqa: PLC0415 - here alone

    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(server(FLOATING))))
    found = document(capsys, "-")
    assert [(finding["file"], finding["slug"]) for finding in found["findings"]] == [("-", "image.floating-tag")]


def test_text_and_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    case = str(CASES / "d17_alert_rate_on_gauge.yaml")
    main(["lint", case])
    shown = capsys.readouterr().out
    assert ":12: error[RS6603] alert.rate-on-gauge: PrometheusRule/monitoring/gpu.rules:" in shown
    assert "2 errors, 1 note" in shown
    main(["lint", case, "--format", "github"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(
        re.match(r"::(error|warning|notice) file=[^,]+,line=\d+,title=RS\d{4} [a-z.-]+::", line) for line in lines
    )


def test_annotations_cannot_be_broken_out_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = server(FLOATING, name="a")
    made["metadata"]["name"] = "x%0A::error::y\n::error::z"
    main(["lint", str(written(tmp_path, made)), "--format", "github"])
    assert all(line.startswith(("::warning ", "::error file=")) for line in capsys.readouterr().out.splitlines())


def test_sarif_is_a_log_of_one_run() -> None:
    findings = lint_paths([CASES]).findings
    log = sarif(findings, lint_rules(), "1.0")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert len(run["results"]) == len(findings)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert " " not in place["artifactLocation"]["uri"]
    json.dumps(log, allow_nan=False)


HOSTILE = {
    "binary": (bytes(range(256)) * 8, "RS0403"),
    "utf-16": ("kind: Pod".encode("utf-16"), "RS0403"),
    "latin-1": (b"apiVersion: v1\nname: caf\xe9\n", "RS0403"),
    "deep": (b"[" * 200_000, "RS0101"),
    "tabs": (b"apiVersion: v1\nmetadata:\n\tname: a\n", "RS0101"),
    "duplicate": (b"apiVersion: v1\nkind: Pod\nkind: Pod\n", "RS0102"),
    "template": (b"apiVersion: v1\nkind: {{ .Values.kind }}\n", "RS6000"),
    "bomb": (
        b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 12)),
        "RS0103",
    ),
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_a_hostile_file_is_one_finding(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, rule = HOSTILE[kind]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    found = document(capsys, str(path))["findings"]
    assert [finding["rule"] for finding in found] == [rule]
    assert found[0]["file"] == str(path)


def test_a_huge_file_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as handle:
        handle.truncate(200_000_000)
    assert [finding["rule"] for finding in document(capsys, str(tmp_path))["findings"]] == ["RS0404"]


def test_links_and_strange_files_do_not_stop_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, server(FLOATING), name="a/app.yaml")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "gone.yaml").symlink_to(tmp_path / "nowhere.yaml")
    os.mkfifo(tmp_path / "a" / "pipe.yaml")
    found = document(capsys, str(tmp_path))
    assert sorted(finding["rule"] for finding in found["findings"]) == ["RS0401", "RS0402", "RS6901"]


def test_ten_thousand_files_are_read(tmp_path: Path) -> None:
    text = yaml.safe_dump(config_map({"a": "b"}))
    for index in range(10_000):
        (tmp_path / f"{index}.yaml").write_text(text.replace("device-plugin-config", f"m{index}"))
    report = lint_paths([tmp_path])
    assert (report.files, report.objects, report.findings) == (10_000, 10_000, ())


def test_scripts_in_config_maps_are_not_judged(tmp_path: Path) -> None:
    made = config_map({"run.sh": "#!/bin/sh\nconfig:\n  [\n", "note": "apiVersion: not\n  yaml: [\n"})
    assert lint_paths([written(tmp_path, made)]).findings == ()


PLANS: dict[str, Callable[[], Plan]] = {
    **EVERY,
    "hpa": scaled,
    "hpa-cache": lambda: scaled("hpa", "kv_use", 0.6),
    "keda": lambda: scaled("keda"),
    "gateway": lambda: gated(scaled("keda")),
}


@pytest.mark.parametrize("name", sorted(PLANS))
def test_what_is_emitted_has_no_findings(name: str) -> None:
    files = render(PLANS[name]())
    reads = [parse(text, path) for path, text in files.items() if path.endswith(".yaml")]
    assert not [problem for read in reads for problem in read.problems]
    assert lint([found for read in reads for found in read.documents]) == ()


def test_the_reference_is_that_of_the_rules() -> None:
    page = ROOT / "docs" / "lint.md"
    made = rules_page(lint_rules())
    if os.environ.get("RIGHTSLICE_UPDATE_GOLDEN") == "1":
        page.write_text(made, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == made
