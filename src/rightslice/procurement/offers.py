"""What can really be bought: machines of the catalogue that the fleet allows, by capacity and price.

Capacity (who guarantees the machine) and price (what it costs) are two axes. A list price is not an offer: `sold_as`
decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rightslice.catalogue.accelerators import accelerators
from rightslice.catalogue.hardware import Accelerator, Machine
from rightslice.catalogue.machines import machines
from rightslice.core.plan import Capacity, Price, Rejection
from rightslice.procurement.money import FLEX_BAND, price_band, spot_band
from rightslice.procurement.refusals import ON_PREMISES, Refusal, refusals, rejections, unpriced
from rightslice.spec.workload import Fleet

MAX_ALTERNATIVES = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """One machine type in one region, bought one way. The factors bound the price by its quality.

    `max_nodes`: how many there are, None when nobody said. `limits`: keys of the quotas that its GPUs count against.
    `alternatives`: (region, USD per hour) where the same can be had for more, cheapest first. `number` tells apart
    offers that are alike in all but price.
    """

    machine: Machine
    capacity: Capacity
    price: Price
    usd_per_hour: float
    max_nodes: int | None = None
    price_low_factor: float = 1.0
    price_high_factor: float = 1.0
    limits: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, float], ...] = ()
    number: int = 1

    @property
    def owned(self) -> bool:
        """Whether it is there already."""
        return self.capacity == "owned"

    @property
    def key(self) -> str:
        """Unique among the offers of one fleet."""
        machine = self.machine
        words = (machine.provider, machine.region, machine.machine_type, self.capacity, self.price)
        return "/".join((*words, str(self.number)) if self.number > 1 else words)


def offers(
    fleet: Fleet,
    *,
    interruptible: bool,
    rows: Sequence[Machine] | None = None,
    chips: Mapping[str, Accelerator] | None = None,
) -> tuple[tuple[Offer, ...], tuple[Rejection, ...]]:
    """Every offer, sorted by accelerator, size and price; and why each other accelerator or machine is none.

    `interruptible`: the work may be interrupted, so spot and flex-start capacity may carry it. One region is kept per
    machine and way to buy it, the cheapest, and one more for each quota. `rows`, `chips`: other catalogue than ours.
    """
    rows = machines() if rows is None else rows
    chips = accelerators() if chips is None else chips
    found: list[Offer] = []
    refused: list[Refusal] = []
    for machine in rows:
        ways = list(_ways(machine, fleet, interruptible))
        problems = refusals(machine, fleet, chips[machine.accelerator], interruptible, bool(ways))
        if problems:
            refused.append(Refusal(machine, problems))
        else:
            found += ways
    kept = _cheapest_regions(found)
    unusable: list[Rejection] = []
    for existing in (*_owned(fleet, rows), *_reserved(fleet, rows)):
        if isinstance(existing, Rejection):
            unusable.append(existing)
            continue
        machine = existing.machine
        problems = refusals(machine, fleet, chips[machine.accelerator], interruptible, True, existing=True)
        if problems:
            refused.append(Refusal(machine, problems))
        else:
            kept.append(existing)
    offered = frozenset(offer.machine.accelerator for offer in kept)
    sold = frozenset((offer.machine.provider, offer.machine.machine_type) for offer in kept)
    reasons = (*unusable, *rejections(refused, offered, sold, fleet), *unpriced(fleet, interruptible))
    return tuple(_numbered(sorted(kept, key=_order))), reasons


def quota_key(provider: str, region: str, accelerator: str) -> str:
    """Name of the limit that a quota sets."""
    return f"quota:{provider}/{region}/{accelerator}"


def quota_limits(fleet: Fleet) -> dict[str, int]:
    """Limit -> accelerators that may still be bought; the smaller one where two quotas name the same."""
    limits: dict[str, int] = {}
    for quota in fleet.quota:
        key = quota_key(quota.provider, quota.region, quota.accelerator)
        limits[key] = min(quota.gpus, limits.get(key, quota.gpus))
    return limits


def _order(offer: Offer) -> tuple[object, ...]:
    machine = offer.machine
    size = (machine.accelerator, machine.accelerator_count, offer.usd_per_hour)
    return (*size, machine.provider, machine.machine_type, machine.region, offer.capacity, offer.price)


def _numbered(found: Sequence[Offer]) -> Iterator[Offer]:
    seen: dict[str, int] = {}
    for offer in found:
        seen[offer.key] = seen.get(offer.key, 0) + 1
        yield replace(offer, number=seen[offer.key]) if seen[offer.key] > 1 else offer


def _ways(machine: Machine, fleet: Fleet, interruptible: bool) -> Iterator[Offer]:
    """The ways to buy one catalogue row that the fleet allows, whatever else speaks against the row."""
    sold, wanted, listed = machine.sold_as, fleet.purchase, machine.on_demand_usd_per_hour
    limits = _limits(machine, fleet)
    if listed and "list" in fleet.price:
        low, high = price_band(machine.quality)
        if "on_demand" in wanted and "on_demand" in sold:
            yield Offer(machine, "on_demand", "list", listed, None, low, high, limits)
        if "reservation" in sold:
            if "reservation" in wanted:
                yield Offer(machine, "reservation", "list", listed, None, low, high, limits)
            elif "future_reservation" in wanted:
                yield Offer(machine, "future_reservation", "list", listed, None, low, high, limits)
        if interruptible and "flex_start" in wanted and "flex_start" in sold:
            yield Offer(machine, "flex_start", "list", listed, None, *FLEX_BAND, limits)
    spot = machine.spot_usd_per_hour
    if interruptible and "spot" in wanted and "spot" in sold and spot:
        yield Offer(machine, "spot", "spot", spot, None, *spot_band(spot, listed), limits)


def _limits(machine: Machine, fleet: Fleet) -> tuple[str, ...]:
    named = (machine.provider, machine.region, machine.accelerator)
    return tuple(sorted({quota_key(*named) for q in fleet.quota if (q.provider, q.region, q.accelerator) == named}))


def _cheapest_regions(found: Sequence[Offer]) -> list[Offer]:
    """One region per machine and way to buy it, the cheapest; regions with a quota of their own stay beside it."""
    groups: dict[tuple[str, ...], list[Offer]] = {}
    for offer in found:
        machine = offer.machine
        key = (machine.provider, machine.machine_type, offer.capacity, offer.price, *offer.limits)
        groups.setdefault(key, []).append(offer)
    kept = []
    for group in groups.values():
        group.sort(key=lambda offer: (offer.usd_per_hour, offer.machine.region))
        others = tuple((offer.machine.region, offer.usd_per_hour) for offer in group[1 : MAX_ALTERNATIVES + 1])
        kept.append(replace(group[0], alternatives=others))
    return kept


def _owned(fleet: Fleet, rows: Sequence[Machine]) -> Iterator[Offer]:
    """Machines that are there already: the catalogue's shape, no price, on premises."""
    counts: dict[str, int] = {}
    for owned in fleet.owned:
        counts[owned.machine_type] = counts.get(owned.machine_type, 0) + owned.count
    for machine_type, count in counts.items():
        machine = _row(rows, machine_type)
        if machine is not None:
            yield Offer(replace(machine, provider=ON_PREMISES, region=ON_PREMISES), "owned", "owned", 0.0, count)


