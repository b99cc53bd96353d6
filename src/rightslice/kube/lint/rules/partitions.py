"""Configurations of the device plugin and of MIG: what they reject, ignore, or cannot cut."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.catalogue.accelerators import resolve_accelerator
from rightslice.catalogue.hardware import MigGeometry
from rightslice.catalogue.mig import geometry
from rightslice.core.errors import did_you_mean
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.hardware import machines_of
from rightslice.kube.lint.sharing import MigEntry
from rightslice.kube.lint.values import Path, entries, fields, shown, whole
from rightslice.kube.lint.workloads import MIG

_MOST_REPLICAS = 48
_CLAIM: Path = ("spec", "devices")
_DRA_MIG = "mig.nvidia.com"
_MOST_SLICES = 7
_PROFILE = re.compile(r"[12347]g\.[0-9]{1,3}gb(?:[+.-](?:me|gfx)(?:\.all)?)?")


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
    """Names that no profile has, more slices than any card has, and layouts of a card that is named."""
    for entry in context.mig:
        counts = {name: whole(count) or 0 for name, count in entry.profiles.items()} if entry.enabled else {}
        path = (*entry.path, "mig-devices")
        odd = next((name for name in counts if _PROFILE.fullmatch(name) is None), None)
        table = _named_table(context, entry)
        listed = ", ".join(f"{count} x {name}" for name, count in counts.items())
        if odd is not None:
            yield Hit(entry.document, path, f'"{odd[:40]}" is no MIG profile')
        elif sum(int(name[0]) * count for name, count in counts.items()) > _MOST_SLICES:
            yield Hit(
                entry.document, path, f"{entry.layout}: {listed} are more than the {_MOST_SLICES} slices of any GPU"
            )
        elif table is not None and not set(counts) <= {row.name for row in table.profiles}:
            unknown = next(name for name in counts if name not in {row.name for row in table.profiles})
            hint = did_you_mean(unknown, (row.name for row in table.profiles))
            yield Hit(entry.document, path, f"{table.accelerator} has no MIG profile {unknown}", hint)
        elif table is not None and counts and not _adds_up(table, counts):
            yield Hit(entry.document, path, f"{entry.layout}: {listed} do not fit {table.accelerator} together")


def _named_table(context: Context, entry: MigEntry) -> MigGeometry | None:
    """Of the card or machine by which the layout is called, else of the one card that all pods here select."""
    rows = machines_of([entry.layout])
    name = resolve_accelerator(entry.layout) or (rows[0].accelerator if rows else None)
    if name is None:
        selected = {seen.accelerator.name for pod in context.pods for seen in context.hardware(pod).devices}
        name = next(iter(selected)) if len(selected) == 1 else None
    return geometry(name) if name else None


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


@rule(
    "RS6320", "warn",
    title="GPUs that a MIG layout leaves out",
    why="mig-parted leaves a GPU that no entry of the layout names as it is, cut by whatever was applied before.",
    fix="an entry for every GPU, mig-enabled: false for those that stay whole",
    evidence=("NVIDIA/mig-parted#129", "NVIDIA/mig-parted#9"),
)  # fmt: skip
def devices_unlisted(context: Context) -> Iterator[Hit]:
    """By gaps in the numbers, per layout and device filter."""
    listed: dict[tuple[str, str], list[tuple[MigEntry, set[int]]]] = {}
    for entry in context.mig:
        devices = entry.document.get(*entry.path, "devices")
        numbers = {n for value in entries(devices) if (n := whole(value)) is not None}
        if numbers:
            named = str(entry.document.get(*entry.path, "device-filter"))
            listed.setdefault((entry.layout, named), []).append((entry, numbers))
    for found in listed.values():
        numbers = set().union(*(numbers for _, numbers in found))
        missing = sorted(set(range(max(numbers))) - numbers)
        if missing:
            entry = found[0][0]
            names = ", ".join(map(str, missing))
            yield Hit(entry.document, entry.path, f"{entry.layout}: GPU {names} keeps whatever cut it has")


@rule(
    "RS6321", "warn",
    title="A claim whose slices may come from several GPUs",
    why="Each request of a claim is met by itself: profiles that are to share a GPU can land on different ones.",
    fix="constraints: [{requests: [], matchAttribute: gpu.nvidia.com/parentUUID}], or a claim for each",
    evidence=("NVIDIA/k8s-dra-driver-gpu#897", "NVIDIA/k8s-dra-driver-gpu#719"),
)  # fmt: skip
def claim_over_gpus(context: Context) -> Iterator[Hit]:
    """Of claims and templates of claims, by the device class of MIG."""
    for document in context.documents:
        path = {"ResourceClaim": _CLAIM, "ResourceClaimTemplate": ("spec", *_CLAIM)}.get(document.kind)
        if path is None:
            continue
        requests = [fields(entry) for entry in entries(document.get(*path, "requests"))]
        classes = [shown(r.get("deviceClassName") or fields(r.get("exactly")).get("deviceClassName")) for r in requests]
        bound = [fields(entry).get("matchAttribute") for entry in entries(document.get(*path, "constraints"))]
        if classes.count(_DRA_MIG) > 1 and not any(str(name).endswith("parentUUID") for name in bound):
            message = f"{classes.count(_DRA_MIG)} MIG devices in one claim, bound to no common GPU"
            yield Hit(document, (*path, "requests"), message)
