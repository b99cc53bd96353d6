"""One run has one horizon: whatever is asked of a plan, its nodes are billed over the time that is simulated."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.app.planning import plan_workload, write_plan
from rightslice.app.simulating import simulate_plan
from rightslice.app.what_if import WhatIf
from rightslice.spec.plan_document import load_plan

EXAMPLES = Path(__file__).parents[2] / "examples" / "gpu-sharing"
RAMPS_S = 75.0
LONGEST_S = 375.0


@cache
def planned(name: str) -> Path:
    """The folder of an example's plan: `mig` on one node, `time-slicing` with a pool that no control plane moves."""
    folder = Path(mkdtemp()) / name
    write_plan(plan_workload(EXAMPLES / f"{name}.yaml").plan, folder)
    return folder


@given(
    name=st.sampled_from(["mig", "time-slicing"]),
    horizon_s=st.none() | st.floats(RAMPS_S + 1.0, 1800.0),
    users=st.sampled_from([None, "heavy"]),
    faults=st.sampled_from([(), ("pods@30s",), ("pods@2/h",), ("pods@10s", "pods@1/h")]),
    changes=st.sampled_from([(), ("models.llm.autoscaler=fixed",), ("pipelines.voice.users.heavy.concurrent=20",)]),
    seed=st.integers(0, 9),
)
@settings(max_examples=12, deadline=None)
def test_what_changes_no_nodes_does_not_change_the_bill(
    name: str,
    horizon_s: float | None,
    users: str | None,
    faults: tuple[str, ...],
    changes: tuple[str, ...],
    seed: int,
) -> None:
    plan = load_plan(planned(name) / "plan.json")
    asked = WhatIf(users=users, changes=changes, seed=seed, horizon_s=horizon_s, faults=faults)
    found = simulate_plan(planned(name), asked)
    lasts_s = horizon_s or LONGEST_S
    assert found.horizon_s == pytest.approx(lasts_s)
    hours = lasts_s / 3600.0
    assert found.gpu_hours == pytest.approx(sum(p.nodes * p.gpus_per_node for p in plan.pools) * hours)
    assert found.usd == pytest.approx(sum(p.nodes * p.hourly_usd for p in plan.pools) * hours)
    for timeline in found.timelines:
        assert timeline.usd is not None
        assert found.usd is not None
        assert timeline.usd[-1] <= found.usd * (1.0 + 1e-9)
