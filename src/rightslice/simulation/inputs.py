"""Scenario -> the state of a run before its first event (layout.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rightslice.core.rng import generator
from rightslice.simulation import layout
from rightslice.simulation.expectation import FIRST_RATIO
from rightslice.simulation.layout import Floats, Ints, Nodes, State
from rightslice.simulation.prefix_ids import PrefixBlocks, prefix_blocks
from rightslice.simulation.scenario import Admission, LlmServer, Policy, Routing, Scenario, StageServer

PS_PER_S = 1e12


class OpenRequests(NamedTuple):
    """The open-loop requests up to the horizon, sorted by time, then by class and row (in the class's arrivals).

    What no run changes is made once for all of them, the numbering of prefix blocks above all.
    """

    arrival_ps: Ints
    class_index: Ints
    prompt: Ints
    answer: Ints
    row: Ints
    prefixes: PrefixBlocks


def picoseconds(seconds: float) -> int:
    """Whole picoseconds, at most the kernel's NEVER."""
    return min(round(seconds * PS_PER_S), layout.NEVER)


def ordered_servers(scenario: Scenario) -> tuple[tuple[str, ...], tuple[LlmServer | StageServer, ...]]:
    """Model names (of servers first, then of traffic, in order of mention) and the servers grouped by model."""
    asked = [c.model for c in scenario.classes] + [stage for p in scenario.pipelines for stage in p.stages]
    names = tuple(dict.fromkeys([*(s.model for s in scenario.servers), *asked]))
    return names, tuple(server for name in names for server in scenario.servers if server.model == name)


def open_requests(scenario: Scenario) -> OpenRequests:
    """All classes' arrivals merged. Raises ValueError when classes of a model have prefix blocks of different sizes."""
    arrivals = [c.arrivals for c in scenario.classes]
    none = np.zeros(0, dtype=np.int64)
    times = np.concatenate([none, *(a.arrival_ps for a in arrivals)])
    index = np.concatenate([none, *(np.full(len(a.arrival_ps), i, dtype=np.int64) for i, a in enumerate(arrivals))])
    order = np.argsort(times, kind="stable")
    order = order[: np.searchsorted(times[order], picoseconds(scenario.horizon_s), side="right")]
    prompt = np.concatenate([none, *(a.input_tokens for a in arrivals)])
    answer = np.concatenate([none, *(a.output_tokens for a in arrivals)])
    row = np.concatenate([none, *(np.arange(len(a.arrival_ps), dtype=np.int64) for a in arrivals)])
    prefixes = prefix_blocks(scenario.classes, index[order], row[order], prompt[order])
    return OpenRequests(times[order], index[order], prompt[order], answer[order], row[order], prefixes)


def initial_state(scenario: Scenario, requests: OpenRequests) -> State:
    """Nothing has happened yet. Raises ValueError when an LLM stage of a pipeline has no token lengths."""
    names, servers = ordered_servers(scenario)
    facts, tables = _facts(servers)
    prefixes = requests.prefixes
    _share_prefixes(servers, facts, prefixes.block_tokens)
    _hand_on(names, servers, facts)
    ranks = _ranks(scenario)
    models, weights = _models(scenario, names, servers)
    pipelines, stages, samples = _pipelines(scenario, names, servers)
    pipelines[:, layout.PIPE_RANK] = [ranks[p.priority] for p in scenario.pipelines]
    users, user_start_ps = _users(scenario)
    r, u, jobs = len(facts), len(users), len(requests.arrival_ps) + len(users)
    width = int(min(max(facts[:, layout.STREAMS].max(initial=1), 1), max(jobs, 1)))
    cache = _cache(facts, int(prefixes.ids.max(initial=-1)) + 1, jobs)
    live = np.zeros((r, layout.LIVE), dtype=np.int64)
    live[:, [layout.FIRST, layout.LAST, layout.FRESH, layout.STALEST, layout.FRESHEST]] = layout.NOBODY
    live[:, layout.PAUSED] = layout.NOBODY
    live[:, layout.FREE] = facts[:, layout.KV_BLOCKS]
    live[:, layout.CONDITION] = layout.READY
    live[:, layout.RATIO] = FIRST_RATIO
    live[:, layout.NEW_CONDITION] = layout.NO_ORDER
    live[:, layout.ABLE_REPLICA] = np.arange(r)
    pace = np.zeros((r, layout.PACE), dtype=np.float64)
    pace[:, [layout.SLOWDOWN, layout.ORDERED, layout.SHARED]] = 1.0
    tenancy, groups, shares = _sharing(scenario, servers)
    clock = np.zeros(layout.CLOCK, dtype=np.int64)
    clock[layout.RETRY_LIMIT] = scenario.retries
    clock[layout.SHED_RANK] = sum(priority >= 0 for priority in ranks)
    clock[layout.HOLDING] = np.count_nonzero(models[:, layout.GATE] == layout.HOLDS)
    return State(
        arrival_ps=requests.arrival_ps,
        models=models,
        weights=weights,
        facts=facts,
        distances=distances_ps(scenario),
        tables=tables,
        pipelines=pipelines,
        stages=stages,
        samples=samples,
        clock=clock,
        agenda=_agenda(r, pipelines, users, user_start_ps),
        live=live,
        heads=np.full(r + len(names), layout.NOBODY, dtype=np.int64),
        tails=np.full((r + len(names), max(len(ranks), 1)), layout.NOBODY, dtype=np.int64),
        tenancy=tenancy,
        groups=groups,
        shares=shares,
        prefix_ids=prefixes.ids,
        holders=np.zeros(cache.shape[1] and cache.shape[1] - 2 * jobs, dtype=np.int64),
        cache=cache,
        uses=np.full(cache.shape[:2], layout.UNKNOWN, dtype=np.int32),
        pace=pace,
        slots=np.empty((r, width, 2), dtype=np.int64),
        residues=np.zeros((r, int(facts[:, layout.BLOCK_TOKENS].max(initial=1))), dtype=np.int64),
        jobs=_jobs(scenario, requests, names, prefixes, u),
        users=users,
        touched=np.zeros(r + 1, dtype=np.int64),
        done=np.zeros(width + 1, dtype=np.int64),
        goal=np.empty(jobs, dtype=np.float64),
        passes=np.empty((64 * u, layout.PASS_STAGES + 3 * stages.shape[1]), dtype=np.int64),
        totals=np.zeros((r, layout.TOTALS), dtype=np.int64),
    )


_ADMISSIONS: dict[Admission, int] = {
    "prompt": layout.GROWING,
    "answer": layout.WHOLE_ANSWER,
    "estimate": layout.ESTIMATE,
}
_POLICIES: dict[Policy, int] = {
    "least-requests": layout.LEAST_REQUESTS,
    "round-robin": layout.ROUND_ROBIN,
    "two-choices": layout.TWO_CHOICES,
    "score": layout.SCORE,
    "nearest": layout.NEAREST,
}


def _models(
    scenario: Scenario, names: tuple[str, ...], servers: tuple[LlmServer | StageServer, ...]
) -> tuple[Ints, Floats]:
    models = np.zeros((len(names), layout.MODEL), dtype=np.int64)
    weights = np.zeros((len(names), 4), dtype=np.float64)
    models[:, layout.READ_PS] = layout.NOT_YET
    behind = 0
    for row, weight, name in zip(models, weights, names, strict=True):
        routing = scenario.routing.get(name, Routing())
        count = sum(s.replicas for s in servers if s.model == name)
        row[layout.FIRST_REPLICA], row[layout.BEHIND], row[layout.ABLE] = behind, behind + count, count
        row[layout.SPILL_QUEUE] = routing.spill_queue
        near = routing.policy == "nearest" and scenario.network is None
        row[layout.POLICY] = layout.LEAST_REQUESTS if near else _POLICIES[routing.policy]
        row[layout.AGE_PS] = picoseconds(routing.signal_age_s)
        row[layout.RANDOM] = generator(routing.seed, "router", name).integers(2**62)
        weight[: layout.GATE_KV] = routing.queue_weight, routing.kv_weight, routing.prefix_weight
        gateway = scenario.gateways.get(name)
        if gateway is not None:
            row[layout.GATE] = layout.HOLDS if gateway.flow_control else layout.SHEDS
            row[layout.GATE_QUEUE], weight[layout.GATE_KV] = gateway.queue_depth, gateway.kv_use
        behind += count
    return models, weights


def _facts(servers: tuple[LlmServer | StageServer, ...]) -> tuple[Ints, Ints]:
    rows: list[list[int]] = []
    tables: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    offset = 0
    for server in servers:
        if isinstance(server, LlmServer):
            costs = server.costs
            table = costs.tokens_ps
            row = [layout.LLM, server.max_num_seqs, server.max_num_batched_tokens, server.kv_blocks]
            row += [server.block_size_tokens, server.max_model_len, offset, costs.kv_token_ps, costs.attention_ps]
            row += [costs.sequence_ps, costs.step_ps, costs.prefill_step_ps]
            row += [min(layout.LONGEST_RUN_PS, 2**62 // max(server.kv_blocks, 1))]
            row += [_ADMISSIONS[server.admission], 0, 0, 0, int(not server.chunked_prefill)]
            row += row[layout.KV_TOKEN_PS : layout.PREFILL_STEP_PS + 1]
            row += [int(server.prefill_first), server.region, 0, 0]
            if server.prefill_first:  # those admitted over several steps decode in one
                row[layout.STREAMS] = min(server.max_num_seqs, server.max_num_batched_tokens)
        else:
            table = server.costs.latency_ps
            batches = server.batch_delay_s is not None
            row = [layout.BATCH if batches else layout.STAGE, server.costs.max_streams, 0, 0, 1, 0, offset]
            row += [0] * (layout.FACTS - len(row))
            row[layout.DELAY_PS], row[layout.REGION] = picoseconds(server.batch_delay_s or 0.0), server.region
        rows += [row] * server.replicas
        tables.append(table)
        offset += len(table)
    facts = np.array(rows, dtype=np.int64).reshape(len(rows), layout.FACTS)
    facts[:, [layout.SENDS_TO, layout.THEN_MODEL]] = layout.NOBODY
    return facts, np.concatenate(tables)


def _hand_on(names: tuple[str, ...], servers: tuple[LlmServer | StageServer, ...], facts: Ints) -> None:
    """Note in `facts` who takes over jobs, replica by replica."""
    first, behind = {}, 0
    for server in servers:
        first[server.deployment] = behind
        behind += server.replicas
    for server in servers:
        rows = first[server.deployment] + np.arange(server.replicas)
        if isinstance(server, LlmServer) and server.link:
            facts[rows, layout.SENDS_TO] = first[server.link] + np.arange(server.replicas)
        if isinstance(server, StageServer) and server.then_model:
            facts[rows, layout.THEN_MODEL] = names.index(server.then_model)
            facts[rows, layout.KV_TOKEN_PS] = server.token_ps


def _sharing(scenario: Scenario, servers: tuple[LlmServer | StageServer, ...]) -> tuple[Ints, Ints, Floats]:
    """`tenancy`, `groups` and `shares`. A member that nobody is beside may still be slowed (`thread_share`)."""
    rows = {member: row for row, member in enumerate((s.deployment, k) for s in servers for k in range(s.replicas))}
    most = max((len(group.members) for group in scenario.sharing), default=0)
    tenancy = np.full((len(rows), 2), layout.NOBODY, dtype=np.int64)
    groups = np.full((len(scenario.sharing), layout.FIRST_MEMBER + most), layout.NOBODY, dtype=np.int64)
    shares = np.ones((len(rows) if most else 0, 2**most), dtype=np.float64)
    groups[:, layout.BUSY_MEMBERS] = 0
    for index, group in enumerate(scenario.sharing):
        for place, member in enumerate(group.members):
            row = rows[member]
            tenancy[row] = index, place
            groups[index, layout.FIRST_MEMBER + place] = row
            for mask in range(2 ** len(group.members)):
                busy = [other for other in range(len(group.members)) if mask >> other & 1]
                shares[row, mask] = group.slowdown(place, busy)
    return tenancy, groups, shares


def _pipelines(
    scenario: Scenario, names: tuple[str, ...], servers: tuple[LlmServer | StageServer, ...]
) -> tuple[Ints, Ints, Ints]:
    needs_tokens = {s.model for s in servers if isinstance(s, LlmServer)}
    longest = max((len(p.stages) for p in scenario.pipelines), default=0)
    pipelines = np.zeros((len(scenario.pipelines), layout.PIPE), dtype=np.int64)
    stages = np.zeros((len(scenario.pipelines), longest, 3), dtype=np.int64)
    samples = [np.ones((1, 2), dtype=np.int64)]  # entry 0 serves the stages without tokens
    behind = 1
    for p, pipeline in enumerate(scenario.pipelines):
        stop_s = pipeline.ramp_up_s + pipeline.hold_s
        most = layout.NEVER if pipeline.requests is None else pipeline.requests
        pipelines[p] = [len(pipeline.stages), picoseconds(pipeline.think_time_s), picoseconds(stop_s), 0, 0, most]
        for k, name in enumerate(pipeline.stages):
            drawn = pipeline.lengths[k] if pipeline.lengths else None
            if drawn is None:
                if name in needs_tokens:
                    raise ValueError(f"stage {name} of {pipeline.name} needs token lengths")
                stages[p, k] = [names.index(name), 0, 1]
                continue
            stages[p, k] = [names.index(name), behind, len(drawn.input_tokens)]
            samples.append(np.stack([drawn.input_tokens, drawn.output_tokens], axis=1).astype(np.int64))
            behind += len(drawn.input_tokens)
    return pipelines, stages, np.concatenate(samples)


def _users(scenario: Scenario) -> tuple[Ints, Ints]:
    counts = [p.concurrent for p in scenario.pipelines]
    users = np.zeros((sum(counts), 3), dtype=np.int64)
    users[:, layout.USER_PIPELINE] = np.repeat(np.arange(len(counts)), np.array(counts, dtype=np.int64))
    none = np.zeros(0, dtype=np.float64)
    starts = np.concatenate(
        [none, *(np.arange(p.concurrent) * (p.ramp_up_s / max(p.concurrent, 1)) for p in scenario.pipelines)]
    )
    return users, np.rint(starts * PS_PER_S).astype(np.int64)


def _jobs(
    scenario: Scenario, requests: OpenRequests, names: tuple[str, ...], prefixes: PrefixBlocks, users: int
) -> Ints:
    """Open-loop requests as they come; users' jobs are written when they are sent."""
    ranks, n = _ranks(scenario), len(requests.arrival_ps)
    jobs = np.zeros((n + users, layout.JOB), dtype=np.int64)
    jobs[:, [layout.FIRST_PS, layout.FINISH_PS, layout.HIT_TOKENS]] = layout.NOT_YET
    jobs[:, layout.SERVED] = layout.NOBODY
    asked = jobs[:n]
    asked[:, layout.NEEDED] = requests.prompt
    asked[:, layout.PROMPT] = requests.prompt
    asked[:, layout.LEFT] = requests.answer
    of_class = np.array([(names.index(c.model), ranks[c.priority]) for c in scenario.classes], dtype=np.int64)
    asked[:, [layout.ASKED_MODEL, layout.RANK]] = of_class.reshape(-1, 2)[requests.class_index]
    asked[:, layout.FIRST_ID] = prefixes.first
    asked[:, layout.IDS] = prefixes.full
    asked[:, layout.DEADLINE_PS] = _deadlines(scenario, requests)
    asked[:, layout.CLIENT] = clients_of(scenario, requests)
    return jobs


def distances_ps(scenario: Scenario) -> Ints:
    """Network round trips by place of the client and region; none without a network."""
    if scenario.network is None:
        return np.zeros((1, 1), dtype=np.int64)
    return np.rint(scenario.network.round_trip_s * PS_PER_S).astype(np.int64)


def clients_of(scenario: Scenario, requests: OpenRequests) -> Ints:
    """Where the client of each open-loop request is; 0 where a class does not say."""
    found = np.zeros_like(requests.row)
    for index, traffic in enumerate(scenario.classes):
        if traffic.clients is not None:
            mine = requests.class_index == index
            found[mine] = traffic.clients[requests.row[mine]]
    return found


def _deadlines(scenario: Scenario, requests: OpenRequests) -> Ints:
    """Until when each request waits; NEVER beyond the horizon."""
    timeout_ps = [layout.NEVER if c.timeout_s is None else picoseconds(c.timeout_s) for c in scenario.classes]
    spans = np.array(timeout_ps, dtype=np.int64)[requests.class_index]
    in_time = spans <= picoseconds(scenario.horizon_s) - requests.arrival_ps
    return np.where(in_time, requests.arrival_ps + np.where(in_time, spans, 0), layout.NEVER)


def _ranks(scenario: Scenario) -> dict[int, int]:
    """Priority -> rank, 0 for the highest."""
    priorities = {c.priority for c in scenario.classes} | {p.priority for p in scenario.pipelines}
    return {priority: rank for rank, priority in enumerate(sorted(priorities, reverse=True))}


def _share_prefixes(servers: tuple[LlmServer | StageServer, ...], facts: Ints, block_tokens: Mapping[str, int]) -> None:
    """Note in `facts` which replicas keep prefixes. Raises ValueError for blocks that are no multiple of theirs."""
    row = 0
    for server in servers:
        tokens = block_tokens.get(server.model, 0)
        if isinstance(server, LlmServer) and server.prefix_caching and tokens > 0:
            if tokens % server.block_size_tokens:
                raise ValueError(f"{server.deployment}: {tokens} tokens are no multiple of {server.block_size_tokens}")
            facts[row : row + server.replicas, layout.PREFIX_BLOCKS] = tokens // server.block_size_tokens
            facts[row : row + server.replicas, layout.PREFIX_TOKENS] = tokens
        row += server.replicas


def _cache(facts: Ints, ids: int, jobs: int) -> Nodes:
    """An empty prefix cache for every replica, if any has one."""
    nodes = ids + 2 * jobs if facts[:, layout.PREFIX_BLOCKS].any() else 0
    return np.full((len(facts), nodes, layout.NODE), layout.NOBODY, dtype=np.int32)


def _agenda(replicas: int, pipelines: Ints, users: Ints, user_start_ps: Ints) -> Ints:
    """Users who start before their pipeline stops sending wake up then; sorted by time is a heap."""
    in_time = user_start_ps < pipelines[users[:, layout.USER_PIPELINE], layout.PIPE_STOP_PS]
    due = np.concatenate([np.full(replicas, layout.NEVER), np.where(in_time, user_start_ps, layout.NEVER)])
    order = np.argsort(due, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return np.stack([due, order, place]).astype(np.int64)
