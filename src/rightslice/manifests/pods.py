"""The pod of a model server. Every field has its reason in the README that is emitted beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from rightslice.catalogue.engines import EngineFacts, engines
from rightslice.kube.objects import Json, Object, filled
from rightslice.manifests.launch import HUB_TOKEN, SecretKey
from rightslice.manifests.timing import PROBE_PERIOD_S, Shutdown, shutdown, startup_budget_s
from rightslice.manifests.view import POOL_LABEL, Unit, is_local, is_shared, is_slice, weights_path

GIB: Final = 1024**3
SHM_GIB_PER_GPU: Final = 2
"""NCCL and the engine's own queues; vLLM's Kubernetes guide takes 2 GiB for one GPU and 15 GiB for eight."""

CACHE_MARGIN: Final = 1.2
CACHE_FIXED_GIB: Final = 10
"""Tokenizer, partial downloads and compiled kernels beside the weights."""

CPU_PER_SLICE: Final = 1
CPU_PER_GPU: Final = 1
CPU_FRONT_END: Final = 1
"""vLLM keeps one process busy per GPU besides its HTTP process. Small GPU machines have four CPUs, of which a little
over three can be asked for (g2-standard-4, g5.xlarge); a GPU may carry seven slices on twelve (a2-ultragpu-1g)."""

MEMORY_GIB_PER_SLICE: Final = 4
MEMORY_GIB_PER_GPU: Final = 8
"""Host memory of one engine process; the smallest GPU machines have 16 GiB."""

PRIVILEGED_PORTS: Final = 1024


def shm_gib(unit: Unit) -> int:
    """Size of /dev/shm: 2 GiB per GPU above one GPU, or what the engine or image asks for; 0 = the default 64 MB.

    Under MPS the device plugin mounts that of its daemon there.
    """
    if unit.deployment.partition == "mps":
        return 0
    for_gpus = SHM_GIB_PER_GPU * unit.gpus_per_pod if unit.gpus_per_pod > 1 else 0
    return max(for_gpus, unit.launch.shm_gib, unit.rule.shm_gib if unit.rule else 0)


def cache_gib(unit: Unit) -> int:
    """Room for the model cache of one pod: 1.2 x the weights + 10 GiB, in steps of 10 GiB."""
    return math.ceil((CACHE_MARGIN * unit.weights_bytes / GIB + CACHE_FIXED_GIB) / 10) * 10


def stop(unit: Unit) -> Shutdown:
    """How its pods stop; on spot machines within the notice that the platform leaves to pods."""
    granted_s = unit.pool.platform.spot_grace_s if unit.pool.pool.purchase.capacity == "spot" else None
    return shutdown(unit.model.expected.e2e_ms, granted_s)


def pod_template(unit: Unit, *, worker: bool = False) -> Object:
    """`template` of the workload; `worker` is a pod of a group that serves no HTTP."""
    marks: Object = {"labels": unit.pod_labels(worker=worker)}
    metrics = "" if worker else unit.deployment.engine.metrics_path
    if metrics:
        marks["annotations"] = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(ports(unit).get("metrics", unit.deployment.engine.port)),
            "prometheus.io/path": metrics,
        }
    return {"metadata": marks, "spec": _pod(unit, worker=worker)}


def _pod(unit: Unit, *, worker: bool) -> Object:
    rule = unit.rule
    return filled(
        {
            "serviceAccountName": unit.service,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": stop(unit).grace_s,
            "imagePullSecrets": [{"name": rule.pull_secret}] if rule else None,
            "nodeSelector": node_selector(unit),
            "affinity": _affinity(unit),
            "tolerations": tolerations(unit),
            "topologySpreadConstraints": _spread(unit),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(unit, worker=worker)],
            "volumes": _volumes(unit),
        }
    )


def node_selector(unit: Unit) -> dict[str, str]:
    """The pool's own label, the platform's label of the machine or accelerator, and the partition where it is fixed."""
    view = unit.pool
    found = {POOL_LABEL: view.name}
    values = _label_values(unit)
    if len(values) == 1:
        found[view.platform.accelerator_label] = values[0]
    if view.profile and view.platform.partition_label:
        found[view.platform.partition_label] = view.profile
    return found


def _label_values(unit: Unit) -> tuple[str, ...]:
    return unit.pool.platform.node_label_values(unit.pool.pool.accelerator, unit.pool.pool.machine_type)


def _affinity(unit: Unit) -> Object | None:
    """The accelerator's label where it has several spellings; a selector takes only one."""
    values = _label_values(unit)
    if len(values) < 2:
        return None
    match: Object = {"key": unit.pool.platform.accelerator_label, "operator": "In", "values": list(values)}
    terms: Object = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def tolerations(unit: Unit) -> list[Json]:
    """GPU nodes are tainted on some platforms and by our pool commands on others; AKS adds no toleration by itself."""
    platform = unit.pool.platform
    taints = [*platform.taints, *(platform.spot_taints if unit.pool.pool.purchase.capacity == "spot" else ())]
    keys = {taint.partition("=")[0].partition(":")[0]: taint.rpartition(":")[2] for taint in taints}
    keys.setdefault("nvidia.com/gpu", "NoSchedule")
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in sorted(keys.items())]


