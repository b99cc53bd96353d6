"""The compiled event loop against independent oracles, theory and invariants."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.documents import to_json
from rightslice.core.results import SimulationResult
from rightslice.core.rng import generator
from rightslice.core.slo import Slo
from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.simulation import ClosedPipeline, LlmServer, OpenClass, Scenario, StageLengths, StageServer, simulate
from rightslice.simulation.kernel import advance
from rightslice.simulation.layout import FAILED, KV_BLOCK_PS, LOST, NOT_YET, SHED
from rightslice.simulation.play import CONDITIONS, Observation, Played, SteppedRun, play
from simulation_cases import (
    arrivals,
    disaggregated,
    random_orders,
    random_scenario,
    with_gateways,
    with_network,
    with_sharing,
)
from simulation_reference import Reference
from simulation_reference_replicas import whole_ps

PS = 10**12


def played(scenario: Scenario) -> tuple[list[int], list[int], np.ndarray, np.ndarray]:
    first, finish, totals, passes, *_ = play(scenario)
    return first.tolist(), finish.tolist(), totals, passes


# --- exactness ---------------------------------------------------------------------------------------------------


def check_equal(expected: Reference, got: Played) -> None:
    """First tokens, ends, every stage of every pipeline request, integrals, peaks, preemptions and requeues."""
    assert got.first_ps.tolist() == [job.first_ps for job in expected.jobs]
    assert got.finish_ps.tolist() == [job.finish_ps for job in expected.jobs]
    assert got.passes.tolist() == expected.rows
    assert got.totals.tolist() == [replica.totals for replica in expected.replicas]
    assert got.requeued == expected.requeued
    assert got.hit_tokens.tolist() == [job.hit_tokens for job in expected.jobs]
    assert got.served.tolist() == [job.served for job in expected.jobs]
    assert got.entered_ps.tolist() == [job.entered for job in expected.jobs]


def check_against_reference(scenario: Scenario) -> Reference:
    expected = Reference(scenario).play()
    check_equal(expected, play(scenario))
    return expected


@pytest.mark.parametrize("part", range(8))
def test_runs_equal_the_plain_reference_to_the_picosecond(part: int) -> None:
    """4,000 random scenarios in all, and what they claim to cover does happen."""
    evictions = refusals = passes = 0
    for seed in range(500 * part, 500 * (part + 1)):
        expected = check_against_reference(random_scenario(seed))
        evictions += sum(replica.preemptions for replica in expected.replicas)
        refusals += sum(job.finish_ps == FAILED for job in expected.jobs)
        passes += len(expected.rows)
    assert min(evictions, refusals, passes) > 100


def check_observation(expected: Reference, seen: Observation) -> None:
    """What a control plane reads at a boundary, in the middle of runs of steps."""
    replicas = expected.replicas
    assert seen.running.tolist() == [len(r.running) for r in replicas]
    assert seen.waiting.tolist() == [len(r.waiting) for r in replicas]
    assert seen.finished.tolist() == [r.finished for r in replicas]
    assert seen.kv_blocks.tolist() == [r.used for r in replicas]
    assert [CONDITIONS[c] for c in seen.condition] == [r.condition for r in replicas]
    assert seen.queued.sum() == sum(len(queue) for queue in expected.queues.values())


@pytest.mark.parametrize("part", range(4))
def test_gateways_shed_and_hold_back_as_the_reference_does(part: int) -> None:
    """2,000 random scenarios behind gateways, half of them on shared GPUs."""
    shed = held = 0
    for seed in range(500 * part, 500 * (part + 1)):
        plain = with_sharing(seed, random_scenario(seed)) if seed % 2 else random_scenario(seed)
        expected = check_against_reference(with_gateways(seed, plain))
        shed += sum(job.finish_ps == SHED for job in expected.jobs)
        held += sum(len(queue) for queue in expected.queues.values())
    assert min(shed, held) > 50


@pytest.mark.parametrize("part", range(4))
def test_prefill_and_decode_apart_equal_the_reference(part: int) -> None:
    """2,000 random scenarios whose answers are computed elsewhere than their prompts."""
    moved = evicted = 0
    for seed in range(500 * part, 500 * (part + 1)):
        expected = check_against_reference(disaggregated(seed, random_scenario(seed)))
        moved += sum(r.finished for r in expected.replicas if r.server.model == "a/link")
        evicted += sum(r.preemptions for r in expected.replicas if r.server.model == "a/decode")
    assert min(moved, evicted) > 30


@pytest.mark.parametrize("part", range(2))
def test_near_replicas_are_preferred_as_in_the_reference(part: int) -> None:
    """1,000 random scenarios in two regions, every third behind gateways."""
    far = 0
    for seed in range(500 * part, 500 * (part + 1)):
        scenario = with_network(seed, random_scenario(seed))
        expected = check_against_reference(with_gateways(seed, scenario) if seed % 3 == 0 else scenario)
        regions = [replica.server.region for replica in expected.replicas]
        network = scenario.network
        assert network is not None
        taken = [(network.round_trip_s[job.client], regions[job.served]) for job in expected.jobs if job.served >= 0]
        far += sum(bool(times[region] > times.min()) for times, region in taken)
    assert far > 50


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("shared", [False, True])
def test_controlled_runs_equal_the_reference(part: int, shared: bool) -> None:
    """Replicas that drain, vanish, come back and slow down at random, on GPUs of their own and on shared ones, every
    third scenario behind gateways."""
    requeued = lost = 0
    for seed in range(500 * part, 500 * (part + 1)):
        scenario = with_sharing(seed, random_scenario(seed)) if shared else random_scenario(seed)
        scenario = with_gateways(seed, scenario) if seed % 3 == 0 else scenario
        expected, run = Reference(scenario), SteppedRun(scenario)
        for when_ps, conditions, slowdowns in random_orders(seed, len(run.replicas), whole_ps(scenario.horizon_s)):
            expected.advance(when_ps)
            run.advance(when_ps / PS)
            check_observation(expected, run.look())
            expected.control(when_ps, conditions, slowdowns)
            for replica, condition in conditions.items():
                run.order(replica, condition)
            for replica, factor in slowdowns.items():
                run.slow_down(replica, factor)
        got = run.finish()
        check_equal(expected.play(), got)
        requeued += got.requeued
        lost += int((got.finish_ps == LOST).sum())
    assert min(requeued, lost) > 100


@settings(max_examples=200)
@given(st.integers(0, 3_999), st.lists(st.floats(0.0, 1e-6), max_size=20), st.booleans())
def test_boundaries_change_nothing(seed: int, stops_s: list[float], shared: bool) -> None:
    scenario = with_sharing(seed, random_scenario(seed)) if shared else random_scenario(seed)
    run = SteppedRun(scenario)
    for stop_s in sorted(stops_s):
        run.advance(stop_s)
        run.look()
    whole, pieces = play(scenario), run.finish()
    assert all(np.asarray(one).tolist() == np.asarray(other).tolist() for one, other in zip(whole, pieces, strict=True))


@settings(max_examples=300)
@given(st.integers(0, 10**6))
def test_every_request_ends_or_is_reported_and_nothing_is_left(seed: int) -> None:
    """With time enough every open request is answered in full or has failed, and all blocks are free again."""
    scenario = replace(random_scenario(seed), pipelines=(), horizon_s=1.0)
    run = SteppedRun(scenario)
    run.advance(0.999)
    seen, played = run.look(), run.finish()
    assert NOT_YET not in played.finish_ps
    assert not any(column.any() for column in (seen.running, seen.waiting, seen.kv_blocks, seen.queued))
    assert seen.finished.sum() == (played.finish_ps >= 0).sum()
    assert seen.arrived.sum() == len(played.finish_ps)
    answered = played.finish_ps >= 0
    assert (played.first_ps[answered] <= played.finish_ps[answered]).all()


def test_long_answers_equal_the_reference() -> None:
    """Runs of thousands of steps, whole rounds of blocks, a cache that runs full in the middle of a run."""
    costs = StepCosts(np.arange(65) * 10, 3, 1, 1, 100, 5, 0.4, "first-principles")
    for block, blocks in ((1, 6_000), (3, 1_900), (16, 400), (16, 320)):
        server = LlmServer("d", "m", 1, costs, blocks, block, 8, 64, 10**6)
        requests = arrivals([0, 5, 10**6, 2 * 10**6], [10, 400, 30, 7], [3_000, 4_500, 2_000, 2_500])
        scenario = Scenario((server,), (OpenClass("m", "c", requests),), horizon_s=1.0)
        expected = check_against_reference(scenario)
        assert NOT_YET not in [job.finish_ps for job in expected.jobs]
        assert expected.replicas[0].preemptions > 0


def test_an_answer_of_millions_of_tokens_is_summed_exactly() -> None:
    """One request alone: a step is k + 100 ps with k tokens of context, and blocks of 16 fill one after the other."""
    costs = StepCosts(np.zeros(65, dtype=np.int64), 1, 0, 0, 100, 0, 0.4, "first-principles")
    n = 3_000_000
    server = LlmServer("d", "m", 1, costs, n, 16, 1, 64, 10**8)
    played = play(Scenario((server,), (OpenClass("m", "c", arrivals([0], [1], [n])),), horizon_s=10**5))
    contexts = np.arange(1, n, dtype=np.int64) + 1
    spans = np.concatenate([[100], 100 + contexts])
    blocks = np.concatenate([[1], -(-contexts // 16)])
    assert played.finish_ps.tolist() == [int(spans.sum())]
    assert played.totals[0, KV_BLOCK_PS] == sum(int(part.sum()) for part in np.array_split(spans * blocks, 100))


def test_totals_beyond_64_bits_are_exact() -> None:
    """90 days of a full cache of a million blocks: 1.2e24 block-picoseconds."""
    costs = StepCosts(np.zeros(2049, dtype=np.int64), 0, 0, 0, 40 * PS, 0, 0.4, "first-principles")
    server = LlmServer("d", "m", 1, costs, 10**6, 1, 8, 2048, 10**6)
    requests = arrivals([0, 0], [400_000, 400_000], [150_000, 150_000])
    check_against_reference(Scenario((server,), (OpenClass("m", "c", requests),), horizon_s=90 * 86_400.0))
    totals = play(Scenario((server,), (OpenClass("m", "c", requests),), horizon_s=90 * 86_400.0)).totals
    assert totals[0, KV_BLOCK_PS] > 2**78


def test_blocks_all_come_back() -> None:
    """The same burst again and again: each runs like the first, so no block is lost."""
    costs = StepCosts(np.arange(65) * 10, 1, 1, 1, 100, 5, 0.4, "first-principles")
    server = LlmServer("d", "m", 1, costs, 12, 2, 8, 64, 40)
    sizes = np.random.default_rng(2).integers(1, 12, (2, 20))
    times = np.repeat(np.arange(50) * 10**6, 20).tolist()
    requests = arrivals(times, np.tile(sizes[0], 50).tolist(), np.tile(sizes[1], 50).tolist())
    _, finish, totals, _ = played(Scenario((server,), (OpenClass("m", "c", requests),), horizon_s=1.0))
    relative = np.where(np.array(finish) == FAILED, FAILED, np.array(finish) - np.array(times)).reshape(50, 20)
    assert (relative == relative[0]).all()
    assert totals[0, 4] > 50


# --- stage replica -----------------------------------------------------------------------------------------------


def stage(latencies_ps: list[int], replicas: int = 1, name: str = "s") -> StageServer:
    return StageServer(name, name, replicas, StageCosts(np.array([0, *latencies_ps]), 0.4, "measured"))


def shared_exactly(times: list[int], latency: list[int]) -> list[Fraction]:
    """Processor sharing in exact rationals: finish time of each arrival; latency[n - 1] with n in service."""
    finish = [Fraction(0)] * len(times)
    service: dict[int, Fraction] = {}
    queue: deque[int] = deque()
    now, arrived = Fraction(0), 0
    while arrived < len(times) or service:
        pace = Fraction(1, latency[len(service) - 1]) if service else Fraction(0)
        ends = now + min(service.values()) / pace if service else None
        if arrived < len(times) and (ends is None or times[arrived] < ends):
            then = Fraction(times[arrived])
        else:
            assert ends is not None
            then = ends
        service = {job: rest - pace * (then - now) for job, rest in service.items()}
        now = then
        for job in [job for job, rest in service.items() if rest == 0]:
            finish[job] = now
            del service[job]
        while arrived < len(times) and times[arrived] == now:
            queue.append(arrived)
            arrived += 1
        while queue and len(service) < len(latency):
            service[queue.popleft()] = Fraction(1)
    return finish


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 4000), min_size=1, max_size=25),
    st.lists(st.integers(0, 900), min_size=0, max_size=6),
    st.integers(50, 900),
)
def test_stage_replica_shares_the_processor(times: list[int], steps: list[int], alone: int) -> None:
    times = sorted(t * 10**6 for t in times)
    latency = (np.cumsum([alone, *steps]) * 10**6).tolist()
    requests = arrivals(times, [1] * len(times), [1] * len(times))
    scenario = Scenario((stage(latency),), (OpenClass("s", "c", requests),), horizon_s=1.0)
    first, finish, _, _ = played(scenario)
    assert first == finish
    exact = shared_exactly(times, latency)
    assert all(abs(got - want) <= 1 + len(times) for got, want in zip(finish, exact, strict=True))


@settings(max_examples=50)
@given(st.integers(1, 12), st.integers(1, 10**13), st.integers(0, 10**6))
def test_constant_concurrency_gives_the_measured_latency_exactly(n: int, at_n: int, offset_ps: int) -> None:
    """n users without think time keep n in service: every request takes latency[n], to the picosecond."""
    latency = [at_n // 2 + 1] * (n - 1) + [max(at_n, at_n // 2 + 1)]
    users = ClosedPipeline("p", "u", ("s",), n, 0.0, offset_ps * n / PS, 20 * at_n / PS, 0.0)
    stop_ps = offset_ps * n + 20 * at_n
    scenario = Scenario((stage(latency),), pipelines=(users,), horizon_s=(stop_ps + 10) / PS)
    _, _, _, passes = played(scenario)
    start, finish = passes[:, 3], passes[:, 4]
    all_there = (start >= offset_ps * n) & (finish > 0) & (finish < stop_ps)
    assert all_there.sum() >= 10 * n
    assert set((finish - start)[all_there].tolist()) == {latency[-1]}


# --- theory ------------------------------------------------------------------------------------------------------


def poisson_ps(rate_per_s: float, n: int, *purpose: str) -> list[int]:
    gaps = generator(3, *purpose).exponential(PS / rate_per_s, n)
    return [int(t) for t in np.cumsum(np.maximum(np.rint(gaps), 1))]


def test_one_sequence_at_a_time_is_m_d_1() -> None:
    """Wait = rho D / (2 (1 - rho)); batching off, no cost but the constant step."""
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, PS // 10, 0, 0.4, "first-principles")
    server = LlmServer("d", "m", 1, costs, 100, 16, 1, 64, 100)
    n, rho = 200_000, 0.7
    times = poisson_ps(rho / 0.1, n, "m-d-1")
    scenario = Scenario((server,), (OpenClass("m", "c", arrivals(times, [10] * n, [1] * n)),), horizon_s=86_400.0)
    result = simulate(scenario)
    ttft_ms = result.per_class[0].ttft_ms
    assert ttft_ms is not None
    assert ttft_ms.mean == pytest.approx(100.0 + rho * 100.0 / (2 * (1 - rho)), rel=0.02)
    assert result.replicas[0].busy_share == pytest.approx(n * 0.1 / 86_400.0, rel=1e-9)


def test_one_sequence_at_a_time_with_random_answers_is_m_g_1() -> None:
    """Geometric answers: Pollaczek-Khinchine wait = rate E[S^2] / (2 (1 - rho)) with the sample's own moments."""
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, PS // 100, 0, 0.4, "first-principles")
    server = LlmServer("d", "m", 1, costs, 10_000, 16, 1, 64, 10**6)
    n, rate = 300_000, 0.6
    outputs = generator(3, "answers").geometric(0.01, n)
    times = poisson_ps(rate, n, "m-g-1")
    scenario = Scenario(
        (server,), (OpenClass("m", "c", arrivals(times, [1] * n, outputs.tolist())),), horizon_s=times[-1] / PS + 100.0
    )
    e2e_ms = simulate(scenario).per_class[0].e2e_ms
    service_s = outputs * 0.01
    wait_s = rate * (service_s**2).mean() / (2 * (1 - rate * service_s.mean()))
    assert e2e_ms is not None
    assert e2e_ms.mean / 1e3 == pytest.approx(wait_s + service_s.mean(), rel=0.03)


