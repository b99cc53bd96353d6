"""`--fault`: who is struck, and what is refused with the nearest value that is not."""

from __future__ import annotations

import pytest

from plans import voice
from rightslice.app.faults import faulty
from rightslice.app.scenarios import Load
from rightslice.catalogue.disruptions import provisioners
from rightslice.core.errors import BadInputError
from rightslice.core.spread import Spread
from rightslice.simulation.cluster_spec import Pool
from rightslice.simulation.control.nodes import NodePool

LOAD = Load(frozenset(), (), (), 600.0, 0)


def pool(name: str, capacity: str = "on_demand") -> Pool:
    nodes = NodePool(name, {"nvidia.com/gpu": 1}, Spread.fixed(60.0), 2, 0, ("a", "b"))
    return Pool(nodes, 2, 1, provisioners()["cluster-autoscaler"], 1.0, capacity)  # type: ignore[arg-type]


POOLS = (pool("gcp-l4"), pool("gcp-a100"))


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        ("gpu@-5m", "gpu@0s"),
        ("gpu@10m", "gpu@599s, or a longer --horizon"),
        ("zone:b@2h", "zone:b@599s, or a longer --horizon"),
        ("pods@0/d", "pods@1/d"),
        ("pods:gcp-l4@-3/h", "pods:gcp-l4@1/d"),
        ("pods@9/s", "pods@1/s"),
        ("zones@5m", "did you mean zone"),
        ("zone:c@5m", "zones: a, b"),
        ("gpu:gcp-l5@5m", "did you mean gcp-l4"),
        ("gpu:moon@5m", "pools: gcp-l4, gcp-a100"),
        ("nodes@5m", "--fault nodes"),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest_that_can(fault: str, hint: str) -> None:
    with pytest.raises(BadInputError) as caught:
        faulty(voice(), POOLS, [fault], LOAD)
    (found,) = caught.value.diagnostics
    assert found.rule == "RS0501"
    assert hint in found.hint


@pytest.mark.parametrize("fault", ["gpu@nan", "gpu@infm", "pods@nan/h", "zone@5"])
def test_what_is_no_number_names_its_option(fault: str) -> None:
    with pytest.raises(BadInputError) as caught:
        faulty(voice(), POOLS, [fault], LOAD)
    assert fault in caught.value.diagnostics[0].message


def test_a_name_strikes_one_pool_or_zone_alone() -> None:
    pools, faults = faulty(voice(), POOLS, ["gpu:gcp-l4@1m", "zone:b@2m", "pods:gcp-a100@1/d"], LOAD)
    assert [(found.kind, found.pool, found.zone) for found in faults] == [
        ("gpu-failure", "gcp-l4", ""),
        ("zone-loss", "", "b"),
    ]
    assert [found.failures.engine_per_hour for found in pools] == [0.0, pytest.approx(1.0 / 24.0)]
