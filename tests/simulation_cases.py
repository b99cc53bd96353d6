"""Random scenarios for the simulator: small, and full of the cases that go wrong (ties, starved caches, one-token
answers, blocks of one token, a budget no larger than the batch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.performance.sharing import Mode, Tenant
from rightslice.simulation import (
    ClosedPipeline,
    Gateway,
    LlmServer,
    Network,
    OpenClass,
    Routing,
    Scenario,
    ShareGroup,
    StageLengths,
    StageServer,
)
from rightslice.simulation.play import Condition
from rightslice.simulation.scenario import Admission, Policy, Prefixes
from rightslice.traffic.arrivals import Arrivals

T = TypeVar("T")


def arrivals(times: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> Arrivals:
    as_ints = [np.array(column, dtype=np.int64) for column in (times, inputs, outputs)]
    return Arrivals(as_ints[0], np.zeros(len(times), dtype=np.int32), as_ints[1], as_ints[2])


def any_of(numbers: np.random.Generator, *choices: T) -> T:
    return choices[int(numbers.integers(len(choices)))]


def random_engine(numbers: np.random.Generator, name: str, model: str) -> LlmServer:
    budget = any_of(numbers, 1, 2, 3, 8, 64, 256)
    tokens = np.concatenate([[0], np.cumsum(numbers.integers(0, 50, budget))])
    admissions: tuple[Admission, ...] = ("prompt", "prompt", "prompt", "answer", "estimate")
    kv, attention, sequence, step = (int(x) for x in numbers.integers(0, 30, 4))
    longest = any_of(numbers, 20, 10**6, 10**6)
    return LlmServer(
        deployment=name,
        model=model,
        replicas=any_of(numbers, 1, 1, 2, 3),
        costs=StepCosts(tokens, kv, attention, sequence, step + 1, 7, 0.4, "first-principles"),
        kv_blocks=any_of(numbers, 3, 6, 12, 20, 40, 400),
        block_size_tokens=any_of(numbers, 1, 2, 5, 16),
        max_num_seqs=any_of(numbers, 1, 2, 5, 64, budget),
        max_num_batched_tokens=budget,
        max_model_len=longest,
        admission=any_of(numbers, *admissions),
        prefix_caching=any_of(numbers, True, False, False),
        chunked_prefill=longest > budget or any_of(numbers, True, False),
        prefill_first=budget in (3, 64),
    )


def random_stage(numbers: np.random.Generator, name: str) -> StageServer:
    latency = np.concatenate([[0], np.cumsum(numbers.integers(1, 400, any_of(numbers, 1, 4)))])
    delay_s = any_of(numbers, None, None, 0.0, 3e-10, 2e-9)
    return StageServer(name, name, any_of(numbers, 1, 2), StageCosts(latency, 0.4, "measured"), delay_s)


def random_class(numbers: np.random.Generator, name: str, model: str) -> OpenClass:
    n, gap = any_of(numbers, 1, 5, 20, 40), any_of(numbers, 0, 30, 300, 4000)
    inputs, outputs = numbers.integers(1, any_of(numbers, 2, 8, 30, 90) + 1, (2, n))
    if any_of(numbers, True, False, False):
        outputs[:] = 1
    if any_of(numbers, True, False, False, False):
        inputs[:], outputs[:] = any_of(numbers, 1, 3, 10), any_of(numbers, 5, 20, 60)
    times = np.sort(numbers.integers(0, n * gap + 1, n))
    priority, timeout_s = any_of(numbers, 0, 0, 1, -1), any_of(numbers, None, None, 1e-10, 1e-9, 1e-8)
    asked = arrivals(times.tolist(), inputs.tolist(), outputs.tolist())
    return OpenClass(model, name, asked, priority=priority, timeout_s=timeout_s)


def with_prefixes(numbers: np.random.Generator, scenario: Scenario, model: str) -> Scenario:
    """The same with prompts of `model` that follow one of three texts, perhaps alike at first, for a while."""
    block = any_of(numbers, 1, 2, 5)
    tokens = block * any_of(numbers, 1, 2)
    servers = tuple(
        replace(s, block_size_tokens=block, prefix_caching=any_of(numbers, True, True, False))
        if isinstance(s, LlmServer) and s.model == model
        else s
        for s in scenario.servers
    )
    classes, alike = [], any_of(numbers, 0, 0, 3, 7)
    for traffic in scenario.classes:
        n = len(traffic.arrivals)
        texts, lengths = numbers.integers(0, 3, n), numbers.integers(0, 12, n)
        ids = [
            (100 * text if at >= alike else 0) + at
            for text, length in zip(texts, lengths, strict=True)
            for at in range(length)
        ]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        prefixes = Prefixes(tokens, starts, np.array(ids, dtype=np.int64))
        classes.append(replace(traffic, prefixes=prefixes) if traffic.model == model else traffic)
    return replace(scenario, servers=servers, classes=tuple(classes))


def random_pipeline(numbers: np.random.Generator, name: str, models: Sequence[str]) -> ClosedPipeline:
    stages = tuple(any_of(numbers, *models) for _ in range(any_of(numbers, 1, 2, 3)))
    lengths = tuple(
        None if stage == "stage" else StageLengths(numbers.integers(1, 20, 5), numbers.integers(1, 20, 5))
        for stage in stages
    )
    think_s, ramp_up_s = any_of(numbers, 0.0, 1e-10, 2e-9), any_of(numbers, 0.0, 1e-9)
    users, priority = any_of(numbers, 1, 3, 10), any_of(numbers, 0, 0, 2)
    return ClosedPipeline(name, "u", stages, users, think_s, ramp_up_s, 3e-8, 0.0, (), lengths, priority)


def random_routing(numbers: np.random.Generator) -> Routing:
    policies: tuple[Policy, ...] = ("least-requests", "least-requests", "round-robin", "two-choices", "score")
    policy = any_of(numbers, *policies)
    weights = any_of(numbers, (1.0, 1.0, 0.0), (0.0, 1.0, 2.0), (0.3, 7.0, 1.0))
    return Routing(policy, *weights, any_of(numbers, 0.0, 3e-10, 1e-8), int(numbers.integers(100)))


def random_scenario(seed: int) -> Scenario:
    """A few replicas of one or two models, perhaps a stage, open classes and pipelines; a few hundred steps."""
    numbers = np.random.default_rng(seed)
    models = ["a", "b"][: any_of(numbers, 1, 1, 2)]
    servers: list[LlmServer | StageServer] = [
        random_engine(numbers, f"{model}{k}", model) for model in models for k in range(any_of(numbers, 1, 1, 2))
    ]
    if any_of(numbers, True, False):
        servers.insert(int(numbers.integers(len(servers) + 1)), random_stage(numbers, "stage"))
        models.append("stage")
    classes = tuple(
        random_class(numbers, f"c{k}", any_of(numbers, *models)) for k in range(any_of(numbers, 0, 1, 1, 2))
    )
    pipelines = tuple(random_pipeline(numbers, f"p{k}", models) for k in range(any_of(numbers, 0, 0, 1, 2)))
    horizon_s = any_of(numbers, 1e-6, 3e-8, 5e-9, 1e-6 if pipelines else 1.0)
    routing = {model: random_routing(numbers) for model in models}
    retries = any_of(numbers, 0, 1, 2)
    scenario = Scenario(tuple(servers), classes, pipelines, horizon_s, routing=routing, retries=retries)
    return with_prefixes(numbers, scenario, "a") if any_of(numbers, True, False) else scenario


def random_tenant(numbers: np.random.Generator) -> Tenant:
    sm_bound, bandwidth_bound = numbers.random(2).round(3)
    return Tenant(1.0, float(sm_bound), float(bandwidth_bound), any_of(numbers, True, False))


def with_sharing(seed: int, scenario: Scenario) -> Scenario:
    """The same with some replicas on one GPU."""
    numbers = np.random.default_rng(seed)
    replicas = [(server.deployment, k) for server in scenario.servers for k in range(server.replicas)]
    numbers.shuffle(replicas)
    groups: list[ShareGroup] = []
    while replicas:
        members = tuple(replicas.pop() for _ in range(min(len(replicas), any_of(numbers, 1, 2, 2, 3))))
        tenants = tuple(random_tenant(numbers) for _ in members)
        mode: Mode = any_of(numbers, "time-slicing", "mps")
        groups.append(ShareGroup(mode, members, tenants, any_of(numbers, 1.0, 0.5)))
    return replace(scenario, sharing=tuple(groups[: any_of(numbers, 1, 3)]))


def with_gateways(seed: int, scenario: Scenario) -> Scenario:
    """The same behind gateways that are soon saturated; some of the users may be shed, too."""
    numbers = np.random.default_rng(seed)
    gateways = {
        server.model: Gateway(any_of(numbers, 0, 1, 5), any_of(numbers, 0.3, 0.8, 1.0), any_of(numbers, True, False))
        for server in scenario.servers
    }
    pipelines = tuple(replace(p, priority=any_of(numbers, p.priority, -1)) for p in scenario.pipelines)
    classes = tuple(replace(c, priority=any_of(numbers, c.priority, c.priority, -1, 2)) for c in scenario.classes)
    return replace(scenario, gateways=gateways, pipelines=pipelines, classes=classes)


def disaggregated(seed: int, scenario: Scenario) -> Scenario:
    """The same, where the engines of model `a` compute prompts and those of a model of its own the answers."""
    numbers = np.random.default_rng(seed)
    then, servers = "a/decode", list(scenario.servers)
    for at, server in enumerate(scenario.servers):
        if isinstance(server, LlmServer) and server.model == "a":
            link = f"{server.deployment}/link"
            servers[at] = replace(server, link=link, admission="prompt")
            costs = StageCosts(np.array([0, any_of(numbers, 1, 50)]), 0.4, "measured")
            token_ps = any_of(numbers, 0, 3, 100)
            servers.append(StageServer(link, "a/link", server.replicas, costs, 0.0, token_ps=token_ps, then_model=then))
    decode = random_engine(numbers, "answers", then)
    return replace(scenario, servers=(*servers, replace(decode, prefix_caching=False)))


def with_network(seed: int, scenario: Scenario) -> Scenario:
    """The same with servers in two regions, clients in three places, and routers that prefer near replicas."""
    numbers = np.random.default_rng(seed)
    servers = tuple(replace(server, region=int(numbers.integers(2))) for server in scenario.servers)
    classes = tuple(
        replace(c, clients=numbers.integers(0, 3, len(c.arrivals)) if any_of(numbers, True, True, False) else None)
        for c in scenario.classes
    )
    routing = {s.model: Routing("nearest", spill_queue=any_of(numbers, 0, 1, 5)) for s in servers}
    network = Network(("x", "y", "z"), ("a", "b"), np.asarray(numbers.integers(0, 3, (3, 2)) * 1e-9))
    return replace(scenario, servers=servers, classes=classes, routing=routing, network=network)


Orders = tuple[int, dict[int, Condition], dict[int, float]]
"""Time in ps, conditions by replica, slowdowns by replica."""


def random_orders(seed: int, replicas: int, horizon_ps: int) -> list[Orders]:
    """What a control plane might do to `replicas` replicas, sorted by time; some orders come at once."""
    numbers = np.random.default_rng(seed)
    conditions: tuple[Condition, ...] = ("ready", "ready", "draining", "gone", "gone")
    span_ps = min(horizon_ps, any_of(numbers, 10**3, 10**4, 10**5))
    orders: list[Orders] = []
    for when_ps in sorted(numbers.integers(0, span_ps + 1, any_of(numbers, 1, 3, 10)).tolist()):
        chosen = numbers.random((2, replicas)) < 0.4
        new = {int(r): any_of(numbers, *conditions) for r in np.flatnonzero(chosen[0])}
        slow = {int(r): any_of(numbers, 1.0, 1.3, 2.5) for r in np.flatnonzero(chosen[1])}
        orders.append((int(when_ps), new, slow if any_of(numbers, True, False) else {}))
    return orders
