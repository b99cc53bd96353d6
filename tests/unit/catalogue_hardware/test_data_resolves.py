"""The shipped hardware data hold together: names resolve, coded values are legal, known traps are avoided."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rightslice.catalogue.accelerators import accelerators, resolve_accelerator
from rightslice.catalogue.aliases import lookup
from rightslice.catalogue.datafiles import DATA, read_gzip, read_json
from rightslice.catalogue.hardware import Machine
from rightslice.catalogue.machines import machines
from rightslice.catalogue.stages import nim_models, stage_profiles

SEEN = json.loads(
    (Path(__file__).parents[2] / "data" / "catalogue_hardware" / "spellings.json").read_text(encoding="utf-8")
)
DATE = re.compile(r"20\d\d-(H[12]|\d\d(-\d\d)?)")
CODED = {
    "host_architecture": {"x86", "arm"},
    "gpudirect": {"none", "tcpx", "tcpxo", "rdma", "efa", "infiniband", ""},
    "fabric": {
        "none", "pcie", "pcie-p2p", "nvlink-bridge", "nvlink", "nvswitch", "nvl72", "ici", "xgmi", "neuronlink", "",
    },
    "managed_kubernetes": {"gke", "eks", "aks", "none", "other", ""},
    "spot_interruption": {"<5%", "5-10%", "10-15%", "15-20%", ">20%", ""},
    "quality": {
        "exact", "exact+spot_derived", "exact_composite", "exact_list", "exact_list_per_gpu", "exact_no_local_ssd",
        "exact_per_chip", "derived_family_ratio", "derived_family_ratio+spot_derived",
        "list_equivalent_spot_or_flex_only", "list_may_be_stale",
    },
}  # fmt: skip
SOLD_AS = {"on_demand", "spot", "reservation", "calendar", "capacity_block", "flex_start", "retired"}
HARDWARE_FILES = (
    "accelerators.json", "aliases.json", "engines.json", "mig.json", "nim.json", "platforms.json", "stages.json",
)  # fmt: skip


def of_type(machine_type: str, region: str = "") -> list[Machine]:
    return [m for m in machines() if m.machine_type == machine_type and region in ("", m.region)]


@pytest.mark.parametrize(("namespace", "text"), [(space, text) for space in SEEN for text in SEEN[space]])
def test_every_spelling_seen_in_the_wild_resolves(namespace: str, text: str) -> None:
    assert resolve_accelerator(text, namespace) in accelerators()


def test_no_spelling_maps_twice_and_every_target_has_a_row() -> None:
    document = read_json("aliases.json")
    spelled = [
        (space, text, name)
        for name, spaces in document["aliases"].items()
        for space, texts in spaces.items()
        for text in texts
    ]
    assert {name for _, _, name in spelled} <= set(accelerators())
    assert all(lookup(text, space) == name for space, text, name in spelled)
    targets = [name for entry in document["ambiguous"] for name in entry["accelerators"].values()]
    for block in ("gke_machine_family", "aws_family", "azure_series"):
        targets += document[block].values()
    assert set(targets) <= set(accelerators())


def test_ambiguous_and_unresolvable_spellings_stay_so() -> None:
    document = read_json("aliases.json")
    entries = [*document["ambiguous"], *document["unresolvable"]]
    assert len(entries) >= 10
    assert [e for e in entries if resolve_accelerator(e["name"], e["namespace"]) is not None] == []


def test_mig_tables_name_the_accelerators_that_listings_print() -> None:
    document = read_json("mig.json")
    unresolvable = {e["name"] for e in read_json("aliases.json")["unresolvable"] if e["namespace"] == "mig"}
    for key, entry in document["gpus"].items():
        resolved = {resolve_accelerator(name, "mig") for name in entry["listed_as"] if name not in unresolvable}
        assert resolved - {None} == set(entry["accelerators"]), key
        assert all(accelerators()[name].mig for name in entry["accelerators"])
    assert set(document["names_only"]["accelerators"]) <= set(accelerators())


def test_every_cited_source_exists() -> None:
    mig, stages, nim, platforms = (read_json(f"{n}.json") for n in ("mig", "stages", "nim", "platforms"))
    cited = {s for entry in mig["gpus"].values() for p in entry["profiles"] for s in p["sources"]}
    assert cited <= set(mig["sources"])
    assert {p["source"] for p in stages["profiles"]} <= set(stages["sources"])
    assert {s for m in nim["models"] for s in m["sources"]} <= set(nim["sources"])
    facts = {f["source"] for p in platforms["platforms"].values() for f in p["evidence"].values()}
    assert facts == set(platforms["sources"])
    document = read_json("accelerators.json")
    assert {row["check"] for row in document["accelerators"]} <= set(document["sources"])
    checks = {check for row in document["accelerators"] for check in row.get("field_checks", {}).values()}
    assert checks <= set(document["field_sources"])


@pytest.mark.parametrize("name", HARDWARE_FILES)
def test_every_data_file_is_dated_and_explains_itself(name: str) -> None:
    document = read_json(name)
    assert DATE.fullmatch(document["as_of"])
    assert all(isinstance(line, str) and line for line in document["about"])
    assert document["about"]


def test_machine_rows_hold_legal_values() -> None:
    for machine in machines():
        assert machine.accelerator in accelerators()
        assert machine.sold_as <= SOLD_AS
        assert machine.sold_as, machine
        assert DATE.fullmatch(machine.price_date), machine.price_date
        assert machine.source
        for column, legal in CODED.items():
            assert getattr(machine, column) in legal, (machine.machine_type, column)


def test_machine_amounts_are_positive_and_finite() -> None:
    for m in machines():
        prices = (m.on_demand_usd_per_hour, m.spot_usd_per_hour)
        assert any(p is not None for p in prices), m
        assert all(p is None or 0.01 < p < 1000 for p in prices), m
        if m.on_demand_usd_per_hour and m.spot_usd_per_hour:  # equal where a zone has no spot market
            assert m.spot_usd_per_hour <= m.on_demand_usd_per_hour * 1.0001, m
        assert m.accelerator_count > 0
        assert all(x is None or x >= 0 for x in (m.nic_gbps, m.local_ssd_gib, m.vcpu, m.memory_gib))


def test_no_machine_is_listed_twice_in_a_region() -> None:
    counts = Counter((m.provider, m.region, m.machine_type) for m in machines())
    assert [key for key, count in counts.items() if count > 1] == []
    keys = [(m.provider, m.region, m.machine_type) for m in machines()]
    assert keys == sorted(keys)


def test_machine_memory_agrees_with_the_accelerator_row() -> None:
    rows = csv.DictReader(io.StringIO(read_gzip("machines.csv.gz")))
    for row in rows:
        advertised_gib = accelerators()[row["accelerator"]].advertised_memory_bytes / 2**30
        assert float(row["accelerator_memory_gib"]) == pytest.approx(advertised_gib, rel=0.1), row["machine_type"]


def test_the_machine_file_is_packed_reproducibly() -> None:
    packed = (DATA / "machines.csv.gz").read_bytes()
    assert packed[4:8] == b"\0\0\0\0"
    assert gzip.decompress(packed).decode().count("\r") == 0


@pytest.mark.parametrize(
    ("region", "machine_type", "usd_per_hour"),
    [
        ("us-east-1", "g5.xlarge", 1.006),
        ("us-east-1", "g6.xlarge", 0.8048),
        ("us-east-1", "g6e.xlarge", 1.861),
        ("us-east-1", "p4d.24xlarge", 21.9576),
        ("us-east-1", "p5.48xlarge", 55.04),  # 98.32 before the cut of June 2025
        ("eastus", "Standard_NC24ads_A100_v4", 3.673),
        ("eastus", "Standard_NC40ads_H100_v5", 6.98),
        ("eastus", "Standard_ND96asr_v4", 27.197),
        ("eastus", "Standard_ND96isr_H100_v5", 98.32),
        ("us-central1", "a2-highgpu-1g", 3.6734),
        ("us-central1", "a2-ultragpu-1g", 5.0688),
        ("us-central1", "a3-highgpu-8g", 88.49),
        ("any", "gpu_1x_h100_sxm5", 4.29),
        ("any", "gpu_8x_h100_sxm5", 8 * 3.99),
    ],
)
def test_prices_agree_with_an_independent_source(region: str, machine_type: str, usd_per_hour: float) -> None:
    (machine,) = of_type(machine_type, region)
    assert machine.on_demand_usd_per_hour == pytest.approx(usd_per_hour, rel=1e-4)


def test_google_prices_are_not_scheduler_rates_or_placeholders() -> None:
    """Dynamic Workload Scheduler rates (H100 4.20, H200 4.58 USD per GPU-hour) and 700.0 must not pass as list."""
    floors = {"H100-SXM-80GB": 9.0, "H200-SXM-141GB": 9.0, "B200-SXM-180GB": 15.0}
    listed = [m for m in machines() if m.provider == "gcp" and m.accelerator in floors and m.on_demand_usd_per_hour]
    assert listed
    for m in listed:
        assert (m.on_demand_usd_per_hour or 0) / m.accelerator_count > floors[m.accelerator], m
    assert [m for m in machines() if m.on_demand_usd_per_hour == 700.0] == []


def test_a_list_price_is_no_offer() -> None:
    for machine_type in ("a3-ultragpu-8g", "a4-highgpu-8g", "a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"):
        assert all("on_demand" not in m.sold_as for m in of_type(machine_type))
    assert all(m.on_demand_usd_per_hour is None and "capacity_block" in m.sold_as for m in of_type("p5e.48xlarge"))
    for machine_type in ("p6-b200.48xlarge", "p6-b300.48xlarge"):
        assert all("capacity_block" in m.sold_as for m in of_type(machine_type))


def test_retired_machines_stay_marked_and_are_nothing_else() -> None:
    retired = [m for m in machines() if "retired" in m.sold_as]
    assert {m.accelerator for m in retired} == {"V100-PCIe-16GB"}  # Azure NCv3 is the PCIe card, not SXM2
    assert all(m.sold_as == {"retired"} for m in retired)


def test_google_prices_without_their_local_ssd_say_so() -> None:
    bundled_gib = {"a3-megagpu-8g": 6000, "a3-ultragpu-8g": 12000}
    for machine_type, size_gib in bundled_gib.items():
        assert {(m.local_ssd_gib, m.quality) for m in of_type(machine_type)} == {(size_gib, "exact_no_local_ssd")}
    assert {m.nic_gbps for m in of_type("a3-megagpu-8g")} == {1800}


def test_fractions_of_a_gpu_are_counted_as_such() -> None:
    fractional = {m.machine_type.split(".")[0] for m in machines() if m.accelerator_count < 1 and m.provider == "aws"}
    assert fractional == {"g6f", "gr6f"}


def test_specifications_avoid_the_known_traps() -> None:
    known = accelerators()
    assert known["B300-SXM-270GB"].flops["int8"] < known["B300-SXM-270GB"].flops["fp8"] / 20
    assert known["GB300"].flops["int8"] < known["GB300"].flops["fp8"] / 20
    assert (known["GB200"].sm_count, known["GB300"].sm_count) == (152, 152)  # mock profiles print 144 and 169
    assert known["B300-SXM-270GB"].visible_memory_bytes < 270 * 2**30 < known["B300-SXM-270GB"].advertised_memory_bytes
    assert known["VR-NVL72"].flops == {}  # preliminary vendor figures: nothing to plan with


def test_stage_profiles_name_known_accelerators_and_partitions() -> None:
    for profile in stage_profiles():
        assert profile.accelerator in {"", *accelerators()}
        assert profile.source
        assert profile.trust
        assert profile.points or profile.memory_bytes
    assert all(m.sources for m in nim_models())


def test_numbers_of_accelerators_are_plausible() -> None:
    rows: list[dict[str, Any]] = read_json("accelerators.json")["accelerators"]
    for row in rows:
        name, observed = row["name"], row.get("visible_memory_observed_mib", [])
        assert not observed or row["visible_memory_mib"] == min(observed), name
        assert row.get("visible_memory_mib", 0) <= row["memory_gb"] * 1024, name
        assert row["memory_bandwidth_gb_s"] > 0, name
        assert row.get("visible_memory_like") in {None, *(r["name"] for r in rows)}, name
