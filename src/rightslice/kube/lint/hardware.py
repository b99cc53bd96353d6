"""Where a pod may land: accelerators and machines that its labels, its node pool or the caller name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from rightslice.catalogue.accelerators import accelerators, device, resolve_device
from rightslice.catalogue.hardware import WHOLE, Device, Machine
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import geometry
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.values import dig, entries, fields, shown, text
from rightslice.kube.lint.workloads import MIG, Pod

_GPU_KEY: Final = re.compile(r"gpu|accelerator|card|device|hardware", re.IGNORECASE)
_TYPE_KEYS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
                     "cloud.google.com/machine-type", "machine-type")  # fmt: skip
_FAMILY_KEYS: Final = ("karpenter.k8s.aws/instance-family", "eks.amazonaws.com/instance-family")
_MACHINE_SERIES: Final = "cloud.google.com/machine-family"
_WORDS: Final = re.compile(r"nvidia|geforce|tesla|quadro|rtx|gpu|graphics|[^a-z0-9]")
_SPELLED: Final = {"gfd": "nvidia.com/gpu.product", "gke": "cloud.google.com/gke-accelerator"}


@dataclass(frozen=True, slots=True)
class Hardware:
    """Devices on which one rank may find itself, and machines that may be its node; empty where nothing says.

    `why`: what the devices follow from. `pinned`: something selects nodes by their GPU, known here or not.
    """

    devices: tuple[Device, ...] = ()
    machines: tuple[Machine, ...] = ()
    why: str = ""
    pinned: bool = False

    @property
    def largest(self) -> Device | None:
        """The one with the most memory."""
        return max(self.devices, key=lambda seen: seen.memory_bytes, default=None)

    @property
    def capability(self) -> float | None:
        """The highest CUDA compute capability among them; None where one is not known."""
        found = [_number(seen.accelerator.compute_capability) for seen in self.devices]
        known = [value for value in found if value is not None]
        return max(known) if known and len(known) == len(found) else None


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def hardware_of(pod: Pod, pools: Sequence[Document], default: str = "") -> Hardware:
    """By labels first, then by the node pools beside it, then by `default`."""
    profile = _profile(pod)
    labels = pod.node_labels
    named = [(key, value) for key, values in labels.items() if _GPU_KEY.search(key) for value in values]
    types = [value for key in _TYPE_KEYS for value in labels.get(key, ())]
    rows = machines_of(types)
    for key, value in named:
        if names := named_accelerators(value, key):
            return Hardware(_devices(names, profile or _suffix(value)), rows, f"{key}: {value}", pinned=True)
    if rows:
        return _of_machines(rows, f"machine type {', '.join(types)}", profile)
    for pool in _pools_of(pod, pools):
        rows = pool_machines(pool)
        if rows:
            return _of_machines(rows, f"{pool.kind} {pool.name}", profile)
    if default and (found := resolve_device(default)):
        return Hardware(
            _devices((found[0],), profile or ("" if found[1] == WHOLE else found[1])), (), default, pinned=True
        )
    pinned = bool(types) or any(
        key not in ("nvidia.com/gpu.present", "kubernetes.io/os", "kubernetes.io/arch") for key in labels
    )
    if profile:
        return Hardware(_devices(tuple(accelerators()), profile), (), f"{MIG}{profile}", pinned=pinned)
    return Hardware(pinned=pinned)


def _of_machines(rows: Sequence[Machine], why: str, profile: str) -> Hardware:
    names = tuple(dict.fromkeys(row.accelerator for row in rows))
    return Hardware(_devices(names, profile), tuple(rows), why, pinned=True)


def _profile(pod: Pod) -> str:
    """The MIG profile that it asks for."""
    asked = [name for container in pod.containers for name in container.nvidia if name.startswith(MIG)]
    return asked[0].removeprefix(MIG).removesuffix(".shared") if asked else ""


def _suffix(value: str) -> str:
    match = re.search(r"-MIG-(\d+g\.\d+gb)", value)
    return match[1] if match else ""


def _devices(names: Iterable[str], profile: str) -> tuple[Device, ...]:
    found = []
    for name in names:
        table = geometry(name)
        if not profile:
            found.append(device(name))
        elif table and any(row.name == profile for row in table.profiles):
            found.append(device(name, profile))
    return tuple(found)


def named_accelerators(value: str, key: str = "") -> tuple[str, ...]:
    """Canonical names that a label's value may mean: one, several forms of the same chip, or none."""
    space = next((space for space, label in _SPELLED.items() if label == key), "")
    found = resolve_device(value, space) or resolve_device(value)
    if found:
        return (found[0],)
    bare = re.sub(r"-(?:MIG-[^-]*|SHARED)", "", value)
    squashed = _squashed(bare)
    return _by_words().get(squashed, ()) if len(squashed) >= 2 else ()


