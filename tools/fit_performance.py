"""Measure the error of the step-time laws on published measurements, and the 80 % bands that follow.

    python tools/fit_performance.py --data DIR

DIR holds `truth/calibration.csv` (columns as in its README). Nothing is fitted here; performance/data/accuracy.yaml
says what was chosen on these rows. Printed per cell of that file: rows, groups, median absolute error of throughput,
TPOT and TTFT, the band (80 % quantile of |log(predicted / measured)| of throughput and TPOT, every group weighing the
same) and how often the band, taken from the other groups, holds in a group left out.

Rows of old engines (version below the oldest trusted one) are scored apart; rows that cannot be placed are counted.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import math
import random
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import get_args

from rightslice.catalogue.accelerators import device, resolve_device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import Dtype, EngineSettings
from rightslice.core.errors import BadInputError
from rightslice.memory.footprint import footprint
from rightslice.performance.accuracy import cell_name
from rightslice.performance.costs import StepCosts
from rightslice.performance.laws import step_costs

ENGINES = ("vllm", "tensorrt-llm", "sglang")
LOADS = ("static_batch", "closed", "saturated")
DTYPES: dict[str, Dtype] = {"w8a16": "fp8", "w4a16": "int4", "w8a8-int8": "int8"}
"""Precisions of the file that are not names of a weight dtype; the device decides how they are multiplied."""
STEP_TOKENS = 8192
"""Tokens of one step in the published benchmark set-ups (TensorRT-LLM 8,192; vLLM on large GPUs 8,192)."""
RUN_OVER = 3
"""A saturated run is as long as this many full batches."""

Row = dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What a run measured or predicted; None where there is no figure."""

    throughput: float | None
    tpot_ms: float | None
    ttft_ms: float | None


@dataclass(frozen=True)
class Load:
    """Requests (input, output tokens) of which `in_flight` are present at once."""

    requests: Sequence[tuple[int, int]]
    in_flight: int
    max_sequences: int
    kv_tokens: int


