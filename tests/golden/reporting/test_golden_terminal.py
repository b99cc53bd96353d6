"""The terminal report at width 80, letter by letter. Set RIGHTSLICE_UPDATE_GOLDEN=1 to accept a wanted change."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from rightslice.reporting.terminal import plan_text

HERE = Path(__file__).parent
PLANS = runpy.run_path(str(HERE.parents[1] / "unit" / "reporting" / "sample_plans.py"))


@pytest.mark.parametrize(
    ("name", "ascii_only"),
    [("voice", False), ("voice", True), ("tp4", False), ("time_sliced", False), ("infeasible", False)],
)
def test_terminal_report(name: str, *, ascii_only: bool) -> None:
    text = plan_text(PLANS[name](), width=80, ascii_only=ascii_only)
    golden = HERE / f"{name}{'-ascii' if ascii_only else ''}.txt"
    if os.environ.get("RIGHTSLICE_UPDATE_GOLDEN") == "1":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
