"""Whether a container is really granted the GPU that it runs on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.core.errors import Severity
from rightslice.kube.lint.context import Context, platforms_of
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.servers import image_engine, published
from rightslice.kube.lint.values import dig, entries, fields, quantity, shown, text
from rightslice.kube.lint.workloads import Container, Pod

_CUDA_IMAGE = re.compile(
    r"(?=.*(?:^|[-_./:])(?:cuda|cu1[0-9]{2}|gpu)(?:[-_.:0-9]|$))"
    r".*(?:whisper|speech|speaches|tts|asr|embed|rerank|diffusion|comfy|inference|localai|llama|triton|infinity)"
)
_CPU = re.compile(r"(?:^|[-_./:])(?:cpu|rocm|hpu|gaudi|neuron|tpu|xpu|openvino)(?:[-_.:]|$)")
_GPU_ENGINES = frozenset({"vllm", "sglang", "nim", "tensorrt-llm", "tgi"})
_AGENTS = re.compile(
    r"dcgm|device-plugin|gpu-operator|driver|node-feature|feature-discovery|toolkit|mig-manager|nvidia-smi|exporter|monitor|"
    r"nccl|cuda-sample|cuda-vector|validator|nvtop|gpustat"
)
_TAINT = "nvidia.com/gpu"
_LABELS_OF = {
    "GKE": ("cloud.google.com/",), "EKS": ("eks.amazonaws.com/", "karpenter.k8s.aws/"),
    "AKS": ("kubernetes.azure.com/", "karpenter.azure.com/"),
}  # fmt: skip
_ELSEWHERE = frozenset({
    "DaemonSet", "NIMService", "NIMPipeline", "ServingRuntime", "ClusterServingRuntime", "LLMInferenceServiceConfig",
    "RayCluster", "RayService", "RayJob", "Job", "CronJob",
})  # fmt: skip
"""Kinds whose GPUs another object requests, or an operator, and those that may only fetch or list something."""


def needs_cuda(container: Container) -> str:
    """Why a container cannot do without a GPU; empty where nothing says so."""
    words = " ".join((*container.command_words, *container.environment.values()))
    if _CPU.search(container.image) or re.search(r"--device[ =]cpu\b|VLLM_TARGET_DEVICE.?cpu", words):
        return ""
    if any(value == "cpu" for name, value in container.environment.items() if "DEVICE" in name):
        return ""
    for name, value in container.environment.items():
        if "DEVICE" in name and re.fullmatch(r"cuda(?::\d+)?|gpu", value, re.IGNORECASE):
            return f"{name}={value}"
    engine = image_engine(container.image)
    if engine in _GPU_ENGINES and published(container.image):
        return f"image {container.image}"
    if re.search(r"--device[ =]cuda|--n-gpu-layers[ =](?!0\b)|--gpus[ =]", words):
        return "its arguments ask for CUDA"
    return f"image {container.image}" if _CUDA_IMAGE.match(container.image) else ""


def _serves(container: Container, context: Context) -> bool:
    """A container that runs for good and is no agent of the GPU itself."""
    known = context.server_in(container) is not None
    command = bool(container.value.get("command"))
    starts = known or not command or "DEVICE" in "".join(container.environment)
    return starts and not _AGENTS.search(container.image + container.name) and not container.init


def _exempt(pod: Pod) -> bool:
    return pod.document.kind in _ELSEWHERE or pod.document.namespace in (
        "gpu-operator", "kube-system", "nvidia-gpu-operator",
    )  # fmt: skip


def _bypass(pod: Pod, container: Container) -> str:
    """The way around the device plugin that a pod takes; empty for none."""
    if shown(pod.spec.get("runtimeClassName")).startswith("nvidia"):
        return f"runtimeClassName {pod.spec['runtimeClassName']}"
    devices = container.environment.get("NVIDIA_VISIBLE_DEVICES", "")
    return f"NVIDIA_VISIBLE_DEVICES={devices}" if devices and devices not in ("none", "void") else ""


@rule(
    "RS6201", "error",
    title="No GPU is requested",
    why="The device plugin gives a container only what it requests; a CUDA engine without a device ends at start.",
    fix="resources.limits: {nvidia.com/gpu: 1}",
    evidence=("public manifest: HarshithaJ28/llm-infrastructure",),
)  # fmt: skip
def no_request(context: Context) -> Iterator[Hit]:
    """A CUDA server in a pod that is granted nothing at all."""
    for pod in context.pods:
        if pod.accelerated or _exempt(pod) or context.limit_range_gpu(pod.namespace):
            continue
        for container in pod.containers:
            reason = needs_cuda(container)
            if reason and _serves(container, context) and not _bypass(pod, container):
                message = f"container {container.name} needs CUDA ({reason}) and requests no nvidia.com/gpu: no device"
                yield Hit(
                    container.document, (*container.path, "resources"), f"{message} is injected, it ends at start"
                )


@rule(
    "RS6202", "error",
    title="One container has the GPU, another uses it",
    why="A GPU is injected into the container that requests it, not into the pod: its neighbours see no device, unless "
    "the runtime shows all of them to everybody.",
    fix="a slot of its own (MIG, time-slicing or MPS), a pod of its own, or both processes in one container",
    evidence=("public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",),
)  # fmt: skip
def container_without_request(context: Context) -> Iterator[Hit]:
    """CUDA beside a container with a GPU."""
    for pod in context.pods:
        if not pod.gpus or _exempt(pod):
            continue
        for container in pod.containers:
            reason = "" if container.accelerators or container.claims else needs_cuda(container)
            if reason and _serves(container, context):
                holder = next(c.name for c in pod.containers if c.nvidia)
                message = (
                    f"container {container.name} runs CUDA ({reason}) but only {holder} requests the GPU: the device "
                    "plugin injects nothing into it"
                )
                yield Hit(container.document, (*container.path, "resources"), message)


@rule(
    "RS6203", "error",
    title="The GPU is taken past the scheduler",
    why="Access by the runtime class alone is seen by no scheduler, quota or cost report: any number of pods "
    "land on the same GPU.",
    fix="request nvidia.com/gpu; to share, configure time-slicing or MPS in the device plugin",
    evidence=("public manifest: Angel-FulFilment-Services/Angel-Intelligence, 2026-02",),
)  # fmt: skip
def bypasses_scheduler(context: Context) -> Iterator[Hit]:
    """NVIDIA's runtime class or devices by variable, and no request."""
    for pod in context.pods:
        if pod.accelerated or _exempt(pod) or context.limit_range_gpu(pod.namespace):
            continue
        container = next((c for c in pod.containers if _serves(c, context) and _bypass(pod, c)), None)
        if container is not None:
            how = _bypass(pod, container)
            message = f"no nvidia.com/gpu request, access by {how} only: scheduler, quotas and cost do not see the GPU"
            yield Hit(pod.document, (*container.path, "resources"), message)


