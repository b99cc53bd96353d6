"""How far predictions are to be trusted: the measured errors of the cell that a configuration falls into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.estimate import Provenance
from rightslice.performance import coefficients

MetricName = Literal["throughput", "tpot", "ttft", "e2e"]
_VALIDATED_ATTENTION: Final = frozenset({"full", "sliding", "chunked", "mla"})
_ONE_SIDED: Final = 1.28
"""Normal quantiles: 1.64 (one-sided 95 %) over 1.28 (two-sided 80 %)."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CellMetric(_Section):
    """Rows, median error of rows in groups that were left out, and the factors minus 1 of both bands."""

    rows: int
    median_ape: float
    band: float
    band95: float


class Cell(_Section):
    """One kind of configuration; `relative_error`: band of throughput and TPOT together."""

    relative_error: float
    rows: int
    groups: int
    throughput: CellMetric | None = None
    tpot: CellMetric | None = None
    ttft: CellMetric | None = None
    e2e: CellMetric | None = None


class Total(_Section):
    """Error of one metric over all rows."""

    rows: int
    groups: int
    median_ape: float
    macro_median_ape: float
    within_20pct: float
    interval_coverage: float | None = None
    bound_coverage: float | None = None


class Peer(_Section):
    """One cell of the published comparison, by metric: our error with the group left out, and the peers'."""

    cell: str
    metric: MetricName
    rows: int
    ours: float
    peers: dict[str, float]


class Group(_Section):
    """Median errors of one model family on one accelerator, left out of the fit."""

    group: str
    rows: int
    throughput: float | None = None
    tpot: float | None = None
    ttft: float | None = None
    e2e: float | None = None


class Suspicious(_Section):
    """Rows that look wrong: left out of fits, never out of scores."""

    source: str
    engine: str
    model: str
    accelerator: str
    reason: str
    rows: int


class Decision(_Section):
    """Picks by prediction under objectives of one metric: how often they break it, and the throughput they keep."""

    metric: MetricName
    picks: int
    broken: float
    kept: float


