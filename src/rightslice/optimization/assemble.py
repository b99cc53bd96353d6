"""A solved proposal and its evidence -> the parts of the plan document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.estimate import Estimate
from rightslice.core.plan import (
    Deployment,
    Engine,
    Expected,
    LayoutUse,
    Placement,
    PlannedGateway,
    PlannedModel,
    PlannedPipeline,
    Pool,
    Purchase,
    Replicas,
    Slot,
)
from rightslice.core.rates import RateTable
from rightslice.optimization.evidence import Evidence
from rightslice.optimization.needs import Need
from rightslice.optimization.options import Option, Share
from rightslice.optimization.propose import Market, Proposal
from rightslice.packing.place import place
from rightslice.packing.problem import GpuLayout

CUSTOM_ENGINE = Engine("custom", "", "", {}, 8000, "/health", "/metrics")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The hardware half of a plan."""

    pools: tuple[Pool, ...]
    placements: tuple[Placement, ...]
    deployments: Mapping[str, tuple[Deployment, ...]]


def fleet(
    proposal: Proposal, options: Mapping[str, Option], needs: Sequence[Need], rates: RateTable, market: Market
) -> Fleet:
    """Name the deployments, expand counts to GPUs, describe the pools."""
    identifiers = _deployment_ids(proposal)
    deployments = {
        need.name: tuple(
            _deployment(need, options[option], pool, count, identifiers[pool, option], rates)
            for (pool, option), count in sorted(proposal.packing.replicas.items())
            if count > 0 and options[option].model == need.name
        )
        for need in needs
    }
    return Fleet(_pools(proposal, options, market), _placements(proposal, options, identifiers), deployments)


def _deployment_ids(proposal: Proposal) -> dict[tuple[str, str], str]:
    """(pool, option) -> a unique name: the model's, numbered when the model runs in more than one way."""
    by_model: dict[str, list[tuple[str, str]]] = {}
    for key, count in sorted(proposal.packing.replicas.items()):
        if count > 0:
            by_model.setdefault(key[1].split("/")[0], []).append(key)
    named = {keys[0]: model for model, keys in by_model.items() if len(keys) == 1}
    taken = set(by_model)
    for model, keys in by_model.items():
        number = 0
        for key in keys if len(keys) > 1 else ():
            number += 1
            while f"{model}-{number}" in taken:
                number += 1
            named[key] = f"{model}-{number}"
            taken.add(named[key])
    return named


def _deployment(need: Need, option: Option, pool: str, count: int, identifier: str, rates: RateTable) -> Deployment:
    rate = rates.rates.get(option.key)
    capacity = (
        Estimate.within(rate.requests_per_s, option.relative_error, rate.provenance)
        if rate and rate.requests_per_s > 0
        else None
    )
    return Deployment(
        id=identifier,
        role="unified",
        pool=pool,
        accelerator=option.accelerator,
        partition=option.partition,
        gpus_per_replica=option.gpus,
        replicas=Replicas(min=min(count, need.min_replicas), steady=count, max=count),
        engine=_engine(option, need.source),
        memory=option.memory,
        max_rate=capacity,
        provenance=option.provenance,
    )


def _engine(option: Option, source: str) -> Engine:
    if option.settings is None:
        return CUSTOM_ENGINE
    facts = engine(option.settings.engine)
    return Engine(
        name=facts.name,
        version=option.settings.version,
        image=facts.image(option.settings.version),
        args=facts.arguments(
            option.settings, source, quantise=option.precision_lowered, override=option.cache_overridden
        ),
        port=facts.port,
        health_path=facts.health_path,
        metrics_path=facts.metrics_path,
        settings=option.settings,
    )


def _pools(proposal: Proposal, options: Mapping[str, Option], market: Market) -> tuple[Pool, ...]:
    described = []
    shares = {
        pool: share for (pool, key), n in proposal.packing.replicas.items() if n and (share := options[key].share)
    }
    specs = {pool.key: pool for pool in proposal.problem.pools}
    for key, nodes in sorted(proposal.packing.nodes.items()):
        if nodes <= 0:
            continue
        offer = proposal.offer_of[key]
        machine = offer.machine
        menu = {layout.name: layout for layout in specs[key].layouts}
        one_layout = len(menu) == 1  # such a pool is cut alike everywhere, idle GPUs too
        used = tuple(
            LayoutUse(
                name,
                nodes * specs[key].gpus_per_node if one_layout else gpus,
                {} if name == WHOLE else _profiles(menu[name], shares.get(key)),
            )
            for (pool, name), gpus in sorted(proposal.packing.layouts.items())
            if pool == key and gpus > 0
        )
        described.append(
            Pool(
                name=key,
                provider=machine.provider,
                region=machine.region,
                platform=market.platform_of[machine.provider],
                machine_type=machine.machine_type,
                accelerator=machine.accelerator,
                gpus_per_node=int(machine.accelerator_count),
                nodes=nodes,
                nodes_max=nodes,
                purchase=Purchase(offer.capacity, offer.price),
                hourly_usd=offer.usd_per_hour,
                price_date=machine.price_date,
                price_quality=machine.quality,
                sharing=shares[key].mode if key in shares else "mig" if any(use.profiles for use in used) else "none",
                layouts=used,
                host_architecture=machine.host_architecture,
                fabric=machine.fabric,
            )
        )
    return tuple(described)


