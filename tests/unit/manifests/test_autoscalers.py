"""Emitted autoscalers have exactly the plan's numbers, and nothing else sets the size."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml
from emitted import emitted, objects

from plans import voice
from plans_scaled import gated, scaled
from rightslice.core.errors import BadInputError
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
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 6)
    assert (spec["pollingInterval"], spec["cooldownPeriod"]) == (30, 300)
    (trigger,) = spec["triggers"]
    assert trigger["metadata"] == {"serverAddress": PROMETHEUS, "query": in_flight(), "threshold": "26.2"}
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"] == {"stabilizationWindowSeconds": 900}
    assert ADAPTER_VALUES not in files
    assert PROMETHEUS in files["README.md"]


def test_a_gateway_that_holds_requests_wakes_a_deployment_without_pods() -> None:
    (found,) = emitted(gated(scaled("keda", least=0)), "ScaledObject")
    (trigger,) = found["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert found["spec"]["minReplicaCount"] == 0
    assert trigger["metadata"]["activationThreshold"] == "0"
    assert (
        'sum(llm_d_epp_flow_control_queue_size{namespace="voice-assistant",inference_pool="llm"}) or vector(0)' in query
    )
    assert query.count(" or vector(0))") == 3  # series of engines that are not there make no sum empty
    page = render(gated(scaled("keda", least=0)))["README.md"]
    assert "- `llm`: pods with `app.kubernetes.io/name=llm,rightslice/role=unified`, port 8000." in page
    assert "featureGates: [flowControl]" in page


def test_a_plan_that_nothing_could_wake_is_not_written_down() -> None:
    for plan in (scaled("keda", least=0), gated(scaled("keda", least=0), holds=False)):
        with pytest.raises(BadInputError) as caught:
            render(plan)
        (found,) = caught.value.diagnostics
        assert "nothing holds the request" in found.message
        assert "gateway: {flow_control: true}" in found.hint


def test_a_gateway_that_holds_nothing_has_no_queue_to_count() -> None:
    (found,) = emitted(gated(scaled(), holds=False), "HorizontalPodAutoscaler")
    assert found["spec"]["metrics"][0]["external"]["metric"]["name"] == "llm_in_flight"
    files = render(gated(scaled(), holds=False))
    assert "flow_control_queue_size" not in files[ADAPTER_VALUES]
    assert "flowControl" not in files["README.md"]
    assert "flow_control_queue_size" in render(gated(scaled()))[ADAPTER_VALUES]


def test_every_class_behind_a_gateway_has_its_objective() -> None:
    found = {made["metadata"]["name"]: made["spec"] for made in emitted(gated(voice()), "InferenceObjective")}
    assert {name: spec["priority"] for name, spec in found.items()} == {"llm-chat": 1, "llm-nightly": -10}
    services = {made["metadata"]["name"] for made in emitted(gated(voice()), "Service")}
    assert {spec["poolRef"]["name"] for spec in found.values()} == {"llm"} <= services
    assert not emitted(voice(), "InferenceObjective")


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
