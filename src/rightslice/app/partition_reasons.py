"""Why each model of a plan runs on whole GPUs, on slices or on shared GPUs, in the numbers that decided it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rightslice.app.answer import Answer
from rightslice.app.grouping import lone_on
from rightslice.catalogue.accelerators import device
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.core.plan import Deployment
from rightslice.core.reasons import PartitionReason
from rightslice.optimization.assemble import Fleet
from rightslice.optimization.grouping import Lone, slowdowns_beside
from rightslice.optimization.needs import Need
from rightslice.performance.sharing import MOST_TENANTS, mig


def partition_reasons(answer: Answer, made: Fleet) -> tuple[PartitionReason, ...]:
    """One entry for each model and kind of place it runs on; models that are sized by memory alone have none."""
    found = []
    for need in answer.question.needs:
        places = {(d.accelerator, d.partition): d for d in made.deployments[need.name]}
        if not need.model.memory:
            found += [_reason(answer, made, need, deployment) for _, deployment in sorted(places.items())]
    return tuple(found)


def _reason(answer: Answer, made: Fleet, need: Need, deployment: Deployment) -> PartitionReason:
    def alone(one: Need) -> Lone | None:
        return lone_on(answer.asked, answer.found.first, one, deployment.accelerator, ON_ONE_GPU[0])

    mine = alone(need) if deployment.gpus_per_replica == 1 else None
    by_name = {one.name: one for one in answer.question.needs}
    neighbours = _neighbours(made, need.name, deployment.id)
    others = [lone for name in neighbours if (lone := alone(by_name[name]))]
    memory = deployment.memory.used_bytes if deployment.memory else 0
    return PartitionReason(
        model=need.name,
        accelerator=deployment.accelerator,
        partition=deployment.partition,
        isolation=need.isolation,
        sm_demand=mine.tenant.sm_bound if mine else None,
        bandwidth_demand=mine.tenant.bandwidth_bound if mine and need.architecture else None,
        duty=mine.busy if mine else 1.0,
        memory_bytes=memory,
        neighbours=neighbours,
        slowdowns=dict(_slowdowns(mine, others, deployment)) if mine else {},
        reason="; ".join(_why(answer, need, deployment, neighbours)),
    )


def _neighbours(made: Fleet, model: str, deployment: str) -> tuple[str, ...]:
    """Other models on the GPUs of a deployment."""
    found = {
        slot.model
        for placement in made.placements
        if any(slot.deployment == deployment for slot in placement.slots)
        for slot in placement.slots
    }
    return tuple(sorted(found - {model}))


def _slowdowns(mine: Lone, others: Sequence[Lone], deployment: Deployment) -> Iterator[tuple[str, float]]:
    yield WHOLE, 1.0
    if deployment.partition not in (WHOLE, *ON_ONE_GPU):
        yield deployment.partition, mig(mine.tenant, device(deployment.accelerator, deployment.partition))
    if others and len(others) < MOST_TENANTS:
        yield "time-slicing", slowdowns_beside(mine, [mine, *others], "time-slicing")[0]
        yield "mps", slowdowns_beside(mine, [mine, *others], "mps")[0]


def _why(answer: Answer, need: Need, deployment: Deployment, neighbours: Sequence[str]) -> Iterator[str]:
    """What rules the other kinds out, or that they cost more."""
    part = deployment.partition
    if need.model.partition and need.model.partition == _written(answer, need):
        yield "pinned"
    elif part in ON_ONE_GPU:
        yield f"isolation {need.isolation}; beside {', '.join(neighbours) or 'itself'} it costs least"
    elif part != WHOLE:
        yield f"isolation {need.isolation}" if need.isolation == "required" else "the cheapest that holds it"
    elif deployment.gpus_per_replica > 1:
        yield f"a replica takes {deployment.gpus_per_replica} GPUs"
    else:
        yield _why_whole(answer, need, deployment.accelerator)


def _written(answer: Answer, need: Need) -> str | None:
    """The partition that the workload file asks for."""
    models = (answer.asked.written or answer.workload).models
    return next((model.partition for model in models if model.name == need.name), None)


def _why_whole(answer: Answer, need: Need, accelerator: str) -> str:
    slices = [o for o in answer.question.options_of(need.name) if o.accelerator == accelerator and o.partition != WHOLE]
    rates = answer.found.first.rates
    if not slices:
        return "no slice that can be made here holds it"
    if need.has_load and all(rates[o.key].requests_per_s <= 0 for o in slices):
        return "no slice keeps its objectives"
    return "slices cost more at its load"
