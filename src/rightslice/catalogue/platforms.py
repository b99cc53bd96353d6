"""Kubernetes platforms: what each can make of a GPU, and the names it gives to resources and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from rightslice.catalogue.accelerators import accelerator
from rightslice.catalogue.aliases import spellings
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.hardware import ON_ONE_GPU
from rightslice.catalogue.mig import MigLayout, layouts, uniform_layouts

MigAbility = Literal["any-layout", "uniform-per-pool", "none"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a fact was read: source, how it was checked, and what else the source says."""

    source: str
    check: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Platform:
    """One platform. None: not found. Durations in seconds; labels are keys, `spot_label` is `key=value`.

    `mig_needs`: what must be installed for MIG. `mig_profiles`: profiles per accelerator, empty for all of the tables.
    `resources`: vendor -> resource of a whole accelerator. `evidence`: fact -> source.
    """

    name: str
    title: str
    provider: str
    mig: MigAbility
    mig_needs: str
    mig_needs_reboot: bool | None
    mig_strategy: Literal["mixed", "single"]
    mig_profiles: Mapping[str, tuple[str, ...]]
    time_slicing: bool
    mps: bool
    max_clients_per_gpu: int | None
    resources: Mapping[str, str]
    accelerator_label: str
    label_alias: str
    label_by_machine_prefix: Mapping[str, str]
    partition_label: str
    pool_label: str
    node_labels: Mapping[str, str]
    taints: tuple[str, ...]
    spot_label: str
    spot_taints: tuple[str, ...]
    spot_notice_s: float | None
    spot_grace_s: float | None
    node_provisioning_s: tuple[float, float] | None
    evidence: Mapping[str, Evidence]

    def shares(self, mode: str) -> bool:
        """Whether GPUs can be shared this way by the device plugin's configuration, which the GPU Operator brings."""
        able = {"time-slicing": self.time_slicing, "mps": self.mps}
        return able.get(mode, False) and self.mig_needs == "gpu-operator"

    def gpu_resource(self, partition: str, vendor: str = "nvidia") -> str:
        """Extended resource that a pod asks for: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb` with strategy mixed, or
        `nvidia.com/gpu.shared`, the device plugin's name (`renameByDefault`) where several may have one GPU.

        KeyError for a vendor whose device plugin is not known here.
        """
        whole = self.resources[vendor]
        if partition in ON_ONE_GPU:
            return f"{whole}.shared"
        if self.mig_strategy == "single" or not partition[:1].isdigit():
            return whole
        return f"{whole.partition('/')[0]}/mig-{partition.replace('+', '.')}"

    def layouts(self, accelerator_name: str) -> tuple[MigLayout, ...]:
        """The MIG layouts that this platform can make of an accelerator; empty when none."""
        if self.mig == "none" or (self.mig_profiles and accelerator_name not in self.mig_profiles):
            return ()
        made = layouts(accelerator_name) if self.mig == "any-layout" else uniform_layouts(accelerator_name)
        allowed = self.mig_profiles.get(accelerator_name)
        return tuple(layout for layout in made if allowed is None or set(layout.profiles) <= set(allowed))

    def partitions(self, accelerator_name: str) -> tuple[str, ...]:
        """The MIG profiles that this platform can make of an accelerator, smallest first."""
        made = {profile for layout in self.layouts(accelerator_name) for profile in layout.profiles}
        return tuple(p for layout in uniform_layouts(accelerator_name) for p in layout.profiles if p in made)

    def node_label_values(self, accelerator_name: str, machine_type: str) -> tuple[str, ...]:
        """Every value that `accelerator_label` may have on a node of that machine type; the usual one first.

        Empty where such nodes do not carry the label.
        """
        if accelerator(accelerator_name).vendor not in self.resources:
            return ()
        if not self.label_alias:
            return (machine_type,)
        for prefix, value in self.label_by_machine_prefix.items():
            if machine_type.startswith(prefix):
                return (value,)
        special = set(self.label_by_machine_prefix.values())
        return tuple(value for value in spellings(accelerator_name, self.label_alias) if value not in special)

    def label_value(self, accelerator_name: str, machine_type: str) -> str:
        """The usual value of `accelerator_label`, empty where such nodes do not carry it."""
        return next(iter(self.node_label_values(accelerator_name, machine_type)), "")


@lru_cache(maxsize=1)
def platforms() -> Mapping[str, Platform]:
    """Every platform by name."""
    document = read_json("platforms.json")
    return {name: _platform(name, row, document["sources"]) for name, row in document["platforms"].items()}


def _platform(name: str, row: Mapping[str, Any], sources: Mapping[str, str]) -> Platform:
    labelled = row["label_value"]
    provisioning = row["node_provisioning_s"]
    return Platform(
        name=name,
        title=row["title"],
        provider=row["provider"],
        mig=row["mig"],
        mig_needs=row["mig_needs"],
        mig_needs_reboot=row["mig_needs_reboot"],
        mig_strategy=row["mig_strategy"],
        mig_profiles={key: tuple(profiles) for key, profiles in row["mig_profiles"].items()},
        time_slicing=row["time_slicing"],
        mps=row["mps"],
        max_clients_per_gpu=row["max_clients_per_gpu"],
        resources=row["resources"],
        accelerator_label=row["accelerator_label"],
        label_alias=labelled.get("alias", ""),
        label_by_machine_prefix=labelled.get("by_machine_prefix", {}),
        partition_label=row["partition_label"],
        pool_label=row["pool_label"],
        node_labels=row["node_labels"],
        taints=tuple(row["taints"]),
        spot_label=row["spot_label"],
        spot_taints=tuple(row["spot_taints"]),
        spot_notice_s=row["spot_notice_s"],
        spot_grace_s=row["spot_grace_s"],
        node_provisioning_s=(provisioning[0], provisioning[1]) if provisioning else None,
        evidence={
            fact: Evidence(sources[found["source"]], found["check"], found.get("detail", ""))
            for fact, found in row["evidence"].items()
        },
    )


def with_operator(platform: str) -> str:
    """The platform of the same provider on which the GPU Operator makes every layout; empty where there is none, or
    where this one does."""
    mine = platforms()[platform]
    if mine.mig == "any-layout":
        return ""
    others = (p.name for p in platforms().values() if p.provider == mine.provider and p.mig == "any-layout")
    return next(others, "")


def default_platform(provider: str) -> str:
    """The platform planned for when the workload names none: the provider's own, else self-managed Kubernetes."""
    document = read_json("platforms.json")
    name: str = document["provider_defaults"].get(provider, document["other_providers"]["platform"])
    return name


def default_platform_note(provider: str) -> str:
    """What to tell the user about that choice; empty where nothing is assumed."""
    document = read_json("platforms.json")
    note: str = "" if provider in document["provider_defaults"] else document["other_providers"]["note"]
    return note
