"""The one place that talks to HiGHS: silent, one thread, limits as counts, status read before any number.

Two traps of the library are handled here: the constructor prints a banner on stdout, and a second thread setting in
one process makes the solver return kError with objective 0. So callbacks, whose registration prints, are left out,
`threads` is 1 in every run, and anything but a recognised status raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from rightslice.core.errors import RightsliceError

if TYPE_CHECKING:
    import highspy
    from numpy.typing import NDArray

INFINITY: Final = float("inf")
_OPTIONS: Final = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "mip_abs_gap": 1e-6,
    "mip_allow_restart": False,
    "mip_heuristic_effort": 0.2,
}
"""Set before anything else in every run. A packing is optimal when it costs at most 1e-6 more than its bound.

Measured on ten packing problems of 5 to 20 models at 500 nodes: without restarts 13 % less time; with four times the
usual heuristic effort (0.05) the answer was never dearer and up to 2 % cheaper, for 20 % more time.
"""


class SolverError(RightsliceError):
    """HiGHS failed; nothing that it returned may be used."""

    def __init__(self, message: str) -> None:
        super().__init__("RS9001", f"the solver failed: {message}")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work one solve may do, in counts, so that the same input always stops at the same place.

    `relative_gap`: how far from the optimum is near enough.
    """

    nodes: int = 500
    relative_gap: float = 1e-6
    simplex_iterations: int = 2_000_000


@dataclass(frozen=True, slots=True)
class Program:
    """min cost x, row_lower <= A x <= row_upper, 0 <= x <= upper, some x whole. A is stored by rows."""

    cost: NDArray[np.float64]
    upper: NDArray[np.float64]
    whole: NDArray[np.bool_]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    column_names: tuple[str, ...]
    row_names: tuple[str, ...]

    def with_row(self, name: str, coefficients: NDArray[np.float64], lower: float, upper: float) -> Program:
        """The same program with one more row; `coefficients` has one entry per column."""
        used = np.flatnonzero(coefficients).astype(np.int32)
        return replace(
            self,
            row_lower=np.append(self.row_lower, lower),
            row_upper=np.append(self.row_upper, upper),
            starts=np.append(self.starts, self.starts[-1] + np.int32(len(used))).astype(np.int32),
            columns=np.append(self.columns, used).astype(np.int32),
            values=np.append(self.values, coefficients[used]),
            row_names=(*self.row_names, name),
        )

    def without(self, columns: Sequence[int]) -> Program:
        """The same program with some columns held at 0."""
        upper = self.upper.copy()
        upper[list(columns)] = 0.0
        return replace(self, upper=upper)

    def violation(self, values: NDArray[np.float64]) -> float:
        """By how much `values` breaks its worst row or bound."""
        sums = np.add.reduceat(np.append(self.values * values[self.columns], 0.0), self.starts[:-1])
        sums[self.starts[:-1] == self.starts[1:]] = 0.0
        gaps = (self.row_lower - sums, sums - self.row_upper, -values, values - self.upper)
        return max((float(gap.max()) for gap in gaps if gap.size), default=0.0)


@dataclass(slots=True)
class Builder:
    """Collects columns and rows; indices are given in order of creation."""

    _columns: list[tuple[float, float, bool, str]] = field(default_factory=list)
    _rows: list[tuple[float, float, str]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _indices: list[int] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)

    def column(self, name: str, cost: float = 0.0, upper: float = INFINITY, *, whole: bool = True) -> int:
        """A variable 0 <= x <= upper; its index."""
        self._columns.append((cost, upper, whole, name))
        return len(self._columns) - 1

    def row(self, name: str, terms: Iterable[tuple[int, float]], lower: float, upper: float = INFINITY) -> int:
        """lower <= sum of coefficient x column <= upper, every column at most once; its index."""
        for index, value in terms:
            self._indices.append(index)
            self._values.append(value)
        self._starts.append(len(self._indices))
        self._rows.append((lower, upper, name))
        return len(self._rows) - 1

    def program(self) -> Program:
        """The finished arrays."""
        cost, upper, whole, names = zip(*self._columns, strict=True) if self._columns else ((),) * 4
        row_lower, row_upper, row_names = zip(*self._rows, strict=True) if self._rows else ((),) * 3
        return Program(
            cost=np.array(cost, dtype=np.float64),
            upper=np.array(upper, dtype=np.float64),
            whole=np.array(whole, dtype=np.bool_),
            row_lower=np.array(row_lower, dtype=np.float64),
            row_upper=np.array(row_upper, dtype=np.float64),
            starts=np.array(self._starts, dtype=np.int32),
            columns=np.array(self._indices, dtype=np.int32),
            values=np.array(self._values, dtype=np.float64),
            column_names=tuple(names),
            row_names=tuple(row_names),
        )