def _reserved(fleet: Fleet, rows: Sequence[Machine]) -> Iterator[Offer | Rejection]:
    """Reserved machines at the user's price, else at the list price; a quota does not count what is granted already."""
    counts: dict[tuple[str, str, str | None, float | None], int] = {}
    for reserved in fleet.reservations:
        key = (reserved.provider, reserved.machine_type, reserved.region, reserved.usd_per_hour)
        counts[key] = counts.get(key, 0) + reserved.count
    for (provider, machine_type, region, usd), count in counts.items():
        machine = _row(rows, machine_type, provider, region, fleet.regions)
        name = f"reservation of {provider} {machine_type}"
        if machine is None:
            yield Rejection(name, "", "RS4004", f"the catalogue knows no {machine_type} of {provider}", "")
        elif usd is not None:
            yield Offer(machine, "reservation", "negotiated", usd, count)
        elif machine.on_demand_usd_per_hour:
            low, high = price_band(machine.quality)
            yield Offer(machine, "reservation", "list", machine.on_demand_usd_per_hour, count, low, high)
        else:
            yield Rejection(name, "", "RS4014", "the catalogue has no price for it", "usd_per_hour in the reservation")


def _row(
    rows: Sequence[Machine],
    machine_type: str,
    provider: str | None = None,
    region: str | None = None,
    regions: Sequence[str] = (),
) -> Machine | None:
    """The catalogue row of a machine type: in that region, else in one of `regions`, else the cheapest; renamed.

    None when the provider has no such machine.
    """
    mine = [m for m in rows if m.machine_type == machine_type and provider in (None, m.provider)]
    if not mine:
        return None

    def choice(machine: Machine) -> tuple[bool, bool, float, str]:
        usd = machine.on_demand_usd_per_hour
        return machine.region != region, machine.region not in regions, usd or float("inf"), machine.region

    best = min(mine, key=choice)
    return best if region in (None, best.region) else replace(best, region=region)
