"""Rates at which machines and accelerators are lost, and who adds and removes nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from rightslice.catalogue.datafiles import read_json

HOURS_PER_30_DAYS: Final = 720.0


@dataclass(frozen=True, slots=True)
class Together:
    """Chance that another machine of the same type and zone goes with one, and within how many seconds."""

    share: float
    within_s: float


@dataclass(frozen=True, slots=True)
class Provisioner:
    """Who adds and removes nodes. Fields as described at the head of provisioners.json."""

    name: str
    scan_s: float
    batch_idle_s: float
    batch_max_s: float
    unneeded_s: float
    delay_after_add_s: float
    underused_share: float
    max_provision_s: float
    backoff_s: float
    backoff_max_s: float
    removals_at_once: int
    drains_at_once: int
    source: str


def reclaims_per_hour(band: str) -> float | None:
    """Interruptions of one spot machine per hour, from its 30-day band b: -ln(1 - b) / 720. None: no band known."""
    share = read_json("disruptions.json")["interruption_30_days"].get(band)
    return None if share is None else -math.log1p(-share) / HOURS_PER_30_DAYS


def together() -> Together:
    """How spot machines of one type and zone are lost together."""
    row = read_json("disruptions.json")["together"]
    return Together(row["share"], row["within_s"])


def failures_per_hour(of: Literal["gpu", "node"]) -> float:
    """Hardware failures of one GPU, or of one node apart from its GPUs, per hour."""
    row = read_json("disruptions.json")["failures"][of]
    rate: float = row["count"] / row["exposure_hours"]
    return rate


def max_run_s(capacity: str) -> float | None:
    """How long a machine bought so may run; None: as long as it is wanted."""
    limit: float | None = read_json("disruptions.json")["max_run_s"].get(capacity)
    return limit


@lru_cache(maxsize=1)
def provisioners() -> Mapping[str, Provisioner]:
    """Every provisioner by name."""
    document = read_json("provisioners.json")
    return {
        name: Provisioner(name=name, **{**row, "source": document["sources"][row["source"]]})
        for name, row in document["provisioners"].items()
    }
