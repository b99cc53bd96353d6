"""A small simulation letter by letter: for a terminal, and as a page without its style sheet."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from rightslice.core.replay import Replay
from rightslice.reporting.csv_text import timeline_csv
from rightslice.reporting.html import replay_html
from rightslice.reporting.replay_text import replay_text

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "unit" / "reporting"


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Replay:
    monkeypatch.syspath_prepend(str(SAMPLES))
    made = runpy.run_path(str(SAMPLES / "sample_replays.py"))["scaled"]()
    assert isinstance(made, Replay)
    sys.modules.pop("sample_plans", None)
    return made


@pytest.mark.parametrize("name", ["replay.txt", "replay-ascii.txt", "replay.html", "timeline.csv"])
def test_what_a_simulation_leaves(replay: Replay, name: str) -> None:
    made = {
        "replay.txt": lambda: replay_text(replay, width=80),
        "replay-ascii.txt": lambda: replay_text(replay, width=60, ascii_only=True),
        "replay.html": lambda: re.sub(r"(?s)<style>.*</style>", "<style></style>", replay_html(replay)),
        "timeline.csv": lambda: timeline_csv(replay.timelines),
    }[name]()
    golden = HERE / name
    if os.environ.get("RIGHTSLICE_UPDATE_GOLDEN") == "1":
        golden.write_text(made, encoding="utf-8")
    assert made == golden.read_text(encoding="utf-8")
