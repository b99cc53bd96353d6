"""`rightslice cost`: how much to reserve for a demand, and whether to own or to rent."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from rightslice.catalogue.accelerators import accelerators, resolve_accelerator
from rightslice.catalogue.machines import machines
from rightslice.catalogue.ownership import Assumption, ownership, ownership_date, reference_node
from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean
from rightslice.procurement.own import Owning, owning
from rightslice.procurement.reserve import Prices, Reservation, reservation
from rightslice.spec.source import read_text

MAX_DEMAND_BYTES: Final = 64_000_000
MAX_GPUS: Final = 1e7
MAX_SHOWN: Final = 20
HOURS_PER_YEAR: Final = 8760
_COLUMN: Final = "gpus"
_POOL: Final = "pool"


@dataclass(frozen=True, slots=True)
class ReserveReport:
    """The cheapest reservation of each pool of a demand file, and their sums in USD over its rows."""

    file: str
    reserved_usd_per_gpu_hour: float
    alternative_usd_per_gpu_hour: float
    reserve_gpus: int
    percentile: float
    total_usd: float
    all_on_demand_usd: float
    all_reserved_usd: float
    pools: tuple[Reservation, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnReport:
    """An owned node against rent. `figures_date`: of the published figures among the assumptions."""

    accelerator: str
    usd_per_gpu_hour: float
    break_even_utilisation: Mapping[str, float]
    answer: Owning
    assumptions: tuple[Assumption, ...]
    figures_date: str
    notes: tuple[str, ...]


def reserve(path: Path, prices: Prices, *, gpus_per_machine: int = 1) -> ReserveReport:
    """The cheapest reservation for a CSV file with one row per hour: column `gpus`, and `pool` where there are several.

    Raises BadInputError for whatever is wrong with the file.
    """
    demand = _demand(path)
    found = tuple(
        reservation(np.array(series), prices, pool=pool, quantum=gpus_per_machine) for pool, series in demand.items()
    )
    return ReserveReport(
        file=str(path),
        reserved_usd_per_gpu_hour=prices.reserved,
        alternative_usd_per_gpu_hour=prices.alternative,
        reserve_gpus=sum(pool.reserve_gpus for pool in found),
        percentile=prices.percentile,
        total_usd=sum(pool.total_usd for pool in found),
        all_on_demand_usd=sum(pool.all_on_demand_usd for pool in found),
        all_reserved_usd=sum(pool.all_reserved_usd for pool in found),
        pools=found,
        notes=tuple(_reserve_notes(found, prices)),
    )


def own(accelerator: str = "", given: Mapping[str, float] | None = None, *, gpus: int | None = None) -> OwnReport:
    """What an owned node costs by the hour; without options the worked example of an 8 x H100 node.

    `given`: values by the names of ownership.json. Raises BadInputError for an unknown accelerator and where another
    accelerator than the published one comes without its own price and power.
    """
    given = given or {}
    published, published_gpus = reference_node()
    name = resolve_accelerator(accelerator) if accelerator else published
    if name is None:
        hint = did_you_mean(accelerator, accelerators())
        raise BadInputError(Diagnostic("RS0312", f'unknown accelerator "{accelerator[:80]}"', hint=hint))
    missing = [key for key in ("server_usd", "power_kw") if key not in given]
    if (name, gpus or published_gpus) != (published, published_gpus) and missing:
        options = " and ".join(f"--{key.replace('_', '-')}" for key in missing)
        message = f"no published price of a server with {gpus or published_gpus} x {name}"
        raise BadInputError(Diagnostic("RS0502", message, hint=f"give {options}"))
    inputs = {key: _input(row, given.get(key)) for key, row in ownership().items()}
    answer = owning(name, gpus or published_gpus, inputs, machines())
    notes = () if answer.rents else (f"no provider of the catalogue rents out {answer.gpus} x {name} on demand",)
    return OwnReport(
        accelerator=name,
        usd_per_gpu_hour=answer.usd_per_gpu_hour,
        break_even_utilisation=answer.break_even_utilisation,
        answer=answer,
        assumptions=answer.assumptions,
        figures_date=ownership_date(),
        notes=notes,
    )


def _input(row: Assumption, value: float | None) -> Assumption:
    if value is None:
        return row
    return replace(row, value=value, low=value, high=value, source="given", quality="given")


def _reserve_notes(found: tuple[Reservation, ...], prices: Prices) -> list[str]:
    notes = []
    if prices.reserved >= prices.alternative:
        notes.append("the reserved price is not below the alternative: reserving never pays on price alone")
    short = min(pool.hours for pool in found)
    if short < HOURS_PER_YEAR:
        notes.append(f"{short:,} hours of demand: a reservation of a year assumes that the rest is alike")
    if len(found) > 1:
        notes.append("pools are sized apart; a commitment of a region covers their sum, which varies less")
    notes.append("a reservation holds capacity and a commitment lowers the price; neither does what the other does")
    return notes


def _demand(path: Path) -> dict[str, list[float]]:
    text = read_text(path, max_bytes=MAX_DEMAND_BYTES)
    rows = csv.reader(text.splitlines())
    header = [name.strip().lower() for name in next(rows, [])]
    where = Location(str(path), 1, 1)
    if _COLUMN not in header:
        hint = did_you_mean(_COLUMN, header) or "the first line names the columns: gpus, and pool if there are several"
        raise BadInputError(Diagnostic("RS0202", 'no column "gpus"', where, hint))
    if duplicated := [name for name in (_COLUMN, _POOL) if header.count(name) > 1]:
        raise BadInputError(Diagnostic("RS0301", f'two columns "{duplicated[0]}"', where))
    at, pool_at = header.index(_COLUMN), header.index(_POOL) if _POOL in header else None
    found: dict[str, list[float]] = {}
    wrong: list[Diagnostic] = []
    for number, row in enumerate(rows, 2):
        if not any(cell.strip() for cell in row):
            continue
        text = row[at].strip() if at < len(row) else ""
        gpus = _gpus(text)
        if gpus is None:
            hint = f"a number of GPUs, 0 to {MAX_GPUS:,.0f}"
            wrong.append(Diagnostic("RS0106", f'"{text[:40]}" GPUs', Location(str(path), number, 1), hint))
            if len(wrong) >= MAX_SHOWN:
                break
            continue
        pool = row[pool_at].strip() if pool_at is not None and pool_at < len(row) else ""
        found.setdefault(pool, []).append(gpus)
    if wrong:
        raise BadInputError(wrong)
    if not found:
        raise BadInputError(Diagnostic("RS0405", "no hour of demand", where, "one row per hour below the header"))
    return found


def _gpus(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0.0 <= number <= MAX_GPUS else None
