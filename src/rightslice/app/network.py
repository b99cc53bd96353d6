"""Where clients are, where they are served, and what the way between takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rightslice.catalogue.machines import machines
from rightslice.catalogue.regions import located, locations, round_trip_s
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.plan import Pool
from rightslice.core.quantities import format_seconds
from rightslice.core.rng import generator
from rightslice.procurement.refusals import ON_PREMISES
from rightslice.simulation.scenario import LlmServer, Network, OpenClass, Routing, StageServer
from rightslice.spec.workload import Workload

_NEAREST = 3


def client_regions(workload: Workload) -> tuple[str, ...]:
    """Every region that a class names in `from`, sorted."""
    return tuple(sorted({name for model in workload.models for c in model.traffic for name in c.clients}))


def way_s(workload: Workload, client: str, region: str, *, known: bool = True) -> float:
    """Round trip between a client's region and a serving one: as the workload states it, or from the distance.

    `known` of False: the serving region has no known place whatever its name is. Raises BadInputError RS0314.
    """
    for stated in workload.fleet.network:
        if {stated.one, stated.other} == {client, region}:
            return stated.round_trip
    found = round_trip_s(client, region) if known else None
    if found is None:
        unknown = region if client in locations() else client
        message = f"no place of {unknown} is known, nor the network between {client} and {region}"
        hint = f"fleet: {{network: [{{from: {client}, to: {region}, round_trip: 90ms}}]}}, as you measured it"
        raise BadInputError(Diagnostic("RS0314", message, hint=hint))
    return found


def planned_network(workload: Workload) -> Network | None:
    """For planning, before anybody knows where: every client is served in the farthest of `fleet.regions`.

    Raises BadInputError RS0202 where classes say where their clients are and the fleet does not say where to serve.
    """
    clients = client_regions(workload)
    if not clients:
        return None
    regions = _to_serve(workload)
    ways = np.array([[max(way_s(workload, client, region) for region in regions)] for client in clients])
    where = regions[0] if len(regions) == 1 else f"the farthest of {', '.join(regions)}"
    return Network(clients, (where,), ways)


def _to_serve(workload: Workload) -> tuple[str, ...]:
    fleet = workload.fleet
    if fleet.regions:
        return fleet.regions
    if fleet.providers == (ON_PREMISES,):
        return (ON_PREMISES,)
    near = ", ".join(nearest_regions(workload))
    message = '"from" says where clients are, and nothing says where to serve them'
    raise BadInputError(Diagnostic("RS0202", message, hint=f"name fleet.regions; near to most of them: {near}"))


def nearest_regions(workload: Workload) -> tuple[str, ...]:
    """Regions that sell accelerators of the fleet's providers, those near to most clients first.

    None where no class says where its clients are.
    """
    shares = [pair for model in workload.models for c in model.traffic for pair in c.clients.items()]
    providers = workload.fleet.providers
    sold = {
        m.region for m in machines() if m.provider in (providers or (m.provider,)) and located(m.provider, m.region)
    }
    means = {r: sum(s * (round_trip_s(client, r) or 0.0) for client, s in shares) for r in sold} if shares else {}
    return tuple(sorted(means, key=lambda region: (means[region], region))[:_NEAREST])


def placed(
    workload: Workload, servers: Sequence[LlmServer | StageServer], pools: Mapping[str, Pool]
) -> tuple[Network | None, tuple[LlmServer | StageServer, ...]]:
    """The ways to the regions of the servers' pools (by deployment), and the servers in them; None without `from`."""
    clients = client_regions(workload)
    if not clients or not servers:
        return None, tuple(servers)
    where = [pools[server.deployment] for server in servers]
    providers = {pool.region: pool.provider for pool in where}
    ways = [
        [way_s(workload, client, region, known=located(provider, region)) for region, provider in providers.items()]
        for client in clients
    ]
    regions = tuple(providers)
    network = Network(clients, regions, np.array(ways))
    return network, tuple(replace(s, region=regions.index(p.region)) for s, p in zip(servers, where, strict=True))


def near_first(servers: Sequence[LlmServer | StageServer], stated: Mapping[str, Routing]) -> dict[str, Routing]:
    """Model -> its router: as stated, else one that prefers near replicas where they are in several regions."""
    regions: dict[str, set[int]] = {}
    for server in servers:
        regions.setdefault(server.model, set()).add(server.region)
    return {model: Routing("nearest") for model, found in sorted(regions.items()) if len(found) > 1} | dict(stated)


def network_notes(workload: Workload, network: Network | None) -> Iterator[str]:
    """What was counted, by region of clients and of servers."""
    if network is None:
        return
    stated = {frozenset((found.one, found.other)) for found in workload.fleet.network}
    for client, ways in zip(network.clients, network.round_trip_s.tolist(), strict=True):
        for region, way in zip(network.regions, ways, strict=True):
            known = "as stated" if {client, region} in stated else "estimated from the distance"
            where = f"{client} to {region}"
            if client != region:
                yield f"network: {format_seconds(way)} from {where}, there and back, {known}"


def with_clients(workload: Workload, classes: Sequence[OpenClass], seed: int) -> tuple[OpenClass, ...]:
    """Classes with the place that each request comes from, drawn by the shares of `from`."""
    names = client_regions(workload)
    shares = {(model.name, c.name): c.clients for model in workload.models for c in model.traffic}
    return tuple(_drawn(found, names, shares[found.model, found.name], seed) for found in classes)


def _drawn(found: OpenClass, names: Sequence[str], shares: Mapping[str, float], seed: int) -> OpenClass:
    if not shares:
        return found
    chances = np.array([shares.get(name, 0.0) for name in names])
    rng = generator(seed, "clients", found.model, found.name)
    return replace(found, clients=rng.choice(len(names), size=len(found.arrivals), p=chances / chances.sum()))
