"""`kind: Layout`: what runs now, GPU by GPU; the starting point of a re-plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rightslice.spec.checks import layout_problems
from rightslice.spec.fields import AcceleratorName, Known, MachineName, Name, PartitionName
from rightslice.spec.loader import NOTHING_KNOWN, parse_document, read_document
from rightslice.spec.sections import Section


class LayoutSlot(Section):
    """One tenant of a GPU. `start`: MIG memory unit or slot number; `replica` repeats over the GPUs of one replica."""

    partition: PartitionName
    start: Annotated[int, Field(ge=0, le=1000)] = 0
    model: Name
    replica: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class LayoutGpu(Section):
    """One GPU of a node; without slots it is free."""

    accelerator: AcceleratorName
    slots: tuple[LayoutSlot, ...] = ()


class LayoutNode(Section):
    """One machine."""

    name: Name
    machine_type: MachineName
    gpus: tuple[LayoutGpu, ...]


class Layout(Section):
    """The whole document."""

    api_version: Literal["rightslice/v1"] = Field(alias="apiVersion")
    kind: Literal["Layout"]
    nodes: Annotated[tuple[LayoutNode, ...], Field(min_length=1)]


def load_layout(path: Path | str, known: Known = NOTHING_KNOWN) -> Layout:
    """Read and check a layout file of at most 2 MB. Raises BadInputError with every mistake, in file order."""
    return parse_layout(read_document(path), file=str(path), known=known)


def parse_layout(text: str, *, file: str, known: Known = NOTHING_KNOWN) -> Layout:
    """The same for text; `file` is its name in diagnostics."""
    return parse_document(text, Layout, layout_problems, file=file, known=known)[0]