def _profiles(layout: GpuLayout, share: Share | None) -> dict[str, int]:
    """MIG profile -> instances, or the way the GPU is shared -> replicas on it."""
    return {share.mode: share.slots} if share else dict(layout.profiles)


def _placements(
    proposal: Proposal, options: Mapping[str, Option], identifiers: Mapping[tuple[str, str], str]
) -> tuple[Placement, ...]:
    placed = []
    accelerators = {pool.key: pool.accelerator for pool in proposal.problem.pools}
    only = {pool.key: pool.layouts[0].name for pool in proposal.problem.pools if len(pool.layouts) == 1}
    for gpu in place(proposal.problem, proposal.packing):
        whole = device(accelerators[gpu.pool])
        slots = tuple(
            Slot(
                partition=options[slot.option].partition,
                start=slot.start,
                model=options[slot.option].model,
                deployment=identifiers[gpu.pool, slot.option],
                replica=slot.replica,
                memory_bytes=options[slot.option].device.memory_bytes,
                used_bytes=options[slot.option].memory.used_bytes,
            )
            for slot in gpu.slots
        )
        layout = only.get(gpu.pool, gpu.layout)
        placed.append(Placement(gpu.pool, gpu.node, gpu.gpu, whole.memory_bytes, slots, layout))
    return tuple(placed)


def _load_per_s(need: Need, evidence: Evidence) -> float:
    """Planned rate of its own classes and the rate of the busiest population, as simulated, for each visit."""
    of = {(share.pipeline.name, share.users_name): share.visits for share in need.shares}
    busiest = max(
        (found.requests_per_s * of.get((found.pipeline, found.users), 0) for found in evidence.pipelines), default=0.0
    )
    return need.planned_rate_per_s + busiest


def planned_models(needs: Sequence[Need], made: Fleet, evidence: Evidence) -> tuple[PlannedModel, ...]:
    """One entry per model of the workload, in its order."""
    planned = []
    for need in needs:
        found = evidence.models.get(need.name)
        deployments = made.deployments[need.name]
        rates = [d.max_rate for d in deployments if d.max_rate]
        planned.append(
            PlannedModel(
                name=need.name,
                source=need.source,
                task=need.model.task,
                replicas=sum(d.replicas.steady for d in deployments),
                rate_per_s=_load_per_s(need, evidence),
                expected=Expected(
                    found.ttft_ms if found else None,
                    found.tpot_ms if found else None,
                    found.e2e_ms if found else None,
                    rates[0] if rates else None,
                ),
                slos=found.slos if found else (),
                slo_met=all(slo.met for slo in found.slos) if found else True,
                slo_probability=found.probability if found else None,
                deployments=deployments,
                prefix_hits=found.prefix_hits if found else (),
                gateway=_gateway(need),
            )
        )
    return tuple(planned)


def _gateway(need: Need) -> PlannedGateway | None:
    gated = need.model.gated
    if gated is None:
        return None
    return PlannedGateway(gated.flow_control, {traffic.name: traffic.priority for traffic in need.model.traffic})


def planned_pipelines(needs: Sequence[Need], evidence: Evidence) -> tuple[PlannedPipeline, ...]:
    """One entry per population of each pipeline."""
    shares = {(s.pipeline.name, s.users_name): s for need in needs for s in need.shares}
    return tuple(
        PlannedPipeline(
            name=found.pipeline,
            users=found.users,
            concurrent_users=shares[found.pipeline, found.users].users.concurrent,
            stages=shares[found.pipeline, found.users].pipeline.stages,
            requests_per_s=found.requests_per_s,
            e2e_ms=found.e2e_ms,
            slos=found.slos,
        )
        for found in evidence.pipelines
    )
