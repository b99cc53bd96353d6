"""Rollouts, drains and interruptions: whether a new pod finds a GPU, and an old one the time to finish."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from rightslice.catalogue.platforms import platforms
from rightslice.kube.lint.context import Context, is_slice, platforms_of
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.rules.lifetime import probe
from rightslice.kube.lint.values import Value, dig, entries, fields, shown, text, whole
from rightslice.kube.lint.workloads import Container, Pod

_DEFAULT_DEADLINE_S = 600
_DEFAULT_GRACE_S = 30
_TOLERATED_S = 60
_SPOT = {
    "cloud.google.com/gke-spot": "true", "kubernetes.azure.com/scalesetpriority": "spot",
    "karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-preemptible": "true",
}  # fmt: skip


def on_spot(pod: Pod, context: Context) -> str:
    """Why a pod runs on machines that may be taken away; empty where it does not."""
    for key, value in _SPOT.items():
        if value in pod.node_labels.get(key, ()):
            return f"{key}={value}"
        if any(text(found.get("key")) == key and found.get("operator") != "DoesNotExist" for found in pod.tolerations):
            return f"a toleration of {key}"
    chosen = pod.node_labels.get("cloud.google.com/compute-class", ())
    for pool in context.node_pools:
        rules = [fields(entry) for entry in entries(pool.get("spec", "priorities"))]
        if (
            pool.kind == "ComputeClass"
            and pool.name in chosen
            and rules
            and all(found.get("spot") is True for found in rules)
        ):
            return f"ComputeClass {pool.name}"
    return ""


@rule(
    "RS6410", "error",
    title="The rollout needs a spare GPU",
    why="With maxUnavailable 0 the new pod must start before an old one ends: without a free GPU it stays "
    "Pending and the rollout never ends.",
    fix="maxSurge 0 and maxUnavailable 1, or Recreate",
    evidence=(
        "defilantech/LLMKube#192",
        "ai-runway/airunway#400",
        "public manifest: ArchanaChetan07/ai-inference-observability-platform",
    ),
)  # fmt: skip
def gpu_deadlock(context: Context) -> Iterator[Hit]:
    """Written so in a Deployment whose pods take GPUs, without an autoscaler of nodes in sight."""
    for pod in context.pods:
        document = pod.document
        if (
            document.kind != "Deployment"
            or not pod.gpus
            or fields(document.get("spec", "strategy")).get("type") == "Recreate"
        ):
            continue
        rolling = fields(document.get("spec", "strategy", "rollingUpdate"))
        if "maxUnavailable" not in rolling:
            continue
        unavailable = _pods(rolling["maxUnavailable"], pod.replicas, up=False)
        surge = _pods(rolling.get("maxSurge", "25%"), pod.replicas, up=True)
        if unavailable == 0 and surge > 0 and pod.replicas > 0 and not _grows(context, pod, surge):
            gpus = surge * pod.gpus
            message = (
                f"maxSurge {surge}, maxUnavailable 0: each rollout needs {gpus} more free "
                f"GPU{'s' if gpus > 1 else ''}, else the new pod stays Pending and the rollout stalls"
            )
            yield Hit(document, ("spec", "strategy"), message)


def _grows(context: Context, pod: Pod, surge: int) -> bool:
    """Whether nodes are added for it, its autoscaler counts on room for more, or its GPUs have several slots."""
    if context.most_replicas(pod) >= pod.replicas + surge:
        return True
    if any(is_slice(container) or context.shared(container) for container in pod.containers):
        return True
    if "cloud.google.com/gke-gpu-partition-size" in pod.node_labels:
        return True
    return bool(context.hardware(pod).machines) or "cloud.google.com/compute-class" in pod.node_labels


def _pods(value: Value, replicas: int, *, up: bool) -> int:
    """A number or a percentage of the replicas, rounded as the controller does."""
    percent = re.fullmatch(r"(\d{1,3})%", shown(value))
    if percent is None:
        return whole(value) or 0
    exact = int(percent[1]) * replicas / 100
    return math.ceil(exact) if up else math.floor(exact)


@rule(
    "RS6411", "warn",
    title="The rollout is called failed while pods still load",
    why="progressDeadlineSeconds counts image pull and load; pipelines take its end for a failure.",
    fix="progressDeadlineSeconds of the image pull plus 1.5 times the startup window",
    evidence=("ai-runway/airunway#400",),
)  # fmt: skip
def deadline(context: Context) -> Iterator[Hit]:
    """Against the window of the startup probe."""
    for server in context.servers:
        document, start = server.pod.document, probe(server.container, "startup")
        if document.kind != "Deployment" or start is None:
            continue
        stated = whole(document.get("spec", "progressDeadlineSeconds"))
        if (stated or _DEFAULT_DEADLINE_S) + _TOLERATED_S < start.window_s:
            said = f"progressDeadlineSeconds {stated}" if stated else f"the default of {_DEFAULT_DEADLINE_S} s"
            message = f"{said}, but a pod may start for {start.window_s} s: the rollout is reported as failed before"
            path = ("spec", "progressDeadlineSeconds") if stated else ("spec",)
            yield Hit(document, path, message)


@rule(
    "RS6412", "warn",
    title="The grace ends before the drain",
    why="preStop and the engine's own drain count against terminationGracePeriodSeconds; what is left is killed "
    "with its requests.",
    fix="terminationGracePeriodSeconds of preStop + drain + 15 s",
    evidence=("llm-d: graceful shutdown", "public manifest: felipemoz/vllm-on-azure"),
)  # fmt: skip
def grace(context: Context) -> Iterator[Hit]:
    """What is written about both."""
    for server in context.servers:
        wait = pre_stop_s(server.container)
        drain = server.number("--shutdown-timeout") or 0.0
        granted = _DEFAULT_GRACE_S if server.pod.grace_s is None else server.pod.grace_s
        if wait + drain > granted or (drain and wait + drain == granted):
            message = (
                f"preStop {wait:.0f} s + drain {drain:.0f} s against a grace of {granted} s: running requests are cut"
            )
            yield Hit(server.pod.document, (*server.pod.path, "terminationGracePeriodSeconds"), message)


def pre_stop_s(container: Container) -> float:
    """Seconds that preStop waits."""
    hook = fields(dig(container.value, "lifecycle", "preStop"))
    slept = whole(dig(hook, "sleep", "seconds"))
    if slept is not None:
        return float(slept)
    script = " ".join(shown(word) for word in entries(dig(hook, "exec", "command")))
    match = re.search(r"\bsleep\s+(\d{1,5})", script)
    return float(match[1]) if match else 0.0


@rule(
    "RS6413", "warn",
    title="Little time to finish on spot machines",
    why="A spot machine leaves its pods seconds: long answers are cut unless admission stops at once and "
    "clients try again.",
    fix="stop admission in preStop at once, drain within the notice, and let the gateway retry",
    evidence=("platform facts of the catalogue", "public manifest: felipemoz/vllm-on-azure"),
)  # fmt: skip
def spot_grace(context: Context) -> Iterator[Hit]:
    """Grace as granted against the notice of the platform."""
    for server in context.servers:
        why = on_spot(server.pod, context)
        if not why:
            continue
        name = next(iter(platforms_of(server.pod)), "")
        notice = platforms()[name].spot_grace_s if name in platforms() else None
        granted = _DEFAULT_GRACE_S if server.pod.grace_s is None else server.pod.grace_s
        wait = pre_stop_s(server.container)
        path = (*server.pod.path, "terminationGracePeriodSeconds")
        if notice is not None and granted > notice:
            message = (
                f"grace {granted} s on {why}: the platform leaves pods {notice:.0f} s, the rest of the drain is lost"
            )
            yield Hit(server.pod.document, path, message)
        elif granted <= _DEFAULT_GRACE_S and "--shutdown-timeout" not in server.flags:
            told = f" with preStop {wait:.0f} s" if wait else ""
            message = f"grace {granted} s{told} on {why}: long generations are cut, drain must stop admission at once"
            yield Hit(server.pod.document, path, message)


@rule(
    "RS6414", "warn",
    title="All capacity can be taken away at once",
    why="One replica on spot machines is down for a node start and a load of the weights at every eviction.",
    fix="a smaller on-demand floor, or a second pool in another zone or of another machine",
    evidence=("public manifest: felipemoz/vllm-on-azure",),
)  # fmt: skip
def capacity_floor(context: Context) -> Iterator[Hit]:
    """A single replica."""
    for server in context.servers:
        why = on_spot(server.pod, context)
        if why and server.pod.replicas == 1 and context.most_replicas(server.pod) == 1:
            model = context.model(server)
            load = (
                f" and the load of {(model.weights_bytes or 0) / 1e9:.0f} GB" if model and model.weights_bytes else ""
            )
            message = f"one replica on spot ({why}): every eviction is an outage of a node start{load}"
            yield Hit(server.pod.document, ("spec", "replicas"), message)


@rule(
    "RS6415", "warn",
    title="A disruption budget that blocks every drain",
    why="Where no pod may be away, nodes cannot be drained: upgrades, consolidation and re-partitioning wait for ever.",
    fix="maxUnavailable: 1",
    evidence=("seen in public manifests",),
)  # fmt: skip
def blocks_drains(context: Context) -> Iterator[Hit]:
    """maxUnavailable 0, or minAvailable of all replicas."""
    for document in context.of("PodDisruptionBudget"):
        selector = fields(document.get("spec", "selector", "matchLabels"))
        for pod in context.pods:
            same = pod.namespace == document.namespace and bool(selector)
            if not same or not pod.gpus or any(pod.labels.get(key) != value for key, value in selector.items()):
                continue
            least = document.get("spec", "minAvailable")
            replicas = max(1, pod.replicas)
            kept = _pods(least, replicas, up=True) if least is not None else 0
            if shown(document.get("spec", "maxUnavailable")) in ("0", "0%") or kept >= replicas:
                said = f"minAvailable {shown(least)} of {replicas}" if least is not None else "maxUnavailable 0"
                yield Hit(document, ("spec",), f"{said} of {pod.document.name}: no node of it can ever be drained")
