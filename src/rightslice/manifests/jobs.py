"""What one-off GPU Jobs share: pod, variables, volumes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rightslice.kube.objects import Json, Metadata, Object, filled, job
from rightslice.manifests.launch import HUB_TOKEN
from rightslice.manifests.mirrors import AS_PUBLISHED, Mirrors
from rightslice.manifests.pods import CACHE_FIXED_GIB, CACHE_MARGIN, from_secret

GIB: Final = 1024**3
CACHE_PATH: Final = "/cache"
CPU_PER_GPU: Final = 4
HOST_MEMORY_MARGIN: Final = 1.2
HOST_MEMORY_FIXED_GIB: Final = 16
"""Host memory of a Job: 1.2 x the 16-bit weights, which are read into it, + 16 GiB: assumed, nobody measured it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Job runs: resource that it asks for, node labels (empty: any node with it), tolerated taints, and where
    its image and models come from there.
    """

    namespace: str | None = None
    resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Json] = ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)
    mirrors: Mirrors = AS_PUBLISHED


@dataclass(frozen=True, slots=True)
class Step:
    """One container: its GPUs, and the shell commands that must all succeed."""

    name: str
    image: str
    commands: tuple[tuple[str, ...], ...]
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """A Job: its last step is its container, the others run before it one after the other. `weights_bytes`: 16-bit
    weights that pass through host memory and cache. `claims`: claim -> path; `scripts`: config map -> path.
    """

    name: str
    steps: tuple[Step, ...]
    weights_bytes: int
    claims: Mapping[str, str]
    scripts: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def storage_gib(weights_bytes: int) -> int:
    """Room for weights and what lies beside them: 1.2 x + 10 GiB, in steps of 10 GiB."""
    return math.ceil((CACHE_MARGIN * weights_bytes / GIB + CACHE_FIXED_GIB) / 10) * 10


def task(asked: Task, place: Place) -> Object:
    """The Job. No value of a secret is written; pods get no API token and may not gain privileges."""
    *before, last = [_container(asked, step, place) for step in asked.steps]
    pod = filled(
        {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": dict(place.node_selector) or None,
            "tolerations": list(place.tolerations),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": before or None,
            "containers": [last],
            "volumes": _volumes(asked),
        }
    )
    metadata = Metadata(asked.name, place.namespace, asked.labels, asked.annotations)
    return job(metadata, {"metadata": {"labels": dict(asked.labels)}, "spec": pod})


def _container(asked: Task, step: Step, place: Place) -> Object:
    script = " && ".join(shlex.join(command) for command in step.commands)
    hub: Object = {"HF_ENDPOINT": place.mirrors.hub_endpoint} if place.mirrors.hub_endpoint else {}
    constant: Object = {
        **hub,
        "HF_HOME": f"{CACHE_PATH}/huggingface",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    mounts: list[Json] = [{"name": name, "mountPath": path} for name, path in _mounts(asked)]
    return {
        "name": step.name,
        "image": place.mirrors.image(step.image),
        "command": ["sh", "-c", script.replace("$(", "$$(")],
        "env": [*({"name": name, "value": value} for name, value in constant.items()), from_secret(HUB_TOKEN)],
        "resources": _resources(asked, step, place),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }


def _resources(asked: Task, step: Step, place: Place) -> Object:
    if not step.gpus:
        return {"requests": {"cpu": "1", "memory": "1Gi"}}
    memory = math.ceil(HOST_MEMORY_MARGIN * asked.weights_bytes / GIB + HOST_MEMORY_FIXED_GIB)
    gpus: Object = {place.resource: step.gpus}
    return {"limits": gpus, "requests": {"cpu": str(CPU_PER_GPU * step.gpus), "memory": f"{memory}Gi", **gpus}}


def _mounts(asked: Task) -> list[tuple[str, str]]:
    named = [*asked.claims.items(), *asked.scripts.items()]
    return [("cache", CACHE_PATH), ("results", "/results"), ("shm", "/dev/shm"), *named]  # noqa: S108 - a mount point


def _volumes(asked: Task) -> list[Json]:
    claims: list[Json] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in asked.claims]
    scripts: list[Json] = [{"name": name, "configMap": {"name": name}} for name in asked.scripts]
    return [
        {"name": "cache", "emptyDir": {"sizeLimit": f"{storage_gib(asked.weights_bytes)}Gi"}},
        {"name": "results", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
        *claims,
        *scripts,
    ]
