"""GPUs that several pods share: the device plugin's configuration, what the pods ask for, the nodes they are on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from emitted import Object, emitted, objects, server, templates

from plans import voice, voice_shared
from rightslice.core.plan import LayoutUse, Plan
from rightslice.manifests.render import render


def configurations(made: Plan) -> dict[str, Any]:
    (found,) = [m for m in emitted(made, "ConfigMap") if m["metadata"]["name"].startswith("device-plugin-config")]
    assert found["metadata"]["namespace"] == "gpu-operator"
    return {name: yaml.safe_load(text) for name, text in found["data"].items()}


def pods_of(made: Plan) -> dict[str, Object]:
    return {found["metadata"]["name"]: templates(found)[0] for found in emitted(made, "Deployment")}


@pytest.mark.parametrize(("mode", "section"), [("time-slicing", "timeSlicing"), ("mps", "mps")])
def test_the_configuration_of_the_device_plugin(mode: str, section: str) -> None:
    assert configurations(voice_shared(mode)) == {
        "whole": {"version": "v1"},
        f"{mode}-2": {
            "version": "v1",
            "sharing": {
                section: {
                    "renameByDefault": True,
                    "failRequestsGreaterThanOne": True,
                    "resources": [{"name": "nvidia.com/gpu", "replicas": 2}],
                }
            },
        },
    }


def test_pods_ask_for_one_place_on_nodes_that_share_and_others_stay_away() -> None:
    pods = pods_of(voice_shared())
    asked = {name: server(pod)["resources"]["limits"] for name, pod in pods.items()}
    assert asked == {
        "asr": {"nvidia.com/gpu.shared": 1},
        "tts": {"nvidia.com/gpu.shared": 1},
        "llm": {"nvidia.com/gpu": 1},
    }
    pools = {name: pod["spec"]["nodeSelector"]["rightslice/pool"] for name, pod in pods.items()}
    assert pools["asr"] == pools["tts"] != pools["llm"]
    requests = {name: server(pod)["resources"]["requests"]["cpu"] for name, pod in pods.items()}
    assert requests == {"asr": "1", "tts": "1", "llm": "2"}


def test_only_the_nodes_that_share_are_labelled_and_the_plugin_restarts() -> None:
    readme = render(voice_shared())["README.md"]
    pool = pods_of(voice_shared())["asr"]["spec"]["nodeSelector"]["rightslice/pool"]
    label = "nvidia.com/device-plugin.config"
    assert readme.count(f"{label}=") == 1
    assert f"kubectl label nodes -l rightslice/pool={pool} {label}=time-slicing-2 --overwrite" in readme
    assert f"kubectl label nodes -l rightslice/pool={pool} {label}-" in readme.partition("## Roll back")[2]
    order = [
        "helm upgrade --install gpu-operator",
        "clusterpolicies.nvidia.com",
        f"{label}=",
        "rollout restart daemonset",
    ]
    places = [readme.index(text) for text in order]
    assert places == sorted(places)
    assert f"2 on each node of `{pool}`" in readme


def test_shared_memory_of_mps_is_the_daemons() -> None:
    """NIM images ask for a /dev/shm of their own, which the device plugin mounts under MPS."""
    mounts = {
        mode: [m["mountPath"] for m in server(pods_of(voice_shared(mode))["tts"])["volumeMounts"]]
        for mode in ("time-slicing", "mps")
    }
    assert "/dev/shm" in mounts["time-slicing"]  # noqa: S108
    assert "/dev/shm" not in mounts["mps"]  # noqa: S108


def test_slices_and_shared_gpus_in_one_cluster_have_a_file_each() -> None:
    shared, cut = voice_shared(), voice()
    pools = (*shared.pools, cut.pools[0])
    models = (
        *shared.models,
        *(
            replace(m, name=f"{m.name}-b", deployments=tuple(replace(d, id=f"{d.id}-b") for d in m.deployments))
            for m in cut.models
        ),
    )
    placements = (
        *shared.placements,
        *(
            replace(p, slots=tuple(replace(s, deployment=f"{s.deployment}-b", model=f"{s.model}-b") for s in p.slots))
            for p in cut.placements
        ),
    )
    files = render(replace(shared, pools=pools, models=models, placements=placements))
    names = [found["metadata"]["name"] for found in objects(files) if found["kind"] == "ConfigMap"]
    assert len(names) == 2
    for name in names:
        assert f"gpu-operator/configmap-{name}.yaml" in files
        assert f"`gpu-operator/configmap-{name}.yaml`" in files["README.md"]


def test_a_node_of_several_gpus_offers_places_on_each() -> None:
    made = voice_shared()
    joint = replace(made.pools[1], gpus_per_node=2, layouts=(LayoutUse("time-slicing", 2, {"time-slicing": 2}),))
    assert "4 on each node of" in render(replace(made, pools=(made.pools[0], joint)))["README.md"]
