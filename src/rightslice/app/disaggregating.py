"""Replicas of a plan split into those that compute prompts and those that compute answers, and the links between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rightslice.app.replicas import Server
from rightslice.catalogue.machines import machines
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Pool
from rightslice.core.quantities import format_seconds
from rightslice.core.results import ClassResult, Distribution, SimulationResult
from rightslice.memory.cache import growing_bytes_per_token, indexer_bytes_per_token, windowed_bytes_per_token
from rightslice.performance.costs import StageCosts
from rightslice.simulation.scenario import LlmServer, StageServer
from rightslice.spec.disaggregation import Disaggregation

_PS_PER_S = 1e12
_BITS = 8.0


@dataclass(frozen=True, slots=True)
class Split:
    """How one model is split: its deployment, what a token's KV cache weighs, and at what rate it is sent."""

    model: str
    deployment: str
    asked: Disaggregation
    kv_bytes_per_token: float
    link_gbps: float
    stated: bool

    @property
    def token_ps(self) -> int:
        """Time on the link for each token."""
        return round(self.kv_bytes_per_token * _BITS / (self.link_gbps * 1e9) * _PS_PER_S)


def split_of(model: str, asked: Disaggregation, servers: Mapping[str, Server], pools: Mapping[str, Pool]) -> Split:
    """The split of a model's deployment. Raises BadInputError RS0502 where it cannot be split or no rate is known."""
    mine = [(key, found) for key, found in servers.items() if found.option.model == model]
    key, found = mine[0]
    settings, architecture, option = found.option.settings, found.need.architecture, f"models.{model}.disaggregation"
    if settings is None or architecture is None or found.option.share or found.option.engines > 1:
        message = f"{option}: only a language model on GPUs of its own, without data parallelism, is split"
        raise BadInputError(Diagnostic("RS0502", message, hint="leave it aggregated"))
    if len(mine) > 1:
        message = f"{option}: the plan runs {model} as {len(mine)} deployments, one is split"
        raise BadInputError(Diagnostic("RS0502", message, hint="plan it on one accelerator"))
    dtype = settings.kv_dtype
    parts = (growing_bytes_per_token, indexer_bytes_per_token, windowed_bytes_per_token)
    kv_bytes = sum(part(architecture, dtype) for part in parts)
    gbps = asked.link_gbps or _network_gbps(found, pools[found.deployment.pool])
    if gbps is None:
        message = f"{option}: the network of {pools[found.deployment.pool].machine_type} is not in the catalogue"
        raise BadInputError(Diagnostic("RS0502", message, hint="state link_gbps, what one prefill replica sends with"))
    return Split(model, key, asked, kv_bytes, gbps, asked.link_gbps is not None)


def _network_gbps(found: Server, pool: Pool) -> float | None:
    """The replica's part, by GPUs, of its machine's network."""
    place = (pool.provider, pool.region, pool.machine_type)
    rows = (m for m in machines() if (m.provider, m.region, m.machine_type) == place)
    whole = next((m.nic_gbps for m in rows if m.nic_gbps), None)
    return whole * found.option.gpus / pool.gpus_per_node if whole else None


def split_servers(
    built: Sequence[LlmServer | StageServer], splits: Mapping[str, Split], slots: Mapping[str, int] | None = None
) -> tuple[LlmServer | StageServer, ...]:
    """Servers with those of split models in three: who computes prompts, the links, and who computes answers.

    `slots`: deployment -> replicas that a control plane may use at one time; None: as many as are asked for.
    """
    room = slots or {}
    found: list[LlmServer | StageServer] = []
    for server in built:
        split = splits.get(server.model)
        if split is None or not isinstance(server, LlmServer):
            found.append(server)
            continue
        name, then = server.deployment, f"{server.model}/decode"
        link = f"{name}/link"
        prefill = room.get(f"{name}/prefill", split.asked.prefill)
        decode = room.get(f"{name}/decode", split.asked.decode)
        costs = StageCosts(np.array([0, 1]), 0.0, "first-principles")
        found.append(replace(server, deployment=f"{name}/prefill", replicas=prefill, link=link))
        found.append(
            StageServer(
                link, f"{server.model}/link", prefill, costs, 0.0, server.region, split.token_ps, then_model=then
            )
        )
        apart = replace(server, deployment=f"{name}/decode", model=then, replicas=decode, prefix_caching=False)
        found.append(apart)
    return tuple(found)


def split_apart(servers: Mapping[str, Server], splits: Mapping[str, Split]) -> dict[str, Server]:
    """Deployment -> what runs, as a control plane sees it: prefill and decode are deployments of their own."""
    found: dict[str, Server] = {}
    for key, one in servers.items():
        split = splits.get(one.option.model)
        if split is None:
            found[key] = one
            continue
        for role, count in (("prefill", split.asked.prefill), ("decode", split.asked.decode)):
            apart = replace(one.deployment, id=f"{key}/{role}", role=role)  # type: ignore[arg-type]
            found[apart.id] = replace(one, deployment=apart, replicas=count)
    return found


def sizes(replicas: Mapping[str, int], splits: Mapping[str, Split]) -> dict[str, int]:
    """Deployment -> replicas, as `split_servers` names them; links are none of them."""
    found: dict[str, int] = {}
    by_deployment = {split.deployment: split for split in splits.values()}
    for name, count in replicas.items():
        split = by_deployment.get(name)
        parts = {name: count} if split is None else {f"{name}/prefill": split.asked.prefill}
        found |= parts if split is None else parts | {f"{name}/decode": split.asked.decode}
    return found


def split_notes(
    splits: Mapping[str, Split], apart: Sequence[SimulationResult], together: Sequence[SimulationResult]
) -> Iterator[str]:
    """What moves over the links, and the same traffic on as many replicas that do both."""
    before = {(c.model, c.traffic_class): c for result in together for c in result.per_class}
    for c in (found for result in apart for found in result.per_class):
        split = splits.get(c.model)
        if split is None:
            continue
        whose = "as stated" if split.stated else "the replica's part of its machine's network"
        rate = f"{split.kv_bytes_per_token / 1e6:.3g} MB a token at {split.link_gbps:g} Gbit/s, {whose}"
        count = split.asked.prefill + split.asked.decode
        subject, same = f"{c.model}/{c.traffic_class}", before.get((c.model, c.traffic_class))
        yield f"{subject}: KV transfer {_both(c.transfer_ms)} (p50 / p95): {rate}"
        if same is not None:
            yield f"{subject}: aggregated, on {count} replicas: {_figures(same)}"


def _figures(found: ClassResult) -> str:
    met = f"{found.slo_attainment:.1%} meet their objectives"
    return f"TTFT {_both(found.ttft_ms)}, TPOT {_both(found.tpot_ms)}, E2E {_both(found.e2e_ms)}, {met}"


def _both(found: Distribution | None) -> str:
    return f"{format_seconds(found.p50 / 1e3)} / {format_seconds(found.p95 / 1e3)}" if found else "-"
