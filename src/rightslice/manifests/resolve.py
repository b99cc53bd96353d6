"""Plan -> View, or every reason why no cluster could run it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.catalogue.platforms import Platform, platforms
from rightslice.core.errors import BadInputError, Diagnostic, InfeasibleError, did_you_mean
from rightslice.core.plan import Deployment, Plan, PlannedModel, Pool
from rightslice.manifests.launch import at_least, launch
from rightslice.manifests.layout import capacity, describe, has_spare, node_layouts
from rightslice.manifests.mirrors import AS_PUBLISHED, Mirrors
from rightslice.manifests.sharing import FEWEST, MOST
from rightslice.manifests.view import (
    Unit,
    View,
    image_of,
    is_shared,
    is_slice,
    namespace_of,
    pool_of,
    pool_views,
    unit_name,
)
from rightslice.spec.autoscaler import sleeps_for_ever

_MIG_PROFILE: Final = re.compile(r"\d+g\.\d+gb([.+][a-z.+]+)?")
_PINNED_IMAGE: Final = re.compile(r"[^\s@]+(@sha256:[0-9a-f]{64}|:(?!latest$)[\w][\w.-]{0,127})", re.ASCII)


def resolve(plan: Plan, mirrors: Mirrors = AS_PUBLISHED) -> View:
    """Decide every name and what is emitted. Raises InfeasibleError, or BadInputError with all that is wrong."""
    if not plan.feasible or not plan.pools:
        raise InfeasibleError("RS4001", f'plan "{plan.name}" deploys nothing, so there is nothing to emit')
    mistakes = list(_mistakes(plan))
    if mistakes:
        raise BadInputError(mistakes)
    pools = pool_views(plan)
    units: list[Unit] = []
    skipped: dict[str, str] = {}
    for model in plan.models:
        for deployment in model.deployments:
            pool = pool_of(deployment, pools)
            pods = max(1, deployment.gpus_per_replica // pool.pool.gpus_per_node)
            reason = _not_emitted(deployment) if pods > 1 else ""
            if reason:
                skipped[deployment.id] = reason
                continue
            units.append(
                Unit(
                    plan=plan.name,
                    namespace=namespace_of(plan),
                    model=model,
                    deployment=deployment,
                    pool=pool,
                    name=unit_name(deployment, grouped=pods > 1),
                    image=image_of(model, deployment),
                    pods_per_replica=pods,
                    spare=has_spare(plan, deployment),
                    scaling=next((s for s in plan.autoscaling if s.deployment == deployment.id and pods == 1), None),
                    mirrors=mirrors,
                )
            )
    return View(plan, namespace_of(plan), pools, tuple(units), skipped)


def _not_emitted(deployment: Deployment) -> str:
    """Why a replica over several nodes cannot be written down; empty where it can."""
    engine = deployment.engine
    nodes = launch(engine.name).nodes
    if nodes is None:
        return f"one replica spans several nodes, and how {engine.name} is started there is not known"
    if not at_least(engine.version, nodes.since):
        return f"one replica spans several nodes; {engine.name} {engine.version} needs {nodes.since} or later for that"
    return ""


def _mistakes(plan: Plan) -> Iterator[Diagnostic]:
    known = {pool.name for pool in plan.pools}
    for pool in plan.pools:
        yield from _pool_mistakes(plan, pool)
    for model in plan.models:
        for deployment in model.deployments:
            if deployment.pool not in known:
                hint = did_you_mean(deployment.pool, known)
                yield Diagnostic("RS0204", f'{deployment.id}: the plan has no pool "{deployment.pool}"', hint=hint)
            elif plan.pool(deployment.pool).platform in platforms():
                yield from _deployment_mistakes(model, deployment, plan.pool(deployment.pool))
    yield from _scaling_mistakes(plan)
    for placement in plan.placements:
        for slot in placement.slots:
            if slot.used_bytes > slot.memory_bytes:
                where = f"{placement.pool} node {placement.node} GPU {placement.gpu}"
                message = f"{slot.deployment} needs {slot.used_bytes:,} bytes of {slot.memory_bytes:,} on {where}"
                yield Diagnostic("RS2001", message)
        together = sum(slot.used_bytes for slot in placement.slots)
        if len(placement.slots) > 1 and together > placement.memory_bytes:
            where = f"{placement.pool} node {placement.node} GPU {placement.gpu}"
            yield Diagnostic("RS2001", f"{together:,} bytes are needed of {placement.memory_bytes:,} on {where}")


def _scaling_mistakes(plan: Plan) -> Iterator[Diagnostic]:
    """Deployments that go to zero and that nothing would wake."""
    gateways = {model.name: model.gateway for model in plan.models}
    for scaling in plan.autoscaling:
        gateway = gateways.get(scaling.model)
        if scaling.min_replicas == 0:
            holds = gateway is not None and gateway.holds
            asleep = sleeps_for_ever(scaling.kind, scaling.signal, holds=holds)
            if asleep is not None:
                yield Diagnostic("RS0204", f"{scaling.deployment}: {asleep[0]}", hint=asleep[1])


def _pool_mistakes(plan: Plan, pool: Pool) -> Iterator[Diagnostic]:
    platform = platforms().get(pool.platform)
    if platform is None:
        message = f'{pool.name}: unknown platform "{pool.platform}"'
        yield Diagnostic("RS0316", message, hint=did_you_mean(pool.platform, platforms()))
        return
    if min(pool.gpus_per_node, pool.nodes) < 1:
        yield Diagnostic("RS0106", f"{pool.name}: needs at least one node with one GPU")
    if pool.sharing in ON_ONE_GPU:
        yield from _sharing_mistakes(pool, platform)
    if platform.mig == "uniform-per-pool":
        yield from _cut_mistakes(plan, pool, platform)
    made, asked = capacity(plan, pool), _asked(plan, pool)
    for partition in sorted(asked):
        if asked[partition] > made[partition]:
            message = (
                f"{pool.name}: deployments need {asked[partition]} of {partition}, its GPUs make {made[partition]}"
            )
            yield Diagnostic("RS4015", message)


def _sharing_mistakes(pool: Pool, platform: Platform) -> Iterator[Diagnostic]:
    """A way to share that the device plugin does not know; it shares all GPUs of a node alike, 2 to 48 times each."""
    if not platform.shares(pool.sharing):
        message = f"{pool.name}: {platform.title} does not share GPUs by {pool.sharing} with the GPU Operator"
        yield Diagnostic("RS4007", message, hint="platform: gke+operator, eks or on-prem; or MIG")
    places = [use.profiles.get(pool.sharing, 0) for use in pool.layouts if use.gpus == pool.nodes * pool.gpus_per_node]
    if len(pool.layouts) != 1 or len(places) != 1:
        message = f"{pool.name}: some GPUs are shared and others are not; the device plugin shares all of a node"
        yield Diagnostic("RS4015", message, hint="a node pool for each")
    elif not FEWEST <= places[0] <= MOST:
        message = f"{pool.name}: {places[0]} replicas of one GPU; the device plugin takes {FEWEST} to {MOST}"
        yield Diagnostic("RS4015", message)


def _asked(plan: Plan, pool: Pool) -> Counter[str]:
    """Partition -> how many the pool's deployments take."""
    asked: Counter[str] = Counter()
    for deployment in (d for model in plan.models for d in model.deployments if d.pool == pool.name):
        asked[deployment.partition] += deployment.replicas.steady * deployment.gpus_per_replica
    return asked


