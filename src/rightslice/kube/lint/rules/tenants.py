"""Whether those who share a GPU fit together: time-slicing, MPS, MIG layouts, pods with several models."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.catalogue.accelerators import accelerators, resolve_accelerator
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.models import GIB, named_model
from rightslice.kube.lint.rules.granted import needs_cuda
from rightslice.kube.lint.sharing import SharedResource, Sharing
from rightslice.kube.lint.startup import share_of_device
from rightslice.kube.lint.values import quantity
from rightslice.kube.lint.workloads import MIG, Container, Pod

_LEAST_LLM = 5 * GIB
"""A 7B model in 4 bits with some cache."""
_DROPPED_BY_CUDA_13 = 7.5
_MOST_TENANTS = 48


def _tenants(context: Context, shared: SharedResource, sharing: Sharing) -> list[Pod]:
    """Pods that may get a slot of it."""
    return [
        pod for pod in context.pods
        if any(sharing.of(name) is shared for container in pod.containers for name in container.nvidia)
    ]  # fmt: skip


def _share(context: Context, pod: Pod) -> float | None:
    """The part of the card that a tenant takes, as far as it is written."""
    server = context.server(pod)
    return share_of_device(server) if server is not None else None


@rule(
    "RS6301", "error",
    title="The tenants of one GPU take more than it has",
    why="Time-slicing and MPS divide no memory by themselves: vLLM checks free memory at start, so that the "
    "second of two that do not fit fails.",
    fix="fractions that sum below 0.95, fewer tenants, or MIG",
    evidence=(
        "ovg-project/kvcached#110",
        "vllm-project/vllm#14376",
        "public manifest: jlengelbrecht/prox-ops, 2026-08",
    ),
)  # fmt: skip
def vram_oversubscribed(context: Context) -> Iterator[Hit]:
    """Shares of those that may be scheduled together, largest first, as many as there are slots."""
    for sharing in context.sharing:
        for shared in sharing.resources:
            slots = min(shared.replicas or 0, _MOST_TENANTS)
            groups: dict[str, list[tuple[float, Pod]]] = {}
            for pod in _tenants(context, shared, sharing):
                share = _share(context, pod)
                if share is not None:
                    copies = max(1, context.most_replicas(pod))
                    groups.setdefault(str(sorted(pod.node_labels.items())), []).extend(
                        [(share, pod)] * min(copies, slots)
                    )
            for tenants in groups.values():
                together = sorted(tenants, key=lambda tenant: -tenant[0])[:slots]
                total = sum(share for share, _ in together)
                if len(together) > 1 and total > 1.0:
                    yield _oversubscribed(context, together, total, sharing)


def _oversubscribed(context: Context, together: list[tuple[float, Pod]], total: float, sharing: Sharing) -> Hit:
    names = " + ".join(f"{pod.document.name} {share:g}" for share, pod in together)
    pod = together[0][1]
    device = context.hardware(pod).largest
    of = f" of {device.memory_bytes / GIB:.1f} GiB" if device else " of the card"
    server = context.server(pod)
    path = server.container.args_path if server else pod.path
    message = f"{names} = {total:.2f}{of} under {sharing.title}: the last one to start fails"
    return Hit(pod.document, path, message)


@rule(
    "RS6302", "warn",
    title="Time slices isolate neither memory nor faults",
    why="Pods that ask for a plain GPU get a turn of a shared one without knowing it; each can take all memory.",
    fix="renameByDefault: true, so that sharing is asked for by name; a memory fraction for every tenant; MIG "
    "where it must hold",
    evidence=(
        "NVIDIA/k8s-device-plugin#569",
        "public manifest: jlengelbrecht/prox-ops, 2026-08",
        "public manifest: redhat-na-ssa/demo-ocp-gpu",
    ),
)  # fmt: skip
def no_isolation(context: Context) -> Iterator[Hit]:
    """Shared under the plain name."""
    for sharing in context.sharing:
        if sharing.mode != "timeSlicing" or sharing.renames:
            continue
        for shared in sharing.resources:
            if (shared.replicas or 0) < 2 or shared.rename or shared.name.startswith(MIG):
                continue
            message = f"{shared.replicas} slots of {shared.name} without memory or fault isolation"
            name = resolve_accelerator(_key(sharing))
            if name:
                each = accelerators()[name].advertised_memory_bytes / GIB / (shared.replicas or 1)
                message += f": {each:.0f} GB each of {name} if they are fair, and nothing enforces it"
            yield Hit(sharing.document, shared.path, message)


def _key(sharing: Sharing) -> str:
    """The key of the ConfigMap that holds the configuration: often the name of the card."""
    path = sharing.document.outer_path
    return str(path[-1]) if path else ""


@rule(
    "RS6303", "error",
    title="More than one slot of a shared GPU",
    why="Slots are not fractions that add up: MPS admits one for each pod, and with time-slicing two slots may "
    "be the same GPU.",
    fix="request 1",
    evidence=(
        "NVIDIA/k8s-device-plugin#929",
        "NVIDIA/k8s-device-plugin#491",
        "public manifest: dapperdivers/dapper-cluster, 2026-05",
    ),
)  # fmt: skip
def request_more_than_one(context: Context) -> Iterator[Hit]:
    """A warning where the plugin lets it pass."""
    for pod in context.pods:
        for container in pod.containers:
            found = context.shared(container)
            if found is None:
                continue
            sharing, shared = found
            asked = next(count for name, count in container.nvidia.items() if sharing.of(name) is shared)
            if asked > 1:
                refused = sharing.refuses_several
                effect = (
                    "admission refuses more than 1 (UnexpectedAdmissionError)"
                    if refused
                    else "no further share is granted"
                )
                message = f"{asked} slots of {shared.name}, which is shared by {sharing.title}: {effect}"
                path = (*container.path, "resources")
                yield Hit(container.document, path, message, "", "error" if refused else "warn")


@rule(
    "RS6306", "error",
    title="The MPS share holds no model",
    why="Under MPS the device plugin caps each client at memory divided by replicas.",
    fix="fewer replicas, a larger card, or time-slicing with fractions",
    evidence=("public manifest: dapperdivers/dapper-cluster, 2026-05",),
)  # fmt: skip
def mps_memory_cap(context: Context) -> Iterator[Hit]:
    """What each tenant gets against what it loads, or against the smallest useful LLM."""
    for sharing in context.sharing:
        if sharing.mode != "mps":
            continue
        for shared in sharing.resources:
            for pod in _tenants(context, shared, sharing):
                device, server = context.hardware(pod).largest, context.server(pod)
                if device is None or server is None or not shared.replicas:
                    continue
                model = context.model(server)
                needed = (model.weights_bytes if model else None) or _LEAST_LLM
                each = device.memory_bytes / shared.replicas
                if each < needed:
                    what = model.about if model and model.weights_bytes else "no LLM"
                    message = (
                        f"{shared.replicas} replicas of {device.name} cap each client at {each / GIB:.1f} GiB: "
                        f"{what} {'do not fit' if model and model.weights_bytes else 'fits'}"
                    )
                    yield Hit(sharing.document, shared.path, message)


@rule(
    "RS6307", "error",
    title="MPS on a card that CUDA 13 has dropped",
    why="The MPS server of current device-plugin images is built with CUDA 13, which supports compute "
    "capability 7.5 and newer.",
    fix="time-slicing, or an image built with CUDA 12",
    evidence=("public manifest: dapperdivers/dapper-cluster, 2026-05",),
)  # fmt: skip
def mps_architecture(context: Context) -> Iterator[Hit]:
    """By the card that its tenants select."""
    for sharing in context.sharing:
        if sharing.mode != "mps":
            continue
        for shared in sharing.resources:
            for pod in _tenants(context, shared, sharing):
                hardware = context.hardware(pod)
                if hardware.capability is not None and hardware.capability < _DROPPED_BY_CUDA_13:
                    message = (
                        f"{hardware.devices[0].name} has compute capability {hardware.capability}: CUDA "
                        "13 has none for it"
                    )
                    yield Hit(sharing.document, sharing.path, message)
                    break


@rule(
    "RS6310", "warn",
    title="Two models in one pod",
    why="A pod is restarted, rolled out and scaled as a whole: a crash or a new version of one model takes the "
    "other down.",
    fix="a pod for each model, on one GPU by time-slicing, MPS or MIG",
    evidence=("public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",),
)  # fmt: skip
def pod_coupling(context: Context) -> Iterator[Hit]:
    """Several containers that compute on GPUs."""
    for pod in context.pods:
        computing = _computing(pod)
        if len(computing) > 1 and pod.gpus:
            names = " and ".join(container.name for container in computing[:3])
            yield Hit(
                pod.document, (*pod.path, "containers"), f"{names} in one pod: a crash or rollout of one restarts both"
            )


def _computing(pod: Pod) -> list[Container]:
    return [container for container in pod.containers if container.nvidia or needs_cuda(container)]


@rule(
    "RS6311", "info",
    title="What the neighbours of an engine are left",
    why="A fraction below one leaves the rest of the card to others, if they can see it.",
    fix="sum the neighbours' memory against it",
    evidence=("public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",),
)  # fmt: skip
def budget(context: Context) -> Iterator[Hit]:
    """Where several containers of one pod compute."""
    for pod in context.pods:
        computing = _computing(pod)
        server = context.server(pod)
        share = share_of_device(server) if server else None
        if len(computing) < 2 or server is None or share is None or share >= 0.85:
            continue
        others = [container for container in computing if container is not server.container]
        device = context.hardware(pod).largest
        left = (
            f"{(1 - share) * device.memory_bytes / GIB:.1f} GiB of {device.name}"
            if device
            else f"{1 - share:.0%} of the card"
        )
        names = ", ".join(_named(container) for container in others)
        yield Hit(pod.document, server.container.args_path, f"{share:g} leaves {left} for {names}")


def _named(container: Container) -> str:
    """A container with the model that its variables name."""
    values = [value for name, value in container.environment.items() if "MODEL" in name and "DEVICE" not in name]
    model = named_model(values[0]) if values else None
    return f"{container.name} ({model.about})" if model and model.weights_bytes else container.name


@rule(
    "RS6314", "warn",
    title="A fraction that nobody enforces",
    why="Fractions by annotation place pods together but limit no memory: each can take all of the card.",
    fix="a memory limit that is enforced (MIG, MPS), and a memory fraction for every engine",
    evidence=("KAI-Scheduler#262", "KAI-Scheduler#49"),
)  # fmt: skip
def soft_fraction(context: Context) -> Iterator[Hit]:
    """Pods with a fraction by annotation whose engine takes more than that of the card."""
    for server in context.servers:
        fraction = quantity(server.pod.annotations.get("gpu-fraction"))
        share = share_of_device(server)
        if fraction and 0 < fraction < 1 and share is not None and share > fraction:
            message = f"gpu-fraction {fraction:g} is not enforced, and the engine takes {share:g} of the card's memory"
            yield Hit(server.pod.document, server.container.args_path, message)
