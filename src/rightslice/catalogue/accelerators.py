"""Accelerators: specifications by canonical name, spellings of names, and the device that an engine sees."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from rightslice.catalogue.aliases import lookup, normalised, split_partition
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE, Accelerator, Device
from rightslice.catalogue.mig import geometry

MIB: Final = 2**20
GIB: Final = 2**30
ASSUMED_VISIBLE_SHARE: Final = 0.993
"""Of nvidia-smi's memory, or of the nominal one, when nobody printed the visible memory: cards with printouts lose
0.5 to 0.7 % of the nvidia-smi figure (H100, H200, B200, RTX PRO 6000 rows of the data)."""
_FLOPS_FIELDS: Final = {
    "bf16": "bf16_tflops", "fp16": "fp16_tflops", "fp8": "fp8_tflops", "int8": "int8_tops",
    "fp4": "fp4_tflops", "tf32": "tf32_tflops", "fp32": "fp32_tflops",
}  # fmt: skip


@lru_cache(maxsize=1)
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator by canonical name, in the order of the data."""
    document = read_json("accelerators.json")
    rows = {row["name"]: row for row in document["accelerators"]}
    return {name: _accelerator(row, rows, document["sources"]) for name, row in rows.items()}


def accelerator(name: str) -> Accelerator:
    """The accelerator of that canonical name; KeyError when unknown."""
    return accelerators()[name]


def _accelerator(
    row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], sources: Mapping[str, str]
) -> Accelerator:
    visible_bytes, assumed = visible_memory(row, rows)
    return Accelerator(
        name=row["name"],
        vendor=row["vendor"],
        arch=row["arch"],
        form_factor=row["form_factor"],
        advertised_memory_bytes=row["memory_gb"] * GIB,
        visible_memory_bytes=visible_bytes,
        visible_assumed=assumed,
        memory_bandwidth_bytes_per_s=row["memory_bandwidth_gb_s"] * 1e9,
        sm_count=row.get("sm_count"),
        l2_cache_bytes=round(row["l2_cache_mib"] * MIB) if "l2_cache_mib" in row else None,
        flops={dtype: row[field] * 1e12 for dtype, field in _FLOPS_FIELDS.items() if field in row},
        link_kind=row["link_kind"],
        link_bytes_per_s=row.get("link_gb_s", 0) * 1e9,
        link_domain_max=row["link_domain_max"],
        pcie_bytes_per_s=_host_bytes_per_s(row["host_interconnect"]),
        tdp_w=row.get("tdp_w"),
        compute_capability=row.get("compute_capability", ""),
        mig=row.get("mig", False),
        source=sources[row["check"]],
        disputed="; ".join(row.get("disputed", ())),
        note=row.get("note", ""),
    )


def visible_memory(row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> tuple[int, bool]:
    """(bytes that CUDA or HIP gives an engine, whether that is assumed).

    Printed figure, else the nominal memory times the visible share of the card named in `visible_memory_like`, else
    `ASSUMED_VISIBLE_SHARE` of nvidia-smi's memory or of the nominal one (advertised GB x 1024 MiB).
    """
    if "visible_memory_mib" in row:
        return row["visible_memory_mib"] * MIB, False
    nominal_mib = row["memory_gb"] * 1024
    if "visible_memory_like" in row:
        like = rows[row["visible_memory_like"]]
        return round(nominal_mib * like["visible_memory_mib"] / (like["memory_gb"] * 1024)) * MIB, True
    return round(row.get("smi_memory_mib", nominal_mib) * ASSUMED_VISIBLE_SHARE) * MIB, True


def _host_bytes_per_s(interconnect: Mapping[str, Any]) -> float:
    """Line rate to the host per direction and accelerator; 0.0 where it is not published."""
    per_direction_gb_s: float = interconnect.get("gb_s_per_direction", 0.0)
    if "gb_s_bidirectional" in interconnect:
        per_direction_gb_s = interconnect["gb_s_bidirectional"] / 2 / interconnect["gpus_sharing"]
    return per_direction_gb_s * 1e9


def resolve_accelerator(text: str, namespace: str = "") -> str | None:
    """The canonical name that `text` stands for in a namespace (all of them when empty); a partition is cut off.

    None when unknown, ambiguous or disputed between namespaces: never a guess.
    """
    base, _ = split_partition(text, namespace)
    return lookup(base, namespace) or _canonical().get(normalised(base))


@lru_cache(maxsize=1)
def _canonical() -> Mapping[str, str]:
    return {normalised(name): name for name in accelerators()}


def resolve_device(text: str, namespace: str = "") -> tuple[str, str] | None:
    """(accelerator, partition) of `A100-SXM-80GB` or `A100-SXM-80GB:MIG-3g.40gb`.

    None when either is unknown; a bare memory (`MIG-71GB`) resolves only when one profile has that name ending.
    """
    name = resolve_accelerator(text, namespace)
    if name is None:
        return None
    partition = split_partition(text, namespace)[1].lower()
    if not partition:
        return name, WHOLE
    table = geometry(name)
    profiles = [p.name for p in table.profiles] if table else []
    if partition in profiles:
        return name, partition
    same_memory = [profile for profile in profiles if profile.partition(".")[2] == partition]
    return (name, same_memory[0]) if len(same_memory) == 1 else None


@lru_cache(maxsize=512)
def device(name: str, partition: str = WHOLE) -> Device:
    """What one engine process sees of accelerator `name`: all of it, also beside others, or one MIG slice.

    KeyError when unknown.

    Slice: memory (no more than the whole shows) and SMs of the MIG table; bandwidth = whole x memory units / all units;
    operations per second = whole x SMs / all SMs; no link.
    """
    whole = accelerator(name)
    if partition in (WHOLE, *ON_ONE_GPU):
        return Device(
            accelerator=whole,
            partition=partition,
            memory_bytes=whole.visible_memory_bytes,
            sm_count=whole.sm_count,
            memory_bandwidth_bytes_per_s=whole.memory_bandwidth_bytes_per_s,
            flops=whole.flops,
            link_bytes_per_s=whole.link_bytes_per_s,
        )
    table = geometry(name)
    if table is None:
        raise KeyError(partition)
    profile = table.profile(partition)
    sm_share = profile.sm_count / (whole.sm_count or table.sm_full)
    return Device(
        accelerator=whole,
        partition=partition,
        memory_bytes=min(profile.memory_bytes, whole.visible_memory_bytes),
        sm_count=profile.sm_count,
        memory_bandwidth_bytes_per_s=whole.memory_bandwidth_bytes_per_s * profile.mem_units / table.mem_units,
        flops={dtype: rate * sm_share for dtype, rate in whole.flops.items()},
        link_bytes_per_s=0.0,
    )
