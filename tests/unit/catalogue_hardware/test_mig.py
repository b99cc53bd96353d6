"""MIG layouts: counts known from public enumerations, legal placements."""

from __future__ import annotations

from collections import Counter

import pytest

from rightslice.catalogue.accelerators import accelerators
from rightslice.catalogue.hardware import MigGeometry, MigProfile
from rightslice.catalogue.mig import (
    full_placement_sets,
    geometry,
    layouts,
    multisets,
    placement_sets,
    uniform_layouts,
)

SEVEN_SLICE = (
    "A100-SXM-40GB", "A100-PCIe-40GB", "A100-SXM-80GB", "A100-PCIe-80GB", "A800-SXM-80GB", "H100-SXM-80GB",
    "H100-PCIe-80GB", "H100-NVL-94GB", "H200-SXM-141GB", "H200-NVL-141GB", "GH200-144GB", "B200-SXM-180GB", "GB200",
)  # fmt: skip


def table(name: str) -> MigGeometry:
    found = geometry(name)
    assert found is not None
    return found


def grown_sets(profiles: list[MigProfile]) -> set[frozenset[tuple[str, int]]]:
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


def counts_of(sets: set[frozenset[tuple[str, int]]]) -> set[tuple[tuple[str, int], ...]]:
    return {tuple(sorted(Counter(name for name, _ in chosen).items())) for chosen in sets}


def maximal(sets: set[frozenset[tuple[str, int]]]) -> set[frozenset[tuple[str, int]]]:
    return {chosen for chosen in sets if not any(chosen < other for other in sets)}


def _within(one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...]) -> bool:
    counts = dict(other)
    return all(counts.get(name, 0) >= count for name, count in one)


@pytest.mark.parametrize(
    ("names", "counts"),
    [(SEVEN_SLICE, (723, 78, 78, 38, 28)), (("A30", "RTX-PRO-6000"), (26, 10, 5, 4, 4))],
)
def test_enumeration_has_the_known_counts(names: tuple[str, ...], counts: tuple[int, ...]) -> None:
    """Placement sets and multisets with the empty one, placement sets and multisets that cannot be extended where they
    are, and layouts that no other contains."""
    for name in names:
        full = full_placement_sets(name)
        found = (
            len(placement_sets(name)),
            len(multisets(name)),
            len(full),
            len(counts_of({frozenset(chosen) for chosen in full})),
            len(layouts(name)),
        )
        assert found == counts, name


@pytest.mark.parametrize("name", ["A30", "A100-SXM-80GB", "RTX-PRO-6000"])
def test_enumeration_equals_one_that_adds_placement_by_placement(name: str) -> None:
    sets = grown_sets([p for p in table(name).profiles if not p.media])
    assert {frozenset(chosen) for chosen in placement_sets(name)} == sets
    assert {frozenset(chosen) for chosen in full_placement_sets(name)} == maximal(sets)
    every = counts_of(sets)
    assert {tuple(sorted(counts.items())) for counts in multisets(name)} == every
    contained = {one for one in every for other in every if one != other and _within(one, other)}
    assert every - contained == {tuple(sorted(layout.profiles.items())) for layout in layouts(name)}


def test_most_full_gpus_leave_something_idle() -> None:
    """Of the 78 full placement sets of an 80 GB A100, 33 leave a memory unit idle and 52 a compute slice."""
    found = table("A100-SXM-80GB")
    units = {p.name: p.mem_units for p in found.profiles}
    slices = {p.name: p.compute_slices for p in found.profiles}
    full = full_placement_sets("A100-SXM-80GB")
    assert sum(sum(units[name] for name, _ in chosen) < found.mem_units for chosen in full) == 33
    assert sum(sum(slices[name] for name, _ in chosen) < found.compute_slices for chosen in full) == 52


def test_without_double_memory_slices_a100_has_14_maximal_layouts() -> None:
    plain = [p for p in table("A100-SXM-80GB").profiles if not p.media and p.name != "1g.20gb"]
    sets = maximal(grown_sets(plain))
    assert (len(sets), len(counts_of(sets))) == (19, 14)


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
    assert not placement_sets(name)
    assert not multisets(name)


def test_media_variants_are_profiles_but_no_layouts() -> None:
    assert table("A100-SXM-80GB").profile("1g.10gb+me").media == "me"
    used = {p for name in SEVEN_SLICE for layout in layouts(name) for p in layout.profiles}
    assert not any("+" in profile or profile.endswith("-me") for profile in used)