@rule(
    "RS6204", "error",
    title="Every container of the namespace gets a GPU",
    why="A LimitRange default applies to each container that names no GPU: proxies and sidecars take cards.",
    fix="leave nvidia.com/gpu out of default and defaultRequest; limit it by ResourceQuota",
    evidence=("public manifest: opeyemibami/inferex, 2026-06",),
)  # fmt: skip
def limit_range(context: Context) -> Iterator[Hit]:
    """With the containers here that would get one."""
    for document in context.of("LimitRange"):
        if context.limit_range_gpu(document.namespace) is not document:
            continue
        takers = [
            f"{pod.document.name}/{container.name}"
            for pod in context.pods if pod.namespace == document.namespace
            for container in pod.containers if not container.accelerators
        ]  # fmt: skip
        named = f": {', '.join(takers[:3])} would take one" if takers else ""
        message = f"containers that name no GPU get one by default{named}"
        yield Hit(document, ("spec", "limits"), message)


@rule(
    "RS6205", "error",
    title="Request and limit of the GPU differ",
    why="Extended resources cannot be overcommitted: a request must equal the limit, both whole, and the limit "
    "must be there.",
    fix="the same whole number in limits, and in requests or not at all",
    evidence=("Kubernetes: extended resources",),
)  # fmt: skip
def request_limit(context: Context) -> Iterator[Hit]:
    """Per container and resource."""
    for pod in context.pods:
        for container in (*pod.containers, *pod.init_containers):
            limits, requests = (fields(dig(container.value, "resources", kind)) for kind in ("limits", "requests"))
            for name in {*limits, *requests}:
                if not name.startswith(("nvidia.com/", "amd.com/gpu", "gpu.intel.com/", "google.com/tpu")):
                    continue
                limit, asked = quantity(limits.get(name)), quantity(requests.get(name))
                path = (*container.path, "resources", "limits" if name in limits else "requests", name)
                if limit is None and asked:
                    yield Hit(
                        container.document, path, f"{name} is requested without a limit: the API server refuses it"
                    )
                elif limit is not None and asked is not None and limit != asked:
                    yield Hit(container.document, path, f"{name}: request {asked:g}, limit {limit:g}: refused")
                elif limit is not None and limit != int(limit):
                    yield Hit(container.document, path, f"{name}: {limit:g} is no whole number: refused")


