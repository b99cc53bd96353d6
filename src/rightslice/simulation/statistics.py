"""What is counted, and how: kernel output -> SimulationResult.

The window goes from the end of the warm-up to the horizon. Counted, timed and judged are the requests that start in it:
requests = completed + failed + shed + unfinished. Rates are of what is answered in it, whenever it came: under overload
the engines are busy with older requests. A percentile is the smallest value that at least that share of the sample does
not exceed, so `p95 <= limit` says the same as "95 % meet the limit". Replicas are described over the whole horizon.

An objective is judged request by request:
  completed      by its value. An answer of one token has no TPOT and meets every TPOT objective.
  failed, shed   misses.
  unfinished     misses when its elapsed time is over the limit already; counts as met for a TTFT that it has met;
                 otherwise it cannot be judged and is left out of the share.
A request meets all its objectives when each is met, misses when any is missed, and is left out otherwise. A share of
nothing is 1. A measured stage has one result: its TTFT is its latency, and it has no TPOT.

A replica is busy while a step is under way or a request in service; its mean batch is taken over that time, KV use over
the whole horizon (0 for a stage). `requeued` counts over the whole horizon, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rightslice.core.results import (
    ClassResult,
    Distribution,
    PipelineResult,
    ReplicaResult,
    SimulationResult,
    SloOutcome,
    StageResult,
)
from rightslice.core.slo import Slo
from rightslice.simulation import layout
from rightslice.simulation.inputs import PS_PER_S, clients_of, distances_ps, picoseconds
from rightslice.simulation.layout import Floats, Ints
from rightslice.simulation.play import Played, SteppedRun
from rightslice.simulation.scenario import ClosedPipeline, LlmServer, OpenClass, StageServer

Server = LlmServer | StageServer
Bools = NDArray[np.bool_]
_PS_PER_MS = 1e9


@dataclass(frozen=True, slots=True)
class Times:
    """Requests of one kind: start, first token, finish (NOT_YET, FAILED and below), answer tokens; cut at `end_ps`.

    `network_ps`: what the way to the server and back adds; 0 where nobody serves them yet.
    """

    start_ps: Ints
    first_ps: Ints
    finish_ps: Ints
    answer: Ints
    end_ps: int
    network_ps: Ints | int = 0

    @property
    def completed(self) -> Bools:
        """Answered in full."""
        answered: Bools = self.finish_ps >= 0
        return answered

    def answered_between(self, begin_ps: int, end_ps: int) -> Bools:
        """Answered in full within [begin, end], whenever they started."""
        inside: Bools = (self.finish_ps >= max(begin_ps, 0)) & (self.finish_ps <= end_ps)
        return inside

    @property
    def failed(self) -> Bools:
        """Refused, dropped after waiting too long, or lost with a replica."""
        refused: Bools = (self.finish_ps <= layout.FAILED) & ~self.shed
        return refused

    @property
    def shed(self) -> Bools:
        """Refused by a gateway under saturation, as their priority has it."""
        turned_away: Bools = self.finish_ps == layout.SHED
        return turned_away

    def value_ps(self, metric: str) -> tuple[Floats, Bools]:
        """Lower bound of the metric for every request, and whether it is the final value; TPOT per token.

        What has not happened yet has taken until `end_ps` at least.
        """
        until = np.where(self.completed, self.finish_ps, self.end_ps)
        if metric == "e2e":
            return (until - self.start_ps + self.network_ps).astype(np.float64), self.completed
        seen = self.first_ps >= 0
        if metric == "ttft":
            waited = np.where(seen, self.first_ps, until) - self.start_ps + self.network_ps
            return waited.astype(np.float64), seen
        gaps = np.maximum(self.answer - 1, 1)
        spent = np.where(seen & (self.answer > 1), until - self.first_ps, 0)
        return spent / gaps, self.completed | (self.answer <= 1)


def result_of(run: SteppedRun) -> SimulationResult:
    """Play the run to its end and count."""
    return count(run, run.finish())


def count(run: SteppedRun, played: Played) -> SimulationResult:
    """Count what a finished run has played."""
    scenario = run.scenario
    failed = lost = shed = 0
    per_class: list[ClassResult] = []
    for index in range(len(scenario.classes)):
        _, times = of_class(run, played, index)
        per_class.append(_open_class(run, played, index, scenario.warmup_s, scenario.horizon_s))
        failed += per_class[-1].failed
        shed += per_class[-1].shed
        lost += int(np.count_nonzero(times.finish_ps == layout.LOST))
    pipelines: list[PipelineResult] = []
    for index in range(len(scenario.pipelines)):
        _, times = of_pipeline(run, played, index)
        failed += int(np.count_nonzero(times.failed))
        shed += int(np.count_nonzero(times.shed))
        lost += int(np.count_nonzero(times.finish_ps == layout.LOST))
        pipelines.append(_pipeline_result(run, played, index))
    return SimulationResult(
        seed=scenario.seed,
        begin_s=scenario.warmup_s,
        horizon_s=scenario.horizon_s,
        requests=sum(c.requests for c in per_class) + sum(p.requests for p in pipelines),
        completed=sum(c.completed for c in per_class) + sum(p.completed for p in pipelines),
        failed=failed,
        requeued=played.requeued,
        lost=lost,
        shed=shed,
        per_class=tuple(per_class),
        pipelines=tuple(pipelines),
        replicas=_replicas(run.servers, played.totals, picoseconds(scenario.horizon_s)),
    )


def classes_between(run: SteppedRun, played: Played, begin_s: float, end_s: float) -> tuple[ClassResult, ...]:
    """Every class over a part of a finished run, as if it were the window."""
    return tuple(_open_class(run, played, index, begin_s, end_s) for index in range(len(run.scenario.classes)))


def _open_class(run: SteppedRun, played: Played, index: int, begin_s: float, end_s: float) -> ClassResult:
    """One class over the window [begin, end)."""
    traffic, requests = run.scenario.classes[index], run.requests
    mine, times = of_class(run, played, index, begin_s, end_s)
    admitted = mine & (played.hit_tokens != layout.NOT_YET)
    prompts = int(requests.prompt[admitted].sum())
    hit_rate = int(played.hit_tokens[admitted].sum()) / prompts if prompts and traffic.prefixes else None
    _, everyone = of_class(run, played, index, 0.0)
    answers = everyone.answer[everyone.answered_between(picoseconds(begin_s), picoseconds(end_s))]
    found = _class_result(traffic, times, answers, max(end_s - begin_s, 1.0 / PS_PER_S), hit_rate)
    if any(isinstance(s, LlmServer) and s.link and s.model == traffic.model for s in run.servers):
        moved = mine & (played.finish_ps >= 0) & (requests.answer > 1)
        found = replace(found, transfer_ms=distribution((played.entered_ps - played.first_ps)[moved] / _PS_PER_MS))
    if traffic.arrivals.sharing is not None and prompts:
        seen = int(traffic.arrivals.sharing.seen_tokens[requests.row[admitted]].sum())
        found = replace(found, prefix_hit_ceiling=seen / prompts)
    return found


def of_class(
    run: SteppedRun, played: Played, index: int, begin_s: float | None = None, end_s: float | None = None
) -> tuple[Bools, Times]:
    """The requests of one class that count (one entry for each open-loop request of the run), and their times.

    Those that come within [begin, end): by default from the warm-up to the horizon.
    """
    scenario, requests = run.scenario, run.requests
    horizon_ps = picoseconds(scenario.horizon_s)
    begin_ps = picoseconds(scenario.warmup_s if begin_s is None else begin_s)
    mine = (requests.arrival_ps >= begin_ps) & (requests.class_index == index)
    if end_s is not None and end_s < scenario.horizon_s:
        mine &= requests.arrival_ps < picoseconds(end_s)
    has_tokens = scenario.classes[index].model in _with_tokens(run)
    answer = requests.answer[mine] if has_tokens else np.zeros(int(mine.sum()), dtype=np.int64)
    times = Times(requests.arrival_ps[mine], played.first_ps[mine], played.finish_ps[mine], answer, horizon_ps)
    if scenario.network is not None and scenario.classes[index].clients is not None:
        times = replace(times, network_ps=network_ps(run, played)[mine])
    return mine, times


def network_ps(run: SteppedRun, played: Played) -> Ints:
    """Round trip of each open-loop request between its client and the replica that it came to last; 0 before."""
    regions = np.repeat([s.region for s in run.servers], [s.replicas for s in run.servers]).astype(np.int64)
    clients = clients_of(run.scenario, run.requests)
    found = np.zeros(len(clients), dtype=np.int64)
    sent = played.served != layout.NOBODY
    found[sent] = distances_ps(run.scenario)[clients[sent], regions[played.served[sent]]]
    return found


def of_pipeline(run: SteppedRun, played: Played, index: int, begin_s: float | None = None) -> tuple[Ints, Times]:
    """The rows (layout.py) of one population that count, and their times from end to end.

    Those that start at or after `begin_s`, by default the warm-up. TTFT and TPOT are those of the last stage, TTFT
    counted from the start.
    """
    scenario, passes = run.scenario, played.passes
    started = passes[:, layout.PASS_START] >= picoseconds(scenario.warmup_s if begin_s is None else begin_s)
    rows = passes[started & (passes[:, layout.PASS_PIPELINE] == index)]
    pipeline = scenario.pipelines[index]
    last = len(pipeline.stages) - 1
    first = rows[:, layout.PASS_STAGES + 3 * last + 1]
    answer = _answers(pipeline, last, rows[:, layout.PASS_SAMPLE], _with_tokens(run))
    start, finish = rows[:, layout.PASS_START], rows[:, layout.PASS_FINISH]
    return rows, Times(start, first, finish, answer, picoseconds(scenario.horizon_s))


def _with_tokens(run: SteppedRun) -> frozenset[str]:
    return frozenset(server.model for server in run.servers if isinstance(server, LlmServer))


def distribution(values: NDArray[np.float64]) -> Distribution | None:
    """Mean, p50, p95, p99; None without values."""
    n = len(values)
    if n == 0:
        return None
    ordered = np.sort(values)
    p50, p95, p99 = (order_statistic(ordered, percent) for percent in (50, 95, 99))
    return Distribution(float(ordered.mean()), p50, p95, p99)


def order_statistic(ordered: Floats, percent: int) -> float:
    """The smallest of the sorted values that at least `percent` % of them do not exceed."""
    return float(ordered[(percent * len(ordered) + 99) // 100 - 1])


def judged(times: Times, slos: Sequence[Slo]) -> tuple[tuple[SloOutcome, ...], float]:
    """Each objective with its achieved share, and the share of requests that meet all of them."""
    found = [_verdict(times, slo) for slo in slos]
    outcomes = tuple(
        SloOutcome(slo, _share(*verdict), _judged(*verdict)) for slo, verdict in zip(slos, found, strict=True)
    )
    return outcomes, _share(*_together(times, found))


def verdicts(times: Times, slos: Sequence[Slo]) -> tuple[Bools, Bools]:
    """The requests that meet all objectives, and those that miss one; the others cannot be judged."""
    return _together(times, [_verdict(times, slo) for slo in slos])


def _verdict(times: Times, slo: Slo) -> tuple[Bools, Bools]:
    value_ps, final = times.value_ps(slo.metric)
    missed = times.failed | times.shed | (value_ps > slo.at_most_s * PS_PER_S)
    return final & ~missed, missed


def _together(times: Times, found: Sequence[tuple[Bools, Bools]]) -> tuple[Bools, Bools]:
    all_met, any_missed = times.completed, times.failed | times.shed
    for number, (met, missed) in enumerate(found):
        all_met = all_met & met if number else met
        any_missed = any_missed | missed
    return all_met, any_missed


def _judged(met: Bools, missed: Bools) -> int:
    return int(np.count_nonzero(met)) + int(np.count_nonzero(missed))


def _share(met: Bools, missed: Bools) -> float:
    total = _judged(met, missed)
    return int(np.count_nonzero(met)) / total if total else 1.0


def _milliseconds(times: Times, metric: str, chosen: Bools) -> Distribution | None:
    return distribution(times.value_ps(metric)[0][chosen] / _PS_PER_MS)


def _class_result(
    traffic: OpenClass, times: Times, answers: Ints, span_s: float, prefix_hit_rate: float | None
) -> ClassResult:
    """`answers`: tokens of each that ended within the window of `span_s`."""
    done = times.completed
    outcomes, attainment = judged(times, traffic.slos)
    return ClassResult(
        model=traffic.model,
        traffic_class=traffic.name,
        requests=len(times.start_ps),
        completed=int(np.count_nonzero(done)),
        failed=int(np.count_nonzero(times.failed)),
        timed_out=int(np.count_nonzero(times.finish_ps == layout.TIMED_OUT)),
        shed=int(np.count_nonzero(times.shed)),
        ttft_ms=_milliseconds(times, "ttft", done),
        tpot_ms=_milliseconds(times, "tpot", done & (times.answer > 1)),
        e2e_ms=_milliseconds(times, "e2e", done),
        answered=len(answers),
        requests_per_s=len(answers) / span_s,
        output_tokens_per_s=int(answers.sum()) / span_s,
        slo_attainment=attainment,
        outcomes=outcomes,
        prefix_hit_rate=prefix_hit_rate,
        prefix_block_tokens=traffic.prefixes.block_tokens if traffic.prefixes else 0,
    )


def _answers(pipeline: ClosedPipeline, stage: int, sample: Ints, with_tokens: frozenset[str]) -> Ints:
    """Answer tokens of each request in one stage; 0 for a measured stage."""
    drawn = pipeline.lengths[stage] if pipeline.lengths else None
    if drawn is None or pipeline.stages[stage] not in with_tokens:
        return np.zeros(len(sample), dtype=np.int64)
    return np.asarray(drawn.output_tokens, dtype=np.int64)[sample % len(drawn.output_tokens)]


def _pipeline_result(run: SteppedRun, played: Played, index: int) -> PipelineResult:
    """One population: all stages, and each one alone. Its rate is taken while there are users."""
    scenario, pipeline, with_tokens = run.scenario, run.scenario.pipelines[index], _with_tokens(run)
    rows, whole = of_pipeline(run, played, index)
    end_ps, sample = picoseconds(scenario.horizon_s), rows[:, layout.PASS_SAMPLE]
    done = whole.completed
    outcomes, attainment = judged(whole, pipeline.slos)
    per_stage: list[StageResult] = []
    for k, model in enumerate(pipeline.stages):
        entered, token, left = (rows[done, layout.PASS_STAGES + 3 * k + i] for i in range(3))
        times = Times(entered, token, left, _answers(pipeline, k, sample[done], with_tokens), end_ps)
        ttft_ms = _milliseconds(times, "ttft", times.completed) if model in with_tokens else None
        per_stage.append(StageResult(model, _milliseconds(times, "e2e", times.completed), ttft_ms))
    until_s = min(scenario.horizon_s, pipeline.duration_s)
    _, everyone = of_pipeline(run, played, index, 0.0)
    begin_ps, span_s = picoseconds(scenario.warmup_s), until_s - scenario.warmup_s
    with_users = int(np.count_nonzero(everyone.answered_between(begin_ps, picoseconds(until_s))))
    return PipelineResult(
        name=pipeline.name,
        users=pipeline.users_name,
        requests=len(rows),
        completed=int(np.count_nonzero(done)),
        answered=int(np.count_nonzero(everyone.answered_between(begin_ps, end_ps))),
        requests_per_s=with_users / span_s if span_s > 0.0 else 0.0,
        e2e_ms=_milliseconds(whole, "e2e", done),
        per_stage=tuple(per_stage),
        slo_attainment=attainment,
        outcomes=outcomes,
    )


def _replicas(servers: Sequence[Server], totals: Ints, end_ps: int) -> tuple[ReplicaResult, ...]:
    results: list[ReplicaResult] = []
    for server in servers:
        blocks = server.kv_blocks if isinstance(server, LlmServer) else 0
        for replica in range(server.replicas):
            row = totals[len(results)]
            busy_ps = float(row[layout.BUSY_PS])
            results.append(
                ReplicaResult(
                    deployment=server.deployment,
                    replica=replica,
                    busy_share=busy_ps / end_ps,
                    kv_use_mean=float(row[layout.KV_BLOCK_PS]) / blocks / end_ps if blocks else 0.0,
                    kv_use_peak=float(row[layout.PEAK_BLOCKS]) / blocks if blocks else 0.0,
                    preemptions=int(row[layout.PREEMPTIONS]),
                    batch_mean=float(row[layout.BATCH_PS]) / busy_ps if busy_ps else 0.0,
                )
            )
    return tuple(results)
