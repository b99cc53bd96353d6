"""The HiGHS wrapper: silent, deterministic, honest about its status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rightslice.packing
from rightslice.packing.solver import INFINITY, Builder, Effort, Program, SolverError, relaxation, solve


def cover(need: float, *, upper: float = INFINITY) -> Program:
    """min 3 a + 5 b, 2 a + 4 b >= need."""
    builder = Builder()
    a = builder.column("a", 3.0, upper)
    b = builder.column("b", 5.0, upper)
    builder.row("need", [(a, 2.0), (b, 4.0)], need)
    return builder.program()


def hard(rows: int = 12, columns: int = 40) -> Program:
    """A covering program that takes more than one branch."""
    rng = np.random.default_rng(3)
    builder = Builder()
    names = [builder.column(f"x{i}", float(rng.integers(20, 60)), 1.0) for i in range(columns)]
    for row in range(rows):
        weights = rng.integers(1, 30, size=columns)
        builder.row(f"r{row}", [(c, float(w)) for c, w in zip(names, weights, strict=True)], float(weights.sum()) / 3)
    return builder.program()


def test_optimum_bound_and_silence(capfd: pytest.CaptureFixture[str]) -> None:
    found = solve(cover(7.0))
    assert found.status == "optimal"
    assert (found.objective, found.bound) == (10.0, 10.0)
    assert found.values is not None
    assert found.values.tolist() == [0.0, 2.0]
    relaxed = relaxation(cover(7.0))
    assert relaxed is not None
    assert relaxed[0] == pytest.approx(8.75)
    assert relaxed[2].tolist() == pytest.approx([1.25])
    assert capfd.readouterr() == ("", "")


def test_infeasible_has_no_numbers_to_use() -> None:
    found = solve(cover(7.0, upper=1.0))
    assert found.status == "infeasible"
    assert found.values is None
    assert found.objective == found.bound == INFINITY
    assert relaxation(cover(7.0, upper=1.0)) is None


def test_count_limit_stops_at_the_same_place_with_a_valid_bound() -> None:
    best = solve(hard())
    stopped = [solve(hard(), Effort(nodes=1)) for _ in range(2)]
    assert best.status == "optimal"
    assert stopped[0].status == "stopped"
    assert stopped[0].bound < best.objective <= stopped[0].objective
    assert stopped[0].values is not None
    assert stopped[1].values is not None
    assert stopped[0].values.tobytes() == stopped[1].values.tobytes()


def test_a_start_point_may_be_partial() -> None:
    assert solve(cover(7.0), start={1: 3.0}).objective == 10.0


def test_a_refused_model_raises_instead_of_returning_zero() -> None:
    program = cover(7.0)
    broken = Program(
        program.cost,
        program.upper,
        program.whole,
        program.row_lower,
        program.row_upper,
        program.starts,
        program.columns + 7,
        program.values,
        program.column_names,
        program.row_names,
    )
    with pytest.raises(SolverError, match="model was refused"):
        solve(broken)


def test_violation_measures_rows_and_bounds() -> None:
    program = cover(7.0, upper=2.0)
    assert program.violation(np.array([0.0, 2.0])) <= 0.0
    assert program.violation(np.array([1.0, 1.0])) == pytest.approx(1.0)
    assert program.violation(np.array([0.0, 5.0])) == pytest.approx(3.0)


def test_only_the_wrapper_names_the_solver_and_loads_it_late() -> None:
    folder = Path(rightslice.packing.__file__).parent
    assert [path.name for path in sorted(folder.glob("*.py")) if "highspy" in path.read_text()] == ["solver.py"]
    code = "import sys, rightslice.packing.solve; sys.exit('highspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
