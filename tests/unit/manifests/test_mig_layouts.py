"""The MIG configuration gives every node the GPUs that the plan put its tenants on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml
from emitted import emitted, objects, tree

from plans import LLAMA_8B, memory, model, own_image, placed, plan, pool, uniform_slices, vllm, voice
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.plan import LayoutUse, Plan
from rightslice.manifests.layout import has_spare, node_layouts
from rightslice.manifests.render import render

SLICES = LayoutUse("3g.40gb*2", 2, {"3g.40gb": 2})
MIXED = LayoutUse("1g.20gb+3g.40gb", 1, {"1g.20gb": 1, "3g.40gb": 1})


def eight_gpus() -> Plan:
    """Two nodes of four GPUs: whole ones, two layouts of slices, one slice left free."""
    on = pool(
        "p4de.24xlarge",
        "A100-SXM-80GB",
        provider="aws",
        region="us-east-1",
        platform="eks",
        gpus_per_node=4,
        nodes=2,
        layouts=(SLICES, MIXED, LayoutUse(WHOLE, 5, {})),
    )
    llm = model("llm", on, vllm(LLAMA_8B), memory("A100-SXM-80GB", WHOLE, 15, 50), source=LLAMA_8B, replicas=5)
    tts = model(
        "tts",
        on,
        own_image("example.com/tts:1"),
        memory("A100-SXM-80GB", "3g.40gb", 13, 0),
        partition="3g.40gb",
        replicas=5,
    )
    placements = (
        placed(on, 0, 0, (llm, 0, 0)),
        placed(on, 0, 1, (tts, 0, 0), (tts, 1, 4)),
        placed(on, 0, 2, (tts, 2, 0), (tts, 3, 4)),
        placed(on, 0, 3, (tts, 4, 4)),
        *(placed(on, 1, gpu, (llm, gpu + 1, 0)) for gpu in range(4)),
    )
    return plan("mix", (on,), (llm, tts), placements)


def configurations(made: Plan) -> dict[str, Any]:
    (found,) = emitted(made, "ConfigMap")
    assert found["metadata"]["namespace"] == "gpu-operator"
    parsed = yaml.safe_load(found["data"]["config.yaml"])
    assert parsed["version"] == "v1"
    named: dict[str, Any] = parsed["mig-configs"]
    return named


def test_one_configuration_per_distinct_node() -> None:
    named = configurations(eight_gpus())
    assert named.pop("all-disabled") == [{"devices": "all", "mig-enabled": False}]
    assert list(named.values()) == [
        [
            {"devices": [0], "mig-enabled": False},
            {"devices": [1, 2], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
            {"devices": [3], "mig-enabled": True, "mig-devices": {"1g.20gb": 1, "3g.40gb": 1}},
        ],
        [{"devices": [0, 1, 2, 3], "mig-enabled": False}],
    ]


def test_every_gpu_is_configured_and_every_name_is_a_label_value_on_the_page() -> None:
    page = render(eight_gpus())["README.md"]
    for name, entries in configurations(eight_gpus()).items():
        assert len(name) <= 63
        assert f"nvidia.com/mig.config={name} " in page
        if name != "all-disabled":
            assert sorted(gpu for entry in entries for gpu in entry["devices"]) == [0, 1, 2, 3]


def test_nodes_are_emptied_before_they_are_cut() -> None:
    page = tree("voice")["README.md"]
    order = ["kubectl cordon", "kubectl drain", "kubectl label", "kubectl wait", "kubectl uncordon"]
    places = [page.index(command) for command in order]
    assert places == sorted(places)
    assert "WITH_REBOOT" in page.partition("### 4.")[0]


def test_free_slices_are_spare_and_full_pools_have_none() -> None:
    made = eight_gpus()
    llm, tts = (m.deployments[0] for m in made.models)
    assert not has_spare(made, llm)
    assert not has_spare(made, tts)
    roomier = replace(made, placements=tuple(p for p in made.placements if (p.node, p.gpu) != (1, 3)))
    assert has_spare(roomier, llm)
    assert has_spare(uniform_slices(), uniform_slices().models[0].deployments[0])


def test_tenants_decide_where_the_plan_lists_no_layouts() -> None:
    made = eight_gpus()
    bare = replace(made, pools=(replace(made.pools[0], layouts=()),))
    first, second = node_layouts(bare, bare.pools[0])
    assert first.gpus == ({}, {"3g.40gb": 2}, {"3g.40gb": 2}, {"3g.40gb": 1})
    assert second.gpus == ({}, {}, {}, {})


def test_pools_that_are_cut_at_creation_need_no_configuration() -> None:
    assert not emitted(uniform_slices(), "ConfigMap")
    assert "gpu-partition-size=1g.10gb" in tree("uniform-slices")["README.md"]
    assert not [path for path in tree("large-llm") if path.startswith("gpu-operator/")]
    everything = objects(tree("voice"))
    of_operator = [found["kind"] for found in everything if found["metadata"].get("namespace") == "gpu-operator"]
    assert of_operator == ["ConfigMap", "ResourceQuota"]
    assert configurations(voice())
