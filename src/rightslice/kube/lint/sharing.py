"""How GPUs are shared and cut: configurations of the device plugin, MIG layouts, the strategy that names resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.values import Path, Value, entries, fields, shown, text, whole

Mode = Literal["timeSlicing", "mps"]


@dataclass(frozen=True, slots=True)
class SharedResource:
    """One resource that several pods may have at once. `replicas`: None where it is no whole number."""

    name: str
    replicas: int | None
    path: Path
    rename: str = ""


@dataclass(frozen=True, slots=True)
class Sharing:
    """One configuration of the device plugin that shares."""

    document: Document
    mode: Mode
    resources: tuple[SharedResource, ...]
    renames: bool
    refuses_several: bool

    @property
    def path(self) -> Path:
        """Of the mode."""
        return ("sharing", self.mode)

    @property
    def title(self) -> str:
        """`time-slicing` or `MPS`."""
        return "MPS" if self.mode == "mps" else "time-slicing"

    def of(self, resource: str) -> SharedResource | None:
        """What is shared under the name that a pod asks for."""
        for shared in self.resources:
            offered = shared.rename or (f"{shared.name}.shared" if self.renames else shared.name)
            if offered == resource and (shared.replicas or 0) > 1:
                return shared
        return None


@dataclass(frozen=True, slots=True)
class MigEntry:
    """One layout for some GPUs: profile -> count."""

    document: Document
    path: Path
    layout: str
    enabled: bool
    profiles: Mapping[str, Value]


def sharing_of(documents: Iterable[Document]) -> Iterator[Sharing]:
    """Every way to share that some configuration names."""
    for document in documents:
        block = fields(document.get("sharing"))
        for mode in ("timeSlicing", "mps"):
            found = fields(block.get(mode))
            if not found:
                continue
            yield Sharing(
                document=document,
                mode="mps" if mode == "mps" else "timeSlicing",
                resources=tuple(_resources(found, mode)),
                renames=found.get("renameByDefault") is True,
                refuses_several=found.get("failRequestsGreaterThanOne") is True or mode == "mps",
            )


def _resources(block: Mapping[str, Value], mode: str) -> Iterator[SharedResource]:
    for index, entry in enumerate(map(fields, entries(block.get("resources")))):
        path: Path = ("sharing", mode, "resources", index, "replicas")
        yield SharedResource(shown(entry.get("name")), whole(entry.get("replicas")), path, shown(entry.get("rename")))


def mig_entries(documents: Iterable[Document]) -> Iterator[MigEntry]:
    """Every entry of every layout of mig-parted."""
    for document in documents:
        for layout, rows in fields(document.get("mig-configs")).items():
            for index, entry in enumerate(map(fields, entries(rows))):
                path: Path = ("mig-configs", layout, index)
                enabled = entry.get("mig-enabled") is True
                yield MigEntry(document, path, layout, enabled, fields(entry.get("mig-devices")))


def strategies(documents: Iterable[Document]) -> Iterator[tuple[Document, Path, str]]:
    """Every place that sets the MIG strategy: `none`, `single` or `mixed`."""
    for document in documents:
        places: tuple[Path, ...] = (("spec", "mig", "strategy"), ("flags", "migStrategy"), ("migStrategy",),
                                    ("spec", "values", "migStrategy"),
                                    ("spec", "values", "mig", "strategy"))  # fmt: skip
        for path in places:
            if value := text(document.get(*path)):
                yield document, path, value
