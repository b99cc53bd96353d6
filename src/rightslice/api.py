"""The public Python interface: one function per command. Every failure is a `rightslice.RightsliceError`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rightslice.app.autoscaling import plan_scaled
from rightslice.app.difference import diff_plans
from rightslice.app.explanation import explain_plan
from rightslice.app.linting import LintReport, lint_paths
from rightslice.app.predict import Load
from rightslice.app.predict_one import Answer, Asked, predict_one
from rightslice.app.simulating import simulate_plan
from rightslice.app.sizing import size_model
from rightslice.app.what_if import WhatIf

__all__ = ["Asked", "LintReport", "Load", "WhatIf", "diff", "explain", "lint", "plan", "predict", "simulate", "size"]

if TYPE_CHECKING:
    from rightslice.core.difference import PlanDifference
    from rightslice.core.explanation import Explanation
    from rightslice.core.plan import Plan
    from rightslice.core.replay import Replay
    from rightslice.memory.sizing import SizeReport


def plan(
    workload: str | Path,
    *,
    seed: int = 0,
    risk: float = 0.05,
    current: str | Path | None = None,
    calibration: str | Path | None = None,
) -> Plan:
    """The cheapest deployment of a workload file whose simulation keeps the objectives.

    `risk` is the accepted probability, over prediction error, that an objective fails. `current`: a plan or layout file
    that runs now; the plan changes few of its GPUs and tells the steps. `calibration`: a file of measured times. An
    infeasible workload returns a plan with `feasible` False and `binding` set. Raises BadInputError for a bad file.
    """
    today = None if current is None else Path(current)
    measured = [] if calibration is None else [Path(calibration)]
    return plan_scaled(Path(workload), seed=seed, risk=risk, current=today, calibrations=measured).plan


def diff(old: str | Path, new: str | Path) -> PlanDifference:
    """What differs between two plans: cost, GPUs, replicas, and the GPUs that change.

    Each is a `plan.json` or the folder that holds one. Raises BadInputError for anything else and for infeasible plans.
    """
    return diff_plans(Path(old), Path(new))


def explain(plan: str | Path, why_not: str = "", *, risk: float = 0.05) -> Explanation:
    """Why a plan is as it is, and for its closest rivals the one assumption that would turn the choice.

    `why_not`: only what was considered under that name. Raises BadInputError for what is no plan, and for a name under
    which nothing was considered.
    """
    return explain_plan(Path(plan), why_not, risk=risk)


def lint(*paths: str | Path, accelerator: str = "") -> LintReport:
    """What is wrong with the manifests under `paths`, taken together; `accelerator`: where nothing names another.

    Raises BadInputError for a path that does not exist and for an unknown accelerator.
    """
    return lint_paths([Path(path) for path in paths], accelerator=accelerator)


def predict(asked: Asked, load: Load, *, input_tokens: int = 1024, output_tokens: int = 256) -> Answer:
    """How fast one deployment is under a load, with 80 % intervals.

    Raises BadInputError for unknown names and impossible parallel sizes, InfeasibleError where it does not fit.
    """
    return predict_one(asked, load, input_tokens, output_tokens)


def simulate(plan: str | Path, what_if: WhatIf | None = None) -> Replay:
    """Play a `plan.json` (or its folder) again, with what `what_if` changes.

    Raises BadInputError for an unreadable or infeasible plan and for changes that make no sense.
    """
    return simulate_plan(Path(plan), what_if or WhatIf())


def size(  # noqa: PLR0913 - the options of the command
    model: str,
    *,
    input_tokens: int = 1024,
    output_tokens: int = 256,
    sequences: int = 1,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    accelerator: str | None = None,
    method: str = "exact",
) -> SizeReport:
    """The memory equation of a model and what it fits on. Raises BadInputError for an unknown model or option."""
    return size_model(
        model,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        sequences=sequences,
        dtype=dtype,
        kv_dtype=kv_dtype,
        accelerator=accelerator,
        method=method,
    )