def _cut_mistakes(plan: Plan, pool: Pool, platform: Platform) -> Iterator[Diagnostic]:
    """Nodes that need a node pool's one profile and something else."""
    for layout in node_layouts(plan, pool):
        if len({tuple(sorted(cut)) for cut in layout.gpus}) > 1 or any(len(cut) > 1 for cut in layout.gpus):
            wanted = describe(layout.gpus)
            message = f"{pool.name}: {platform.title} cuts every GPU of a node pool into one profile, not {wanted}"
            yield Diagnostic("RS4015", message, hint="machines of one GPU, or a platform with the GPU Operator")


def _deployment_mistakes(model: PlannedModel, deployment: Deployment, pool: Pool) -> Iterator[Diagnostic]:
    name, engine = deployment.id, deployment.engine
    gpus = deployment.gpus_per_replica
    if is_shared(deployment):
        yield from _shared_mistakes(deployment, pool)
    elif not _MIG_PROFILE.fullmatch(deployment.partition) and deployment.partition != WHOLE:
        yield Diagnostic("RS4007", f'{name}: sharing a GPU by "{deployment.partition}" is not emitted')
    elif is_slice(deployment):
        yield from _slice_mistakes(deployment, pool)
    if gpus < 1 or (gpus > pool.gpus_per_node and gpus % pool.gpus_per_node):
        message = f"{name}: {gpus} GPUs a replica do not divide over nodes of {pool.gpus_per_node}"
        yield Diagnostic("RS2006", message)
    if not 0 < engine.port < 65536:
        yield Diagnostic("RS0106", f"{name}: port {engine.port} does not exist")
    if engine.image and not _PINNED_IMAGE.fullmatch(engine.image):
        message = f'{name}: image "{engine.image[:120]}" is not pinned'
        yield Diagnostic("RS0106", message, hint="add a version tag or a digest")
    if model.source.startswith("-"):
        yield Diagnostic("RS0303", f'{name}: model source "{model.source[:80]}" would be read as a flag')


def _shared_mistakes(deployment: Deployment, pool: Pool) -> Iterator[Diagnostic]:
    """More than one place brings no more of the GPU, and may be the same GPU twice (k8s-device-plugin#929, #491)."""
    name = deployment.id
    if deployment.partition != pool.sharing:
        message = f"{name}: {deployment.partition} on pool {pool.name}, whose GPUs are not shared so"
        yield Diagnostic("RS4015", message)
    if deployment.gpus_per_replica > 1:
        message = f"{name}: one replica cannot have {deployment.gpus_per_replica} places on shared GPUs"
        yield Diagnostic("RS2006", message, hint="one place per replica, or whole GPUs")


def _slice_mistakes(deployment: Deployment, pool: Pool) -> Iterator[Diagnostic]:
    """One CUDA process sees one MIG instance and instances have no link (vllm#7211, nccl#1716)."""
    name, engine = deployment.id, deployment.engine
    if deployment.gpus_per_replica > 1:
        message = f"{name}: one replica cannot span {deployment.gpus_per_replica} MIG slices"
        yield Diagnostic("RS2006", message, hint="one slice per replica, or whole GPUs")
    platform = platforms()[pool.platform]
    made = platform.partitions(pool.accelerator)
    if deployment.partition not in made:
        message = f"{name}: {platform.title} cannot cut {pool.accelerator} into {deployment.partition}"
        yield Diagnostic("RS4015", message, hint=did_you_mean(deployment.partition, made) or "whole GPUs")
    since = launch(engine.name).mig_from
    if since and not at_least(engine.version, since):
        message = f"{name}: {engine.name} {engine.version} does not support MIG"
        yield Diagnostic("RS4010", message, hint=f"{since} or later")
