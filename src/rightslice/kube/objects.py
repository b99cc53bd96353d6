"""Builders of plain Kubernetes objects. What a field should hold is decided elsewhere; here is only its shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
Object: TypeAlias = dict[str, Json]
Fields: TypeAlias = Mapping[str, Json]
Strings: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells objects apart; `namespace` is empty for cluster-wide kinds."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Metadata:
    """Name, place and marks of one object."""

    name: str
    namespace: str | None = None
    labels: Strings | None = None
    annotations: Strings | None = None

    def fields(self) -> Object:
        """As `metadata`; empty parts are left out."""
        return filled(
            {
                "name": self.name,
                "namespace": self.namespace,
                "labels": dict(self.labels) if self.labels else None,
                "annotations": dict(self.annotations) if self.annotations else None,
            }
        )


def filled(fields: Fields) -> Object:
    """The fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def identity(made: Fields) -> Identity:
    """Group, kind, namespace and name of an object."""
    marks = made.get("metadata")
    named = marks if isinstance(marks, Mapping) else {}
    return Identity(
        str(made.get("apiVersion", "")),
        str(made.get("kind", "")),
        str(named.get("namespace", "")),
        str(named.get("name", "")),
    )


def namespace(metadata: Metadata) -> Object:
    """v1 Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata.fields()}


def service_account(metadata: Metadata) -> Object:
    """v1 ServiceAccount whose token no pod gets: model servers do not call the API server."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata.fields(),
        "automountServiceAccountToken": False,
    }


def config_map(metadata: Metadata, data: Strings) -> Object:
    """v1 ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata.fields(), "data": dict(data)}


def service(metadata: Metadata, selector: Strings, ports: Mapping[str, int]) -> Object:
    """v1 Service, cluster-internal. Port names are the pods' port names, so that pods may listen on other numbers."""
    listed: list[Json] = [
        {"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in ports.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata.fields(),
        "spec": {"type": "ClusterIP", "selector": dict(selector), "ports": listed},
    }


def pod_disruption_budget(metadata: Metadata, selector: Strings, *, max_unavailable: int) -> Object:
    """policy/v1 PodDisruptionBudget by `maxUnavailable`: never blocks a drain for good, as `minAvailable` can."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata.fields(),
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": dict(selector)}},
    }


def resource_quota(metadata: Metadata, spec: Fields) -> Object:
    """v1 ResourceQuota."""
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata.fields(), "spec": dict(spec)}


def deployment(metadata: Metadata, spec: Fields) -> Object:
    """apps/v1 Deployment."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata.fields(), "spec": filled(spec)}


def horizontal_pod_autoscaler(metadata: Metadata, spec: Fields) -> Object:
    """autoscaling/v2 HorizontalPodAutoscaler."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata.fields(),
        "spec": dict(spec),
    }


def scaled_object(metadata: Metadata, spec: Fields) -> Object:
    """keda.sh/v1alpha1 ScaledObject."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata.fields(),
        "spec": dict(spec),
    }


def inference_objective(metadata: Metadata, pool: str, priority: int) -> Object:
    """llm-d.ai/v1alpha2 InferenceObjective: the priority of requests to an InferencePool of its namespace."""
    spec: Object = {
        "poolRef": {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": pool},
        "priority": priority,
    }
    return {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": metadata.fields(),
        "spec": spec,
    }


def job(metadata: Metadata, template: Fields) -> Object:
    """batch/v1 Job of one pod, tried once more where it fails."""
    spec: Object = {"backoffLimit": 1, "template": dict(template)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata.fields(), "spec": spec}


def persistent_volume_claim(metadata: Metadata, gib: int) -> Object:
    """v1 PersistentVolumeClaim of the cluster's default storage class, mounted by one node at a time."""
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{gib}Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata.fields(), "spec": spec}


def leader_worker_set(metadata: Metadata, spec: Fields) -> Object:
    """leaderworkerset.x-k8s.io/v1 LeaderWorkerSet: replicas that are groups of pods on several nodes."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata.fields(),
        "spec": filled(spec),
    }


def kustomization(resources: Sequence[str], images: Sequence[Strings] = ()) -> Object:
    """kustomize.config.k8s.io/v1beta1 Kustomization; `images` is where a user sets an image in one place."""
    return filled(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": list(resources),
            "images": [dict(image) for image in images] or None,
        }
    )


def kustomize_component(resources: Sequence[str]) -> Object:
    """kustomize.config.k8s.io/v1alpha1 Component: objects that an overlay adds."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": list(resources),
    }


def overlay(resources: Sequence[str], components: Sequence[str], patches: Sequence[Json] = ()) -> Object:
    """kustomize.config.k8s.io/v1beta1 Kustomization that adds components and changes what they hold."""
    return filled(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": list(resources),
            "components": list(components) or None,
            "patches": list(patches) or None,
        }
    )


def custom(api_version: str, kind: str, metadata: Metadata, spec: Fields) -> Object:
    """Any object with a spec."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata.fields(), "spec": filled(spec)}
