"""Why a machine is not offered, and the least that would have to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rightslice.catalogue.hardware import Accelerator, Machine
from rightslice.catalogue.machines import RETIRED
from rightslice.catalogue.platforms import default_platform, platforms
from rightslice.core.plan import Rejection
from rightslice.spec.workload import Fleet

VENDOR = "nvidia"
"""The vendor for which engine images are emitted."""
ON_PREMISES = "on-prem"
"""Provider of the platforms that run on any machine."""
ANY_REGION = "any"
"""Region of rows whose price is the same everywhere."""
STALE = "list_may_be_stale"
BY_CHOICE = "RS4009"
"""What the workload itself leaves out."""

NEVER = 1000
"""More changes than any machine needs."""
Problem = tuple[str, str, str]
"""Rule, reason, what would allow it (empty when nothing would)."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One catalogue row and everything that speaks against it."""

    machine: Machine
    problems: tuple[Problem, ...]

    @property
    def nearness(self) -> tuple[int, float, str, str]:
        """Sort key: fewest changes first, what nothing can change last, then the lowest price per accelerator."""
        machine = self.machine
        usd = machine.on_demand_usd_per_hour or machine.spot_usd_per_hour or float("inf")
        changes = [change for _, _, change in self.problems]
        count = sum(1 + change.count(" and ") for change in changes) if all(changes) else NEVER
        return count, usd / machine.accelerator_count, machine.machine_type, machine.region


def refusals(
    machine: Machine, fleet: Fleet, chip: Accelerator, interruptible: bool, buyable: bool, *, existing: bool = False
) -> tuple[Problem, ...]:
    """Everything that keeps one machine out; empty when it is an offer.

    What nothing can change comes alone. `buyable`: there is a way to buy it. `existing`: the user has it already, so
    only its shape counts.
    """
    final = _final(machine, chip)
    if final:
        return (final,)
    found = [*_chosen(machine, fleet, existing=existing)]
    if fleet.architecture not in ("any", machine.host_architecture):
        reason = f"its processors are {machine.host_architecture}, {fleet.architecture} is required"
        found.append(("RS4006", reason, "fleet.architecture: any"))
    if not existing:
        found += _unfit(machine, fleet)
        if not buyable:
            found.append(_not_sold(machine, fleet, interruptible))
    return tuple(found)


def _final(machine: Machine, chip: Accelerator) -> Problem | None:
    if chip.vendor != VENDOR:
        return "RS4010", f"no engine image is emitted for accelerators of {chip.vendor} yet", ""
    if RETIRED in machine.sold_as:
        return "RS4004", "its provider has retired it", ""
    if machine.accelerator_count < 1 or machine.accelerator_count != int(machine.accelerator_count):
        return "RS4004", "it has a fraction of an accelerator, which this version does not plan", ""
    return None


def _chosen(machine: Machine, fleet: Fleet, *, existing: bool) -> Iterator[Problem]:
    name, region, provider = machine.accelerator, machine.region, machine.provider
    if name in fleet.accelerators.deny:
        yield BY_CHOICE, "fleet.accelerators.deny names it", f"remove {name} from fleet.accelerators.deny"
    elif fleet.accelerators.allow and name not in fleet.accelerators.allow:
        yield BY_CHOICE, "fleet.accelerators.allow does not name it", f"add {name} to fleet.accelerators.allow"
    if existing:
        return
    if fleet.providers and provider not in fleet.providers:
        yield BY_CHOICE, f"not sold by {_listed(fleet.providers)}", f"add {provider} to fleet.providers"
    elif fleet.regions and region == ANY_REGION and provider not in fleet.providers:
        yield BY_CHOICE, f"not tied to {_listed(fleet.regions)}", f"name {provider} in fleet.providers"
    elif fleet.regions and region not in (*fleet.regions, ANY_REGION):
        yield BY_CHOICE, f"not sold in {_listed(fleet.regions)}", f"add {region} to fleet.regions"


def _unfit(machine: Machine, fleet: Fleet) -> Iterator[Problem]:
    """Platform, stale price, quota."""
    problem = _off_platform(machine, fleet)
    if problem:
        yield problem
    if machine.quality == STALE and not fleet.providers:
        yield "RS5001", f"its price of {machine.price_date} may be stale", f"name {machine.provider} in fleet.providers"
    wanted = (machine.provider, machine.region, machine.accelerator)
    quota = min((q.gpus for q in fleet.quota if (q.provider, q.region, q.accelerator) == wanted), default=None)
    if quota is not None and quota < machine.accelerator_count:
        count = int(machine.accelerator_count)
        yield "RS4008", f"the quota in {machine.region} is {quota}", f"a quota of {count} in {machine.region}"


def _off_platform(machine: Machine, fleet: Fleet) -> Problem | None:
    """Managed Kubernetes must know the machine; without any, the user has to say that Kubernetes is self-managed."""
    provider = machine.provider
    given = fleet.platform if isinstance(fleet.platform, str) else (fleet.platform or {}).get(provider)
    home = platforms()[given or default_platform(provider)].provider
    own = default_platform(provider)
    self_run = f"fleet.platform: {{{provider}: on-prem}} (Kubernetes that you run yourself)"
    if given and home not in (provider, ON_PREMISES):
        return "RS4007", f"{given} does not run on {provider}", f"fleet.platform: {{{provider}: {own}}}"
    if home == provider and machine.managed_kubernetes != own:
        return "RS4007", f"it is not known to work with {own}", self_run
    if not given and home != provider and not fleet.providers:
        named = f"name {provider} in fleet.providers (Kubernetes that you run yourself)"
        return "RS4007", f"no managed Kubernetes of {provider} is known here", named
    return None


