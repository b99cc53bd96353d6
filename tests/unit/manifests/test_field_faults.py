"""Faults that were found in public manifests: none of them may be in ours."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from emitted import WORKLOADS, Object, emitted, objects, pods, server, tree

from plans import EVERY, large_llm, two_nodes, uniform_slices, voice
from rightslice.core.plan import Purchase

every_plan = pytest.mark.parametrize("name", sorted(EVERY))


@every_plan
def test_gpus_are_requested_as_limited_by_one_container(name: str) -> None:
    for pod in pods(name):
        resources = server(pod)["resources"]
        gpus = {key: count for key, count in resources["limits"].items() if key.startswith("nvidia.com/")}
        assert len(gpus) == 1
        assert all(isinstance(count, int) and count >= 1 for count in gpus.values())
        assert {key: resources["requests"][key] for key in gpus} == gpus
        assert {"cpu", "memory"} <= set(resources["requests"])
        assert "cpu" not in resources["limits"]


@every_plan
def test_images_are_pinned_and_nothing_is_privileged(name: str) -> None:
    for pod in pods(name):
        container = server(pod)
        assert re.search(r":[^/:]+$", container["image"])
        assert not container["image"].endswith(":latest")
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod["spec"])
        assert not [volume for volume in pod["spec"]["volumes"] if "hostPath" in volume]
        names = {variable["name"] for variable in container.get("env", [])}
        assert not {"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & names


@every_plan
def test_probes_leave_time_to_start_and_restart_only_what_hangs(name: str) -> None:
    for pod in pods(name):
        container = server(pod)
        if pod["metadata"]["labels"]["rightslice/role"] == "worker":
            assert "livenessProbe" not in container
            continue
        start, live = container["startupProbe"], container["livenessProbe"]
        assert start["failureThreshold"] * start["periodSeconds"] >= 600
        assert live["failureThreshold"] * live["periodSeconds"] >= 60
        declared = {port["name"] for port in container["ports"]}
        for probe in (start, container["readinessProbe"], live):
            assert "initialDelaySeconds" not in probe
            assert probe["httpGet"]["port"] in declared


@every_plan
def test_selectors_ports_mounts_and_budgets_agree(name: str) -> None:
    found = objects(tree(name))
    every_pod = pods(name)
    for workload in (one for one in found if one["kind"] == "Deployment"):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for service in (one for one in found if one["kind"] == "Service"):
        behind = [p for p in every_pod if service["spec"]["selector"].items() <= p["metadata"]["labels"].items()]
        assert behind
        for pod in behind:
            names = {port["name"] for port in server(pod)["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    accounts = {one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"}
    for pod in every_pod:
        assert pod["spec"]["serviceAccountName"] in accounts
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in server(pod)["volumeMounts"]} == volumes
        assert pod["spec"]["enableServiceLinks"] is False


@every_plan
def test_every_gpu_taint_is_tolerated(name: str) -> None:
    for pod in pods(name):
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]


def test_a_budget_never_blocks_a_drain() -> None:
    (budget,) = emitted(large_llm(), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert "minAvailable" not in budget["spec"]
    assert not emitted(voice(), "PodDisruptionBudget")


def test_a_rollout_takes_a_gpu_only_where_one_is_free() -> None:
    (full,) = emitted(large_llm(), "Deployment")
    assert full["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    (spare,) = emitted(uniform_slices(), "Deployment")
    assert spare["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    for rolled in (full, spare):
        start = server(rolled["spec"]["template"])["startupProbe"]
        assert rolled["spec"]["progressDeadlineSeconds"] > start["failureThreshold"] * start["periodSeconds"]


def test_several_gpus_share_memory_and_one_node() -> None:
    (chat,) = pods("large-llm")
    shared = {volume["name"]: volume["emptyDir"] for volume in chat["spec"]["volumes"]}
    assert shared["shm"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    assert server(chat)["resources"]["limits"] == {"nvidia.com/gpu": 4}
    llm = next(pod for pod in pods("voice") if pod["metadata"]["labels"]["app.kubernetes.io/name"] == "llm")
    assert [volume["name"] for volume in llm["spec"]["volumes"]] == ["cache"]


def test_resource_names_follow_the_strategy() -> None:
    asked = {
        name: [next(iter(server(pod)["resources"]["limits"])) for pod in pods(name)]
        for name in ("voice", "uniform-slices")
    }
    assert asked["voice"] == ["nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-3g.40gb"]
    assert asked["uniform-slices"] == ["nvidia.com/gpu"]
    (slice_pod,) = pods("uniform-slices")
    assert slice_pod["spec"]["nodeSelector"]["cloud.google.com/gke-gpu-partition-size"] == "1g.10gb"


def test_the_plans_arguments_are_the_pods_arguments() -> None:
    (chat,) = pods("large-llm")
    container = server(chat)
    planned = large_llm().models[0].deployments[0].engine.args
    assert container["command"] == ["vllm", "serve"]
    assert container["args"][0] == planned["--model"]
    flags = dict(text.partition("=")[::2] for text in container["args"][1:])
    assert flags == {**{k: v for k, v in planned.items() if k != "--model"}, "--shutdown-timeout": "45"}
    assert container["args"][1:] == sorted(container["args"][1:])


def grace(pod: Object) -> tuple[int, int, int]:
    flags = dict(text.partition("=")[::2] for text in server(pod)["args"])
    pause = server(pod)["lifecycle"]["preStop"]["sleep"]["seconds"]
    return pod["spec"]["terminationGracePeriodSeconds"], pause, int(flags["--shutdown-timeout"])


def test_running_requests_may_finish_and_spot_pods_keep_to_the_notice() -> None:
    (chat,) = pods("large-llm")
    total, pause, drain = grace(chat)
    assert total >= pause + drain + 15
    (spot,) = pods("uniform-slices")
    assert grace(spot) == (15, 5, 5)
    plan = uniform_slices()
    kept = replace(plan, pools=(replace(plan.pools[0], purchase=Purchase("on_demand", "list")),))
    assert grace(emitted(kept, "Deployment")[0]["spec"]["template"]) == (75, 15, 45)


def test_speech_images_get_their_keys_ports_and_shared_memory() -> None:
    asr = next(pod for pod in pods("voice") if pod["metadata"]["labels"]["app.kubernetes.io/name"] == "asr")
    assert asr["spec"]["imagePullSecrets"] == [{"name": "ngc-registry"}]
    assert {port["name"]: port["containerPort"] for port in server(asr)["ports"]} == {"http": 9000, "grpc": 50051}
    key = next(variable for variable in server(asr)["env"] if variable["name"] == "NGC_API_KEY")
    assert key["valueFrom"]["secretKeyRef"] == {"name": "ngc-api-key", "key": "NGC_API_KEY"}


def test_a_replica_over_two_nodes_is_one_group_behind_its_leader() -> None:
    found = objects(tree("two-nodes"))
    (group,) = (one for one in found if one["kind"] == "LeaderWorkerSet")
    (service,) = (one for one in found if one["kind"] == "Service")
    leader, worker = pods("two-nodes")
    parallel = two_nodes().models[0].deployments[0]
    size = group["spec"]["leaderWorkerTemplate"]["size"]
    assert size * server(leader)["resources"]["limits"]["nvidia.com/gpu"] == parallel.gpus_per_replica
    assert service["spec"]["selector"].items() <= leader["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= worker["metadata"]["labels"].items()
    assert group["metadata"]["name"] != service["metadata"]["name"]
    assert [a for a in server(worker)["args"] if a not in server(leader)["args"]] == ["--headless"]
    assert "--node-rank=$(LWS_WORKER_INDEX)" in server(leader)["args"]


def test_only_workloads_run_pods() -> None:
    kinds = {found["kind"] for name in EVERY for found in objects(tree(name))}
    expected = {"Namespace", "Service", "ServiceAccount", "PodDisruptionBudget", "ConfigMap", "ResourceQuota"}
    assert kinds == expected | set(WORKLOADS)


def test_ranks_over_two_nodes_have_all_their_gpus_and_say_how_many_they_are() -> None:
    """vLLM infers the ranks of each node from --nnodes, --node-rank and the sizes; workers run headless."""
    leader, worker = pods("two-nodes-of-ranks")
    for pod in (leader, worker):
        assert server(pod)["resources"]["limits"]["nvidia.com/gpu"] == 8
        found = server(pod)["args"]
        for flag in ("--data-parallel-size=16", "--enable-expert-parallel", "--tensor-parallel-size=1"):
            assert flag in found
        assert not any(flag.startswith("--pipeline-parallel-size") for flag in found)
