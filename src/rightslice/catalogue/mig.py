"""MIG: what an accelerator can be cut into, and every layout worth considering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE, MigGeometry, MigProfile

GIB = 2**30
Placements = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MigLayout:
    """One way to cut one GPU: counts of profiles with one legal placement (profile, start memory unit).

    `whole_gpu`: a single instance that takes all memory, the GPU in MIG mode; a plain GPU has more SMs on A100.
    """

    name: str
    profiles: Mapping[str, int]
    placements: Placements
    whole_gpu: bool = False


@lru_cache(maxsize=1)
def _geometries() -> Mapping[str, MigGeometry]:
    tables = {}
    for table in read_json("mig.json")["gpus"].values():
        profiles = tuple(_profile(row) for row in table["profiles"])
        for accelerator in table["accelerators"]:
            tables[accelerator] = MigGeometry(
                accelerator=accelerator,
                mem_units=table["mem_units"],
                compute_slices=table["compute_slices"],
                max_instances=table["max_instances"],
                sm_full=table["sm_total"],
                profiles=profiles,
            )
    return tables


def _profile(row: Mapping[str, Any]) -> MigProfile:
    memory_gib = row["memory_gib"] if "memory_gib" in row else row["memory_gib_planning"]
    return MigProfile(
        name=row["name"],
        compute_slices=row["compute_slices"],
        mem_units=row["mem_units"],
        starts=tuple(row["starts"]),
        max_instances=row["max_instances"],
        memory_bytes=round(memory_gib * GIB),
        sm_count=row["sm"] if "sm" in row else row["sm_lower_bound"],
        media=row.get("media", ""),
        estimated=row.get("estimated", False),
    )


def geometry(accelerator: str) -> MigGeometry | None:
    """The MIG table of a canonical accelerator name, None when it has none (no MIG, or only names are known)."""
    return _geometries().get(accelerator)


def takes_all_memory(accelerator: str, profile: str) -> bool:
    """Whether a slice of this profile is the whole GPU, less what MIG itself takes."""
    table = geometry(accelerator)
    return table is not None and any(p.name == profile and p.mem_units == table.mem_units for p in table.profiles)


def impossible(accelerator: str, slots: Sequence[tuple[str, int]]) -> str:
    """Why these (partition, start) cannot be on one GPU together; empty where they can.

    A MIG instance takes the memory units from its start; shared GPUs and whole ones have nothing beside them.
    """
    kinds = {partition if partition in (WHOLE, *ON_ONE_GPU) else "MIG" for partition, _ in slots}
    if len(kinds) > 1 or (kinds == {WHOLE} and len(slots) > 1):
        return f"{' and '.join(sorted({partition for partition, _ in slots}))} cannot be on one GPU together"
    if kinds != {"MIG"}:
        return ""
    table = geometry(accelerator)
    taken: set[int] = set()
    for partition, start in slots:
        profile = next((p for p in table.profiles if p.name == partition), None) if table else None
        if profile is None:
            return f"{accelerator} has no profile {partition}"
        if start not in profile.starts:
            return f"{partition} cannot start at {start}, only at {', '.join(map(str, profile.starts))}"
        units = set(range(start, start + profile.mem_units))
        if units & taken:
            return f"{partition} at {start} overlaps another slice"
        taken |= units
    return ""


def share_of_gpu(accelerator: str, partition: str) -> float:
    """Memory units of a slice over all units; 1.0 for anything that is no slice of that accelerator."""
    table = geometry(accelerator)
    profiles = {p.name: p.mem_units / table.mem_units for p in table.profiles} if table else {}
    return profiles.get(partition, 1.0)


@lru_cache(maxsize=64)
def layouts(accelerator: str) -> tuple[MigLayout, ...]:
    """Every layout to which no instance can be added, however the others are placed; empty without a MIG table.

    Media variants are left out. The order is fixed: most instances first, then by name.
    """
    table = geometry(accelerator)
    if table is None:
        return ()
    profiles = _plain(table)
    every = multisets(accelerator)
    largest = (c for c in every if not any(_contains(other, c) for other in every if other != c))
    made = (_layout(counts, profiles, table) for counts in largest)
    return tuple(sorted(made, key=lambda layout: (-len(layout.placements), layout.name)))


@lru_cache(maxsize=64)
def placement_sets(accelerator: str) -> tuple[Placements, ...]:
    """Every set of instances that can coexist, the empty one included, by rising start; empty without a MIG table.

    Media variants are left out. In all tables disjoint memory units keep compute slices and SMs within the GPU's too.
    """
    table = geometry(accelerator)
    return () if table is None else tuple(_placed_sets(_plain(table), 0, {}))


def multisets(accelerator: str) -> tuple[Mapping[str, int], ...]:
    """Every count of profiles that can coexist, the empty one included, in a fixed order."""
    found = {_counted(chosen) for chosen in placement_sets(accelerator)}
    return tuple(dict(items) for items in sorted(found))


def full_placement_sets(accelerator: str) -> tuple[Placements, ...]:
    """The placement sets to which no instance can be added where the others are."""
    table = geometry(accelerator)
    spans = {p.name: p.mem_units for p in _plain(table)} if table else {}
    masks = {(p.name, s): _mask(s, p.mem_units) for p in _plain(table) for s in p.starts} if table else {}

    def full(chosen: Placements) -> bool:
        taken = sum(_mask(start, spans[name]) for name, start in chosen)
        return all(taken & mask for mask in masks.values())

    return tuple(chosen for chosen in placement_sets(accelerator) if full(chosen))


@lru_cache(maxsize=64)
def uniform_layouts(accelerator: str) -> tuple[MigLayout, ...]:
    """One layout per profile with as many instances as fit: what platforms with one profile per node pool can make."""
    table = geometry(accelerator)
    if table is None:
        return ()
    profiles = _plain(table)
    return tuple(_layout({p.name: p.max_instances}, profiles, table) for p in profiles)


def _plain(table: MigGeometry) -> tuple[MigProfile, ...]:
    """Profiles without media variants, smallest first."""
    return tuple(sorted((p for p in table.profiles if not p.media), key=lambda p: (p.compute_slices, p.mem_units)))


def _counted(chosen: Placements) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(name for name, _ in chosen).items()))


def _placed_sets(profiles: Sequence[MigProfile], unit: int, used: Mapping[str, int]) -> Iterator[Placements]:
    """Every set of placements that starts at or after `unit`."""
    starts = [s for p in profiles for s in p.starts if s >= unit]
    if not starts:
        yield ()
        return
    yield from _placed_sets(profiles, unit + 1, used)
    for profile in profiles:
        if unit in profile.starts and used.get(profile.name, 0) < profile.max_instances:
            more = {**used, profile.name: used.get(profile.name, 0) + 1}
            for rest in _placed_sets(profiles, unit + profile.mem_units, more):
                yield ((profile.name, unit), *rest)


def _contains(larger: Mapping[str, int], smaller: Mapping[str, int]) -> bool:
    return all(larger.get(name, 0) >= count for name, count in smaller.items())


def _instances(counts: Mapping[str, int], profiles: Sequence[MigProfile]) -> list[MigProfile]:
    """One entry per instance, largest first."""
    return [p for p in reversed(profiles) for _ in range(counts.get(p.name, 0))]


def _layout(counts: Mapping[str, int], profiles: Sequence[MigProfile], table: MigGeometry) -> MigLayout:
    ordered = {p.name: counts[p.name] for p in profiles if counts.get(p.name)}
    placements = _place(_instances(counts, profiles), profiles)
    if placements is None:
        raise ValueError(f"{table.accelerator}: {ordered} cannot be placed")
    name = "+".join(profile if count == 1 else f"{profile}*{count}" for profile, count in ordered.items())
    units = {p.name: p.mem_units for p in profiles}
    whole = len(placements) == 1 and units[placements[0][0]] == table.mem_units
    return MigLayout(name, ordered, placements, whole)


def _place(instances: Sequence[MigProfile], profiles: Sequence[MigProfile]) -> Placements | None:
    """One legal placement of the instances (largest first), sorted by start; None when there is none.

    Starts that block the fewest other placements are tried first: 6, 4, 5, 0, 1, 2, 3 for a one-unit profile of an
    eight-unit GPU.
    """
    order = {p.name: _preferred_starts(p, profiles) for p in profiles}
    found = _fill(instances, order, 0)
    return None if found is None else tuple(sorted(found, key=lambda placed: placed[1]))


def _fill(
    instances: Sequence[MigProfile], order: Mapping[str, Sequence[int]], taken: int
) -> list[tuple[str, int]] | None:
    """`taken` is a bit mask of memory units."""
    if not instances:
        return []
    first = instances[0]
    for start in order[first.name]:
        mask = _mask(start, first.mem_units)
        if taken & mask:
            continue
        rest = _fill(instances[1:], order, taken | mask)
        if rest is not None:
            return [(first.name, start), *rest]
    return None


def _preferred_starts(profile: MigProfile, profiles: Iterable[MigProfile]) -> list[int]:
    others = [_mask(start, p.mem_units) for p in profiles for start in p.starts]

    def blocked(start: int) -> int:
        mask = _mask(start, profile.mem_units)
        return sum(1 for other in others if other & mask)

    return sorted(profile.starts, key=lambda start: (blocked(start), start))


def _mask(start: int, units: int) -> int:
    return ((1 << units) - 1) << start
