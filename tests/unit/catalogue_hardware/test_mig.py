"""MIG layouts: counts known from public enumerations, legal placements."""

from __future__ import annotations

from collections import Counter

import pytest

from rightslice.catalogue.accelerators import accelerators
from rightslice.catalogue.hardware import MigGeometry, MigProfile
from rightslice.catalogue.mig import geometry, layouts, uniform_layouts

SEVEN_SLICE = (
    "A100-SXM-40GB", "A100-PCIe-40GB", "A100-SXM-80GB", "A100-PCIe-80GB", "A800-SXM-80GB", "H100-SXM-80GB",
    "H100-PCIe-80GB", "H100-NVL-94GB", "H200-SXM-141GB", "H200-NVL-141GB", "GH200-144GB", "B200-SXM-180GB", "GB200",
)  # fmt: skip


def table(name: str) -> MigGeometry:
    found = geometry(name)
    assert found is not None
    return found


def placement_sets(profiles: list[MigProfile]) -> set[frozenset[tuple[str, int]]]:
    """Every set of placements without overlap, by brute force: one more placement at a time."""
    spans = {(p.name, s): set(range(s, s + p.mem_units)) for p in profiles for s in p.starts}
    known: set[frozenset[tuple[str, int]]] = {frozenset()}
    frontier = list(known)
    while frontier:
        grown = {
            chosen | {placement}
            for chosen in frontier
            for placement, span in spans.items()
            if all(span.isdisjoint(spans[other]) for other in chosen)
        }
        frontier = list(grown - known)
        known |= grown
    return known


def multisets(sets: set[frozenset[tuple[str, int]]]) -> set[tuple[tuple[str, int], ...]]:
    return {tuple(sorted(Counter(name for name, _ in chosen).items())) for chosen in sets}


def maximal(sets: set[frozenset[tuple[str, int]]]) -> set[frozenset[tuple[str, int]]]:
    return {chosen for chosen in sets if not any(chosen < other for other in sets)}


def _within(one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...]) -> bool:
    counts = dict(other)
    return all(counts.get(name, 0) >= count for name, count in one)


@pytest.mark.parametrize("name", SEVEN_SLICE)
def test_seven_slice_gpus_have_28_layouts(name: str) -> None:
    assert len(layouts(name)) == 28


@pytest.mark.parametrize("name", ["A30", "RTX-PRO-6000"])
def test_four_slice_gpus_have_4_layouts(name: str) -> None:
    assert len(layouts(name)) == 4


def test_counts_agree_with_a_brute_force_enumeration() -> None:
    """723 legal placement sets with the empty one; 38 layouts cannot be extended in place, 28 are in no other."""
    plain = [p for p in table("A100-SXM-80GB").profiles if not p.media]
    sets = placement_sets(plain)
    assert len(sets) == 723
    assert len(multisets(maximal(sets))) == 38
    every = multisets(sets)
    contained = {one for one in every for other in every if one != other and _within(one, other)}
    assert every - contained == {tuple(sorted(layout.profiles.items())) for layout in layouts("A100-SXM-80GB")}


def test_without_double_memory_slices_a100_has_14_maximal_layouts() -> None:
    plain = [p for p in table("A100-SXM-80GB").profiles if not p.media and p.name != "1g.20gb"]
    sets = maximal(placement_sets(plain))
    assert (len(sets), len(multisets(sets))) == (19, 14)


def test_layouts_are_named_placed_and_marked() -> None:
    by_name = {layout.name: layout for layout in layouts("A100-SXM-80GB")}
    voice = by_name["1g.20gb*2+4g.40gb"]
    assert voice.placements == (("4g.40gb", 0), ("1g.20gb", 4), ("1g.20gb", 6))
    assert voice.profiles == {"1g.20gb": 2, "4g.40gb": 1}
    assert [layout.name for layout in by_name.values() if layout.whole_gpu] == ["7g.80gb"]


def test_small_instances_go_where_they_block_least() -> None:
    by_name = {layout.name: layout for layout in layouts("H100-SXM-80GB")}
    assert by_name["1g.10gb*3+4g.40gb"].placements[1:] == (("1g.10gb", 4), ("1g.10gb", 5), ("1g.10gb", 6))
    assert by_name["3g.40gb*2"].placements == (("3g.40gb", 0), ("3g.40gb", 4))


def test_uniform_layouts_hold_as_many_instances_as_the_table_allows() -> None:
    counts = {layout.name: dict(layout.profiles) for layout in uniform_layouts("H200-SXM-141GB")}
    assert counts == {
        "1g.18gb*7": {"1g.18gb": 7},
        "1g.35gb*4": {"1g.35gb": 4},
        "2g.35gb*3": {"2g.35gb": 3},
        "3g.71gb*2": {"3g.71gb": 2},
        "4g.71gb": {"4g.71gb": 1},
        "7g.141gb": {"7g.141gb": 1},
    }


def test_multiprocessors_are_measured_and_not_k_sevenths() -> None:
    h100 = table("H100-SXM-80GB")
    assert {p: h100.profile(p).sm_count for p in ("1g.10gb", "1g.20gb", "3g.40gb")} == {
        "1g.10gb": 16, "1g.20gb": 26, "3g.40gb": 60,
    }  # fmt: skip
    assert table("H100-PCIe-80GB").profile("3g.40gb").sm_count == 46


def test_usable_memory_is_below_the_name_of_the_profile() -> None:
    assert table("H200-SXM-141GB").profile("1g.18gb").memory_bytes == 16 * 2**30
    for name in (*SEVEN_SLICE, "A30", "RTX-PRO-6000"):
        assert all(p.memory_bytes < accelerators()[name].advertised_memory_bytes for p in table(name).profiles)


def test_profiles_that_nobody_printed_are_marked_estimated() -> None:
    estimated = {p.name for p in table("B200-SXM-180GB").profiles if p.estimated}
    assert estimated == {"3g.90gb", "4g.90gb", "7g.180gb"}
    assert not any(p.estimated for p in table("H100-SXM-80GB").profiles)


@pytest.mark.parametrize("name", ["L4", "GH200-96GB", "B300-SXM-270GB", "H20-96GB", "no-such-gpu"])
def test_gpus_without_a_table_have_no_layouts(name: str) -> None:
    assert geometry(name) is None
    assert layouts(name) == uniform_layouts(name) == ()


def test_media_variants_are_profiles_but_no_layouts() -> None:
    assert table("A100-SXM-80GB").profile("1g.10gb+me").media == "me"
    used = {p for name in SEVEN_SLICE for layout in layouts(name) for p in layout.profiles}
    assert not any("+" in profile or profile.endswith("-me") for profile in used)
