"""Components and overlays: what many clusters have already, chosen by platform."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

import pytest
import yaml
from emitted import Object, objects, tree

from plans import EVERY, with_objectives
from plans_scaled import gated, scaled
from rightslice.app.linting import lint_paths
from rightslice.kube.objects import identity
from rightslice.manifests.mirrors import Mirrors
from rightslice.manifests.render import render
from rightslice.manifests.timing import START_MARGIN, startup_budget_s, typical_start_s

OVERLAYS = ("gke", "eks", "aks", "on-prem")


def built(files: dict[str, str], folder: str) -> list[Object]:
    """What `kubectl kustomize` gathers, patches aside."""
    made = yaml.safe_load(files[f"{folder}kustomization.yaml"])
    gathered: list[Object] = []
    for resource in [*made["resources"], *made.get("components", [])]:
        path = str(PurePosixPath(re.sub(r"[^/]+/[^/]+/\.\./\.\./", "", folder + resource)))
        gathered += objects(files, path) if path.endswith(".yaml") else built(files, f"{path}/")
    return gathered


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_overlay_holds_the_plan_and_lints_clean(name: str, overlay: str, tmp_path: Path) -> None:
    files = dict(tree(name))
    made = built(files, f"overlays/{overlay}/")
    names = [identity(found) for found in made]
    assert len(set(names)) == len(names)
    assert {identity(found) for found in objects(files)} < set(names)
    kinds = {name.kind for name in names}
    assert {"NetworkPolicy", "Gateway", "HTTPRoute"} <= kinds
    assert ("PodMonitoring" in kinds) == (overlay == "gke")
    assert ("PrometheusRule" in kinds) == (overlay != "gke")
    if overlay in ("aks", "on-prem"):
        assert made == built(files, "overlays/eks/")
        return
    stream = tmp_path / "all.yaml"
    stream.write_text(yaml.safe_dump_all(made), "utf-8")
    assert lint_paths([stream]).findings == ()


def alerts(files: dict[str, str]) -> dict[tuple[str, str], str]:
    """(alert, model) -> expression."""
    rules = yaml.safe_load(files["components/monitoring/prometheusrule.yaml"])["spec"]["groups"]
    return {
        (rule["alert"], rule["labels"].get("model", "")): rule["expr"] for group in rules for rule in group["rules"]
    }


def test_alerts_name_the_pods_of_one_model_and_no_other() -> None:
    expression = alerts(dict(tree("voice")))["RightsliceKvCacheFull", "llm"]
    (pattern,) = re.findall(r'pod=~"([^"]+)"', expression)
    assert re.fullmatch(pattern, "llm-7d9f8b6c5-x2x4z")
    assert not re.fullmatch(pattern, "llm-large-7d9f8b6c5-x2x4z")


def test_objectives_become_burn_rates_at_the_nearest_edge_of_the_histogram() -> None:
    """The allowed 5 %: 14.4 times is 0.72, 6 times 0.3. 800 ms lies between the edges 0.75 and 1 s, 12 s at 10 s."""
    found = {key[0]: text for key, text in alerts(dict(render(with_objectives(EVERY["large-llm"]())))).items()}
    assert len([name for name in found if "Burns" in name]) == 6
    fast, slow = found["RightsliceTtftBurnsFast"], found["RightsliceE2eBurnsSlowly"]
    assert re.findall(r"\[(\d+[mh])\]", fast) == ["1h", "1h", "5m", "5m"]
    assert re.findall(r"\[(\d+[mh])\]", slow) == ["6h", "6h", "30m", "30m"]
    assert 'le=~"0.75"' in fast
    assert fast.count("> 0.72") == 2
    assert 'le=~"10|10.0"' in slow
    assert slow.count("> 0.3") == 2


def test_a_model_that_sleeps_is_not_reported_as_missing() -> None:
    awake, asleep = (alerts(dict(render(gated(scaled("keda", least=least))))) for least in (1, 0))
    assert set(awake) - set(asleep) == {
        ("RightsliceNoReplica", "llm"),
        ("RightsliceNoMetrics", "llm"),
        ("RightsliceIdle", "llm"),
    }


def test_an_inference_pool_stands_behind_the_route_of_a_gated_model() -> None:
    files = render(gated(scaled("keda", least=1)))
    pools = [path for path in files if "inferencepool" in path]
    assert pools
    route = next(yaml.safe_load(files[path]) for path in files if "/httproute-llm" in path)
    backend = route["spec"]["rules"][0]["backendRefs"][0]
    assert backend["kind"] == "InferencePool"
    assert backend["name"] == yaml.safe_load(files[pools[0]])["metadata"]["name"]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_dashboards_are_json_with_a_query_in_every_panel(name: str) -> None:
    files = tree(name)
    (text,) = yaml.safe_load(files["components/monitoring/configmap.yaml"])["data"].values()
    panels = [panel for panel in json.loads(text)["panels"] if panel["type"] != "row"]
    assert panels
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    ("endpoint", "opened"),
    [
        ("", {443}),
        ("https://hub.example", {443}),
        ("http://hub.example", {80, 443}),
        ("http://hub.example:8080/hf", {443, 8080}),
    ],
)
def test_network_policies_let_pods_reach_the_mirror_of_the_hub(endpoint: str, opened: set[int]) -> None:
    files = render(EVERY["large-llm"](), Mirrors(hub_endpoint=endpoint))
    policy = yaml.safe_load(files["components/network-policy/networkpolicy-chat.yaml"])
    anywhere = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
    assert {port["port"] for rule in anywhere for port in rule["ports"]} == opened


def test_names_may_be_asked_of_a_resolver_outside_every_namespace() -> None:
    policy = yaml.safe_load(tree("large-llm")["components/network-policy/networkpolicy-dns.yaml"])
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}]


@pytest.mark.parametrize("weights_bytes", [0, 2_000_000_000, 16_000_000_000, 140_000_000_000, 700_000_000_000])
def test_probes_wait_at_least_twice_a_simulated_start(weights_bytes: int) -> None:
    assert startup_budget_s(weights_bytes) >= START_MARGIN * typical_start_s(weights_bytes)
    assert START_MARGIN >= 2.0
