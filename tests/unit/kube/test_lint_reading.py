"""Reading: documents with their lines, YAML inside of strings, templates, hostile text."""

from __future__ import annotations

import pytest
import yaml

from lint_objects import config_map, server, shared
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import parse
from rightslice.kube.lint.servers import Server, image_engine, image_version
from rightslice.kube.lint.values import dig

TWO = """\
# a comment
kind: Service
apiVersion: v1
metadata: {name: a}
---
kind: List
apiVersion: v1
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: b
    namespace: c
- {apiVersion: v1, kind: Pod, metadata: {name: d}}
"""


BOMB = "a: &a [x]\n" + "\n".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}' if i else '*a'] * 9)}]" for i in range(12))


def test_documents_and_lists_are_opened_with_their_lines() -> None:
    documents = parse(TWO, "two.yaml").documents
    assert [document.label for document in documents] == ["Service/default/a", "Deployment/c/b", "Pod/default/d"]
    assert [document.line(("metadata", "name")) for document in documents] == [4, 12, 14]
    assert documents[1].line(("spec", "absent")) == 9


def test_json_is_read() -> None:
    (document,) = parse('{"apiVersion": "v1", "kind": "Pod",\n "metadata": {"name": "a"}}', "a.json").documents
    assert (document.label, document.line(("metadata",))) == ("Pod/default/a", 2)


def test_yaml_inside_a_string_knows_its_line() -> None:
    text = "kind: ConfigMap\napiVersion: v1\ndata:\n  a: |\n    version: v1\n    sharing:\n      mps: {}\n"
    outer, inner = parse(text, "a.yaml").documents
    assert inner.outer is outer
    assert inner.line(("sharing", "mps")) == 7
    assert parse(text, "a.yaml").documents[1].label == outer.label


def test_a_quoted_string_is_one_line() -> None:
    text = 'kind: ConfigMap\napiVersion: v1\ndata:\n  a: "version: v1\\nsharing:\\n  mps: {}\\n"\n'
    assert parse(text, "a.yaml").documents[1].line(("sharing", "mps")) == 4


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: [1, 2", "RS0101"),
        ("apiVersion: v1\nkind: Pod\na: 1\na: 2\n", "RS0102"),
        ("a:\n\t- b\n", "RS0101"),
        ("[" * 100_000, "RS0101"),
        ("{a: " * 100_000, "RS0101"),
        (BOMB, "RS0103"),
        ("a: &a [*a]", "RS0103"),
        ("kind: {{ .Values.kind }}\n", "RS6000"),
        ("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", "RS6000"),
        ("apiVersion: v1\nkind: Pod\nname: {{NAME}}\n", "RS6000"),
        ("a: \x07", "RS0403"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_diagnostic(text: str, rule: str) -> None:
    problems = parse(text, "bad.yaml").problems
    assert [problem.rule for problem in problems] == [rule]
    assert problems[0].hint or problems[0].message


def test_a_broken_configuration_inside_a_string_is_found_at_its_line() -> None:
    text = (
        "kind: ConfigMap\napiVersion: v1\ndata:\n  a: |\n    version: v1\n    mig-configs:\n      a\n        - b: 1\n"
    )
    (problem,) = parse(text, "a.yaml").problems
    assert problem.rule == "RS6010"
    assert problem.location is not None
    assert problem.location.line >= 7


def test_alerts_with_templates_are_no_templates() -> None:
    text = "kind: PrometheusRule\napiVersion: v1\nspec: {groups: [{rules: [{annotations: {a: 'x {{ $value }}'}}]}]}\n"
    read = parse(text, "a.yaml")
    assert (len(read.documents), read.problems) == (1, ())


def test_scripts_are_no_configuration() -> None:
    assert parse(yaml.safe_dump(config_map({"run.sh": "set -e\nconfig: [\n"})), "a.yaml").problems == ()


def started(command: list[str], args: list[str] | None = None, **more: object) -> Server | None:
    container: dict[str, object] = {"command": command, "args": args or [], **more}
    context = Context(parse(yaml.safe_dump(server(container)), "a.yaml").documents)
    return context.servers[0] if context.servers else None


@pytest.mark.parametrize(
    ("command", "engine", "model", "tensor"),
    [
        (["vllm", "serve", "a/b", "--tensor-parallel-size=2"], "vllm", "a/b", 2),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "a/b", "-tp", "4"], "vllm", "a/b", 4),
        (["sh", "-c", "X=1 exec vllm serve a/b --tensor_parallel_size 2"], "vllm", "a/b", 2),
        (["bash", "-lc", "export M=a/b; pip install x && \\\n  vllm serve $M \\\n  -tp 2"], "vllm", "a/b", 2),
        (["bash", "-c", "cd /x\npython3 -m sglang.launch_server --model-path a/b --tp 2 # two"], "sglang", "a/b", 2),
        (["trtllm-serve", "a/b", "--tp_size", "2"], "tensorrt-llm", "a/b", 2),
        (["/usr/bin/tritonserver", "--model-repository=/m"], "triton", "", 1),
        (["/opt/venv/bin/vllm", "serve", "a/b"], "vllm", "a/b", 1),
    ],
)
def test_engines_are_found_in_commands(command: list[str], engine: str, model: str, tensor: int) -> None:
    found = started(command)
    assert found is not None
    assert (found.engine, found.model, found.tensor_parallel) == (engine, model, tensor)


def test_a_script_that_is_not_read_is_opaque() -> None:
    found = started(["/scripts/start.sh"])
    assert found is not None
    assert found.opaque


def test_other_programs_of_an_engine_image_are_no_servers() -> None:
    assert started(["python3", "download.py"]) is None
    assert started(["sh", "-c", "sleep infinity"]) is None
    assert started(["sh", "-c", "echo 'unclosed"]) is None


def test_images() -> None:
    assert image_engine("vllm/vllm-openai:v0.11.0") == "vllm"
    assert image_engine("registry:5000/team/my-vllm") == "vllm"
    assert image_engine("lmcache/vllm-router:1") == ""
    assert image_engine("vllm/vllm-openai-cpu:v1") == ""
    assert image_engine("nvcr.io/nim/meta/llama:1") == "nim"
    assert image_version("vllm/vllm-openai:v0.11.0-cu129") == "0.11.0"
    assert image_version("vllm/vllm-openai:latest") == ""
    assert image_version("vllm/vllm-openai@sha256:abc") == ""


def test_shared_configurations_are_documents_of_their_own() -> None:
    documents = parse(yaml.safe_dump(shared("mps", 4)), "a.yaml").documents
    assert dig(documents[1].value, "sharing", "mps", "resources", 0, "replicas") == 4
