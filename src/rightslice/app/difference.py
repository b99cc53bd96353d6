"""`rightslice diff`: what differs between two plans."""

from __future__ import annotations

from pathlib import Path

from rightslice.app.today import changes, nodes_of, read_plan
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.difference import AcceleratorDifference, Amount, ModelDifference, PlanDifference
from rightslice.core.plan import Deployment, Plan


def diff_plans(old: Path, new: Path) -> PlanDifference:
    """Compare two plans (`plan.json` or the folder that holds one). Raises BadInputError where one is none."""
    before, after = read_plan(old), read_plan(new)
    cost = Amount(_cost(before), _cost(after))
    return PlanDifference(
        old=str(old),
        new=str(new),
        monthly_usd=cost,
        price_dates=(_date(before), _date(after)),
        increase=cost.difference / cost.old if cost.old and cost.difference is not None else None,
        slo_probability=Amount(before.slo_probability, after.slo_probability),
        accelerators=_accelerators(before, after),
        models=_models(before, after),
        changes=changes(nodes_of(before), after),
    )


def _cost(plan: Plan) -> float | None:
    return plan.monthly_usd.value if plan.monthly_usd else None


def _date(plan: Plan) -> str:
    return plan.monthly_usd.price_date if plan.monthly_usd else ""


def _accelerators(old: Plan, new: Plan) -> tuple[AcceleratorDifference, ...]:
    names = sorted({pool.accelerator for plan in (old, new) for pool in plan.pools})
    return tuple(AcceleratorDifference(name, _gpus(old, name), _gpus(new, name)) for name in names)


def _gpus(plan: Plan, accelerator: str) -> int:
    return sum(pool.nodes * pool.gpus_per_node for pool in plan.pools if pool.accelerator == accelerator)


def _models(old: Plan, new: Plan) -> tuple[ModelDifference, ...]:
    before = {model.name: model for model in old.models}
    after = {model.name: model for model in new.models}
    return tuple(
        ModelDifference(
            name,
            before[name].replicas if name in before else 0,
            after[name].replicas if name in after else 0,
            _places(before[name].deployments if name in before else ()),
            _places(after[name].deployments if name in after else ()),
        )
        for name in dict.fromkeys([*before, *after])
    )


def _places(deployments: tuple[Deployment, ...]) -> tuple[str, ...]:
    return tuple(sorted({_place(deployment) for deployment in deployments}))


def _place(deployment: Deployment) -> str:
    count = f"{deployment.gpus_per_replica} × " if deployment.gpus_per_replica > 1 else ""
    part = "" if deployment.partition == WHOLE else f"{deployment.partition} of "
    return f"{count}{part}{deployment.accelerator}"