def _not_sold(machine: Machine, fleet: Fleet, interruptible: bool) -> Problem:
    """Why none of the allowed ways to buy it works, and the one that would."""
    sold = machine.sold_as
    listed = bool(machine.on_demand_usd_per_hour)
    lasting = [capacity for capacity in ("on_demand", "reservation") if capacity in sold and listed]
    if set(lasting) & {name.removeprefix("future_") for name in fleet.purchase}:
        return "RS4014", f"no price of the kinds {_listed(fleet.price)} is known", "add list to fleet.price"
    taken_away = [c for c in ("spot", "flex_start") if c in sold and c in fleet.purchase]
    if taken_away and not interruptible:
        reason = f"{taken_away[0]} capacity may be taken away, and no model is interruptible"
        return (
            "RS4014",
            reason,
            f"interruptible: true on the models, or add {(lasting or ['on_demand'])[0]} to fleet.purchase",
        )
    if lasting:
        reason = f"it is sold as {_listed(sorted(sold))}, fleet.purchase allows {_listed(fleet.purchase)}"
        return "RS4014", reason, f"add {lasting[0]} to fleet.purchase"
    spot = "spot" in sold and machine.spot_usd_per_hour
    if not spot and not ("flex_start" in sold and listed):
        return "RS4004", f"it is sold as {_listed(sorted(sold))}, without a price in the catalogue", ""
    capacity = "spot" if spot else "flex_start"
    changes = [] if capacity in fleet.purchase else [f"add {capacity} to fleet.purchase"]
    if not interruptible:
        changes.append("interruptible: true on every model")
    return "RS4014", f"it can only be had as {capacity}, which may be taken away", " and ".join(changes)


def rejections(
    refused: Iterable[Refusal],
    offered: frozenset[str],
    sold: frozenset[tuple[str, str]],
    fleet: Fleet,
) -> tuple[Rejection, ...]:
    """One per accelerator and first reason, with the machine that needs the fewest changes; nearest ones first.

    `offered`: accelerators that can be had in another way, for which the workload's own choices need no explanation.
    `sold`: (provider, machine type) offered in another region. Accelerators that nobody sells count when allowed.
    """
    nearest: dict[tuple[str, str], Refusal] = {}
    seen: set[str] = set()
    for refusal in refused:
        machine = refusal.machine
        name, code = machine.accelerator, refusal.problems[0][0]
        seen.add(name)
        if name in offered and (code == BY_CHOICE or (machine.provider, machine.machine_type) in sold):
            continue
        best = nearest.get((name, code))
        if best is None or refusal.nearness < best.nearness:
            nearest[name, code] = refusal
    ordered = sorted(nearest.items(), key=lambda e: (e[0][0] in offered, e[1].nearness[0], e[0]))
    unsold = sorted(set(fleet.accelerators.allow) - seen - offered)
    return (
        *(_rejection(refusal, offered) for _, refusal in ordered),
        *(
            Rejection(name, "", "RS4004", "no provider of the catalogue sells it", "list your own in fleet.owned")
            for name in unsold
        ),
    )


def _rejection(refusal: Refusal, offered: frozenset[str]) -> Rejection:
    """About the accelerator; about the machine alone where the accelerator can be had in another one."""
    machine = refusal.machine
    reasons = "; ".join(reason for _, reason, _ in refusal.problems)
    changes = [change for _, _, change in refusal.problems]
    where = f"{machine.provider} {machine.machine_type}"
    return Rejection(
        option=where if machine.accelerator in offered else machine.accelerator,
        model="",
        code=refusal.problems[0][0],
        reason=f"{where}: {reasons}",
        relaxation="; ".join(changes) if all(changes) else "",
    )


def unpriced(fleet: Fleet, interruptible: bool) -> Iterator[Rejection]:
    """Ways to buy that the workload allows and that this version cannot price or stand a fleet on."""
    own = "your own price in fleet.reservations"
    for price in fleet.price:
        if price in ("commitment_1y", "commitment_3y", "savings_plan", "negotiated"):
            reason = "no commitment prices in the catalogue; give your own in fleet.reservations"
            yield Rejection(f"price {price}", "", "RS4014", reason, own)
    if "capacity_block" in fleet.purchase:
        reason = "a capacity block ends after 182 days at most, and its price is not in the catalogue"
        yield Rejection("purchase capacity_block", "", "RS4014", reason, own)
    if "flex_start" in fleet.purchase and not interruptible:
        reason = "flex-start ends after 7 days at most: no floor that runs day and night can stand on it"
        yield Rejection("purchase flex_start", "", "RS4014", reason, "interruptible: true on every model")
    if "spot" in fleet.purchase and not interruptible:
        reason = "spot machines may be taken away at any time"
        yield Rejection("purchase spot", "", "RS4014", reason, "interruptible: true on every model")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
