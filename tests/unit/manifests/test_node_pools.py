"""Commands that make node pools: what each platform and each way to buy needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from emitted import pods

from plans import custom_memory, large_llm, uniform_slices, voice, voice_uniform
from rightslice.core.plan import Capacity, Plan, Purchase
from rightslice.manifests.render import render


def page(plan: Plan, capacity: Capacity = "on_demand", platform: str = "") -> str:
    bought = tuple(replace(p, purchase=Purchase(capacity, "list"), platform=platform or p.platform) for p in plan.pools)
    return re.sub(r" \\\n\s+", " ", render(replace(plan, pools=bought))["README.md"])


@pytest.mark.parametrize(
    ("made", "capacity", "words"),
    [
        (
            voice,
            "on_demand",
            ["--num-nodes 2", "gpu-driver-version=disabled", ",gke-no-default-nvidia-gpu-device-plugin="],
        ),
        (voice, "reservation", ['--reservation "$RESERVATION"', "export RESERVATION="]),
        (uniform_slices, "spot", ["--spot", "gpu-partition-size=1g.10gb,gpu-driver-version=latest"]),
        (uniform_slices, "flex_start", ["--flex-start --num-nodes 0", "--total-max-nodes 1", "seven days"]),
        (large_llm, "on_demand", ["--ami-type AL2023_x86_64_NVIDIA", "--disk-size 450", "--capacity-type ON_DEMAND"]),
        (large_llm, "spot", ["--capacity-type SPOT", "desiredSize=1"]),
        (large_llm, "capacity_block", ["--capacity-type CAPACITY_BLOCK", "30 minutes before the block ends"]),
        (
            custom_memory,
            "on_demand",
            ["--node-vm-size Standard_ND96isr_H100_v5 --node-count 1", "--node-osdisk-size 400"],
        ),
        (custom_memory, "spot", ["--priority Spot --eviction-policy Delete --spot-max-price -1"]),
    ],
)
def test_commands(made: Callable[[], Plan], capacity: Capacity, words: list[str]) -> None:
    text = page(made(), capacity)
    for word in words:
        assert word in text


def test_platforms_without_an_api_for_pools() -> None:
    assert "kubectl label node $NODES rightslice/pool=" in page(custom_memory(), "owned", "on-prem")
    unknown = page(custom_memory(), platform="eks-auto")
    assert "No commands are known for EKS Auto Mode: label its nodes `rightslice/pool=" in unknown


def test_openshift_has_its_own_operator_namespace_and_accounts() -> None:
    plan = voice()
    files = render(replace(plan, pools=(replace(plan.pools[0], platform="openshift"),)))
    assert "namespace: nvidia-gpu-operator" in files["gpu-operator/configmap.yaml"]
    assert "gpu-operator/resourcequota.yaml" not in files
    for words in ("OperatorHub", "clusterpolicies.nvidia.com/gpu-cluster-policy", "scc-to-user anyuid -z llm"):
        assert words in files["README.md"]


def test_a_launch_template_and_a_disk_size_exclude_each_other() -> None:
    assert "--disk-size" not in page(large_llm(), "reservation")
    assert "--disk-size" in page(large_llm(), "on_demand")


def test_azure_pool_names_are_short_and_azure_slices_are_named_by_their_size() -> None:
    name = re.search(r"az aks nodepool add --name (\S+)", page(custom_memory()))
    assert name
    assert re.fullmatch(r"[a-z][a-z0-9]{0,11}", name[1])
    text = page(uniform_slices(), platform="aks")
    assert "--gpu-instance-profile MIG1g" in text
    assert "--set migStrategy=single" in text


def test_spot_pods_tolerate_the_taint_of_spot_nodes() -> None:
    pools = tuple(replace(p, purchase=Purchase("spot", "spot")) for p in custom_memory().pools)
    text = render(replace(custom_memory(), pools=pools))["base/big/deployment.yaml"]
    assert "key: kubernetes.azure.com/scalesetpriority" in text
    assert "terminationGracePeriodSeconds: 30" in text


def test_pools_of_one_machine_type_get_different_names() -> None:
    plan = large_llm()
    second = replace(plan.pools[0], name="other", purchase=Purchase("spot", "spot"))
    text = render(replace(plan, pools=(plan.pools[0], second)))["README.md"]
    names = re.findall(r"--nodegroup-name (\S+) \\", text)
    assert names == ["chat-large-p5-48xlarge-1", "chat-large-p5-48xlarge-2"]


def test_a_platform_that_cuts_pools_alike_gets_one_pool_per_profile() -> None:
    text = page(voice_uniform())
    whole, cut = re.findall(r"gcloud container node-pools create (\S+) .*--accelerator (\S+) .*--num-nodes 1", text)
    assert whole == ("voice-assistant-a2-ultragpu-1g-whole", "type=nvidia-a100-80gb,count=1,gpu-driver-version=latest")
    assert cut[0].startswith("voice-assistant-a2-ultragpu-1g-3g-40gb")
    assert "gpu-partition-size=3g.40gb" in cut[1]
    selectors = {
        template["metadata"]["labels"]["app.kubernetes.io/name"]: template["spec"]["nodeSelector"]
        for template in pods("voice-uniform")
    }
    assert selectors["llm"]["rightslice/pool"] == whole[0]
    assert "cloud.google.com/gke-gpu-partition-size" not in selectors["llm"]
    assert selectors["asr"] == selectors["tts"]
    assert selectors["tts"]["cloud.google.com/gke-gpu-partition-size"] == "3g.40gb"


def test_machines_that_are_there_are_labelled_not_bought() -> None:
    text = page(voice(), "owned")
    assert "node-pools create" not in text
    assert "export NODES=  # names of 2 machines" in text
    assert "kubectl label node $NODES rightslice/pool=voice-assistant-a2-ultragpu-1g --overwrite" in text


def test_several_pools_have_variables_of_their_own() -> None:
    text = page(voice_uniform(), "reservation")
    assert '--reservation "$RESERVATION_1"' in text
    assert '--reservation "$RESERVATION_2"' in text
    assert text.count("export CLUSTER=") == 1


def test_an_attached_accelerator_is_not_part_of_the_machine_type() -> None:
    plan = uniform_slices()
    bare = replace(plan, pools=(replace(plan.pools[0], machine_type="n1-standard-8+1xT4"),))
    assert "--machine-type n1-standard-8 \\\n" in render(bare)["README.md"]