class _Run:
    """One replica that serves a `Load`: decode first, prompts in chunks, whole requests reserved in the cache."""

    def __init__(self, costs: StepCosts, load: Load) -> None:
        self.costs, self.load = costs, load
        self.now_ps = self.steps = self.context = self.used = self.admitted = 0
        self.finishing: list[tuple[int, int]] = []
        self.waiting: deque[int] = deque()
        self.partial: tuple[int, int] | None = None
        count = len(load.requests)
        self.arrival, self.first, self.done = [0] * count, [0] * count, [0] * count
        for _ in range(min(load.in_flight, count)):
            self.arrive()

    def arrive(self) -> None:
        """The next request joins the queue."""
        if self.admitted < len(self.load.requests):
            self.arrival[self.admitted] = self.now_ps
            self.waiting.append(self.admitted)
            self.admitted += 1

    def chunks(self) -> tuple[int, int, list[int]]:
        """Prompt tokens, attention work and requests whose prompt ends, for the next step."""
        budget = self.costs.max_tokens - len(self.finishing)
        tokens = work = 0
        ended: list[int] = []
        while budget > 0 and (self.partial or self.admit(len(ended))):
            index, past = self.partial or (self.waiting.popleft(), 0)
            chunk = min(budget, self.load.requests[index][0] - past)
            tokens, budget = tokens + chunk, budget - chunk
            work += chunk * past + chunk * (chunk + 1) // 2
            self.partial = (index, past + chunk)
            if past + chunk == self.load.requests[index][0]:
                ended.append(index)
                self.partial = None
        return tokens, work, ended

    def admit(self, ended: int) -> bool:
        """Reserve the cache of the first waiting request when it and a slot are free."""
        if not self.waiting or len(self.finishing) + ended >= self.load.max_sequences:
            return False
        need = sum(self.load.requests[self.waiting[0]])
        if self.used and self.used + need > self.load.kv_tokens:
            return False
        self.used += need
        return True

    def step(self) -> None:
        """One step with prompts, or all decode steps up to the next request that ends."""
        tokens, work, ended = self.chunks()
        decoding = len(self.finishing)
        count = 1 if tokens else self.finishing[0][0] - self.steps
        one = self.costs.step_time_ps(tokens, work, decoding, self.context)
        self.now_ps += count * one + self.costs.kv_token_ps * decoding * (count * (count - 1) // 2)
        self.context += count * decoding
        self.steps += count
        while self.finishing and self.finishing[0][0] <= self.steps:
            self.finish(heapq.heappop(self.finishing)[1], decoded=True)
        for index in ended:
            prompt, answer = self.load.requests[index]
            self.first[index] = self.now_ps
            if answer > 1:
                heapq.heappush(self.finishing, (self.steps + answer - 1, index))
                self.context += prompt + 1
            else:
                self.finish(index, decoded=False)

    def finish(self, index: int, *, decoded: bool) -> None:
        """Free the request's cache and let the next one in."""
        total = sum(self.load.requests[index])
        self.used -= total
        self.context -= total if decoded else 0
        self.done[index] = self.now_ps
        self.arrive()

    def outcome(self) -> Outcome:
        """Run to the end."""
        while self.finishing or self.waiting or self.partial:
            self.step()
        requests = self.load.requests
        gaps = [
            (end - first) / (answer - 1) / 1e9
            for end, first, (_, answer) in zip(self.done, self.first, requests, strict=True)
            if answer > 1
        ]
        waits = [(first - start) / 1e9 for first, start in zip(self.first, self.arrival, strict=True)]
        return Outcome(
            sum(answer for _, answer in requests) / (self.now_ps / 1e12),
            sum(gaps) / len(gaps) if gaps else None,
            sum(waits) / len(waits),
        )


def _engine_settings(row: Row) -> EngineSettings | None:
    weights, kv = row["precision"].split("/")
    dtype = DTYPES.get(weights, weights)
    if dtype not in get_args(Dtype) or int(row["dp"] or 1) > 1 or not row["tp"]:
        return None
    return EngineSettings(
        engine=row["engine"],
        version=row["engine_version"],
        tensor_parallel_size=int(row["tp"]),
        pipeline_parallel_size=int(row["pp"] or 1),
        expert_parallel=int(row["ep"] or 1) > 1,
        weight_dtype=dtype,  # type: ignore[arg-type]
        kv_dtype="fp8" if kv == "fp8" else "bf16",
        max_model_len=int(float(row["isl"])) + int(float(row["osl"])),
        max_num_seqs=1024,
        max_num_batched_tokens=STEP_TOKENS,
    )


def _load(row: Row, kv_tokens: int, replicas: int, max_sequences: int) -> Load:
    prompt, answer = int(float(row["isl"])), int(float(row["osl"]))
    if row["load"] == "saturated":
        in_flight = max(1, min(max_sequences, kv_tokens // (prompt + answer)))
        count = RUN_OVER * in_flight
    else:
        in_flight = max(1, round(float(row["concurrency_or_batch"]) / replicas))
        count = in_flight * ((10 if in_flight <= 128 else 5) if row["load"] == "closed" else 1)
    rng = random.Random(0)  # noqa: S311 - lengths of a benchmark
    low = 0.8 if row["source"].startswith("inferencex") else 1.0  # that harness draws 80-100 % of the nominal length
    drawn = [(_share(prompt, low, rng), _share(answer, low, rng)) for _ in range(count)]
    return Load(drawn, in_flight, max_sequences, kv_tokens)


def _share(nominal: int, low: float, rng: random.Random) -> int:
    return max(1, round(nominal * rng.uniform(low, 1.0)))


def _measured(row: Row) -> Outcome:
    def number(column: str) -> float | None:
        return float(row[column]) if row[column] else None

    prompt, answer = float(row["isl"]), float(row["osl"])
    total = number("tokens_s_total")
    throughput = number("output_tokens_s_total") or (total * answer / (prompt + answer) if total else None)
    return Outcome(throughput, number("tpot_ms_mean") if answer >= 20 else None, number("ttft_ms_mean"))


def _predicted(row: Row, architecture: Architecture, where: Device, settings: EngineSettings) -> Outcome | None:
    typical = int(float(row["isl"])) + int(float(row["osl"])) // 2
    space = footprint(architecture, where, settings, typical_tokens=typical)
    if not space.fits:
        return None
    replicas = max(1, int(row["n_gpus"]) // settings.gpus_per_replica)
    load = _load(row, space.kv_tokens, replicas, settings.max_num_seqs)
    costs = step_costs(architecture, where, settings, typical_tokens=typical)
    one = _Run(costs, load).outcome()
    return Outcome((one.throughput or 0.0) * replicas, one.tpot_ms, one.ttft_ms)


@dataclass
class Cell:
    """Ratios predicted / measured of one cell, by metric, with the row's group."""

    throughput: list[tuple[str, float]]
    tpot: list[tuple[str, float]]
    ttft: list[tuple[str, float]]


def _placed(row: Row) -> tuple[Architecture, Device, EngineSettings] | None:
    settings, found = _engine_settings(row), resolve_device(row["hw"], "calibration")
    if settings is None or found is None:
        return None
    try:
        return resolve_model(row["model"]), device(*found), settings
    except (BadInputError, KeyError):
        return None


def _score(rows: Iterable[Row]) -> tuple[dict[str, Cell], int]:
    cells: dict[str, Cell] = defaultdict(lambda: Cell([], [], []))
    left_out = 0
    for row in rows:
        placed = _placed(row)
        predicted = _predicted(row, *placed) if placed else None
        if placed is None or predicted is None:
            left_out += 1
            continue
        cell, measured = cells[cell_name(*placed)], _measured(row)
        for into, guess, truth in (
            (cell.throughput, predicted.throughput, measured.throughput),
            (cell.tpot, predicted.tpot_ms, measured.tpot_ms),
            (cell.ttft, predicted.ttft_ms, measured.ttft_ms),
        ):
            if guess and truth:
                into.append((row["group"], guess / truth))
    return cells, left_out


def band(ratios: Sequence[tuple[str, float]], share: float = 0.8) -> float:
    """Half width that holds `share` of |log ratio| with every group weighing the same: exp(quantile) - 1."""
    sizes: dict[str, int] = defaultdict(int)
    for group, _ in ratios:
        sizes[group] += 1
    ordered = sorted((abs(math.log(ratio)), 1.0 / sizes[group]) for group, ratio in ratios)
    wanted, seen = share * sum(weight for _, weight in ordered), 0.0
    for distance, weight in ordered:
        seen += weight
        if seen >= wanted:
            return math.expm1(distance)
    return math.inf


def _coverage(ratios: Sequence[tuple[str, float]]) -> float:
    """Mean over groups of the share of rows inside the band of the other groups."""
    groups = sorted({group for group, _ in ratios})
    if len(groups) < 2:
        return math.nan
    shares = []
    for group in groups:
        width = math.log1p(band([r for r in ratios if r[0] != group]))
        inside = [abs(math.log(ratio)) <= width for name, ratio in ratios if name == group]
        shares.append(sum(inside) / len(inside))
    return sum(shares) / len(shares)


def _errors(ratios: Sequence[tuple[str, float]]) -> str:
    if not ratios:
        return f"{'-':>22}"
    error = 100 * median(abs(ratio - 1) for _, ratio in ratios)
    bias = 100 * (median(ratio for _, ratio in ratios) - 1)
    return f"{len(ratios):5d} {error:6.1f}% {bias:+7.1f}%"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    with (parser.parse_args().data / "truth" / "calibration.csv").open(newline="") as handle:
        rows = [
            row
            for row in csv.DictReader(handle)
            if row["task"] == "llm" and row["engine"] in ENGINES and row["load"] in LOADS and row["quality"] != "D"
        ]
    cells, left_out = _score(rows)
    print(f"{'cell':34} {'throughput n, median, bias':>22} {'TPOT':>22} {'TTFT':>22}  band  left-out coverage  groups")
    for name in sorted(cells):
        cell = cells[name]
        both = cell.throughput + cell.tpot
        groups = len({group for group, _ in both})
        figures = " ".join(_errors(ratios) for ratios in (cell.throughput, cell.tpot, cell.ttft))
        print(f"{name:34} {figures}  {band(both):5.2f} {_coverage(both):6.2f} {groups:4d}")
    print(f"{len(rows)} rows, {left_out} left out (unknown model or device, no stated parallelism, does not fit)")


if __name__ == "__main__":
    main()