def _spread(unit: Unit) -> list[Json] | None:
    """Replicas over zones and nodes where there is room; never a reason to leave one waiting."""
    if unit.deployment.replicas.steady < 2 or unit.grouped:
        return None
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": unit.selector()},
            "matchLabelKeys": ["pod-template-hash"],
        }
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]


def ports(unit: Unit) -> dict[str, int]:
    """Named ports of the server: http first."""
    planned, facts = unit.deployment.engine, _facts(unit)
    further = {**unit.launch.ports, **(unit.rule.ports if unit.rule else {})}
    if facts and planned.metrics_path and facts.metrics_port != facts.port:
        further["metrics"] = facts.metrics_port
    return {"http": planned.port, **{name: port for name, port in further.items() if port != planned.port}}


def _facts(unit: Unit) -> EngineFacts | None:
    """The catalogue's row of its engine; None for a model that runs an image of its own."""
    return engines().get(unit.deployment.engine.name)


def _container(unit: Unit, *, worker: bool) -> Object:
    listed: list[Json] = [
        {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports(unit).items()
    ]
    mounts: list[Json] = [{"name": "cache", "mountPath": _cache_path(unit)}]
    if shm_gib(unit):
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - a mount point, not a temporary file
    if is_local(unit.model.source) and unit.deployment.engine.args:
        mounts.append({"name": "weights", "mountPath": weights_path(unit.model), "readOnly": True})
    probes = {} if worker else _probes(unit)
    return filled(
        {
            "name": "server",
            "image": unit.pulled_image,
            "command": list(command(unit)) or None,
            "args": arguments(unit, worker=worker) or None,
            "env": environment(unit) or None,
            "ports": None if worker else listed,
            "resources": _resources(unit),
            **probes,
            "lifecycle": {"preStop": {"sleep": {"seconds": stop(unit).pre_stop_s}}},
            "securityContext": _security(unit),
            "volumeMounts": mounts,
        }
    )


def command(unit: Unit) -> tuple[str, ...]:
    """What replaces the image's entry point; empty: it stays."""
    facts = _facts(unit)
    return unit.launch.command or (facts.command if facts else ())


def arguments(unit: Unit, *, worker: bool = False) -> list[str]:
    """The plan's arguments: the model first, flags in order; then what groups of pods and an orderly stop need."""
    launched = unit.launch
    planned = {flag: _weights(unit, value) for flag, value in unit.deployment.engine.args.items()}
    first = [planned.pop(launched.positional)] if launched.positional in planned else []
    first += [_weights(unit, word) for word in planned if not word.startswith("-")]
    flags = {flag: value for flag, value in planned.items() if flag.startswith("-")}
    drain = _drain_flag(unit)
    if drain:
        flags.setdefault(drain, str(stop(unit).drain_s))
    listed = [part for flag in sorted(flags) for part in _argument(flag, flags[flag], joined=launched.joined)]
    literal = [text.replace("$(", "$$(") for text in (*first, *listed)]
    nodes = launched.nodes
    if unit.grouped and nodes:
        literal += [*nodes.arguments, *(nodes.worker_arguments if worker else ())]
    return literal


def _weights(unit: Unit, value: str) -> str:
    return weights_path(unit.model) if value == unit.model.source and is_local(value) else value


def _argument(flag: str, value: str, *, joined: bool) -> list[str]:
    if value == "":
        return [flag]
    return [f"{flag}={value}"] if joined and flag.startswith("--") else [flag, value]


def _drain_flag(unit: Unit) -> str:
    """The flag that takes the seconds for running requests; empty where the engine has none or takes no arguments."""
    facts, planned = _facts(unit), unit.deployment.engine
    if facts is None or not planned.args:
        return ""
    try:
        return facts.drain_flag(planned.version)
    except KeyError:
        return ""


def environment(unit: Unit) -> list[Json]:
    """Constant variables, then those from secrets. No value of a secret is ever written."""
    facts, settings = _facts(unit), unit.deployment.engine.settings
    constant: dict[str, str] = {**unit.launch.environment, **(unit.rule.environment if unit.rule else {})}
    if facts and settings:
        constant |= facts.environment(settings, unit.model.source)
    if unit.launch.ready_timeout:
        constant[unit.launch.ready_timeout] = str(startup_budget_s(unit.weights_bytes))
    if unit.launch.hub_token and unit.mirrors.hub_endpoint:
        constant["HF_ENDPOINT"] = unit.mirrors.hub_endpoint
    listed: list[Json] = [{"name": name, "value": constant[name]} for name in sorted(constant)]
    if unit.grouped and unit.launch.nodes and unit.launch.nodes.address_variable:
        address: Mapping[str, Json] = {"fieldRef": {"fieldPath": "status.podIP"}}
        listed.append({"name": unit.launch.nodes.address_variable, "valueFrom": address})
    listed += [from_secret(key) for key in secret_keys(unit)]
    return listed


def secret_keys(unit: Unit) -> tuple[SecretKey, ...]:
    """The secrets that its variables come from."""
    hub = (HUB_TOKEN,) if unit.launch.hub_token else ()
    return (*hub, *((unit.rule.key,) if unit.rule else ()))


def from_secret(key: SecretKey) -> Object:
    """A variable whose value is a key of a secret."""
    reference = filled({"name": key.secret, "key": key.key, "optional": True if key.optional else None})
    return {"name": key.variable, "valueFrom": {"secretKeyRef": reference}}


def _resources(unit: Unit) -> Object:
    """GPUs in limits and requests alike; CPU and memory requested, not limited."""
    gpus: Object = {unit.resource: unit.gpus_per_pod}
    if is_slice(unit.deployment) or is_shared(unit.deployment):
        cpu, memory = CPU_PER_SLICE, MEMORY_GIB_PER_SLICE
    else:
        cpu = CPU_FRONT_END + CPU_PER_GPU * unit.gpus_per_pod
        memory = MEMORY_GIB_PER_GPU * unit.gpus_per_pod
    return {"limits": gpus, "requests": {"cpu": str(cpu), "memory": f"{memory}Gi", **gpus}}


def _probes(unit: Unit) -> Object:
    """Start-up by budget; readiness within 15 s; liveness after 60 s of silence, for a restart reloads the model."""
    facts = unit.deployment.engine
    check: Object = (
        {"httpGet": {"path": facts.health_path, "port": "http"}}
        if facts.health_path
        else {"tcpSocket": {"port": "http"}}
    )
    budget_s = startup_budget_s(unit.weights_bytes)
    return {
        "startupProbe": {
            **check,
            "periodSeconds": PROBE_PERIOD_S,
            "failureThreshold": budget_s // PROBE_PERIOD_S,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {**check, "periodSeconds": 5, "failureThreshold": 3, "timeoutSeconds": 5},
        "livenessProbe": {**check, "periodSeconds": 10, "failureThreshold": 6, "timeoutSeconds": 10},
    }


def _security(unit: Unit) -> Object:
    """No escalation, no capabilities. `runAsNonRoot` is left out: the public vLLM image has no user but root."""
    low = min(ports(unit).values()) < PRIVILEGED_PORTS
    capabilities = filled({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"] if low else None})
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def _cache_path(unit: Unit) -> str:
    return unit.rule.cache_path if unit.rule else unit.launch.cache_path


def _volumes(unit: Unit) -> list[Json]:
    volumes: list[Json] = [{"name": "cache", "emptyDir": {"sizeLimit": f"{cache_gib(unit)}Gi"}}]
    if shm_gib(unit):
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib(unit)}Gi"}})
    if is_local(unit.model.source) and unit.deployment.engine.args:
        claim: Object = {"claimName": weights_claim(unit), "readOnly": True}
        volumes.append({"name": "weights", "persistentVolumeClaim": claim})
    return volumes


def weights_claim(unit: Unit) -> str:
    """The claim with the weights of a model that no hub has; the reader makes it."""
    return f"{unit.service}-weights"
