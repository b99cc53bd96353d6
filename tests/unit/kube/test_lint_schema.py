"""The strict schema layer: what the API server would refuse, and where the right field is."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml

from lint_objects import Object, compute_class, hpa, keda, nim, node_pool, of_cpu, server, service
from rightslice.kube.lint.documents import parse
from rightslice.kube.lint.schema import known_kinds, problems


def faults(made: Object) -> list[tuple[str, str]]:
    (document,) = parse(yaml.safe_dump(made), "a.yaml").documents
    return [(problem.fault, problem.message) for problem in problems(document)]


def test_good_objects_pass() -> None:
    for made in (server(), service(), hpa(of_cpu()), keda("up"), nim(), node_pool({"a": ["b"]}), compute_class()):
        assert faults(made) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"spec": {"replica": 1}}, "unknown"),
        ({"spec": {"replicas": "two"}}, "type"),
        ({"metadata": {"labels": {"a": 1}}}, "type"),
        ({"spec": {"template": {"spec": {"containers": None}}}}, "missing"),
    ],
)
def test_verdicts_are_those_of_another_validator(change: Object, fault: str) -> None:
    made = server()
    for key, value in change["spec"].items() if "spec" in change else ():
        if key == "template":
            made["spec"]["template"]["spec"].pop("containers")
        else:
            made["spec"][key] = value
    made["metadata"] |= change.get("metadata", {})
    assert [found for found, _ in faults(made)] == [fault]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(made, "1.37", strict=True)


def test_hints_say_where_the_field_is() -> None:
    made = nim(service={"port": 8000}, autoscaling={"enabled": True})
    (document,) = parse(yaml.safe_dump(made), "a.yaml").documents
    hints = {problem.path[-1]: problem.hint for problem in problems(document)}
    assert "spec.expose.service" in hints["service"]
    assert "scale" in hints["autoscaling"]


def test_words_that_yaml_reads_as_booleans() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: yes, b: 'yes'}\n"
    (document,) = parse(text, "a.yaml").documents
    assert [problem.path for problem in problems(document)] == [("data", "a")]


def test_placeholders_are_left_to_whoever_fills_them_in() -> None:
    made = server(spec={"replicas": "${REPLICAS}"})
    assert faults(made) == []


def test_the_bundle_holds_what_is_emitted_and_read() -> None:
    assert {
        "apps/v1/Deployment",
        "autoscaling/v2/HorizontalPodAutoscaler",
        "keda.sh/v1alpha1/ScaledObject",
    } <= known_kinds()
    assert len(known_kinds()) >= 70
