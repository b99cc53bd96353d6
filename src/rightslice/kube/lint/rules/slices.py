"""Resources by name: what the MIG strategy publishes, slices that cannot talk, nodes that are too small."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.catalogue.accelerators import accelerators, device
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.mig import geometry
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.sharing import strategies
from rightslice.kube.lint.values import whole
from rightslice.kube.lint.workloads import GPU, MIG, Pod


@rule(
    "RS6209", "error",
    title="A resource that the MIG strategy does not publish",
    why="Strategy mixed publishes nvidia.com/mig-<profile>, single publishes nvidia.com/gpu for slices: a pod "
    "that asks for the other name stays Pending.",
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
    "does not exist is never published.",
    fix="a profile of the card: rightslice catalog mig",
    evidence=("NVIDIA/mig-parted#18",),
)  # fmt: skip
def profile_unknown(context: Context) -> Iterator[Hit]:
    """Names that no profile has, and those that the selected card does not have."""
    for pod in context.pods:
        for container in pod.containers:
            for name in container.nvidia:
                profile = name.removeprefix(MIG).removesuffix(".shared") if name.startswith(MIG) else ""
                if not profile:
                    continue
                path = (*container.path, "resources")
                if not re.fullmatch(r"[12347]g\.[0-9]{1,3}gb(?:\.(?:me|gfx)(?:\.all)?)?", profile):
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