@rule(
    "RS6206", "warn",
    title="The container sees every GPU of the node",
    why="NVIDIA_VISIBLE_DEVICES=all overrides what the device plugin has allocated: the process may use its "
    "neighbours' cards.",
    fix="leave the variable out",
    evidence=("public manifest: jlengelbrecht/prox-ops, 2026-01", "public manifest: jlengelbrecht/prox-ops, 2026-08"),
)  # fmt: skip
def visible_devices_all(context: Context) -> Iterator[Hit]:
    """An error where GPUs are shared or several pods want them."""
    for pod in context.pods:
        for container in pod.containers:
            granted = container.nvidia or container.claims
            if container.environment.get("NVIDIA_VISIBLE_DEVICES") != "all" or not granted or _exempt(pod):
                continue
            shared = context.shared(container) is not None
            message = "NVIDIA_VISIBLE_DEVICES=all overrides what the device plugin allocated" + (
                ": with GPUs shared, every card is seen whatever slot was granted" if shared else ""
            )
            severity: Severity = "error" if shared else "warn"
            yield Hit(container.document, (*container.path, "env"), message, "", severity)


@rule(
    "RS6207", "warn",
    title="GPUs chosen by number",
    why="The device plugin already shows a container only its own GPUs, numbered from 0; a number chosen by "
    "hand is right by luck.",
    fix="leave CUDA_VISIBLE_DEVICES out",
    evidence=("a public manifest", "vllm-project/vllm#6551"),
)  # fmt: skip
def cuda_visible_devices(context: Context) -> Iterator[Hit]:
    """In containers that request GPUs."""
    for pod in context.pods:
        for container in pod.containers:
            value = container.environment.get("CUDA_VISIBLE_DEVICES", "")
            if value and container.accelerators:
                message = f'CUDA_VISIBLE_DEVICES="{value[:40]}" is set by hand; the plugin already restricts devices'
                yield Hit(container.document, (*container.path, "env"), message)


@rule(
    "RS6208", "error",
    title="No toleration for the GPU taint",
    why="A pod that does not tolerate the taint of its nodes stays Pending. GKE adds the toleration to pods "
    "that request GPUs; other platforms do not.",
    fix="tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]",
    evidence=("Azure/AKS#1449", "public manifest: adityonugrohoid/gpu-autoscale-inference, 2026-03"),
)  # fmt: skip
def toleration_missing(context: Context) -> Iterator[Hit]:
    """An error against a taint of a node pool here; on GKE, where it is added, a word about others where nodes come
    and go with the pod."""
    for pod in context.pods:
        if not pod.gpus or pod.document.kind in ("NIMService", "NIMPipeline"):
            continue
        path = (*pod.path, "tolerations")
        pools = [pool for pool in context.of("NodePool") if not _tolerated(pod, pool)]
        if pools and not any(_tolerated(pod, pool) for pool in context.of("NodePool") if _has_gpu_taint(pool)):
            tainted = next((pool for pool in pools if _has_gpu_taint(pool)), None)
            if tainted is not None:
                message = (
                    f"NodePool {tainted.name} taints its nodes with {_TAINT}, this pod does not tolerate it: Pending"
                )
                yield Hit(pod.document, path, message)
        elif "gke" in platforms_of(pod) and not pod.tolerations and not pools and _from_zero(context, pod):
            message = (
                "GKE adds the toleration of the nvidia.com/gpu taint by itself; on any other platform it "
                "must be written"
            )
            yield Hit(pod.document, path, message, "", "info")


def _from_zero(context: Context, pod: Pod) -> bool:
    """Whether each wake-up needs a node that is not there yet."""
    scaler = context.scaler(pod)
    return pod.replicas == 0 or pod.least == 0 or (scaler is not None and scaler.least == 0)


def _has_gpu_taint(pool: object) -> bool:
    taints = entries(pool.get("spec", "template", "spec", "taints"))  # type: ignore[attr-defined]
    return any(text(fields(taint).get("key")) == _TAINT for taint in taints)


def _tolerated(pod: Pod, pool: object) -> bool:
    taints = entries(pool.get("spec", "template", "spec", "taints"))  # type: ignore[attr-defined]
    return all(
        pod.tolerates(text(fields(t).get("key")), shown(fields(t).get("value")), text(fields(t).get("effect")))
        for t in taints
    )


@rule(
    "RS6213", "error",
    title="Labels that no node has together",
    why="Labels of two platforms in one selector match no node: the pod stays Pending.",
    fix="the labels of one platform",
    evidence=("seen in public manifests",),
)  # fmt: skip
def selector_contradiction(context: Context) -> Iterator[Hit]:
    """GKE, EKS, AKS and Karpenter labels in one pod, and labels of GKE beside a Karpenter pool."""
    for pod in context.pods:
        found = {
            name for name, mark in _LABELS_OF.items() if any(key.startswith(mark) for key in pod.node_labels)
        }  # fmt: skip
        if len(found) > 1 and pod.accelerated:
            message = f"its selector has labels of {' and '.join(sorted(found))}: no node has both"
            yield Hit(pod.document, (*pod.path, "nodeSelector"), message)
