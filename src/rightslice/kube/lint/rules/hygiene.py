"""Images and money: tags that move, GPUs larger than what they hold, memory that the node does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.catalogue.hardware import Device
from rightslice.catalogue.mig import geometry
from rightslice.core.quantities import format_usd
from rightslice.kube.lint.context import Context, memory_bytes
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.models import GIB, Model, named_model
from rightslice.kube.lint.servers import Server
from rightslice.kube.lint.startup import share_of_device
from rightslice.kube.lint.values import fields, quantity
from rightslice.kube.lint.workloads import GPU, Container, Pod

_SMALL_SHARE = 0.1
_SMALL_BYTES = 4 * GIB
_TIGHT_CPUS = 8


@rule(
    "RS6901", "warn",
    title="An image tag that moves",
    why="The next pull may bring other defaults, other flags or no support for the card: replicas of one "
    "workload differ.",
    fix="a version tag or a digest",
    evidence=(
        "public manifest: TobiasEdman/des-chatbot, 2026-03",
        "public manifest: adityonugrohoid/gpu-autoscale-inference, 2026-03",
    ),
)  # fmt: skip
def floating_tag(context: Context) -> Iterator[Hit]:
    """latest, nightly or no tag, for containers on GPUs."""
    for pod in context.pods:
        for container in pod.containers:
            image = container.image
            known = context.server_in(container) is not None
            placeholder = (
                not image
                or re.fullmatch(r"[A-Z_]+", image)
                or re.search(r"[@$<{]|replace|placeholder|kustomize", image)
            )
            if placeholder or not (container.nvidia or known):
                continue
            tag = image.rpartition("/")[2].partition(":")[2]
            if tag in ("", "latest", "nightly", "main", "master", "stable", "edge"):
                said = f"tag {tag}" if tag else "no tag (latest)"
                yield Hit(pod.document, (*container.path, "image"), f"{image}: {said}")


@rule(
    "RS6905", "warn",
    title="A whole GPU for a small model",
    why="What a small model leaves of a GPU is paid and idle, unless its cache is needed for the load.",
    fix="a smaller GPU, or share it: time-slicing, MPS, MIG where the card has it",
    evidence=(
        "public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",
        "public manifest: Lintasarta/vllm-helm",
        "public manifest: ArchanaChetan07/ai-inference-observability-platform",
    ),
)  # fmt: skip
def whole_gpu(context: Context) -> Iterator[Hit]:
    """Weights below a tenth of the card that the pod selects; info where the card is not known."""
    for pod in context.pods:
        for container in pod.containers:
            if container.nvidia != {GPU: 1} or context.shared(container) or context.most_replicas(pod) > 1:
                continue
            server = context.server_in(container)
            model = _model(context, server, container)
            if model is None or not model.weights_bytes or _modest(server):
                continue
            device = context.hardware(pod).largest
            if device is not None and not device.sliced and model.weights_bytes < _SMALL_SHARE * device.memory_bytes:
                share = model.weights_bytes / device.memory_bytes
                message = f"{model.about} on a whole {device.name}: {share:.1%} of its memory{_price(context, pod)}"
                yield Hit(pod.document, (*container.path, "resources"), message, _smaller(device))
            elif device is None and model.weights_bytes < _SMALL_BYTES and server is not None and pod.replicas:
                message = f"{model.about} on a whole GPU"
                yield Hit(pod.document, (*container.path, "resources"), message, "", "info")


def _modest(server: Server | None) -> bool:
    """An engine that was told to leave memory to others."""
    share = share_of_device(server) if server else None
    return share is not None and share < 0.6


def _model(context: Context, server: Server | None, container: Container) -> Model | None:
    """The engine's model, or the one that a speech server's variables name."""
    if server is not None:
        return context.model(server)
    names = [
        value
        for name, value in container.environment.items()
        if ("MODEL" in name and "/" in value) or name.endswith("MODEL")
    ]
    return named_model(names[0]) if names else None


def _price(context: Context, pod: Pod) -> str:
    row = next((row for row in context.hardware(pod).machines if row.on_demand_usd_per_hour), None)
    if row is None or row.on_demand_usd_per_hour is None:
        return ""
    return (
        f"; sharing saves one {row.machine_type}, from {format_usd(row.on_demand_usd_per_hour)}/h on demand "
        f"({row.price_date})"
    )


def _smaller(device: Device) -> str:
    if device.accelerator.mig and geometry(device.accelerator.name):
        return "a MIG slice, a smaller GPU, or time-slicing"
    return "a smaller GPU (T4, L4), or time-slicing"


@rule(
    "RS6906", "info",
    title="More GPUs than the model needs",
    why="With half the GPUs the weights and the longest request fit as well: the other half is only for speed.",
    fix="half the tensor parallel size, if the objectives hold: rightslice plan",
    evidence=("public manifest: felipemoz/vllm-on-azure",),
)  # fmt: skip
def overprovisioned(context: Context) -> Iterator[Hit]:
    """Eight ranks and more whose weights take under 40 % of a card each, and no step or batch size was chosen."""
    for server in context.servers:
        model = context.model(server)
        tuned = {"--max-num-seqs", "--max-num-batched-tokens"} & set(server.flags)
        if model is None or not model.weights_bytes or server.tensor_parallel < 8 or tuned:
            continue
        device = context.hardware(server.pod).largest
        room = device.memory_bytes if device else 79 * GIB
        each = model.weights_bytes / server.ranks
        if 2 * each < 0.75 * room and each < 0.4 * room:
            message = (
                f"{model.about} over {server.ranks} GPUs are {each / GIB:.1f} GiB each; {server.ranks // 2} GPUs "
                f"({2 * each / GIB:.1f} GiB each) hold them too"
            )
            yield Hit(server.container.document, server.container.args_path, message)


@rule(
    "RS6907", "warn",
    title="A memory limit that the node does not have",
    why="The limit never acts: the node runs out first and kills whichever pod it likes.",
    fix="a limit below the machine's memory less what the node itself takes",
    evidence=("public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",),
)  # fmt: skip
def limit_exceeds_node(context: Context) -> Iterator[Hit]:
    """Against the largest machine on which the pod may land."""
    for pod in context.pods:
        sizes = [row.memory_gib for row in context.hardware(pod).machines]
        most = max((size for size in sizes if size), default=None)
        for container in pod.containers:
            limit = memory_bytes(container)
            if most and limit and limit > most * GIB:
                names = ", ".join(sorted({row.machine_type for row in context.hardware(pod).machines})[:3])
                message = f"memory limit {limit / GIB:.0f} GiB, {names} has {most:g} GiB"
                yield Hit(pod.document, (*container.path, "resources", "limits", "memory"), message)


@rule(
    "RS6908", "info",
    title="CPUs for one pod only",
    why="A node holds as many pods as its CPUs allow, whatever GPU slots are free.",
    fix="smaller CPU requests, where GPUs are to be shared",
    evidence=(
        "public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",
        "public manifest: dapperdivers/dapper-cluster, 2026-05",
    ),
)  # fmt: skip
def cpu_tight(context: Context) -> Iterator[Hit]:
    """Half of a small machine's CPUs and more."""
    for pod in context.pods:
        rows = [row for row in context.hardware(pod).machines if row.vcpu]
        asked = sum(quantity(container.resource("requests", "cpu")) or 0.0 for container in pod.containers)
        if not rows or not pod.gpus:
            continue
        most = max(row.vcpu or 0 for row in rows)
        if most <= _TIGHT_CPUS and asked >= most / 2 and fields(pod.spec):
            message = f"{asked:g} of {most} vCPUs requested: room for one such pod on a node"
            yield Hit(pod.document, (*pod.path, "containers"), message)
