"""vLLM's own scheduler beside the simulator's reference: workloads, our iterations, and where the two differ.

An iteration is [[[request, tokens], ..] in the order of the batch, requests preempted, requests finished]. After a
first difference everything that follows counts as different: the clocks no longer agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from rightslice.performance.costs import StepCosts
from rightslice.simulation import LlmServer, OpenClass, Scenario
from rightslice.simulation.scenario import Prefixes
from simulation_cases import any_of, arrivals
from simulation_reference import Reference
from simulation_reference_replicas import Engine, Job

ANSWERS: Final = Path(__file__).parent / "data" / "scheduler" / "vllm.json"
COUNT: Final = 800
"""Workloads that `make oracle` plays; every `KEPT_EVERY`th is kept in ANSWERS for `make test`."""
KEPT_EVERY: Final = 13
COARSE: Final = 100
"""Further ones, from seed COUNT on, in which an id stands for two or four blocks of the engine: there we differ."""

Iteration = list[Any]
Workload = dict[str, Any]


# --- questions ---------------------------------------------------------------------------------------------------


def workloads() -> list[Workload]:
    """The same ones each time."""
    return [workload(seed) for seed in range(COUNT + COARSE)]


def workload(seed: int) -> Workload:
    """Engine limits, a step-time law and requests: every fourth seed is of a realistic shape, the others are tiny."""
    numbers = np.random.default_rng([20261201, seed])
    realistic = seed % 4 == 3
    block = 16 if realistic else any_of(numbers, 1, 2, 4, 16)
    longest = (400, 120) if realistic else any_of(numbers, (12, 12), (40, 20), (20, 60))
    count = any_of(numbers, 5, 15, 30)
    prompts, answers = numbers.integers(1, longest[0] + 1, count), numbers.integers(1, longest[1] + 1, count)
    if any_of(numbers, True, False):  # prompts of whole blocks
        prompts = (prompts + block - 1) // block * block
    caching, chunked = any_of(numbers, True, True, False), any_of(numbers, True, True, True, False)
    model_len = int((prompts + answers).max()) + any_of(numbers, 0, 10)
    budget = any_of(numbers, 64, 256) if realistic else any_of(numbers, 4, 8, 16, 64)
    times = np.sort(numbers.integers(0, count * any_of(numbers, 1, 200, 2000) + 1, count))
    ranks = any_of(numbers, [0], [0], [0, 1], [-1, 0, 2])
    id_blocks = 1 if seed < COUNT else any_of(numbers, 2, 4)
    ids = (
        _texts(numbers, prompts, block * id_blocks)
        if caching and any_of(numbers, True, True, False)
        else [[] for _ in prompts]
    )
    requests = [
        [int(when), int(prompt), int(answer), int(any_of(numbers, *ranks)), known]
        for when, prompt, answer, known in zip(times, prompts, answers, ids, strict=True)
    ]
    requests.sort(key=lambda request: (request[0], request[3]))
    fewest = -(-model_len // block)
    kv, attention, sequence, step = (int(x) for x in numbers.integers(0, 6, 4))
    return {
        "kv_blocks": int(fewest * any_of(numbers, 1.0, 1.2, 1.6, 2.5, 4.0)),
        "block_size": block,
        "id_blocks": id_blocks,
        "max_num_seqs": min(any_of(numbers, 1, 2, 4, 8, 16), budget),
        "max_num_batched_tokens": budget if chunked else max(budget, model_len),
        "max_model_len": model_len,
        "chunked_prefill": chunked,
        "prefix_caching": caching,
        "policy": "fcfs" if len(ranks) == 1 else "priority",
        "costs": {
            "tokens_ps": int(numbers.integers(0, 4)), "kv_token_ps": kv, "attention_ps": attention,
            "sequence_ps": sequence, "step_ps": 10 * step + 1, "prefill_step_ps": 7,
        },
        "requests": requests,
    }  # fmt: skip


def _texts(numbers: np.random.Generator, prompts: np.ndarray, block: int) -> list[list[int]]:
    """Ids of the blocks that prompts share: each follows one of a few texts, some of them branching off another."""
    texts = [[1000 * text + at for at in range(100)] for text in range(any_of(numbers, 1, 2, 4))]
    texts.append(texts[0][:3] + [90_000 + at for at in range(100)])
    found = []
    for prompt in prompts.tolist():
        known = int(numbers.integers(0, prompt // block + 1)) if any_of(numbers, True, False) else prompt // block
        found.append(any_of(numbers, *texts)[:known])
    return found


# --- our answers -------------------------------------------------------------------------------------------------


class Recording(Reference):
    """The reference, and what each of its iterations did."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.iterations: list[Iteration] = []
        self.number = {id(job): number for number, job in enumerate(self.jobs)}

    def numbers_of(self, jobs: Iterable[Job]) -> list[int]:
        return [self.number[id(job)] for job in jobs]

    def start_touched(self, now: int) -> None:
        engines = [replica for replica in self.touched.values() if isinstance(replica, Engine) and replica.due is None]
        super().start_touched(now)
        for engine in engines:
            if engine.due is not None:
                batch = [[self.number[id(job)], job.chunk] for job in engine.running if job.chunk > 0]
                self.iterations.append([batch, sorted(self.numbers_of(engine.evicted)), []])

    def act(self, entity: Any, now: int) -> None:
        running = list(entity.running)
        super().act(entity, now)
        self.iterations[-1][2] = self.numbers_of(job for job in running if job.finish_ps == now)


