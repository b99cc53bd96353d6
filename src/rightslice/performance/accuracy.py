"""How far step costs are to be trusted: the measured band of the cell that a configuration falls into."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.estimate import Provenance
from rightslice.performance import coefficients

_VALIDATED_ATTENTION = frozenset({"full", "sliding", "chunked", "mla"})


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Cell(_Section):
    relative_error: float
    rows: int
    groups: int
    throughput_median_ape: float | None = None
    tpot_median_ape: float | None = None
    ttft_median_ape: float | None = None


class _Document(_Section):
    version: str
    source: str
    selection: str
    silicon: dict[str, str]
    oldest_engine: dict[str, tuple[int, int]]
    cells: dict[str, _Cell]
    unvalidated: dict[str, float]


@dataclass(frozen=True, slots=True)
class Band:
    """Half width of the 80 % band of time, time / (1 + e) .. time * (1 + e), and what it rests on."""

    relative_error: float
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class MetricBand:
    """Half width of the 80 % band of one metric, the one-sided 95 % factor minus 1, and the factor on predictions."""

    relative_error: float
    relative_error95: float
    provenance: Provenance
    bias: float = 1.0


@dataclass(frozen=True, slots=True)
class Bands:
    """Bands of what a benchmark reports for one configuration, and the cell that they come from."""

    cell: str
    throughput: MetricBand
    ttft: MetricBand
    tpot: MetricBand
    e2e: MetricBand


@cache
def _document() -> _Document:
    text = resources.files("rightslice.performance").joinpath("data/accuracy.yaml").read_text("utf-8")
    return _Document.model_validate(yaml.load(text, Loader=yaml.CSafeLoader))


def band(architecture: Architecture, device: Device, settings: EngineSettings) -> Band:
    """Band of a configuration's times.

    80 % quantile of |log(predicted / measured)| of throughput and TPOT over published rows of the same cell, every
    group (model family, accelerator) weighing the same: `first-principles`, since efficiencies come from operator
    tables (data/accuracy.yaml says which constants were nevertheless chosen on those rows). Without measured rows:
    `unvalidated`, at least 0.4. TTFT under load also depends on the client, so it is not in the band; its error is
    larger and stands in data/accuracy.yaml.
    """
    document = _document()
    name = cell_name(architecture, device, settings)
    cell = document.cells.get(name)
    if cell:
        return Band(cell.relative_error, "first-principles")
    kind, silicon = name.split("/")[:2]
    vendor = "other" if silicon == "other" else kind
    return Band(document.unvalidated[vendor], "unvalidated")


def bands(architecture: Architecture, device: Device, settings: EngineSettings, *, guessed: bool = False) -> Bands:
    """Bands of the metrics that a benchmark reports."""
    found = band(architecture, device, settings)
    error = max(found.relative_error, 1.0) if guessed else found.relative_error
    one = MetricBand(error, (1.0 + error) ** 1.28 - 1.0, "unvalidated" if guessed else found.provenance)
    wide = MetricBand(1.0, 1.5, one.provenance)
    return Bands(cell_name(architecture, device, settings), one, wide, one, one)


def cell_name(architecture: Architecture, device: Device, settings: EngineSettings) -> str:
    """`dense/datacentre/vllm`, then `+` and what sets the configuration apart: `dense/datacentre/vllm+slice`."""
    kind = "moe" if architecture.moe else "dense"
    parts = [f"{kind}/{_silicon(device)}/{settings.engine}", *_peculiarities(architecture, device, settings)]
    return "+".join(parts)


def _silicon(device: Device) -> str:
    known = _document().silicon.get(coefficients.family(device))
    return known or ("other-nvidia" if device.accelerator.vendor.casefold() == "nvidia" else "other")


def _peculiarities(architecture: Architecture, device: Device, settings: EngineSettings) -> list[str]:
    found = {
        "old": _is_old(settings),
        "slice": device.sliced,
        "pipeline": settings.pipeline_parallel_size > 1,
        "ranks": settings.data_parallel_size > 1,
        "weight-only": coefficients.is_weight_only(device, settings.weight_dtype),
        "state": any(group.kind not in _VALIDATED_ATTENTION for group in architecture.attention),
    }
    return [name for name, present in found.items() if present]


def _is_old(settings: EngineSettings) -> bool:
    """True for an engine older than the oldest measured one, or of a version that is neither number nor nightly."""
    oldest = _document().oldest_engine.get(settings.engine)
    if not settings.version or oldest is None or settings.version.startswith("nightly"):
        return False
    match = re.match(r"v?(\d+)\.(\d+)", settings.version)
    return match is None or (int(match[1]), int(match[2])) < oldest