def _squashed(name: str) -> str:
    return _WORDS.sub("", name.casefold())


@cache
def _by_words() -> Mapping[str, tuple[str, ...]]:
    """`2080ti` -> RTX-2080-Ti; `a100` -> all its forms; with the memory, `a10080gb` -> those of that memory."""
    found: dict[str, dict[str, None]] = {}
    for name, row in accelerators().items():
        if row.vendor != "nvidia":
            continue
        plain = re.sub(r"-(?:SXM|PCIe|NVL)(?=-|$)", "", name)
        short = re.sub(r"-\d+GB$", "", plain)
        for spelling in (name, plain, short, re.sub(r"^RTX-", "", short)):
            found.setdefault(_squashed(spelling), {})[name] = None
    return {key: tuple(names) for key, names in found.items()}


def machines_of(types: Iterable[str]) -> tuple[Machine, ...]:
    """One row for each machine type that is known, of its cheapest region."""
    table = _by_type()
    return tuple(table[name.casefold()] for name in types if name.casefold() in table)


@cache
def _by_type() -> Mapping[str, Machine]:
    found: dict[str, Machine] = {}
    for row in machines():
        held = found.setdefault(row.machine_type.casefold(), row)
        if (row.on_demand_usd_per_hour or math.inf) < (held.on_demand_usd_per_hour or math.inf):
            found[row.machine_type.casefold()] = row
    return found


@cache
def families() -> Mapping[str, tuple[Machine, ...]]:
    """AWS instance family -> its types with accelerators, one row each."""
    found: dict[str, dict[str, Machine]] = {}
    for row in _by_type().values():
        if row.provider == "aws":
            found.setdefault(row.machine_type.partition(".")[0], {})[row.machine_type] = row
    return {family: tuple(rows.values()) for family, rows in found.items()}


def requirements(pool: Document) -> Mapping[str, tuple[str, ...]]:
    """Key -> values that a Karpenter pool admits by `In`."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in map(fields, entries(pool.get("spec", "template", "spec", "requirements"))):
        if entry.get("operator") == "In":
            found[text(entry.get("key"))] = tuple(shown(value) for value in entries(entry.get("values")))
    return found


def pool_machines(pool: Document) -> tuple[Machine, ...]:
    """Machine types with accelerators that a NodePool or ComputeClass may start, as far as they are known."""
    if pool.kind == "ComputeClass":
        return machines_of(shown(fields(rule).get("machineType")) for rule in entries(pool.get("spec", "priorities")))
    asked = requirements(pool)
    sizes = asked.get("karpenter.k8s.aws/instance-size", ()) or asked.get("eks.amazonaws.com/instance-size", ())
    found = list(machines_of(asked.get("node.kubernetes.io/instance-type", ())))
    for family in (value for key in _FAMILY_KEYS for value in asked.get(key, ())):
        rows = families().get(family, ())
        found += [row for row in rows if not sizes or row.machine_type.partition(".")[2] in sizes]
    return tuple(found)


def _pools_of(pod: Pod, pools: Sequence[Document]) -> list[Document]:
    """The node pools that its selector names; else the only GPU pool there is, if it tolerates it."""
    for key in ("cloud.google.com/compute-class", "karpenter.sh/nodepool"):
        if key in pod.node_labels:
            return [pool for pool in pools if pool.name in pod.node_labels[key]]
    karpenter = [pool for pool in pools if pool.kind == "NodePool" and pool_machines(pool)]
    if len(karpenter) != 1 or not pod.gpus:
        return []
    taints = entries(karpenter[0].get("spec", "template", "spec", "taints"))
    marks = fields(dig(karpenter[0].value, "spec", "template", "metadata", "labels"))
    selected = all(marks.get(key) in (None, *values) for key, values in pod.node_labels.items())
    able = all(pod.tolerates(text(fields(t).get("key")), shown(fields(t).get("value"))) for t in taints)
    return karpenter if selected and able else []