def scenario_of(asked: Workload) -> Scenario:
    """The workload as a scenario: one class per priority, all of one model."""
    law, budget = asked["costs"], asked["max_num_batched_tokens"]
    tokens = np.arange(budget + 1, dtype=np.int64) * law["tokens_ps"]
    terms = {name: law[name] for name in ("kv_token_ps", "attention_ps", "sequence_ps", "step_ps", "prefill_step_ps")}
    costs = StepCosts(tokens, **terms, relative_error=0.0, provenance="first-principles")
    server = LlmServer(
        "d", "m", 1, costs, asked["kv_blocks"], asked["block_size"], asked["max_num_seqs"], budget,
        asked["max_model_len"], prefix_caching=asked["prefix_caching"],
        chunked_prefill=asked["chunked_prefill"],
    )  # fmt: skip
    requests = asked["requests"]
    classes = [_class(asked, [r for r in requests if r[3] == rank], rank) for rank in sorted({r[3] for r in requests})]
    return Scenario((server,), tuple(classes), horizon_s=1.0)


def _class(asked: Workload, requests: Sequence[Any], rank: int) -> OpenClass:
    times, prompts, answers, _, ids = zip(*requests, strict=True)
    starts = np.concatenate([[0], np.cumsum([len(known) for known in ids])])
    flat = np.array([known for one in ids for known in one], dtype=np.int64)
    prefixes = Prefixes(asked["block_size"] * asked["id_blocks"], starts, flat) if asked["prefix_caching"] else None
    return OpenClass("m", f"c{rank}", arrivals(times, prompts, answers), priority=rank, prefixes=prefixes)


def iterations_of(asked: Workload) -> list[Iteration]:
    """What the reference does."""
    recording = Recording(scenario_of(asked))
    recording.play()
    return recording.iterations


# --- comparison --------------------------------------------------------------------------------------------------


def packed(iterations: Sequence[Iteration]) -> list[list[Any]]:
    """[how often, iteration], equal ones in a row once."""
    found: list[list[Any]] = []
    for iteration in iterations:
        if found and found[-1][1] == iteration:
            found[-1][0] += 1
        else:
            found.append([1, iteration])
    return found


def unpacked(kept: Sequence[Sequence[Any]]) -> list[Iteration]:
    return [iteration for times, iteration in kept for _ in range(times)]


def identical(ours: Sequence[Iteration], theirs: Sequence[Iteration]) -> int:
    """Iterations up to the first difference."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))


def difference(ours: Sequence[Iteration], theirs: Sequence[Iteration]) -> str | None:
    """What differs first; None: nothing."""
    at = identical(ours, theirs)
    if at == len(ours) == len(theirs):
        return None
    if at in {len(ours), len(theirs)}:
        return "number of iterations"
    one, other = ours[at], theirs[at]
    if one[1] != other[1]:
        return "preempted"
    if [number for number, _ in one[0]] != [number for number, _ in other[0]]:
        return "batch"
    return "tokens" if one[0] != other[0] else "finished"


def agreement(asked: Sequence[Workload], theirs: Sequence[Sequence[Iteration]]) -> tuple[int, int, Counter[str]]:
    """Identical iterations, all iterations, and how many workloads differ first in what."""
    same = total = 0
    kinds: Counter[str] = Counter()
    for question, answer in zip(asked, theirs, strict=True):
        ours = iterations_of(question)
        same, total = same + identical(ours, answer), total + max(len(ours), len(answer))
        kind = difference(ours, answer)
        kinds.update([kind] if kind else [])
    return same, total, kinds