def test_several_sequences_of_equal_speed_are_m_g_c() -> None:
    """Geometric answers of 2,000 steps, c at a time: the wait is Erlang's C / (c mu - lambda)."""
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, PS // 2_000, 0, 0.4, "first-principles")
    n, c, rho = 1_000_000, 4, 0.75
    server = LlmServer("d", "m", 1, costs, 100_000, 16, c, 64, 10**6)
    outputs = generator(3, "m-g-c answers").geometric(1 / 2_000, n)
    times = poisson_ps(c * rho, n, "m-g-c")
    traffic = OpenClass("m", "c", arrivals(times, [1] * n, outputs.tolist()))
    e2e_ms = simulate(Scenario((server,), (traffic,), horizon_s=times[-1] / PS + 100.0)).per_class[0].e2e_ms
    load = c * rho
    terms = [load**k / math.factorial(k) for k in range(c)]
    queued = load**c / math.factorial(c) / (1 - rho)
    wait_s = queued / (sum(terms) + queued) / (c - load)
    assert e2e_ms is not None
    assert e2e_ms.mean / 1e3 - outputs.mean() / 2_000 == pytest.approx(wait_s, rel=0.02)


def test_ideal_stage_is_m_g_1_processor_sharing() -> None:
    """Latency n x s: mean time in the system s / (1 - rho)."""
    n, rho = 200_000, 0.6
    times = poisson_ps(rho / 0.1, n, "ps")
    ideal = [k * PS // 10 for k in range(1, 200)]
    scenario = Scenario((stage(ideal),), (OpenClass("s", "c", arrivals(times, [1] * n, [1] * n)),), horizon_s=86_400.0)
    e2e_ms = simulate(scenario).per_class[0].e2e_ms
    assert e2e_ms is not None
    assert e2e_ms.mean == pytest.approx(100.0 / (1 - rho), rel=0.02)


# --- closed loop -------------------------------------------------------------------------------------------------


def voice(users: ClosedPipeline, horizon_s: float, warmup_s: float = 0.0) -> Scenario:
    costs = StepCosts(np.arange(513) * 20 * 10**6, 50_000, 1_000, 10**7, 8 * 10**9, 10**9, 0.4, "first-principles")
    llm = LlmServer("llm", "llm", 1, costs, 5_000, 16, 64, 512, 8192)
    asr = stage([(40 + 10 * k) * 10**9 for k in range(16)], name="asr")
    tts = stage([(90 + 30 * k) * 10**9 for k in range(8)], name="tts")
    return Scenario((asr, llm, tts), pipelines=(users,), horizon_s=horizon_s, warmup_s=warmup_s)


def voice_users(concurrent: int, hold_s: float) -> ClosedPipeline:
    numbers = generator(4, "voice")
    drawn = StageLengths(numbers.integers(20, 400, 500), numbers.integers(5, 200, 500))
    slos = (Slo("e2e", 3.0), Slo("ttft", 2.5, 0.9))
    return ClosedPipeline(
        "voice", "heavy", ("asr", "llm", "tts"), concurrent, 1.0, 60.0, hold_s, 15.0, slos, (None, drawn, None)
    )


@pytest.mark.parametrize("concurrent", [3, 40, 150])
def test_littles_law_holds_in_steady_state(concurrent: int) -> None:
    """Throughput = users / (R + think) within 1 %, from idle to saturated."""
    scenario = voice(voice_users(concurrent, 3_000.0), 3_060.0, warmup_s=200.0)
    result = simulate(scenario).pipelines[0]
    assert result.e2e_ms is not None
    _, _, _, passes = played(scenario)
    ended = np.count_nonzero(passes[:, 4] >= 200 * PS)
    assert ended / 2_860.0 == pytest.approx(concurrent / (result.e2e_ms.mean / 1e3 + 1.0), rel=0.01)
    stages_ms = sum(s.e2e_ms.mean for s in result.per_stage if s.e2e_ms)
    assert stages_ms == pytest.approx(result.e2e_ms.mean, rel=1e-9)


def test_public_harness_run_is_reproduced() -> None:
    """SDcodehub/voice-voice-workflow, light (5 users, think 2 s, 10 + 120 + 5 s): 193 requests, 1.462/s, mean 1.271 s.

    Fed with that mean as service time: requests and rate (over the time until the last answer) within 3 %, and the
    ramp-aware Little's law: user seconds / (R + think).
    """
    users = ClosedPipeline("voice", "light", ("asr", "tts"), 5, 2.0, 10.0, 120.0, 5.0)
    asr, tts = stage([574 * 10**9] * 8, name="asr"), stage([697 * 10**9] * 8, name="tts")
    scenario = Scenario((asr, tts), pipelines=(users,), horizon_s=135.0)
    result = simulate(scenario).pipelines[0]
    assert result.e2e_ms is not None
    assert result.e2e_ms.mean == pytest.approx(1271.0, rel=1e-9)
    assert result.completed == result.requests
    assert result.completed == pytest.approx(193, rel=0.03)
    _, _, _, passes = played(scenario)
    assert result.completed / (passes[:, 4].max() / PS) == pytest.approx(1.462, rel=0.03)
    assert result.requests_per_s == pytest.approx(1.462, rel=0.03)
    user_seconds = sum(130.0 - 2.0 * i for i in range(5))
    assert result.completed == pytest.approx(user_seconds / (1.271 + 2.0), rel=0.02)


# --- everything together -----------------------------------------------------------------------------------------


def mixed(seed: int, horizon_s: float = 300.0) -> Scenario:
    """Two LLM deployments of one model, a stage, open and closed traffic, some requests too long."""
    numbers = np.random.default_rng(seed)
    costs = StepCosts(np.arange(257) * 10**8, 10**5, 10**3, 10**7, 5 * 10**9, 10**9, 0.4, "first-principles")
    big = LlmServer("big", "llm", 2, costs, 900, 16, 64, 256, 2_000)
    small = LlmServer("small", "llm", 1, costs.scaled(1.7), 200, 16, 16, 128, 2_000)
    n = 3_000
    times = np.sort(numbers.integers(0, 300 * PS, n)).tolist()
    chat = arrivals(times, numbers.integers(1, 600, n).tolist(), numbers.integers(1, 300, n).tolist())
    bulk = arrivals(times[::7], numbers.integers(500, 2_100, len(times[::7])).tolist(), [20] * len(times[::7]))
    drawn = StageLengths(numbers.integers(1, 300, 50), numbers.integers(1, 80, 50))
    users = ClosedPipeline("voice", "u", ("asr", "llm"), 20, 0.5, 10.0, 200.0, 5.0, (Slo("e2e", 4.0),), (None, drawn))
    slos = (Slo("ttft", 0.5), Slo("tpot", 0.03), Slo("e2e", 8.0, 0.9))
    asr = stage([(100 + 40 * k) * 10**9 for k in range(8)], 2, "asr")
    return Scenario(
        (big, asr, small),
        (OpenClass("llm", "chat", chat, slos), OpenClass("llm", "bulk", bulk)),
        (users,),
        horizon_s,
        seed,
        5.0,
    )


def check_counts(result: SimulationResult, scenario: Scenario) -> None:
    parts = [(c.requests, c.completed) for c in result.per_class]
    parts += [(p.requests, p.completed) for p in result.pipelines]
    assert (result.requests, result.completed) == tuple(sum(column) for column in zip(*parts, strict=True))
    assert all(c.requests == c.completed + c.failed + c.unfinished and c.unfinished >= 0 for c in result.per_class)
    assert result.requests >= result.completed + result.failed
    for replica in result.replicas:
        assert 0.0 <= replica.busy_share <= 1.0 + 1e-12
        assert 0.0 <= replica.kv_use_mean <= replica.kv_use_peak <= 1.0
    expected = sum(int((c.arrivals.arrival_ps >= 5 * PS).sum()) for c in scenario.classes)
    assert sum(c.requests for c in result.per_class) == expected


@pytest.mark.parametrize("seed", range(3))
def test_counts_add_up_and_runs_repeat_to_the_byte(seed: int) -> None:
    scenario = mixed(seed)
    result = simulate(scenario)
    check_counts(result, scenario)
    assert result.failed > 0
    assert sum(r.preemptions for r in result.replicas) > 0
    assert to_json(result) == to_json(simulate(mixed(seed)))
    assert to_json(result) != to_json(simulate(mixed(seed + 10)))


def test_horizon_only_cuts() -> None:
    """What happened before an earlier horizon does not depend on the horizon."""
    long, short = played(mixed(1)), played(mixed(1, horizon_s=120.0))
    known = len(short[0])
    for after, before in zip(long[:2], short[:2], strict=True):
        assert before == [t if t <= 120 * PS else NOT_YET for t in after[:known]]
    assert (short[3][:, 3] <= 120 * PS).all()


def test_one_specialisation_serves_every_shape() -> None:
    simulate(Scenario((), horizon_s=1.0))
    simulate(mixed(0))
    simulate(voice(voice_users(2, 10.0), 80.0))
    assert len(advance.signatures) == 1  # type: ignore[attr-defined]
