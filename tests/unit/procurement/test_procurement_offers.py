"""What is an offer, what is not, and what would make it one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rightslice.catalogue.accelerators import accelerators
from rightslice.catalogue.hardware import Machine
from rightslice.catalogue.machines import machines
from rightslice.core.plan import Rejection
from rightslice.core.rules import RULES
from rightslice.procurement.offers import Offer, offers, quota_limits
from rightslice.spec.workload import Fleet


def machine(machine_type: str, **changes: Any) -> Machine:
    """A GCP machine with one A100, sold in every way."""
    row = Machine(
        provider="gcp",
        region="us-central1",
        machine_type=machine_type,
        accelerator="A100-SXM-80GB",
        accelerator_count=1.0,
        vcpu=12,
        memory_gib=170.0,
        on_demand_usd_per_hour=5.0,
        spot_usd_per_hour=2.0,
        spot_interruption="",
        price_date="2026-08-03",
        quality="exact",
        source="test",
        host_architecture="x86",
        nic_gbps=None,
        gpudirect="none",
        fabric="none",
        local_ssd_gib=None,
        sold_as=frozenset({"on_demand", "spot", "reservation", "flex_start"}),
        managed_kubernetes="gke",
    )
    return replace(row, **changes)


def ask(*rows: Machine, interruptible: bool = False, **fleet: Any) -> tuple[tuple[Offer, ...], tuple[Rejection, ...]]:
    return offers(Fleet.model_validate(fleet), interruptible=interruptible, rows=rows, chips=accelerators())


def ways(found: tuple[Offer, ...]) -> list[tuple[str, str, float]]:
    return sorted((offer.capacity, offer.price, offer.usd_per_hour) for offer in found)


EVERY_WAY = ("on_demand", "spot", "reservation", "future_reservation", "flex_start", "capacity_block")


def test_always_on_work_gets_machines_that_stay() -> None:
    found, refused = ask(machine("a"), purchase=EVERY_WAY)
    assert ways(found) == [("on_demand", "list", 5.0), ("reservation", "list", 5.0)]
    assert [r.option for r in refused] == ["purchase capacity_block", "purchase flex_start", "purchase spot"]


def test_interruptible_work_may_use_spot_and_flex_start() -> None:
    found, _ = ask(machine("a"), purchase=("spot", "flex_start", "future_reservation"), interruptible=True)
    assert ways(found) == [("flex_start", "list", 5.0), ("future_reservation", "list", 5.0), ("spot", "spot", 2.0)]
    spot = next(offer for offer in found if offer.capacity == "spot")
    assert (spot.price_low_factor, spot.price_high_factor) == (0.45, 2.5)


@pytest.mark.parametrize(
    ("changes", "fleet", "code", "words", "relaxation"),
    [
        ({"sold_as": frozenset({"retired"})}, {}, "RS4004", "retired", ""),
        ({"accelerator_count": 0.5}, {}, "RS4004", "fraction", ""),
        ({"accelerator": "MI300X"}, {}, "RS4010", "amd", ""),
        ({"accelerator": "TPU-v5e"}, {}, "RS4010", "google", ""),
        ({}, {"accelerators": {"deny": ["A100-SXM-80GB"]}}, "RS4009", "deny", "remove A100-SXM-80GB from"),
        ({}, {"accelerators": {"allow": ["L4"]}}, "RS4009", "allow", "add A100-SXM-80GB to fleet.accelerators.allow"),
        ({}, {"providers": ["aws"]}, "RS4009", "not sold by aws", "add gcp to fleet.providers"),
        ({}, {"regions": ["europe-west4"]}, "RS4009", "not sold in", "add us-central1 to fleet.regions"),
        ({"host_architecture": "arm"}, {"architecture": "x86"}, "RS4006", "arm", "fleet.architecture: any"),
        ({}, {"platform": "eks"}, "RS4007", "eks does not run on gcp", "fleet.platform: {gcp: gke}"),
        ({"managed_kubernetes": ""}, {}, "RS4007", "not known to work with gke", "fleet.platform: {gcp: on-prem}"),
        ({"provider": "lambda", "managed_kubernetes": "none"}, {}, "RS4007", "lambda", "name lambda in fleet.prov"),
        ({"quality": "list_may_be_stale"}, {}, "RS5001", "stale", "name gcp in fleet.providers"),
        ({}, {"purchase": ["reservation"], "price": ["commitment_1y"]}, "RS4014", "commitment_1y", "add list to"),
        ({"sold_as": frozenset({"reservation"})}, {}, "RS4014", "sold as reservation", "add reservation to fleet.pu"),
        ({"sold_as": frozenset({"spot"})}, {}, "RS4014", "only be had as spot", "add spot to fleet.purchase and inter"),
        ({"on_demand_usd_per_hour": None, "sold_as": frozenset({"on_demand"})}, {}, "RS4004", "without a price", ""),
        (
            {"accelerator_count": 8.0},
            {"quota": [{"provider": "gcp", "region": "us-central1", "accelerator": "A100-SXM-80GB", "gpus": 4}]},
            "RS4008",
            "the quota in us-central1 is 4",
            "a quota of 8",
        ),
    ],
)
def test_each_refusal_says_why_and_what_would_help(
    changes: dict[str, Any], fleet: dict[str, Any], code: str, words: str, relaxation: str
) -> None:
    row = machine("a", **changes)
    found, refused = ask(row, **fleet)
    assert found == ()
    mine = [r for r in refused if r.option == row.accelerator]
    assert len(mine) == 1
    assert mine[0].code == code
    assert words in mine[0].reason
    assert mine[0].relaxation.startswith(relaxation)
    assert bool(mine[0].relaxation) == bool(relaxation)


def test_the_nearest_machine_speaks_for_its_accelerator() -> None:
    far = machine("far", region="asia-east1", sold_as=frozenset({"spot"}), on_demand_usd_per_hour=1.0)
    near = machine("near", sold_as=frozenset({"reservation"}), on_demand_usd_per_hour=9.0)
    _, refused = ask(far, near, regions=["us-central1"])
    assert [(r.code, r.relaxation.split(";")[0]) for r in refused] == [
        ("RS4014", "add reservation to fleet.purchase"),
        ("RS4009", "add asia-east1 to fleet.regions"),
    ]


def test_what_is_offered_elsewhere_is_not_explained() -> None:
    elsewhere = machine("a", region="asia-east1")
    _, refused = ask(machine("a"), elsewhere, machine("half", accelerator_count=0.5), regions=["us-central1"])
    assert [(r.option, r.code) for r in refused] == [("gcp half", "RS4004")]


def test_one_region_per_machine_and_one_more_per_quota() -> None:
    rows = [
        machine("a", region=region, on_demand_usd_per_hour=usd)
        for region, usd in (("us-east1", 5.5), ("us-central1", 5.0), ("europe-west4", 6.0))
    ]
    found, _ = ask(*rows)
    assert [(o.machine.region, o.limits) for o in found] == [("us-central1", ())]
    assert found[0].alternatives == (("us-east1", 5.5), ("europe-west4", 6.0))
    quota = [{"provider": "gcp", "region": "us-central1", "accelerator": "A100-SXM-80GB", "gpus": 2}]
    found, _ = ask(*rows, quota=quota)
    assert [(o.machine.region, o.limits) for o in found] == [
        ("us-central1", ("quota:gcp/us-central1/A100-SXM-80GB",)),
        ("us-east1", ()),
    ]
    assert quota_limits(Fleet.model_validate({"quota": quota})) == {"quota:gcp/us-central1/A100-SXM-80GB": 2}


def test_owned_and_reserved_machines_have_their_own_count_and_price() -> None:
    rows = (machine("a"), machine("a", region="europe-west4", on_demand_usd_per_hour=6.0))
    found, refused = ask(
        *rows,
        purchase=["spot"],
        owned=[{"machine_type": "a", "count": 2}, {"machine_type": "a", "count": 1}],
        reservations=[
            {"provider": "gcp", "machine_type": "a", "count": 4, "usd_per_hour": 3.0},
            {"provider": "gcp", "machine_type": "a", "count": 1, "usd_per_hour": 2.5},
            {"provider": "gcp", "machine_type": "a", "count": 5, "region": "europe-west4"},
            {"provider": "aws", "machine_type": "a", "count": 5},
        ],
    )
    assert [(o.capacity, o.price, o.usd_per_hour, o.max_nodes, o.machine.region) for o in found] == [
        ("owned", "owned", 0.0, 3, "on-prem"),
        ("reservation", "negotiated", 2.5, 1, "us-central1"),
        ("reservation", "negotiated", 3.0, 4, "us-central1"),
        ("reservation", "list", 6.0, 5, "europe-west4"),
    ]
    assert len({offer.key for offer in found}) == 4
    assert found[0].owned
    assert refused[0].option == "reservation of aws a"
    denied, _ = ask(*rows, accelerators={"deny": ["A100-SXM-80GB"]}, owned=[{"machine_type": "a", "count": 2}])
    assert denied == ()


def test_commitments_are_not_priced() -> None:
    _, refused = ask(machine("a"), price=["list", "commitment_1y"])
    assert [(r.option, r.code) for r in refused] == [("price commitment_1y", "RS4014")]
    assert "give your own in fleet.reservations" in refused[0].reason


FLEETS: list[dict[str, Any]] = [
    {},
    {"providers": ["gcp"], "regions": ["us-central1"], "purchase": ["on_demand"]},
    {"purchase": list(EVERY_WAY), "price": ["list", "spot"], "architecture": "x86"},
    {"providers": ["lambda", "gcp"], "regions": ["us-central1"], "platform": {"lambda": "on-prem"}},
]


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("interruptible", [False, True])
def test_no_offer_of_the_catalogue_breaks_the_rules(fleet: dict[str, Any], *, interruptible: bool) -> None:
    found, refused = offers(Fleet.model_validate(fleet), interruptible=interruptible)
    assert found
    assert (found, refused) == offers(Fleet.model_validate(fleet), interruptible=interruptible)
    for offer in found:
        row = offer.machine
        assert row.accelerator_count == int(row.accelerator_count) >= 1
        assert accelerators()[row.accelerator].vendor == "nvidia"
        assert offer.usd_per_hour > 0
        assert offer.capacity in row.sold_as | {"future_reservation"}
        assert interruptible or offer.capacity in ("on_demand", "reservation", "future_reservation")
        assert not fleet.get("regions") or row.region in fleet["regions"] or row.provider == "lambda"
    assert all(r.code in RULES and r.reason for r in refused)
    explained = {r.option for r in refused} | {offer.machine.accelerator for offer in found}
    assert {row.accelerator for row in machines()} <= explained


def test_a_list_price_is_not_an_offer() -> None:
    """H200 and B200 machines of GCP have list prices and cannot be had on demand."""
    found, refused = offers(Fleet.model_validate({"providers": ["gcp"]}), interruptible=False)
    assert not {"H200-SXM-141GB", "B200-SXM-180GB"} & {offer.machine.accelerator for offer in found}
    ways_out = {r.option: r.relaxation for r in refused if r.code == "RS4014"}
    assert ways_out["H200-SXM-141GB"] == ways_out["B200-SXM-180GB"] == "add reservation to fleet.purchase"
