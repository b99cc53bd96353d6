"""Small manifests for the tests of rules: a server without fault, and what to change about it."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from rightslice.kube.lint.documents import Read, parse
from rightslice.kube.lint.finding import Finding
from rightslice.kube.lint.run import lint

Object = dict[str, Any]
REMOVED = "(removed)"
"""A value that takes a key away."""

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
GPU = "nvidia.com/gpu"
SMALL = "Qwen/Qwen2.5-1.5B-Instruct"


def merged(base: Any, changes: Any) -> Any:
    """`base` with `changes` put in, mappings deeply; lists and scalars are replaced."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return copy.deepcopy(changes)
    made = {key: value for key, value in copy.deepcopy(base).items() if changes.get(key) != REMOVED}
    for key, value in changes.items():
        if value != REMOVED:
            made[key] = merged(made.get(key), value)
    return made


def probe(path: str = "/health", port: Any = "http", **more: Any) -> Object:
    """An HTTP probe."""
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 10, **more}


CONTAINER: Object = {
    "name": "server",
    "image": "vllm/vllm-openai:v0.33.0",
    "args": ["--model", MODEL, "--max-model-len", "8192", "--gpu-memory-utilization", "0.90"],
    "ports": [{"name": "http", "containerPort": 8000}],
    "resources": {"requests": {"cpu": "4", "memory": "24Gi", GPU: 1}, "limits": {"memory": "48Gi", GPU: 1}},
    "startupProbe": probe(failureThreshold=60),
    "readinessProbe": probe(),
    "livenessProbe": probe(failureThreshold=6),
    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
}
POD: Object = {
    "enableServiceLinks": False,
    "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
    "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
    "terminationGracePeriodSeconds": 60,
    "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "chat-weights"}}],
}


def server(
    container: Object | None = None, pod: Object | None = None, spec: Object | None = None, name: str = "chat"
) -> Object:
    """A Deployment of vLLM that no rule has a word about, with changes."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {**merged(POD, pod or {}), "containers": [merged(CONTAINER, container or {})]},
    }
    base = {
        "replicas": 1,
        "progressDeadlineSeconds": 1500,
        "selector": {"matchLabels": labels},
        "strategy": {"type": "Recreate"},
        "template": template,
    }
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": base}
    return merged(made, {"spec": spec or {}}) if spec else made


def args(*words: str, model: str = MODEL) -> Object:
    """A container's arguments behind the model."""
    return {"args": ["--model", model, *words]}


def gpus(count: Any, name: str = GPU) -> Object:
    """Resources with so many GPUs."""
    named = {GPU: REMOVED, name: count}
    return {"resources": {"requests": named, "limits": named}}


def on(product: str) -> Object:
    """A pod on nodes with that GPU."""
    return {"nodeSelector": {"nvidia.com/gpu.product": product}}


def config_map(data: dict[str, str], name: str = "device-plugin-config") -> Object:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def shared(mode: str = "timeSlicing", replicas: Any = 2, *, rename: bool = False, name: str = GPU) -> Object:
    """A configuration of the device plugin that shares."""
    block = {"renameByDefault": rename, "resources": [{"name": name, "replicas": replicas}]}
    return config_map({"config.yaml": yaml.safe_dump({"version": "v1", "sharing": {mode: block}})})


def mig(layout: str, **profiles: int) -> Object:
    """A layout of mig-parted for all GPUs; `_1g_10gb=7` is 7 x 1g.10gb."""
    named = {key.strip("_").replace("_", "."): count for key, count in profiles.items()}
    rows = [{"devices": "all", "mig-enabled": True, "mig-devices": named}]
    text = yaml.safe_dump({"version": "v1", "mig-configs": {layout: rows}})
    return config_map({"config.yaml": text}, "mig-config")


def strategy(value: str) -> Object:
    """A ClusterPolicy that sets the MIG strategy."""
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy"},
        "spec": {"mig": {"strategy": value}},
    }


def service(name: str = "chat", **spec: Any) -> Object:
    """A Service of the server."""
    base = {"selector": {"app": "chat"}, "ports": [{"port": 80, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {**base, **spec}}


def hpa(*metrics: Object, target: str = "chat", **spec: Any) -> Object:
    """An HPA of the server."""
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    base = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 3, "metrics": list(metrics)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{target}-hpa"},
        "spec": {**base, **spec},
    }


def of_pods(name: str, target: Any) -> Object:
    """A metric of pods, averaged."""
    goal = {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": goal}}


def of_cpu(use: int = 70) -> Object:
    """CPU use."""
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": use}},
    }


def keda(query: str, threshold: str = "4", trigger: Object | None = None, **spec: Any) -> Object:
    """A ScaledObject of the server on one query."""
    metadata = {"serverAddress": "http://prometheus:9090", "query": query, "threshold": threshold}
    made = {"type": "prometheus", "metadata": metadata, **(trigger or {})}
    base = {"scaleTargetRef": {"name": "chat"}, "minReplicaCount": 1, "maxReplicaCount": 3, "triggers": [made]}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "chat-scaler"},
        "spec": {**base, **spec},
    }


def alert(expr: str, name: str = "Alert") -> Object:
    """A PrometheusRule with one alert."""
    rule = {"alert": name, "expr": expr, "for": "5m", "labels": {"severity": "warning"}}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "alerts"},
        "spec": {"groups": [{"name": "gpu", "rules": [rule]}]},
    }


def node_pool(requirements: dict[str, list[str]], **spec: Any) -> Object:
    """A Karpenter NodePool for GPUs."""
    listed = [{"key": key, "operator": "In", "values": values} for key, values in requirements.items()]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
    template = {
        "spec": {"nodeClassRef": reference, "requirements": listed, "taints": [{"key": GPU, "effect": "NoSchedule"}]}
    }
    base = {
        "template": template,
        "limits": {GPU: 8},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m"},
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": merged(base, spec),
    }


FAMILY = {"karpenter.k8s.aws/instance-family": ["g5", "g6"]}
TYPE = {"node.kubernetes.io/instance-type": ["g5.xlarge"]}


def compute_class(*priorities: Object, version: str = "cloud.google.com/v1", **spec: Any) -> Object:
    """A GKE ComputeClass."""
    base = {"nodePoolAutoCreation": {"enabled": True}, "priorities": list(priorities)}
    return {"apiVersion": version, "kind": "ComputeClass", "metadata": {"name": "gpus"}, "spec": {**base, **spec}}


def nim(**spec: Any) -> Object:
    """A NIMService."""
    base = {
        "image": {"repository": "nvcr.io/nim/meta/llama-3.1-8b-instruct", "tag": "1.8.0", "pullSecrets": ["ngc"]},
        "authSecret": "ngc-api",
        "storage": {"nimCache": {"name": "cache"}},
        "expose": {"service": {"port": 8000}},
        "resources": {"limits": {GPU: 1}},
        "replicas": 1,
    }
    return {
        "apiVersion": "apps.nvidia.com/v1alpha1",
        "kind": "NIMService",
        "metadata": {"name": "llm"},
        "spec": merged(base, spec),
    }


def read(*objects: Object) -> Read:
    """Objects as one file."""
    return parse(yaml.safe_dump_all(objects, sort_keys=False), "manifests.yaml")


def found(*objects: Object) -> tuple[Finding, ...]:
    """What the rules find in them."""
    return lint(read(*objects).documents)


def codes(*objects: Object) -> set[str]:
    """The codes of that."""
    return {finding.rule for finding in found(*objects)}