@dataclass(frozen=True, slots=True)
class Solution:
    """`values` is None without a feasible point. `bound`: no feasible point has a smaller objective."""

    status: Literal["optimal", "infeasible", "stopped"]
    objective: float
    bound: float
    values: NDArray[np.float64] | None


def solve(program: Program, effort: Effort | None = None, start: Mapping[int, float] | None = None) -> Solution:
    """Minimise `program`; `start` is a feasible point to begin with, as column -> value; it may leave columns out.

    Deterministic: one thread, a fixed seed, no clock. Raises SolverError when HiGHS reports an error or a status that
    is neither a proof nor a count limit.
    """
    highs = _loaded(program)
    effort = effort or Effort()
    _checked(highs.setOptionValue("mip_max_nodes", effort.nodes), "node limit")
    _checked(highs.setOptionValue("mip_rel_gap", effort.relative_gap), "gap")
    _checked(highs.setOptionValue("simplex_iteration_limit", effort.simplex_iterations), "iteration limit")
    if start is not None:
        columns = np.array(list(start), dtype=np.int32)
        values = np.array(list(start.values()), dtype=np.float64)
        _checked(highs.setSolution(len(columns), columns, values), "start point")
    _checked(highs.run(), "run")
    return _solution(highs)


def relaxation(program: Program) -> tuple[float, NDArray[np.float64], NDArray[np.float64]] | None:
    """(objective, column values, row duals) of the program without whole numbers; None when it is infeasible."""
    highs = _loaded(replace(program, whole=np.zeros(len(program.whole), dtype=np.bool_)))
    _checked(highs.run(), "run")
    solution = _solution(highs)
    if solution.values is None:
        return None
    return solution.objective, solution.values, np.array(highs.getSolution().row_dual, dtype=np.float64)


def write_lp(program: Program, path: Path) -> None:
    """Write `program` in LP format, for people and for golden files."""
    _checked(_loaded(program, names=True).writeModel(str(path)), f"cannot write {path}")


@cache
def _silent_class() -> type[highspy.Highs]:
    import highspy  # noqa: PLC0415 - heavy, and only needed when something is packed

    class Silent(highspy.Highs):  # type: ignore[misc]
        """HiGHS without callbacks: registering them is what prints the banner."""

        def enableCallbacks(self) -> None:  # noqa: N802 - the library's name
            """Nothing."""

    return Silent


def _loaded(program: Program, *, names: bool = False) -> highspy.Highs:
    import highspy  # noqa: PLC0415

    highs = _silent_class()()
    for option, value in _OPTIONS.items():
        _checked(highs.setOptionValue(option, value), f"option {option}")
    model = highspy.HighsLp()
    model.num_col_ = len(program.cost)
    model.num_row_ = len(program.row_lower)
    model.col_cost_ = program.cost
    model.col_lower_ = np.zeros(len(program.cost))
    model.col_upper_ = program.upper
    model.row_lower_ = program.row_lower
    model.row_upper_ = program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = program.starts
    model.a_matrix_.index_ = program.columns
    model.a_matrix_.value_ = program.values
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    model.integrality_ = [kinds[whole] for whole in program.whole.tolist()]
    if names:
        model.col_names_ = _plain(program.column_names)
        model.row_names_ = _plain(program.row_names)
    _checked(highs.passModel(model), "model")
    return highs


def _plain(names: Iterable[str]) -> list[str]:
    """Names that LP format accepts, kept apart by a number where they would become equal."""
    seen: dict[str, int] = {}
    plain = []
    for name in names:
        word = re.sub(r"[^A-Za-z0-9_.]+", "_", name)
        seen[word] = seen.get(word, 0) + 1
        plain.append(word if seen[word] == 1 else f"{word}.{seen[word]}")
    return plain


def _checked(status: highspy.HighsStatus, what: str) -> None:
    if int(status) < 0:  # kError is -1, kOk 0, kWarning 1 (a count limit was reached)
        raise SolverError(f"{what} was refused")


def _solution(highs: highspy.Highs) -> Solution:
    import highspy  # noqa: PLC0415

    status = highs.getModelStatus()
    info = highs.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    ends = highspy.HighsModelStatus
    if status in (ends.kInfeasible, ends.kUnboundedOrInfeasible):
        return Solution("infeasible", INFINITY, INFINITY, None)
    if status == ends.kModelEmpty:
        return Solution("optimal", 0.0, 0.0, np.zeros(highs.getNumCol()))
    if status not in (ends.kOptimal, ends.kSolutionLimit, ends.kIterationLimit):
        raise SolverError(f"status {highs.modelStatusToString(status)}")
    if status == ends.kOptimal and not found:
        raise SolverError("optimal without a solution")
    values = np.array(highs.getSolution().col_value, dtype=np.float64) if found else None
    objective = float(info.objective_function_value) if found else INFINITY
    return Solution("optimal" if status == ends.kOptimal else "stopped", objective, float(info.mip_dual_bound), values)
