"""`rightslice predict`: the performance of one deployment under one load, from the simulated engine.

The load decides what is played: a static batch or a burst is handed over at once, a closed loop keeps so many requests
in flight, a saturated server always has enough waiting, and an open loop offers a rate, whatever the server can do. One
engine is simulated with its share of the load; throughput is that of all engines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import EngineDefaults, engine, engines
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import InfeasibleError
from rightslice.core.estimate import Metric, Provenance
from rightslice.core.quantities import format_bytes
from rightslice.core.results import Distribution
from rightslice.core.rng import generator
from rightslice.memory.footprint import footprint
from rightslice.performance import accuracy
from rightslice.performance.laws import step_costs
from rightslice.simulation.scenario import LlmServer, StageLengths

LoadKind = Literal["static_batch", "closed", "saturated", "burst", "open"]
ROUNDS: Final = 10
"""Requests of a closed-loop test over those in flight: what benchmark clients of inference servers usually send."""
FEWER_ROUNDS: Final = 5
MANY_IN_FLIGHT: Final = 128
SATURATED_ROUNDS: Final = 3
OPEN_REQUESTS: Final = 400
MOST_IN_FLIGHT: Final = 20_000
_OTHER_ENGINES_AS: Final = "vllm"


@dataclass(frozen=True, slots=True)
class Load:
    """`requests`: in the batch, in flight or handed over, over all engines; `rate_per_s`: offered, open load only.

    `shortest_share`: lengths are drawn uniformly between this share of the nominal ones and all of them.
    """

    kind: LoadKind
    requests: float = 0.0
    rate_per_s: float = 0.0
    shortest_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """One model on `accelerators` equal devices: as many replicas as their parallel sizes leave room for.

    `guessed`: parts of it are assumptions (architecture, device), so that nothing measured speaks for it.
    """

    architecture: Architecture
    device: Device
    settings: EngineSettings
    accelerators: int
    guessed: bool = False

    @property
    def engines(self) -> int:
        """Schedulers that run side by side: replicas times data-parallel ranks, at least 1."""
        replicas = max(1, self.accelerators // self.settings.gpus_per_replica)
        return replicas * self.settings.data_parallel_size


@dataclass(frozen=True, slots=True)
class Prediction:
    """Times of a request in milliseconds, rates over all accelerators; `tpot_ms` is None for answers of one token.

    `cell`: the group of measured configurations whose errors give the intervals.
    """

    ttft_ms: Metric
    tpot_ms: Metric | None
    e2e_ms: Metric
    output_tokens_per_s: Metric
    requests_per_s: Metric
    cell: str
    provenance: Provenance


def predict(deployment: Deployment, load: Load, input_tokens: float, output_tokens: float) -> Prediction:
    """What a benchmark client would report.

    Raises InfeasibleError RS2001 where the weights do not fit, BadInputError RS2005 for a device of unknown rates.
    """
    from rightslice.simulation.loadtest import closed_test, open_test  # noqa: PLC0415 - loads numba

    server = _server(deployment, load, input_tokens, output_tokens)
    test = _test(deployment, load, server, input_tokens + output_tokens)
    lengths = _lengths(input_tokens, output_tokens, load.shortest_share, test.requests)
    if load.kind == "open":
        gaps = generator(0, "predict", "arrivals").exponential(test.engines / load.rate_per_s, test.requests)
        found = open_test(server, np.cumsum(gaps), lengths)
    else:
        found = closed_test(server, lengths, test.in_flight)
    if found is None:
        raise InfeasibleError("RS2001", "a request is longer than the cache of the engine")
    bands = accuracy.bands(deployment.architecture, deployment.device, deployment.settings, guessed=deployment.guessed)
    rates = (found.output_tokens_per_s * test.engines, found.requests_per_s * test.engines)
    return Prediction(
        ttft_ms=_metric(found.ttft_ms, bands.ttft),
        tpot_ms=_metric(found.tpot_ms, bands.tpot) if found.tpot_ms else None,
        e2e_ms=_metric(found.e2e_ms, bands.e2e),
        output_tokens_per_s=_metric(Distribution(*(rates[0],) * 4), bands.throughput),
        requests_per_s=_metric(Distribution(*(rates[1],) * 4), bands.throughput),
        cell=bands.cell,
        provenance=bands.tpot.provenance,
    )


@dataclass(frozen=True, slots=True)
class _Test:
    """Engines that take part; requests that one of them gets, and how many of them at once."""

    engines: int
    requests: int
    in_flight: int


def engine_defaults(settings: EngineSettings, device: Device) -> EngineDefaults:
    """Defaults of the engine at its version; of its newest where those are not established, of vLLM without any."""
    known = engine(settings.engine if settings.engine in engines() else _OTHER_ENGINES_AS)
    for facts, version in ((known, settings.version), (known, known.latest_version)):
        try:
            return facts.defaults(version or facts.latest_version, device)
        except (KeyError, StopIteration):
            continue
    other = engine(_OTHER_ENGINES_AS)
    return other.defaults(other.latest_version, device)


def _server(deployment: Deployment, load: Load, input_tokens: float, output_tokens: float) -> LlmServer:
    """One engine of the deployment; its batch is at least as large as a static one."""
    architecture, device, settings = deployment.architecture, deployment.device, deployment.settings
    if load.kind == "static_batch":
        largest = max(1, round(load.requests / deployment.engines))
        settings = replace(settings, max_num_seqs=max(settings.max_num_seqs, min(largest, MOST_IN_FLIGHT)))
    settings = replace(settings, max_num_batched_tokens=max(settings.max_num_batched_tokens, settings.max_num_seqs))
    longest = round(input_tokens) + round(output_tokens)
    typical = max(1, round(input_tokens) + round(output_tokens) // 2)
    in_memory = settings if settings.engine in engines() else replace(settings, engine=_OTHER_ENGINES_AS)
    space = footprint(architecture, device, in_memory, typical_tokens=typical)
    if space.weights_bytes > device.memory_bytes:
        weights, memory = format_bytes(space.weights_bytes, binary=True), format_bytes(space.device_bytes, binary=True)
        raise InfeasibleError("RS2001", f"weights of {weights} on a device of {memory}")
    block = settings.block_size_tokens
    blocks = max(space.kv_tokens // settings.data_parallel_size // block, -(-(longest + 1) // block) + 1)
    return LlmServer(
        deployment="one",
        model="one",
        replicas=1,
        costs=step_costs(architecture, device, settings, typical_tokens=typical),
        kv_blocks=blocks,
        block_size_tokens=block,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=longest + 1,
        admission=engine(in_memory.engine).admission,
    )


def _test(deployment: Deployment, load: Load, server: LlmServer, tokens: float) -> _Test:
    there = deployment.engines
    if load.kind == "open":
        return _Test(there, OPEN_REQUESTS, OPEN_REQUESTS)
    if load.kind == "saturated":
        room = int(server.kv_blocks * server.block_size_tokens // max(1.0, tokens))
        together = max(1, min(server.max_num_seqs, room))
        return _Test(there, SATURATED_ROUNDS * together, together)
    busy = min(there, max(1, round(load.requests)))
    present = min(MOST_IN_FLIGHT, max(1, round(load.requests / busy)))
    rounds = 1
    if load.kind == "closed":
        rounds = ROUNDS if present <= MANY_IN_FLIGHT else FEWER_ROUNDS
    return _Test(busy, present * rounds, present)


def _lengths(input_tokens: float, output_tokens: float, shortest: float, count: int) -> StageLengths:
    """`count` requests, uniform between the shortest share of the nominal lengths and all of them."""
    rng = generator(0, "predict", "lengths")
    prompts, answers = (
        np.maximum(1, np.rint(nominal * rng.uniform(shortest, 1.0, count))).astype(np.int64)
        for nominal in (input_tokens, output_tokens)
    )
    return StageLengths(prompts, answers)


def _metric(found: Distribution, band: accuracy.MetricBand) -> Metric:
    mean = found.mean * band.bias
    return Metric(
        mean,
        found.p50 * band.bias,
        found.p95 * band.bias,
        found.p99 * band.bias,
        mean / (1.0 + band.relative_error),
        mean * (1.0 + band.relative_error),
        mean * (1.0 + band.relative_error95),
        band.provenance,
    )
