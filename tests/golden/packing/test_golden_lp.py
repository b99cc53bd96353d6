"""The packing program of three small problems, row by row. Set RIGHTSLICE_UPDATE_GOLDEN=1 to accept a wanted change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packing_helpers import MENU, option, pool
from rightslice.packing.columns import Block
from rightslice.packing.model import build
from rightslice.packing.problem import Demand, Problem
from rightslice.packing.solver import write_lp

HERE = Path(__file__).parent
PROBLEMS = {
    "whole": Problem(
        (pool("one", 1, 1.0), pool("eight", 8, 7.5)),
        (
            option("chat", "whole", 2.0),
            option("chat", "whole", 5.0, gpus=2),
            option("huge", "whole", 1.0, gpus=16, node_gpus=8),
        ),
        (Demand("chat", 6.0, 1, spare=False), Demand("huge", 1.0, 1, spare=False)),
    ),
    "mig": Problem(
        (pool("cut", 2, 2.0, layouts=MENU),),
        (option("asr", "1g", 1.0), option("asr", "3g", 3.0), option("tts", "3g", 0.0)),
        (Demand("asr", 4.0, 2, spare=False, min_nodes=2), Demand("tts", 0.0, 1, spare=False)),
    ),
    "spare_quota": Problem(
        (
            pool("bought", 4, 4.0, limits=("quota:x/y/A",)),
            pool("reserved", 4, 3.0, max_nodes=2, limits=("quota:x/y/A",)),
        ),
        (option("chat", "whole", 2.0), option("chat", "whole", 7.0, gpus=3)),
        (Demand("chat", 6.0, 1, spare=True, min_nodes=2),),
        {"quota:x/y/A": 16},
    ),
}


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_program_text(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    written = tmp_path / f"{name}.lp"
    write_lp(build(problem, [Block(p, p.max_nodes) for p in problem.pools]).program, written)
    golden = HERE / written.name
    if os.environ.get("RIGHTSLICE_UPDATE_GOLDEN") == "1":
        golden.write_bytes(written.read_bytes())
    assert written.read_text() == golden.read_text()
