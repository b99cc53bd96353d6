"""What an owned node costs: figures with their published ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rightslice.catalogue.datafiles import read_json


@dataclass(frozen=True, slots=True)
class Assumption:
    """One input: its value and range in `unit`, what it is, where it comes from, and how good that is.

    `quality`: `published`, `assumed` or `given` (by the user; the range is then the value).
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    what: str
    source: str
    quality: str


def ownership_date() -> str:
    """ISO 8601 date of the figures."""
    date: str = read_json("ownership.json")["as_of"]
    return date


def reference_node() -> tuple[str, int]:
    """(accelerator, accelerators in the node) that the figures describe."""
    document = read_json("ownership.json")
    return document["accelerator"], document["gpus"]


def ownership() -> Mapping[str, Assumption]:
    """Every input by name."""
    return {name: Assumption(name=name, **row) for name, row in read_json("ownership.json")["inputs"].items()}
