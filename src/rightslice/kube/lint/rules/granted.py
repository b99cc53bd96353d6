"""Whether a container is really granted the GPU that it runs on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.catalogue.accelerators import accelerators, device
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.mig import geometry
from rightslice.core.errors import Severity
from rightslice.kube.lint.context import Context, platforms_of
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.servers import image_engine
from rightslice.kube.lint.sharing import strategies
from rightslice.kube.lint.values import dig, entries, fields, quantity, shown, text, whole
from rightslice.kube.lint.workloads import GPU, MIG, Container, Pod

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
_ELSEWHERE = frozenset({
    "DaemonSet", "NIMService", "NIMPipeline", "ServingRuntime", "ClusterServingRuntime", "LLMInferenceServiceConfig",
})  # fmt: skip
"""Kinds whose GPUs another object requests, or an operator."""


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
    if engine in _GPU_ENGINES:
        return f"image {container.image}"
    if re.search(r"--device[ =]cuda|--n-gpu-layers[ =](?!0\b)|--gpus[ =]", words):
        return "its arguments ask for CUDA"
    return f"image {container.image}" if _CUDA_IMAGE.match(container.image) else ""


def _serves(container: Container, context: Context) -> bool:
    """A container that runs for good and is no agent of the GPU itself."""
    known = any(server.container is container for server in context.servers)
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
    "land on the "
    "same GPU.",
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
    "that request "
    "GPUs; other platforms do not.",
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
    "RS6209", "error",
    title="A resource that the MIG strategy does not publish",
    why="Strategy mixed publishes nvidia.com/mig-<profile>, single publishes nvidia.com/gpu for slices: a pod "
    "that asks "
    "for the other name stays Pending.",
    fix="ask for the name of the strategy, or change the strategy",
    evidence=(
        "NVIDIA/k8s-device-plugin#1433",
        "NVIDIA/gpu-operator#518",
        "public manifest: OCP-on-NERC/nerc-ocp-config, 2024-03",
    ),
)  # fmt: skip
def mig_resource_name(context: Context) -> Iterator[Hit]:
    """Where one strategy is stated, or a sharing configuration renames."""
    strategy = context.mig_strategy
    where = next(
        (f"{d.label or 'configuration'}" for d, _, found in strategies(context.documents) if found == strategy), ""
    )
    cut = [entry for entry in context.mig if entry.enabled]
    for pod in context.pods:
        for container in pod.containers:
            for name in container.nvidia:
                path = (*container.path, "resources")
                if strategy == "mixed" and name == GPU and (cut or not context.mig) and not _elsewhere(context, pod):
                    message = (
                        f"{where} sets strategy mixed, which publishes nvidia.com/mig-*; {GPU} stays "
                        "Pending on cut GPUs"
                    )
                    profiles = sorted({profile for entry in cut for profile in entry.profiles})
                    fix = f"ask for {', '.join(MIG + profile for profile in profiles[:4])}" if profiles else ""
                    yield Hit(container.document, path, message, fix)
                elif strategy == "single" and name.startswith(MIG):
                    message = f"{where} sets strategy single, which publishes slices as {GPU}; {name} stays Pending"
                    yield Hit(container.document, path, message, f"ask for {GPU}")
                elif strategy == "none" and name.startswith(MIG):
                    yield Hit(container.document, path, f"{where} sets strategy none: no {name} is published")
    yield from _renamed(context)


def _elsewhere(context: Context, pod: Pod) -> bool:
    """Whether a pod selects nodes that some layout leaves whole."""
    label = pod.node_labels.get("nvidia.com/mig.config", ())
    whole = {entry.layout for entry in context.mig if not entry.enabled} - {e.layout for e in context.mig if e.enabled}
    partly = {e.layout for e in context.mig if not e.enabled} & {e.layout for e in context.mig if e.enabled}
    return (
        (bool(label) and set(label) <= whole) or bool(partly) or bool(context.hardware(pod).devices and pod.node_labels)
    )


def _renamed(context: Context) -> Iterator[Hit]:
    """nvidia.com/gpu.shared without a configuration that makes it, and the other way round."""
    if not context.sharing:
        return
    offered = {
        shared.rename or (f"{shared.name}.shared" if sharing.renames else shared.name)
        for sharing in context.sharing for shared in sharing.resources
    }  # fmt: skip
    for pod in context.pods:
        for container in pod.containers:
            for name in container.nvidia:
                if name.endswith(".shared") and name not in offered:
                    message = f"no sharing configuration here publishes {name} (renameByDefault is off): Pending"
                    yield Hit(container.document, (*container.path, "resources"), message, f"ask for {min(offered)}")


@rule(
    "RS6210", "error",
    title="One engine over several MIG slices",
    why="A CUDA process sees one MIG instance, and instances have no path to each other: ranks cannot talk.",
    fix="one slice for each replica, or whole GPUs",
    evidence=("vllm-project/vllm#7211", "NVIDIA/nccl#1716", "public manifest: sozercan/k8s-distributed-inference"),
)  # fmt: skip
def tp_across_slices(context: Context) -> Iterator[Hit]:
    """Several slices by name, or GPUs of nodes on which every one is cut."""
    for server in context.servers:
        container = server.container
        slices = sum(count for name, count in container.nvidia.items() if name.startswith(MIG))
        cut = _all_cut(context, server.pod)
        if slices > 1 or (cut and container.nvidia.get(GPU, 0) > 1) or (slices == 1 and server.ranks > 1):
            count = slices or container.nvidia[GPU]
            what = (
                f"{count} MIG slices" if slices else f"{GPU}: {count} means {count} slices of {cut} (strategy single)"
            )
            ranks = f", {server.ranks} ranks" if server.ranks > 1 else ""
            message = f"{what}{ranks}: tensor parallelism across MIG instances does not work"
            yield Hit(container.document, (*container.path, "resources"), message)


def _all_cut(context: Context, pod: Pod) -> str:
    """The profile into which every GPU here is cut alike, when strategy single gives slices the plain name."""
    enabled = [entry for entry in context.mig if entry.enabled]
    profiles = {profile for entry in enabled for profile in entry.profiles}
    if not enabled or len(profiles) != 1 or context.mig_strategy not in ("", "single"):
        return ""
    if any(not entry.enabled for entry in context.mig) or "nvidia.com/mig.config" in pod.node_labels:
        return ""
    if any("nvidia.com/gpu.product" in key or "pool" in key for key in pod.node_labels):
        return ""
    return next(iter(profiles))


def slice_device(context: Context, pod: Pod) -> Device | None:
    """The slice that a pod gets where every GPU is cut alike."""
    profile = _all_cut(context, pod)
    most = max((whole(entry.profiles.get(profile)) or 0 for entry in context.mig), default=0)
    for name in accelerators():
        table = geometry(name)
        rows = [row for row in table.profiles if row.name == profile] if table and profile else []
        if rows and rows[0].max_instances >= most:
            return device(name, profile)
    return None


@rule(
    "RS6211", "error",
    title="A MIG profile that no GPU has",
    why="Profile names depend on the memory of the card: 2g.10gb exists on 40 GB, 2g.20gb on 80 GB. A name that "
    "does not "
    "exist is never published.",
    fix="a profile of the card: rightslice catalog mig",
    evidence=("NVIDIA/mig-parted#18",),
)  # fmt: skip
def profile_unknown(context: Context) -> Iterator[Hit]:
    """Against all cards, and against the one that the pod selects."""
    every = {
        row.name.replace("+", ".") for name in accelerators() if (table := geometry(name)) for row in table.profiles
    }
    for pod in context.pods:
        for container in pod.containers:
            for name in container.nvidia:
                profile = name.removeprefix(MIG).removesuffix(".shared") if name.startswith(MIG) else ""
                if not profile:
                    continue
                path = (*container.path, "resources")
                if profile not in every:
                    yield Hit(container.document, path, f"no GPU has the MIG profile {profile}")
                elif (hardware := context.hardware(pod)).pinned and not hardware.devices and hardware.why:
                    message = f"{hardware.why} has no MIG profile {profile}: Pending"
                    yield Hit(container.document, path, message)


@rule(
    "RS6212", "error",
    title="More GPUs than any of its nodes has",
    why="A pod runs on one node: it stays Pending where no node has as many GPUs.",
    fix="a larger machine, or a replica over several nodes (LeaderWorkerSet)",
    evidence=("aws/karpenter-provider-aws#8068",),
)  # fmt: skip
def more_than_node(context: Context) -> Iterator[Hit]:
    """By the machine types that its labels or its pool name."""
    for pod in context.pods:
        rows = context.hardware(pod).machines
        most = max((row.accelerator_count for row in rows), default=0)
        asked = sum(container.nvidia.get(GPU, 0) for container in pod.containers)
        shared = any(context.shared(container) for container in pod.containers)
        if most >= 1 and asked > most and not shared:
            names = ", ".join(sorted({row.machine_type for row in rows})[:3])
            message = f"{asked} GPUs in one pod; {names} has at most {most:g}: Pending"
            yield Hit(pod.document, (*pod.path, "containers"), message)
