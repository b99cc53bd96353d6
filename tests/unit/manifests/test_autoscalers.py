"""Emitted autoscalers have exactly the plan's numbers, and nothing else sets the size."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml
from emitted import emitted, objects

from plans import voice
from plans_scaled import scaled
from rightslice.manifests.autoscalers import ADAPTER_VALUES, PROMETHEUS, quantity
from rightslice.manifests.render import render

IN_FLIGHT = (
    'sum(vllm:num_requests_running{namespace="NS",pod=~"llm-[a-z0-9]+-[a-z0-9]+"})'
    ' + sum(vllm:num_requests_waiting{namespace="NS",pod=~"llm-[a-z0-9]+-[a-z0-9]+"})'
)


def in_flight() -> str:
    (namespace,) = emitted(scaled(), "Namespace")
    return IN_FLIGHT.replace("NS", namespace["metadata"]["name"])


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
@pytest.mark.parametrize("signal", ["in_flight", "kv_use"])
def test_an_hpa_has_the_numbers_of_the_plan(signal: str, version: str) -> None:
    (found,) = emitted(scaled(signal=signal), "HorizontalPodAutoscaler")
    kubernetes_validate.validate(found, version, strict=True)
    spec = found["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 6)
    assert spec["behavior"] == {
        "scaleUp": {"stabilizationWindowSeconds": 0},
        "scaleDown": {"stabilizationWindowSeconds": 900},
    }
    (metric,) = spec["metrics"]
    kind = "pods" if signal == "kv_use" else "external"
    assert metric[kind]["target"] == {"type": "AverageValue", "averageValue": "26200m"}


def test_the_adapter_serves_the_metric_that_the_hpa_asks_for() -> None:
    plan = scaled()
    (found,) = emitted(plan, "HorizontalPodAutoscaler")
    (rule,) = yaml.safe_load(render(plan)[ADAPTER_VALUES])["rules"]["external"]
    assert rule["name"]["as"] == found["spec"]["metrics"][0]["external"]["metric"]["name"] == "llm_in_flight"
    assert rule["metricsQuery"] == in_flight()
    (kv,) = yaml.safe_load(render(scaled(signal="kv_use", target=0.6))[ADAPTER_VALUES])["rules"]["custom"]
    assert kv["name"]["as"] == "vllm_kv_cache_usage_perc"
    assert kv["seriesQuery"].startswith("vllm:kv_cache_usage_perc{")


def test_a_scaled_object_has_the_numbers_of_the_plan() -> None:
    files = render(scaled("keda"))
    (found,) = [made for made in objects(files) if made["kind"] == "ScaledObject"]
    spec = found["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 6)
    assert (spec["pollingInterval"], spec["cooldownPeriod"]) == (30, 300)
    (trigger,) = spec["triggers"]
    assert trigger["metadata"] == {"serverAddress": PROMETHEUS, "query": in_flight(), "threshold": "26.2"}
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"] == {"stabilizationWindowSeconds": 900}
    assert ADAPTER_VALUES not in files
    assert PROMETHEUS in files["README.md"]


def test_only_the_autoscaler_sets_the_size() -> None:
    sizes = {found["metadata"]["name"]: found["spec"].get("replicas") for found in emitted(scaled(), "Deployment")}
    assert sizes == {"llm": None, "asr": 1, "tts": 1}


def test_nodes_follow_and_the_page_says_so() -> None:
    page = render(scaled())["README.md"]
    assert "--enable-autoscaling --total-min-nodes 0 --total-max-nodes 7" in page
    assert "| 1 to 6 |" in page
    assert "prometheus-community/prometheus-adapter" in page
    assert "autoscaling: replicas of `asr`, `tts` stay" in page
    assert "--enable-autoscaling" not in render(voice())["README.md"]


@pytest.mark.parametrize(("value", "text"), [(8.0, "8"), (26.2, "26200m"), (0.65, "650m"), (0.001, "1m")])
def test_quantities(value: float, text: str) -> None:
    assert quantity(value) == text
