"""Own or rent: the cost of an owned GPU-hour, and how much of the time it must be used to be cheaper than rent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.hardware import Machine
from rightslice.catalogue.ownership import Assumption
from rightslice.core.quantities import HOURS_PER_MONTH

HOURS_PER_YEAR: Final = 8760.0
MONTHS_PER_YEAR: Final = 12.0
PAY_BACK_AT: Final = 0.8
"""Utilisation at which the pay-back time is told."""


@dataclass(frozen=True, slots=True)
class Node:
    """An owned node; shares are of 1, money in USD, `gpus` accelerators. Fields as in ownership.json."""

    gpus: int
    server_usd: float
    network_share: float
    years: float
    residual_share: float
    capital_cost: float
    power_kw: float
    load_share: float
    pue: float
    energy_usd_per_kwh: float
    space_usd_per_kw_month: float
    maintenance_share: float
    engineers: float
    engineer_usd_per_year: float
    availability: float


@dataclass(frozen=True, slots=True)
class YearlyUsd:
    """USD a year of one node, by cause."""

    capital: float
    energy: float
    space: float
    maintenance: float
    staff: float

    @property
    def running(self) -> float:
        """What is paid every year besides the purchase."""
        return self.energy + self.space + self.maintenance + self.staff

    @property
    def total(self) -> float:
        """All of it."""
        return self.capital + self.running


@dataclass(frozen=True, slots=True)
class Rent:
    """One provider's comparable machine. `break_even_utilisation`: share of hours above which owning is cheaper.

    `pay_back_months`: until the purchase is earned back at `PAY_BACK_AT` utilisation, without the cost of capital;
    None when it never is within the node's life.
    """

    provider: str
    region: str
    machine_type: str
    usd_per_gpu_hour: float
    price_date: str
    quality: str
    break_even_utilisation: float
    pay_back_months: float | None


@dataclass(frozen=True, slots=True)
class Swing:
    """What one input does to the price of an owned GPU-hour over its range."""

    name: str
    low_usd_per_gpu_hour: float
    high_usd_per_gpu_hour: float


@dataclass(frozen=True, slots=True)
class Owning:
    """The answer of `cost own`."""

    accelerator: str
    gpus: int
    usd_per_gpu_hour: float
    yearly: YearlyUsd
    break_even_utilisation: Mapping[str, float]
    rents: tuple[Rent, ...]
    swings: tuple[Swing, ...]
    assumptions: tuple[Assumption, ...]


def yearly_usd(node: Node) -> YearlyUsd:
    """Annual cost of a node.

    Capital: annuity of the purchase less the present value of what remains, (C - R / (1 + w)^n) x w / (1 - (1 + w)^-n);
    linear where the capital costs nothing.
    """
    w, n = node.capital_cost, node.years
    bought = node.server_usd * (1.0 + node.network_share)
    residual = bought * node.residual_share
    recovery = w / (1.0 - (1.0 + w) ** -n) if w else 1.0 / n
    kw = node.power_kw * node.load_share * node.pue
    return YearlyUsd(
        capital=(bought - residual / (1.0 + w) ** n) * recovery,
        energy=kw * HOURS_PER_YEAR * node.energy_usd_per_kwh,
        space=node.power_kw * MONTHS_PER_YEAR * node.space_usd_per_kw_month,
        maintenance=node.server_usd * node.maintenance_share,
        staff=node.engineers * node.engineer_usd_per_year,
    )


def usd_per_gpu_hour(node: Node) -> float:
    """USD per accelerator and hour in which it can be used."""
    return yearly_usd(node).total / (node.gpus * HOURS_PER_YEAR * node.availability)


def pay_back_months(node: Node, rent_usd_per_gpu_hour: float) -> float | None:
    """Months until the rent saved at `PAY_BACK_AT` utilisation, less running costs, has paid for the node."""
    used_hours = node.gpus * HOURS_PER_MONTH * node.availability * PAY_BACK_AT
    saved = used_hours * rent_usd_per_gpu_hour - yearly_usd(node).running / MONTHS_PER_YEAR
    if saved <= 0.0:
        return None
    months = node.server_usd * (1.0 + node.network_share) / saved
    return months if months <= node.years * MONTHS_PER_YEAR else None


def owning(accelerator: str, gpus: int, inputs: Mapping[str, Assumption], rows: Sequence[Machine]) -> Owning:
    """The price of an owned GPU-hour against every provider of `rows` that rents out a comparable machine."""
    node = Node(gpus, **{name: assumption.value for name, assumption in inputs.items()})
    own = usd_per_gpu_hour(node)
    rents = tuple(_rents(node, own, _comparable(accelerator, gpus, rows)))
    swings = sorted(_swings(gpus, inputs), key=lambda s: (s.low_usd_per_gpu_hour - s.high_usd_per_gpu_hour, s.name))
    return Owning(
        accelerator=accelerator,
        gpus=gpus,
        usd_per_gpu_hour=own,
        yearly=yearly_usd(node),
        break_even_utilisation={rent.provider: rent.break_even_utilisation for rent in rents},
        rents=rents,
        swings=tuple(swings),
        assumptions=tuple(inputs.values()),
    )


def _comparable(accelerator: str, gpus: int, rows: Sequence[Machine]) -> list[Machine]:
    """Per provider the cheapest machine on demand with as many accelerators, with a GPU network where there is one.

    An owned node is bought with such a network; a machine without would be another thing.
    """
    best: dict[str, tuple[tuple[bool, float, str], Machine]] = {}
    for machine in rows:
        usd = machine.on_demand_usd_per_hour
        fits = machine.accelerator == accelerator and machine.accelerator_count == gpus
        if not fits or not usd or "on_demand" not in machine.sold_as:
            continue
        order = (machine.gpudirect in ("", "none"), usd, machine.region)
        if machine.provider not in best or order < best[machine.provider][0]:
            best[machine.provider] = (order, machine)
    return [best[provider][1] for provider in sorted(best)]


def _rents(node: Node, own: float, machines: Sequence[Machine]) -> Iterator[Rent]:
    for machine in machines:
        rent = (machine.on_demand_usd_per_hour or 0.0) / node.gpus
        yield Rent(
            machine.provider,
            machine.region,
            machine.machine_type,
            rent,
            machine.price_date,
            machine.quality,
            own / rent,
            pay_back_months(node, rent),
        )


def _swings(gpus: int, inputs: Mapping[str, Assumption]) -> Iterator[Swing]:
    for name, assumption in inputs.items():
        others = {other: each.value for other, each in inputs.items() if other != name}
        ends = sorted(
            usd_per_gpu_hour(Node(gpus, **others, **{name: end})) for end in (assumption.low, assumption.high)
        )
        if ends[0] < ends[1]:
            yield Swing(name, ends[0], ends[1])