class Document(_Section):
    """`totals`: fitted, groups left out, sources left out -> metric -> error. `finer`: cells by family, arithmetic."""

    version: str
    source: str
    selection: str
    silicon: dict[str, str]
    totals: dict[str, dict[MetricName, Total]]
    decisions: tuple[Decision, ...]
    unvalidated: dict[str, float]
    cells: dict[str, Cell]
    finer: dict[str, Cell]
    peers: tuple[Peer, ...]
    groups: tuple[Group, ...]
    suspicious: tuple[Suspicious, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """Half width of the 80 % band of time, time / (1 + e) .. time * (1 + e), and what it rests on."""

    relative_error: float
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class MetricBand:
    """Half width of the 80 % band of one metric, and the one-sided 95 % factor minus 1."""

    relative_error: float
    relative_error95: float
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Bands:
    """Bands of what a benchmark reports for one configuration, and the cell that they come from."""

    cell: str
    metrics: Mapping[MetricName, MetricBand]


@cache
def document() -> Document:
    """The shipped errors (data/accuracy.json)."""
    text = resources.files("rightslice.performance").joinpath("data/accuracy.json").read_text("utf-8")
    return Document.model_validate_json(text)


def band(architecture: Architecture, device: Device, settings: EngineSettings) -> Band:
    """Band of a configuration's times.

    80 % quantile of |log(predicted / measured)| of throughput and TPOT over published rows of the same finer cell, or
    of its cell where nothing finer was measured, predicted by constants that were fitted without their groups (model
    family, accelerator). Without measured rows: `unvalidated`, at least 0.4. TTFT under load also depends on the
    client, so it is not in the band; see `bands`.
    """
    cell = _known(architecture, device, settings, "")
    if cell:
        return Band(cell.relative_error, "first-principles")
    return Band(_unvalidated(cell_name(architecture, device, settings)), "unvalidated")


def bands(
    architecture: Architecture, device: Device, settings: EngineSettings, load: str = "", *, guessed: bool = False
) -> Bands:
    """Bands of the metrics that a benchmark of kind `load` reports; those of the cell, else `unvalidated`.

    A metric that nobody measured in the cell has the cell's band, TTFT the widest. `guessed`: the configuration is
    partly assumed, so nothing measured speaks for it.
    """
    name = cell_name(architecture, device, settings, load)
    cell = None if guessed else _known(architecture, device, settings, load)
    if cell is None:
        return Bands(name, {metric: _wide(metric, _unvalidated(name)) for metric in _METRICS})
    found: dict[MetricName, MetricBand] = {}
    for metric in _METRICS:
        known: CellMetric | None = getattr(cell, metric)
        if known:
            found[metric] = MetricBand(known.band, known.band95, "first-principles")
        else:
            found[metric] = _wide(metric, max(cell.relative_error, document().unvalidated["least"]))
    return Bands(name, found)


def _known(architecture: Architecture, device: Device, settings: EngineSettings, load: str) -> Cell | None:
    """The finer cell, the cell, then what is known of other loads than open ones."""
    found = document()
    for kind in dict.fromkeys((load, "")):
        names = (f(architecture, device, settings, kind) for f in (finer_name, cell_name))
        for name, table in zip(names, (found.finer, found.cells), strict=True):
            if name in table:
                return table[name]
    return None


_METRICS: Final[tuple[MetricName, ...]] = ("throughput", "tpot", "ttft", "e2e")


def _wide(metric: MetricName, error: float) -> MetricBand:
    widest = max(error, document().unvalidated["ttft"]) if metric == "ttft" else error
    return MetricBand(widest, (1.0 + widest) ** _ONE_SIDED - 1.0, "unvalidated")


def _unvalidated(name: str) -> float:
    kind, silicon = name.split("/")[:2]
    known = silicon in {*document().silicon.values(), "other-nvidia"}
    return document().unvalidated[kind if known else "other"]


def cell_name(architecture: Architecture, device: Device, settings: EngineSettings, load: str = "") -> str:
    """`dense/datacentre/vllm<0.8.0`, then `+` and what sets it apart: `dense/datacentre/vllm+slice`.

    The engine is followed by the version that ends its era, if it is not today's.
    """
    return _name(architecture, device, settings, load, _silicon(device))


def finer_name(architecture: Architecture, device: Device, settings: EngineSettings, load: str = "") -> str:
    """`dense/hopper:8bit/vllm`: as the cell, by family of devices and arithmetic of the weights."""
    arithmetic = coefficients.arithmetic(device, settings.weight_dtype)
    return _name(architecture, device, settings, load, f"{coefficients.family(device)}:{arithmetic}")


def _name(architecture: Architecture, device: Device, settings: EngineSettings, load: str, silicon: str) -> str:
    kind = "moe" if architecture.moe else "dense"
    limit = coefficients.era_limit(device, settings)
    era = f"<{limit}" if limit else ""
    parts = [f"{kind}/{silicon}/{settings.engine}{era}", *_peculiarities(architecture, device, settings)]
    return "+".join([*parts, *(["open"] if load == "open" else [])])


def _silicon(device: Device) -> str:
    known = document().silicon.get(coefficients.family(device))
    vendor = device.accelerator.vendor.casefold()
    return known or ("other-nvidia" if vendor == "nvidia" else vendor)


def _peculiarities(architecture: Architecture, device: Device, settings: EngineSettings) -> list[str]:
    found = {
        "slice": device.sliced,
        "pipeline": settings.pipeline_parallel_size > 1,
        "ranks": settings.data_parallel_size > 1,
        "weight-only": coefficients.is_weight_only(device, settings.weight_dtype),
        "state": any(group.kind not in _VALIDATED_ATTENTION for group in architecture.attention),
    }
    return [name for name, present in found.items() if present]
