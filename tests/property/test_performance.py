"""Properties of step costs, and the ceiling against a plain simulator that runs one iteration at a time."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import performance_cases as cases
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import Dtype, EngineSettings, KvDtype
from rightslice.performance.ceiling import rate_ceiling, stage_rate_ceiling
from rightslice.performance.costs import PS_PER_S, StageCosts, StepCosts
from rightslice.performance.laws import step_costs

A100, H100, L40S = (cases.whole(a) for a in (cases.A100, cases.H100, cases.L40S))
MODELS = st.sampled_from([cases.LLAMA_8B, cases.LLAMA_70B, cases.MIXTRAL, cases.GEMMA])
DEVICES = st.sampled_from([A100, H100, L40S, cases.A100_3G, cases.H100_1G, cases.whole(cases.MI300X)])
ENGINES = st.builds(
    EngineSettings,
    engine=st.sampled_from(["vllm", "tensorrt-llm", "sglang", "nim"]),
    tensor_parallel_size=st.sampled_from([1, 2, 4, 8]),
    pipeline_parallel_size=st.sampled_from([1, 2]),
    expert_parallel=st.booleans(),
    weight_dtype=st.sampled_from(get_args(Dtype)),
    kv_dtype=st.sampled_from(get_args(KvDtype)),
    max_num_seqs=st.sampled_from([8, 256]),
    max_num_batched_tokens=st.just(600),
)
TYPICAL = st.integers(1, 20_000)


def all_terms(costs: StepCosts) -> np.ndarray:
    scalars = (costs.kv_token_ps, costs.attention_ps, costs.sequence_ps, costs.step_ps, costs.prefill_step_ps)
    return np.concatenate((costs.tokens_ps, scalars))


@given(MODELS, DEVICES, ENGINES, TYPICAL)
def test_more_tokens_never_take_less_time(
    model: Architecture, device: Device, engine: EngineSettings, typical: int
) -> None:
    costs = step_costs(model, device, engine, typical_tokens=typical)
    assert costs.tokens_ps[0] == 0
    assert costs.tokens_ps[1] > 0
    assert bool(np.all(np.diff(costs.tokens_ps) >= 0))
    assert costs.relative_error > 0.0


@given(MODELS, ENGINES, TYPICAL)
def test_a_slice_is_never_faster_than_the_whole(model: Architecture, engine: EngineSettings, typical: int) -> None:
    for part, full in ((cases.A100_3G, A100), (cases.H100_1G, H100)):
        sliced, whole = (all_terms(step_costs(model, d, engine, typical_tokens=typical)) for d in (part, full))
        assert bool(np.all(sliced >= whole))


@given(MODELS, ENGINES, TYPICAL)
def test_fp8_on_an_h100_is_never_slower_than_bf16_but_for_its_launches(
    model: Architecture, engine: EngineSettings, typical: int
) -> None:
    """What quantising activations may add to a step is bounded in the tests of physics."""
    wide = replace(engine, weight_dtype="bf16", kv_dtype="bf16")
    narrow = replace(engine, weight_dtype="fp8", kv_dtype="fp8")
    bf16, fp8 = (replace(step_costs(model, H100, e, typical_tokens=typical), step_ps=0) for e in (wide, narrow))
    assert bool(np.all(all_terms(fp8) <= all_terms(bf16)))


@given(MODELS, st.sampled_from([A100, H100, L40S]), ENGINES, st.sampled_from([2, 4, 8]))
def test_n_devices_save_at_most_n_times_and_never_slow_attention(
    model: Architecture, device: Device, engine: EngineSettings, devices: int
) -> None:
    alone = replace(engine, tensor_parallel_size=1, expert_parallel=False)
    one = step_costs(model, device, alone, typical_tokens=1000)
    many = step_costs(model, device, replace(alone, tensor_parallel_size=devices), typical_tokens=1000)
    assert bool(np.all(many.tokens_ps * devices >= one.tokens_ps - devices))
    assert one.kv_token_ps / devices - 1 <= many.kv_token_ps <= one.kv_token_ps
    assert many.attention_ps <= one.attention_ps
    assert many.step_ps == one.step_ps


@given(MODELS, DEVICES, ENGINES, st.floats(0.3, 3.0))
def test_scaling_scales_a_whole_step(
    model: Architecture, device: Device, engine: EngineSettings, factor: float
) -> None:
    costs = step_costs(model, device, engine, typical_tokens=1000)
    step = (300, 45_150, 20, 20_000)
    assert math.isclose(costs.scaled(factor).step_time_ps(*step), factor * costs.step_time_ps(*step), rel_tol=0.01)


@dataclass
class Sequence:
    """A request under way: `known` tokens must be in the cache before it decodes, `cached` are."""

    prompt: int
    answer: int
    known: int
    cached: int = 0
    produced: int = 0
    first_ps: int = 0
    last_ps: int = 0


def run(
    costs: StepCosts, lengths: list[tuple[int, int]], slots: int, blocks: int, block: int
) -> tuple[int, list[Sequence]]:
    """Continuous batching, decode first, chunked prefill, paged cache, preemption of the newest by recomputation.

    Every request is there at the start. Returns the end in picoseconds and the requests.
    """
    waiting = deque(Sequence(prompt, answer, prompt) for prompt, answer in lengths)
    everyone, running, now_ps = list(waiting), list[Sequence](), 0

    def needed(extra: int = 0) -> int:
        return sum(-(-(s.cached + (s.cached >= s.known)) // block) for s in running) + extra

    while waiting or running:
        while needed() > blocks:
            victim = running.pop()
            victim.known, victim.cached = victim.prompt + victim.produced, 0
            waiting.appendleft(victim)
        decoding = [s for s in running if s.cached >= s.known]
        budget = costs.max_tokens - len(decoding)
        chunks: list[tuple[Sequence, int]] = []
        for sequence in [s for s in running if s.cached < s.known]:
            chunks.append((sequence, min(budget, sequence.known - sequence.cached)))
            budget -= chunks[-1][1]
        grown = sum(-(-(s.cached + c) // block) - -(-s.cached // block) for s, c in chunks)
        while (
            waiting and budget > 0 and len(running) < slots and needed(grown - (-waiting[0].known // block)) <= blocks
        ):
            joined = waiting.popleft()
            running.append(joined)
            chunks.append((joined, min(budget, joined.known)))
            budget -= chunks[-1][1]
            grown += -(-chunks[-1][1] // block)
        prompt = sum(c for _, c in chunks)
        work = sum(c * s.cached + c * (c + 1) // 2 for s, c in chunks)
        now_ps += costs.step_time_ps(prompt, work, len(decoding), sum(s.cached + 1 for s in decoding))
        for sequence in decoding:
            sequence.cached += 1
            sequence.known = sequence.cached
        for sequence, chunk in chunks:
            sequence.cached += chunk
        for sequence in decoding + [s for s, _ in chunks if s.cached == s.known]:
            sequence.produced += 1
            sequence.first_ps = sequence.first_ps or now_ps
            sequence.last_ps = now_ps
        running = [s for s in running if s.produced < s.answer]
    return now_ps, everyone


@st.composite
def step_tables(draw: st.DrawFn) -> StepCosts:
    """Any rising token table; a prompt token costs at least twice a context token, as in every real model."""
    kv, sequence = draw(st.integers(0, 50)), draw(st.integers(0, 50))
    rises = draw(st.lists(st.integers(0, 3000), min_size=16, max_size=64))
    table = np.cumsum([0, *(rise + 2 * (kv + sequence) for rise in rises)])
    return StepCosts(
        table,
        kv,
        draw(st.integers(0, 20)),
        sequence,
        draw(st.integers(1, 20_000)),
        draw(st.integers(0, 5000)),
        0.4,
        "unvalidated",
    )


def mean(values: list[int]) -> float:
    return sum(values) / len(values)


@settings(max_examples=150)
@given(
    step_tables(),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=40),
    st.booleans(),
    st.integers(1, 16),
    st.integers(1, 8),
    st.integers(0, 60),
)
def test_no_simulated_run_beats_the_ceiling(
    costs: StepCosts, lengths: list[tuple[int, int]], equal: bool, slots: int, block: int, spare: int
) -> None:
    if equal:
        lengths = [lengths[0]] * len(lengths)
    prompts, answers = [p for p, _ in lengths], [a for _, a in lengths]
    assume(mean([p * a for p, a in lengths]) >= mean(prompts) * mean(answers))
    blocks = -(-max(p + a + 1 for p, a in lengths) // block) + spare
    end_ps, done = run(costs, lengths, slots, blocks, block)
    reached = len(lengths) / (end_ps / PS_PER_S)
    tpots = sorted((s.last_ps - s.first_ps) / (s.answer - 1) / PS_PER_S for s in done if s.answer > 1)

    def ceiling(limit_s: float | None, share: float) -> float:
        return rate_ceiling(
            costs,
            input_tokens=mean(prompts),
            output_tokens=mean(answers),
            max_sequences=slots,
            tpot_limit_s=limit_s,
            prefix_hit_rate=0.0,
            tpot_share=share,
        )

    assert reached <= ceiling(None, 1.0) * (1 + 1e-9)
    if tpots:
        assert reached <= ceiling(tpots[-1] * (1 + 1e-12), 1.0) * (1 + 1e-9)
    if tpots and equal:
        middle = len(tpots) // 2
        assert reached <= ceiling(tpots[middle] * (1 + 1e-12), (middle + 1) / len(tpots)) * (1 + 1e-9)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.lists(st.integers(1, 500), min_size=3, max_size=60))
def test_no_shared_stage_beats_its_ceiling(latencies: list[int], gaps: list[int]) -> None:
    """Processor sharing: each of n requests in service advances by 1 / latency[n]."""
    table = np.array([0, *sorted(latencies)]) * 10**6
    costs = StageCosts(table, 0.2, "measured")
    arrivals = deque(np.cumsum(gaps).astype(float) * 1e6)
    started, count = arrivals[0], len(arrivals)
    now, left, since, took = started, list[float](), list[float](), list[float]()
    while arrivals or left:
        served = min(len(left), costs.max_streams)
        ends = min(left[:served], default=math.inf) * (float(table[served]) if served else math.inf)
        until = min(now + ends if served else math.inf, arrivals[0] if arrivals else math.inf)
        if served:
            left[:served] = [share - (until - now) / float(table[served]) for share in left[:served]]
        now = until
        for index in [i for i, share in enumerate(left[:served]) if share <= 1e-9][::-1]:
            took.append(now - since.pop(index))
            left.pop(index)
        while arrivals and arrivals[0] <= now:
            since.append(arrivals.popleft())
            left.append(1.0)
    reached = count / ((now - started) / PS_PER_S)
    assert reached <= stage_rate_ceiling(costs, None) * (1 + 1e-6)
    assert reached <= stage_rate_ceiling(costs, max(took) * (1 + 1e-6) / PS_PER_S) * (1 + 1e-6)
