"""Whether those who share a GPU fit together: time-slicing, MPS, MIG layouts, pods with several models."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.catalogue.accelerators import accelerators, resolve_accelerator
from rightslice.catalogue.hardware import MigGeometry
from rightslice.catalogue.mig import geometry
from rightslice.core.errors import did_you_mean
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.models import GIB, named_model
from rightslice.kube.lint.rules.granted import needs_cuda
from rightslice.kube.lint.sharing import MigEntry, SharedResource, Sharing
from rightslice.kube.lint.startup import share_of_device
from rightslice.kube.lint.values import Path, fields, whole
from rightslice.kube.lint.workloads import MIG, Container, Pod

_LEAST_LLM = 5 * GIB
"""A 7B model in 4 bits with some cache."""
_MOST_REPLICAS = 48
_DROPPED_BY_CUDA_13 = 7.5


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
    "second of two "
    "that do not fit fails.",
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
            slots = shared.replicas or 0
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
    "RS6304", "error",
    title="A number of replicas that the device plugin rejects",
    why="The plugin takes 2 or more (MPS at most 48) and does not start with anything else.",
    fix="2 or more; to disable sharing leave the entry out",
    evidence=("NVIDIA/k8s-device-plugin: validation of replicas", "public manifest: redhat-na-ssa/demo-ocp-gpu"),
)  # fmt: skip
def replicas_below_two(context: Context) -> Iterator[Hit]:
    """Per entry."""
    for sharing in context.sharing:
        for shared in sharing.resources:
            count = shared.replicas
            if count is None or count < 2 or (sharing.mode == "mps" and count > _MOST_REPLICAS):
                shown = "no whole number" if count is None else str(count)
                message = f"{shared.name}: replicas {shown}; {sharing.title} takes 2 or more, the plugin does not start"
                yield Hit(sharing.document, shared.path, message)


@rule(
    "RS6305", "warn",
    title="Replicas of MIG devices that look like slice numbers",
    why="Replicas multiply: each MIG device is offered that many times. They do not say how many slices there are.",
    fix="leave MIG resources out, unless several pods are to share each slice",
    evidence=("public manifest: redhat-na-ssa/demo-ocp-gpu",),
)  # fmt: skip
def mig_replicas_misread(context: Context) -> Iterator[Hit]:
    """replicas equal to the compute slices of the profile, for more than one profile."""
    for sharing in context.sharing:
        alike = [
            shared for shared in sharing.resources
            if shared.name.startswith(MIG) and shared.replicas is not None
            and shared.name.removeprefix(MIG).partition("g")[0] == str(shared.replicas) and shared.replicas > 1
        ]  # fmt: skip
        if len(alike) > 1:
            listed = ", ".join(f"{shared.name}: {shared.replicas}" for shared in alike)
            message = f"{listed}: each MIG device is oversubscribed that many times"
            yield Hit(sharing.document, alike[0].path, message)


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
    "RS6308", "error",
    title="Time-slicing and MPS at once",
    why="The device plugin shares in one way and rejects a configuration with both.",
    fix="one of them",
    evidence=("NVIDIA/k8s-device-plugin#443",),
)  # fmt: skip
def both_modes(context: Context) -> Iterator[Hit]:
    """In one configuration."""
    for sharing in context.sharing:
        if sharing.mode == "mps" and fields(sharing.document.get("sharing", "timeSlicing")).get("resources"):
            yield Hit(sharing.document, ("sharing",), "timeSlicing and mps in one configuration")


@rule(
    "RS6309", "error",
    title="A MIG layout that does not exist",
    why="Profiles have fixed names and places on each card; mig-manager reports success and publishes nothing, "
    "or fails.",
    fix="a layout of the card: rightslice catalog mig",
    evidence=("NVIDIA/mig-parted#18", "MIG tables of the catalogue"),
)  # fmt: skip
def mig_geometry(context: Context) -> Iterator[Hit]:
    """Whether some card has every profile, in these numbers, at once."""
    tables = [table for name in accelerators() if (table := geometry(name))]
    every = {row.name for table in tables for row in table.profiles}
    for entry in context.mig:
        if not entry.enabled or not entry.profiles:
            continue
        counts = {name: whole(count) or 0 for name, count in entry.profiles.items()}
        unknown = sorted(set(counts) - every)
        if unknown:
            hint = did_you_mean(unknown[0], every)
            yield Hit(entry.document, (*entry.path, "mig-devices"), f'no GPU has the MIG profile "{unknown[0]}"', hint)
        elif not any(_adds_up(table, counts) for table in _tables(entry, tables)):
            listed = ", ".join(f"{count} x {name}" for name, count in counts.items())
            message = f"{entry.layout}: {listed} fit no GPU together"
            yield Hit(entry.document, (*entry.path, "mig-devices"), message)


def _tables(entry: MigEntry, tables: list[MigGeometry]) -> list[MigGeometry]:
    """Of the card that the entry or its layout names, else of all."""
    name = resolve_accelerator(entry.layout)
    named = [table for table in tables if table.accelerator == name]
    return named or tables


def _adds_up(table: MigGeometry, counts: dict[str, int]) -> bool:
    """Whether the instances can be placed on one GPU."""
    rows = {row.name: row for row in table.profiles}
    if not set(counts) <= set(rows) or sum(counts.values()) > 64:
        return False
    if any(counts[name] > rows[name].max_instances for name in counts):
        return False
    wanted = sorted((rows[name] for name, n in counts.items() for _ in range(n)), key=lambda row: -row.mem_units)

    def place(index: int, taken: int) -> bool:
        if index == len(wanted):
            return True
        row = wanted[index]
        for start in row.starts:
            mask = ((1 << row.mem_units) - 1) << start
            if not taken & mask and place(index + 1, taken | mask):
                return True
        return False

    return place(0, 0)


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
    "RS6312", "error",
    title="MPS on MIG slices",
    why="The device plugin does not offer MIG devices through MPS: they are skipped.",
    fix="time-slicing of the slices, or MPS on whole GPUs",
    evidence=("NVIDIA/k8s-device-plugin: source",),
)  # fmt: skip
def mps_on_mig(context: Context) -> Iterator[Hit]:
    """By the resource."""
    for sharing in context.sharing:
        for shared in sharing.resources:
            if sharing.mode == "mps" and shared.name.startswith(MIG):
                yield Hit(sharing.document, shared.path, f"{shared.name} under mps: MIG devices are skipped")


@rule(
    "RS6313", "warn",
    title="A sharing option where it is not read",
    why="renameByDefault and failRequestsGreaterThanOne belong to the way of sharing; elsewhere they are "
    "ignored silently.",
    fix="put them beside resources, under timeSlicing or mps",
    evidence=("NVIDIA/k8s-device-plugin#257", "NVIDIA/k8s-device-plugin#353"),
)  # fmt: skip
def flag_ignored(context: Context) -> Iterator[Hit]:
    """Under flags, beside the mode, or in an entry; and the part of GPUs, which is not honoured."""
    for sharing in context.sharing:
        document = sharing.document
        for name in ("renameByDefault", "failRequestsGreaterThanOne"):
            places: tuple[Path, ...] = (("flags", name), ("sharing", name), (name,))
            for path in places:
                if document.get(*path) is not None:
                    yield Hit(document, path, f"{name} is not read in {path[0] if path[1:] else 'the top level'}")
        for index, _ in enumerate(sharing.resources):
            for name in ("devices", "renameByDefault"):
                path = ("sharing", sharing.mode, "resources", index, name)
                if document.get(*path) not in (None, "all"):
                    yield Hit(document, path, f"{name} of a resource is ignored: sharing holds for all GPUs of a node")
