"""`rightslice explain`: why a plan is as it is, why something else is not, and what would turn the choice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rightslice.app.clock import Clock
from rightslice.app.flips import flips
from rightslice.app.knowledge import known_names
from rightslice.app.planning import Asking, answered, traces_of
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.explanation import Explanation
from rightslice.core.plan import Plan, Rejection
from rightslice.core.quantities import format_usd
from rightslice.spec.loader import parse_workload
from rightslice.spec.plan_document import load_plan

SAME_COST = 0.005


def explain_plan(
    path: Path, why_not: str = "", *, risk: float = 0.05, progress: Callable[[str], None] | None = None
) -> Explanation:
    """The reasons of a `plan.json` (or of the folder that holds one); `why_not`: only what has this in its name.

    What would turn the choice is found by planning the workload again, with the same seed. Raises BadInputError for
    what is no plan, and RS0501 where nothing was considered under the name of `why_not`.
    """
    folder = path if path.is_dir() else path.parent
    plan = load_plan(path / "plan.json" if path.is_dir() else path)
    found = Explanation(
        plan=plan.name,
        monthly_usd=plan.monthly_usd,
        bound=plan.bound,
        binding_slo=plan.binding_slo,
        partitions=plan.partitions,
        savings=plan.savings,
        platform_costs=plan.platform_costs,
        rejected=_about(plan, why_not) if why_not else plan.rejected,
        flips=(),
        notes=(plan.binding.what, *plan.binding.ways_out) if plan.binding else (),
    )
    if why_not or not plan.feasible or plan.workload is None:
        return found
    return _with_flips(found, plan, folder, risk, progress or (lambda _: None))


def _about(plan: Plan, why_not: str) -> tuple[Rejection, ...]:
    wanted = why_not.casefold()
    found = tuple(r for r in plan.rejected if wanted in f"{r.option} {r.model} {r.reason}".casefold())
    if found:
        return found
    for pool in plan.pools:
        if wanted in (pool.accelerator.casefold(), pool.machine_type.casefold()):
            text = f"it is part of the plan: {pool.nodes} x {pool.machine_type} ({pool.accelerator})"
            return (Rejection(why_not, "", "RS4003", text),)
    words = (word for r in plan.rejected for word in r.option.split(" for ")[0].split(" "))
    names = sorted({word for word in words if len(word) > 1 and not word.isdigit()})
    hint = did_you_mean(why_not, names) or f"for example {', '.join(names[:4])}"
    raise BadInputError(
        Diagnostic("RS0501", f'--why-not "{why_not[:80]}": nothing of that name was considered', hint=hint)
    )


def _with_flips(
    found: Explanation, plan: Plan, folder: Path, risk: float, progress: Callable[[str], None]
) -> Explanation:
    workload = parse_workload(json.dumps(plan.workload), file="", known=known_names()).workload
    asking = Asking(traces_of(workload, folder), plan.seed, risk, plan.calibrations, (), Clock())
    answer, _ = answered(workload, asking, progress)
    if not answer.holds or plan.monthly_usd is None:
        return replace(found, notes=("planned again at this risk nothing holds: no rival is compared",))
    notes: tuple[str, ...] = ()
    if abs(answer.monthly_usd - plan.monthly_usd.value) > SAME_COST * plan.monthly_usd.value:
        again, before = format_usd(answer.monthly_usd), format_usd(plan.monthly_usd.value)
        notes = (f"planned again it costs {again} a month, not {before}: rivals are compared with that",)
    return replace(found, flips=flips(answer), notes=notes, planned_usd=answer.monthly_usd)
