"""What the README shows must work as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import rightslice

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_workload_of_the_readme_plans(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(apiVersion: rightslice/v1.*?)```", README, re.DOTALL)
    assert found
    path = tmp_path / "workload.yaml"
    path.write_text(found[1])
    plan = rightslice.plan(path)
    assert plan.feasible, plan.binding
    assert plan.verification
    assert plan.verification.failed == 0
    assert any("max_model_len" in text for text in plan.assumptions)
