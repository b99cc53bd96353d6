"""Faults: published rates, who is hit, and what stops with it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from rightslice.catalogue.datafiles import DATA
from rightslice.catalogue.disruptions import Together, failures_per_hour, max_run_s, reclaims_per_hour
from rightslice.catalogue.machines import machines
from rightslice.core.plan import Capacity
from rightslice.simulation.control.faults import (
    FailureRates,
    Fault,
    NodeRef,
    Notice,
    Placement,
    affected,
    engine_crashes,
    machine_reclaims_per_hour,
    merged,
    node_faults,
    published_rates,
    spot_notice,
    spot_reclaims,
    struck,
    zone_loss,
)

DAY_S = 86_400.0
NO_FAILURES = FailureRates(0.0, 0.0)


def _node(name: str, zone: str = "a", capacity: Capacity = "spot", born_s: float = 0.0) -> NodeRef:
    return NodeRef(name, "pool", zone, 8, capacity, born_s)


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_bands_become_rates() -> None:
    rate = reclaims_per_hour(">20%")
    assert rate is not None
    assert 1.0 - math.exp(-720.0 * rate) == pytest.approx(0.35)
    assert reclaims_per_hour("") is None
    assert machine_reclaims_per_hour("aws", "af-south-1", "g4dn.12xlarge") == reclaims_per_hour("<5%")
    assert machine_reclaims_per_hour("gcp", "us-central1", "g2-standard-4") is None
    assert machine_reclaims_per_hour("aws", "nowhere", "x") is None


def test_published_hardware_failures() -> None:
    """Llama 3: 268 GPU failures of 16,384 H100 and 53 of their hosts in 54 days."""
    assert failures_per_hour("gpu") == pytest.approx(268 / (16_384 * 54 * 24))
    assert published_rates().node_per_hour == pytest.approx(53 / (2_048 * 54 * 24))


@pytest.mark.parametrize(
    ("platform", "notice_s", "drain_s"), [("eks", 120, 120), ("aks", 30, 30), ("gke", 30, 15), ("on-prem", 0, 0)]
)
def test_what_each_platform_grants(platform: str, notice_s: float, drain_s: float) -> None:
    assert spot_notice(platform) == Notice(notice_s, drain_s)


def test_one_spot_machine_is_reclaimed_at_its_rate_and_with_its_neighbours() -> None:
    """4,000 hours in two zones at one per 10 hours: each machine its rate, a neighbour with it in 92 % of the cases."""
    horizon_s = 4_000 * 3600.0
    waves = spot_reclaims("pool", ("a", "b"), 0.1, Notice(120, 120), horizon_s, _rng())
    nodes = [_node("n0"), _node("n1"), _node("n2", "b"), _node("own", "a", "on_demand")]
    hits = [dict(struck(wave, nodes)) for wave in waves]
    own = [hit for hit in hits if "n0" in hit]
    assert len(own) == pytest.approx(400, rel=0.12)
    assert sum("n1" in hit for hit in own) / len(own) == pytest.approx(0.92, abs=0.05)
    assert not any("n2" in hit for hit in own)
    assert not any("own" in hit for hit in hits)
    spread = [abs(hit["n0"] - hit["n1"]) for hit in own if "n1" in hit]
    assert max(spread) <= 180.0
    assert all(wave.at_s <= at_s <= wave.at_s + 180.0 for wave in waves for _, at_s in struck(wave, nodes))


def test_who_is_struck_does_not_depend_on_who_else_is_there() -> None:
    wave = spot_reclaims("pool", ("a",), 1.0, Notice(), DAY_S, _rng(), Together(0.5, 60.0))[0]
    nodes = [_node(f"n{i}") for i in range(40)]
    whole = dict(struck(wave, nodes))
    assert 5 < len(whole) < 35
    for node in nodes:
        assert dict(struck(wave, [node])) == {n: t for n, t in whole.items() if n == node.name}


def test_nodes_born_later_are_not_struck() -> None:
    (wave,) = (Fault(100.0, "spot-reclaim", zone="a"),)
    assert struck(wave, [_node("old"), _node("young", born_s=101.0)]) == (("old", 100.0),)


def test_node_failures_end_a_node_and_gpu_failures_do_not() -> None:
    rates = FailureRates(gpu_per_hour=1 / 24, node_per_hour=1 / 72)
    ends = 0
    for seed in range(60):
        faults = node_faults(_node("n", capacity="on_demand", born_s=50.0), rates, 10 * DAY_S, _rng(seed))
        kinds = [fault.kind for fault in faults]
        assert kinds.count("node-failure") <= 1
        if "node-failure" in kinds:
            assert kinds[-1] == "node-failure"
            ends += 1
        assert all(50.0 <= fault.at_s < 10 * DAY_S for fault in faults)
        assert {fault.gpu for fault in faults if fault.kind == "gpu-failure"} <= set(range(8))
    assert ends / 60 == pytest.approx(1.0 - math.exp(-10 / 3), abs=0.06)


def test_flex_start_ends_after_seven_days_with_its_notice() -> None:
    assert max_run_s("flex_start") == 7 * DAY_S
    assert max_run_s("on_demand") is None
    node = _node("n", capacity="flex_start", born_s=1000.0)
    (end,) = node_faults(node, NO_FAILURES, 30 * DAY_S, _rng(), Notice(30, 15))
    assert (end.kind, end.at_s, end.lost_s) == ("run-limit", 1000.0 + 7 * DAY_S - 30, 1000.0 + 7 * DAY_S)
    assert end.notice.drain_s == 15
    assert node_faults(node, NO_FAILURES, 3 * DAY_S, _rng()) == ()
    assert node_faults(_node("n", capacity="reservation"), NO_FAILURES, 30 * DAY_S, _rng()) == ()


def test_a_gpu_is_one_failure_domain_for_all_its_slices() -> None:
    placed = [
        Placement("slice-1", "n0", (0,), "mig"),
        Placement("slice-2", "n0", (0,), "mig"),
        Placement("tp", "n0", (1, 0), "none"),
        Placement("other-gpu", "n0", (2,), "none"),
        Placement("other-node", "n1", (0,), "mig"),
    ]
    failure = Fault(0.0, "gpu-failure", node="n0", gpu=0)
    assert affected(failure, placed) == ("slice-1", "slice-2", "tp")


@pytest.mark.parametrize(
    ("sharing", "stops"), [("mps", ("a", "b")), ("mig", ("a",)), ("time-slicing", ("a",)), ("none", ("a",))]
)
def test_a_crash_takes_mps_neighbours_along(sharing: str, stops: tuple[str, ...]) -> None:
    placed = [
        Placement("a", "n0", (0,), sharing),  # type: ignore[arg-type]
        Placement("b", "n0", (0,), sharing),  # type: ignore[arg-type]
        Placement("c", "n0", (1,), sharing),  # type: ignore[arg-type]
        Placement("d", "n1", (0,), sharing),  # type: ignore[arg-type]
    ]
    assert affected(Fault(0.0, "engine-crash", replica="a"), placed) == stops


def test_the_loss_of_a_zone_takes_everything_in_it() -> None:
    loss = zone_loss("a", 600.0, 3600.0)
    nodes = [_node("n0"), _node("n1", "b"), _node("n2", capacity="on_demand")]
    hit = [name for name, _ in struck(loss, nodes)]
    assert hit == ["n0", "n2"]
    assert loss.back_s == 4200.0
    placed = [Placement("r0", "n0", (0,)), Placement("r1", "n1", (0,)), Placement("r2", "n2", (3,))]
    assert affected(loss, placed, hit) == ("r0", "r2")


def test_engine_crashes_while_it_lives() -> None:
    rates = FailureRates(0.0, 0.0, engine_per_hour=2.0)
    crashes = engine_crashes("r", rates, 100.0, 100.0 + 3600.0 * 500, _rng())
    assert len(crashes) == pytest.approx(1000, rel=0.1)
    assert engine_crashes("r", published_rates(), 0.0, DAY_S, _rng()) == ()


def test_schedules_merge_in_time_and_repeat_with_the_seed() -> None:
    def schedule(seed: int) -> tuple[Fault, ...]:
        rng = _rng(seed)
        waves = spot_reclaims("pool", ("a", "b"), 0.2, Notice(30, 15), 30 * DAY_S, rng)
        return merged(waves, node_faults(_node("n"), FailureRates(0.01, 0.001), 30 * DAY_S, rng))

    faults = schedule(4)
    assert faults == schedule(4)
    assert faults != schedule(5)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)


def test_every_figure_names_a_source() -> None:
    for name in ("disruptions.json", "provisioners.json"):
        document = json.loads((DATA / name).read_text())
        named: set[str] = {document.get("interruption_source", "")} - {""}
        for value in document.values():
            rows = [value, *value.values()] if isinstance(value, dict) else []
            named |= {row["source"] for row in rows if isinstance(row, dict) and "source" in row}
        assert named == set(document["sources"])


def test_bands_are_those_of_the_machines() -> None:
    bands = {machine.spot_interruption for machine in machines()} - {""}
    assert bands
    assert all(reclaims_per_hour(band) for band in bands)
