"""The sixteen ways in which sharing goes wrong: each code of the documentation finds its fault."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lint_faults import FAULTS
from plans import memory, model, own_image, placed, plan, pool, voice_shared
from rightslice.app.today import with_changes
from rightslice.app.warn import change_warnings, layout_warnings, scaling_warnings
from rightslice.core.plan import Autoscaling, LayoutUse, Plan, ScaledDay
from rightslice.core.rules import RULES
from rightslice.optimization.assemble import Fleet
from rightslice.optimization.today import GpuNow, NodeNow
from rightslice.ui.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "gpu-sharing.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\|([^|]*)\|$", PAGE, re.MULTILINE)
LINTED = sorted({code for _, linted, _ in ROWS for code in re.findall(r"RS\d{4}", linted)})
PLANNED = {code for _, _, planned in ROWS for code in re.findall(r"RS\d{4}", planned)}
REFUSED_PLANS = (Path(__file__).parents[1] / "unit" / "manifests" / "test_refusals.py").read_text(encoding="utf-8")
A100 = "A100-SXM-80GB"


def test_all_sixteen_are_there_with_codes_that_exist() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 17))
    assert all(linted or planned for _, linted, planned in ROWS)
    assert set(LINTED) | PLANNED <= set(RULES)


@pytest.mark.parametrize("code", LINTED)
def test_a_manifest_with_the_fault_is_found(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump_all(FAULTS[code][0]))
    main(["lint", str(path), "--json"])
    found: Any = json.loads(capsys.readouterr().out)["findings"]
    assert code in {finding["rule"] for finding in found}


def test_every_code_of_plans_has_a_plan_that_is_refused_or_warned_of() -> None:
    warned = {"RS5020", "RS5021", "RS5022", "RS5023"}
    assert warned <= PLANNED
    assert all(f'("{code}"' in REFUSED_PLANS for code in PLANNED - warned)


def halves(platform: str = "gke+operator", accelerator: str = A100, profile: str = "3g.40gb") -> Plan:
    """One GPU in two halves."""
    cut = (LayoutUse("halves", 1, {profile: 2}),)
    home = pool("m", accelerator, provider="gcp", region="r", platform=platform, gpus_per_node=1, layouts=cut)
    half = model("a", home, own_image(), memory(accelerator, profile, 10, 1), partition=profile, replicas=2)
    return plan("halves", (home,), (half,), (replace(placed(home, 0, 0, (half, 0, 0), (half, 1, 4)), layout="halves"),))


def test_nodes_to_be_cut_are_drained_first() -> None:
    today = [NodeNow("n", "m", "", (GpuNow({"7g.80gb": 1}, (("a", "n/a"),)),))]
    found = {w.code: w.message for w in change_warnings(with_changes(halves(), today))}
    for words in ("1 node", "cordon and drain", "mig.config.state=success", "uncordon", "the node reboots"):
        assert words in found["RS5020"]
    assert "while n is drained" in found["RS5007"]
    quiet = [w.message for w in change_warnings(with_changes(halves("on-prem"), today)) if w.code == "RS5020"]
    assert "reboots" not in quiet[0]


def test_nothing_is_said_where_nothing_changes() -> None:
    assert list(change_warnings(halves())) == []
    same = [NodeNow("n", "m", "", (GpuNow({"3g.40gb": 2}, (("a", "n/a"),)),))]
    assert list(change_warnings(with_changes(halves(), same))) == []


def test_slices_are_not_scaled_from_zero_in_silence() -> None:
    day = ScaledDay(86400.0, 1, 1.0, 1.0, 2.0, 2.0, 1.0, "a", 1.0)
    entry = Autoscaling("a", "a", "keda", "in_flight", 4.0, 0, 2, 0.0, 300.0, 15.0, 300.0, day)
    (warning,) = scaling_warnings(replace(halves(), autoscaling=(entry,)))
    assert (warning.code, warning.subject) == ("RS5021", "a")
    assert not list(scaling_warnings(replace(halves(), autoscaling=(replace(entry, min_replicas=1),))))


def test_a_shared_pool_tells_of_the_plugin_and_an_unmeasured_slice_of_its_size() -> None:
    shared = voice_shared()
    assert {w.code for w in layout_warnings(Fleet(shared.pools, shared.placements, {}))} == {"RS5022"}
    unsure = halves(accelerator="B200-SXM-180GB", profile="3g.90gb")
    (found,) = layout_warnings(Fleet(unsure.pools, unsure.placements, {}))
    assert (found.code, "3g.90gb" in found.message) == ("RS5023", True)
    assert not list(layout_warnings(Fleet(halves().pools, halves().placements, {})))
