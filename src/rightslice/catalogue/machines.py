"""Machine types with accelerators, per region: shape, list prices and how they are sold."""

from __future__ import annotations

import csv
from functools import lru_cache

from rightslice.catalogue.datafiles import read_gzip
from rightslice.catalogue.hardware import Machine

RETIRED = "retired"
"""Member of `Machine.sold_as` of types that the provider has withdrawn: in the price list, but no candidate."""


@lru_cache(maxsize=1)
def machines() -> tuple[Machine, ...]:
    """Every row, sorted by provider, region and machine type; retired ones included."""
    rows = csv.reader(read_gzip("machines.csv.gz").splitlines())
    at = {name: index for index, name in enumerate(next(rows))}
    sold: dict[str, frozenset[str]] = {}
    return tuple(_machine(row, at, sold) for row in rows)


def _machine(row: list[str], at: dict[str, int], sold: dict[str, frozenset[str]]) -> Machine:
    sold_as = row[at["sold_as"]]
    if sold_as not in sold:
        sold[sold_as] = frozenset(sold_as.split("|"))
    vcpu = row[at["vcpu"]]
    return Machine(
        provider=row[at["provider"]],
        region=row[at["region"]],
        machine_type=row[at["machine_type"]],
        accelerator=row[at["accelerator"]],
        accelerator_count=float(row[at["accelerator_count"]]),
        vcpu=int(vcpu) if vcpu else None,
        memory_gib=_number(row[at["memory_gib"]]),
        on_demand_usd_per_hour=_number(row[at["on_demand_usd_per_hour"]]),
        spot_usd_per_hour=_number(row[at["spot_usd_per_hour"]]),
        spot_interruption=row[at["spot_interruption"]],
        price_date=row[at["price_date"]],
        quality=row[at["quality"]],
        source=row[at["source"]],
        host_architecture=row[at["host_architecture"]],
        nic_gbps=_number(row[at["nic_gbps"]]),
        gpudirect=row[at["gpudirect"]],
        fabric=row[at["fabric"]],
        local_ssd_gib=_number(row[at["local_ssd_gib"]]),
        sold_as=sold[sold_as],
        managed_kubernetes=row[at["managed_kubernetes"]],
    )


def _number(text: str) -> float | None:
    """None: not published or not looked up."""
    return float(text) if text else None
