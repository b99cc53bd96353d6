"""The catalogue as tables for people and scripts: `rightslice catalog KIND`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from rightslice.catalogue.accelerators import accelerators, resolve_accelerator
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.engines import engines
from rightslice.catalogue.hardware import MigGeometry
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import geometry
from rightslice.catalogue.platforms import platforms
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean

GIB: Final = 2**30
Cell = str | int | float | bool | None
Row = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Filters:
    """What to keep; empty or 0 keeps everything. `accelerator` takes any spelling, `text` words that must all occur.

    `min_memory_bytes` is of one accelerator or slice, as an engine sees it.
    """

    provider: str = ""
    region: str = ""
    accelerator: str = ""
    min_memory_bytes: int = 0
    text: str = ""


NO_FILTERS: Final = Filters()


@dataclass(frozen=True, slots=True)
class CatalogueTable:
    """Rows of plain JSON values by column, in a fixed order, and what a reader must know about them."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Kind:
    rows: Callable[[], Iterable[Row]]
    filters: frozenset[str]
    notes: tuple[str, ...]


def table(kind: str, *, filters: Filters = NO_FILTERS) -> CatalogueTable:
    """One table of the catalogue: accelerators, machines, engines, platforms, mig or models.

    Raises KeyError for another kind, BadInputError for a filter that does not apply (RS0502) or that names an unknown
    accelerator (RS0312), provider (RS0318) or region (RS0314).
    """
    chosen = _KINDS[kind]
    rows = list(chosen.rows())
    columns = tuple(rows[0]) if rows else ()
    wanted = _checked(kind, chosen, filters, rows)
    kept = tuple(row for row in rows if _kept(row, wanted))
    return CatalogueTable(columns, kept, chosen.notes)


def kinds() -> tuple[str, ...]:
    """The tables there are."""
    return tuple(_KINDS)


def _checked(kind: str, chosen: _Kind, filters: Filters, rows: Sequence[Row]) -> Filters:
    """The filters with a canonical accelerator name; every mistake raised at once."""
    found: list[Diagnostic] = []
    given = [f.name for f in fields(filters) if getattr(filters, f.name)]
    for name in given:
        if name not in chosen.filters:
            shown = name.removesuffix("_bytes").replace("_", "-")
            usable = ", ".join(sorted(f.removesuffix("_bytes").replace("_", "-") for f in chosen.filters))
            found.append(Diagnostic("RS0502", f"{shown} does not apply to {kind}", hint=f"filters here: {usable}"))
    canonical = resolve_accelerator(filters.accelerator) if filters.accelerator else ""
    if canonical is None:
        hint = did_you_mean(filters.accelerator, accelerators())
        found.append(Diagnostic("RS0312", f'unknown accelerator "{filters.accelerator[:80]}"', hint=hint))
    found += _unknown("RS0318", "provider", filters.provider, rows)
    found += _unknown("RS0314", "region", filters.region, rows)
    if found:
        raise BadInputError(found)
    return Filters(filters.provider, filters.region, canonical or "", filters.min_memory_bytes, filters.text)


def _unknown(rule: str, column: str, name: str, rows: Sequence[Row]) -> list[Diagnostic]:
    known = {str(row[column]) for row in rows if column in row}
    if not name or not known or name in known:
        return []
    return [Diagnostic(rule, f'unknown {column} "{name[:80]}"', hint=did_you_mean(name, known))]


def _kept(row: Row, wanted: Filters) -> bool:
    for column in ("provider", "region", "accelerator"):
        name = getattr(wanted, column)
        if name and row[column] != name:
            return False
    if wanted.min_memory_bytes:
        memory_gib = row["memory_gib"]
        if not isinstance(memory_gib, float) or memory_gib * GIB < wanted.min_memory_bytes:
            return False
    words = wanted.text.casefold().split()
    haystack = " ".join(str(cell) for cell in row.values()).casefold() if words else ""
    return all(word in haystack for word in words)


def _date(document: str) -> str:
    date: str = read_json(document)["as_of"]
    return date


def _accelerator_rows() -> Iterable[Row]:
    date = _date("accelerators.json")
    for item in accelerators().values():
        yield {
            "accelerator": item.name,
            "memory_gib": item.visible_memory_bytes / GIB,
            "memory_bandwidth_gb_per_s": item.memory_bandwidth_bytes_per_s / 1e9,
            **{f"{dtype}_tflops": _tera(item.flops.get(dtype)) for dtype in ("bf16", "fp8", "fp4", "fp16", "int8")},
            "mig": item.mig,
            "link": item.link_kind,
            "link_gb_per_s": item.link_bytes_per_s / 1e9,
            "link_domain_max": item.link_domain_max,
            "vendor": item.vendor,
            "architecture": item.arch,
            "memory_assumed": item.visible_assumed,
            "advertised_memory_gib": item.advertised_memory_bytes / GIB,
            "sm_count": item.sm_count,
            "tdp_w": item.tdp_w,
            "compute_capability": item.compute_capability,
            "source": item.source,
            "date": date,
            "disputed": item.disputed,
            "note": item.note,
        }


def _tera(per_s: float | None) -> float | None:
    return None if per_s is None else per_s / 1e12


