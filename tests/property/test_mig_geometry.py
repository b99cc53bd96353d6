"""Every layout of every accelerator can be made: instances do not overlap and profile limits hold."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rightslice.catalogue.accelerators import accelerators
from rightslice.catalogue.mig import geometry, layouts, uniform_layouts

SLICED = sorted(name for name in accelerators() if geometry(name))


@given(st.data(), st.sampled_from(SLICED))
def test_placements_are_legal(data: st.DataObject, name: str) -> None:
    table = geometry(name)
    assert table is not None
    layout = data.draw(st.sampled_from([*layouts(name), *uniform_layouts(name)]))
    profiles = {p.name: p for p in table.profiles}
    counts = dict.fromkeys(layout.profiles, 0)
    for profile, start in layout.placements:
        counts[profile] += 1
        assert start in profiles[profile].starts
    assert counts == dict(layout.profiles)
    assert all(count <= profiles[profile].max_instances for profile, count in counts.items())
    assert len(layout.placements) <= table.max_instances
    for (profile, start), (_, following) in pairwise(layout.placements):
        assert start + profiles[profile].mem_units <= following
    last, start = layout.placements[-1]
    assert start + profiles[last].mem_units <= table.mem_units
    assert sum(profiles[p].compute_slices * n for p, n in counts.items()) <= table.compute_slices
    assert sum(profiles[p].sm_count * n for p, n in counts.items()) <= table.sm_full