def _machine_rows() -> Iterable[Row]:
    for item in machines():
        yield {
            "provider": item.provider,
            "region": item.region,
            "machine_type": item.machine_type,
            "accelerator": item.accelerator,
            "accelerator_count": item.accelerator_count,
            "on_demand_usd_per_hour": item.on_demand_usd_per_hour,
            "spot_usd_per_hour": item.spot_usd_per_hour,
            "sold_as": " ".join(sorted(item.sold_as)),
            "date": item.price_date,
            "quality": item.quality,
            "memory_gib": accelerators()[item.accelerator].visible_memory_bytes / GIB,
            "vcpu": item.vcpu,
            "host_memory_gib": item.memory_gib,
            "host_architecture": item.host_architecture,
            "fabric": item.fabric,
            "nic_gbps": item.nic_gbps,
            "gpudirect": item.gpudirect,
            "local_ssd_gib": item.local_ssd_gib,
            "spot_interruption": item.spot_interruption,
            "managed_kubernetes": item.managed_kubernetes,
            "source": item.source,
        }


def _engine_rows() -> Iterable[Row]:
    date = _date("engines.json")
    for item in engines().values():
        yield {
            "engine": item.name,
            "title": item.title,
            "latest_version": item.latest_version,
            "tasks": " ".join(item.tasks),
            "image": item.image(item.latest_version),
            "port": item.port,
            "health_path": item.health_path,
            "metrics_path": item.metrics_path,
            "source": item.source,
            "date": date,
            "note": "; ".join(item.notes),
        }


def _platform_rows() -> Iterable[Row]:
    date = _date("platforms.json")
    for item in platforms().values():
        low_s, high_s = item.node_provisioning_s or (None, None)
        yield {
            "platform": item.name,
            "title": item.title,
            "provider": item.provider,
            "mig": item.mig,
            "mig_needs": item.mig_needs,
            "time_slicing": item.time_slicing,
            "mps": item.mps,
            "gpu_resource": item.gpu_resource("whole"),
            "accelerator_label": item.accelerator_label,
            "spot_notice_s": item.spot_notice_s,
            "node_provisioning_low_s": low_s,
            "node_provisioning_high_s": high_s,
            "source": item.evidence["mig"].source,
            "date": date,
            "note": item.evidence["mig"].detail,
        }


def _mig_rows() -> Iterable[Row]:
    document = read_json("mig.json")
    sources = {
        (accelerator, profile["name"]): "; ".join(document["sources"][key] for key in profile["sources"])
        for entry in document["gpus"].values()
        for accelerator in entry["accelerators"]
        for profile in entry["profiles"]
    }
    for name in accelerators():
        found = geometry(name)
        if found:
            yield from _mig_rows_of(found, sources, document["as_of"])


def _mig_rows_of(found: MigGeometry, sources: Mapping[tuple[str, str], str], date: str) -> Iterable[Row]:
    for profile in found.profiles:
        yield {
            "accelerator": found.accelerator,
            "profile": profile.name,
            "memory_gib": profile.memory_bytes / GIB,
            "sm_count": profile.sm_count,
            "sm_total": found.sm_full,
            "max_instances": profile.max_instances,
            "memory_units": profile.mem_units,
            "memory_units_total": found.mem_units,
            "starts": " ".join(str(start) for start in profile.starts),
            "media": profile.media,
            "estimated": profile.estimated,
            "source": sources[found.accelerator, profile.name],
            "date": date,
        }


def _model_rows() -> Iterable[Row]:
    from rightslice.catalogue.models import model_names, resolve_model  # noqa: PLC0415 - heavy, only this table needs it

    for name in sorted(model_names()):
        item = resolve_model(name)
        yield {
            "model": name,
            "family": item.family,
            "kind": item.kind,
            "parameters": item.parameters,
            "active_parameters": item.active_parameters,
            "layers": item.layers,
            "context_max_tokens": item.context_max,
            "published_dtype": item.published_dtype,
            "published_weights_bytes": item.published_weights_bytes,
            "source": item.source,
            "note": "; ".join(item.notes),
        }


_KINDS: Final[Mapping[str, _Kind]] = {
    "accelerators": _Kind(
        _accelerator_rows,
        frozenset({"accelerator", "min_memory_bytes", "text"}),
        (
            "memory_gib is what CUDA or HIP gives an engine; memory_assumed: nobody printed it, estimated",
            "operations per second are dense; an empty cell: no such unit, or not published",
            "link_gb_per_s counts both directions; 0 is none or not known",
        ),
    ),
    "machines": _Kind(
        _machine_rows,
        frozenset({"provider", "region", "accelerator", "min_memory_bytes", "text"}),
        (
            "list prices of the whole machine, without tax, as of the date of each row; nothing is fetched",
            "a list price is no offer: sold_as says how a machine can be had; retired must not be planned",
            "memory_gib is of one accelerator as an engine sees it; an empty cell: not published or not looked up",
        ),
    ),
    "engines": _Kind(_engine_rows, frozenset({"text"}), ()),
    "platforms": _Kind(
        _platform_rows,
        frozenset({"provider", "text"}),
        ("mig: any-layout, uniform-per-pool (one profile for every GPU of a node pool) or none",),
    ),
    "mig": _Kind(
        _mig_rows,
        frozenset({"accelerator", "min_memory_bytes", "text"}),
        (
            "memory_gib is the lowest value nvidia-smi printed; names and SM counts move with the driver",
            "starts are in the memory units of nvidia-smi mig -lgipp; instances must not overlap",
            "estimated: nobody printed the profile; SM counts there are lower bounds",
        ),
    ),
    "models": _Kind(_model_rows, frozenset({"text"}), ()),
}
