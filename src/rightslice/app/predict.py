"""`rightslice predict`: the performance of one deployment under one load, from the simulated engine.

The load decides what is played: a static batch or a burst is handed over at once, a closed loop keeps so many requests
in flight, a saturated server always has enough waiting, and an open loop offers a rate, whatever the server can do. One
engine is simulated with its share of the load; throughput is that of all engines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import EngineDefaults, engine, engines
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import InfeasibleError
from rightslice.core.estimate import Metric, Provenance
from rightslice.core.quantities import format_bytes
from rightslice.core.results import Distribution
from rightslice.core.rng import generator
from rightslice.memory.footprint import Footprint, footprint
from rightslice.performance import accuracy
from rightslice.performance.coefficients import era
from rightslice.performance.laws import step_costs
from rightslice.simulation.scenario import LlmServer, StageLengths

if TYPE_CHECKING:
    from rightslice.simulation.loadtest import Reported

LoadKind = Literal["static_batch", "closed", "saturated", "burst", "open"]
ROUNDS: Final = 10
"""Requests of a closed-loop test over those in flight: what benchmark clients of inference servers usually send."""
FEWER_ROUNDS: Final = 5
MANY_IN_FLIGHT: Final = 128
SATURATED_ROUNDS: Final = 3
OPEN_REQUESTS: Final = 300
OPEN_S: Final = 60.0
"""An open test sends at least so many requests and lasts at least so long, up to MOST_IN_FLIGHT requests."""
SUSTAINABLE: Final = 0.85
"""Of the throughput of a saturated engine: where queues of open loops stay short in simulation."""
MOST_IN_FLIGHT: Final = 20_000
_OTHER_ENGINES_AS: Final = "vllm"
_VLLM_MIXES_SINCE: Final = "0.8.0"


@dataclass(frozen=True, slots=True)
class Load:
    """`requests`: in the batch, in flight or handed over, over all engines; `rate_per_s`: offered, open load only.

    `shortest_share`: lengths are drawn uniformly between this share of the nominal ones and all of them.
    `cached_tokens`: first tokens of every prompt that are in the cache already.
    `waiting_steps`: decode steps before the engine looks at a new request, on average (SGLang started with a receive
    interval). `sent`: requests of an open test, 0 if not known; `lasts_s`: how long it takes at least then.
    `sustained`: the rate was published because the server kept up with it, so that a simulated one that cannot is
    offered SUSTAINABLE of what it carries.
    """

    kind: LoadKind
    requests: float = 0.0
    rate_per_s: float = 0.0
    shortest_share: float = 1.0
    cached_tokens: float = 0.0
    waiting_steps: float = 0.0
    sent: int = 0
    lasts_s: float = OPEN_S
    sustained: bool = False


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
    found, engines_busy = simulated(deployment, load, input_tokens, output_tokens)
    bands = accuracy.bands(
        deployment.architecture, deployment.device, deployment.settings, load.kind, guessed=deployment.guessed
    )
    by = bands.metrics
    rates = (found.output_tokens_per_s * engines_busy, found.requests_per_s * engines_busy)
    return Prediction(
        ttft_ms=_metric(found.ttft_ms, by["ttft"]),
        tpot_ms=_metric(found.tpot_ms, by["tpot"]) if found.tpot_ms else None,
        e2e_ms=_metric(found.e2e_ms, by["e2e"]),
        output_tokens_per_s=_metric(Distribution(*(rates[0],) * 4), by["throughput"]),
        requests_per_s=_metric(Distribution(*(rates[1],) * 4), by["throughput"]),
        cell=bands.cell,
        provenance=by["tpot"].provenance,
    )


def metrics_of(found: Reported, engines_busy: int) -> dict[str, Distribution]:
    """Distributions by name of the metric; no `tpot` for answers of one token."""
    rate = found.output_tokens_per_s * engines_busy
    named = {"throughput": Distribution(*(rate,) * 4), "ttft": found.ttft_ms, "e2e": found.e2e_ms}
    return named | ({"tpot": found.tpot_ms} if found.tpot_ms else {})


def simulated(
    deployment: Deployment, load: Load, input_tokens: float, output_tokens: float, room: Room | None = None
) -> tuple[Reported, int]:
    """What the client of one engine reports by the laws alone, and how many engines are busy.

    `room`: that of `room_of`, where it is known already. Raises as `predict`.
    """
    from rightslice.simulation.loadtest import closed_test, open_test  # noqa: PLC0415 - loads numba

    room = room or room_of(deployment, load, input_tokens, output_tokens)
    server = _server(deployment, room)
    test = _test(deployment, load, server, input_tokens + output_tokens)
    lengths = _lengths(max(1.0, input_tokens - load.cached_tokens), output_tokens, load.shortest_share, test.requests)
    measured_by_clients = load.kind in ("closed", "open")
    outside_s = era(deployment.device, deployment.settings).request_s if measured_by_clients else 0.0
    if load.kind == "open":
        rate_per_s = load.rate_per_s
        if load.sustained:
            most, busy = simulated(deployment, Load("saturated"), input_tokens, output_tokens, room)
            rate_per_s = min(rate_per_s, SUSTAINABLE * most.requests_per_s * busy)
        gaps = generator(0, "predict", "arrivals").exponential(test.engines / rate_per_s, test.requests)
        found = open_test(server, np.cumsum(gaps), lengths)
    else:
        found = closed_test(server, lengths, test.in_flight, outside_s)
    if found is None:
        raise InfeasibleError("RS2001", "a request is longer than the cache of the engine")
    step_ms = found.tpot_ms.mean if found.tpot_ms else 0.0
    return found.later(outside_s * 1e3 + load.waiting_steps * step_ms), test.engines


@dataclass(frozen=True, slots=True)
class Room:
    """How one engine is started, the blocks of its cache, and the lengths of its requests in tokens."""

    settings: EngineSettings
    kv_blocks: int
    longest_tokens: int
    typical_tokens: int


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


def room_of(deployment: Deployment, load: Load, input_tokens: float, output_tokens: float) -> Room:
    """Settings and cache of one engine; its batch is at least as large as a static one.

    Raises InfeasibleError RS2001 where the weights do not fit.
    """
    device, settings = deployment.device, deployment.settings
    if load.kind == "static_batch":
        largest = max(1, round(load.requests / deployment.engines))
        settings = replace(settings, max_num_seqs=max(settings.max_num_seqs, min(largest, MOST_IN_FLIGHT)))
    settings = replace(settings, max_num_batched_tokens=max(settings.max_num_batched_tokens, settings.max_num_seqs))
    longest = round(input_tokens) + round(output_tokens)
    typical = max(1, round(input_tokens) + round(output_tokens) // 2)
    in_memory = settings if settings.engine in engines() else replace(settings, engine=_OTHER_ENGINES_AS)
    space = footprint(deployment.architecture, device, in_memory, typical_tokens=typical)
    if space.weights_bytes > device.memory_bytes:
        weights, memory = format_bytes(space.weights_bytes, binary=True), format_bytes(space.device_bytes, binary=True)
        raise InfeasibleError("RS2001", f"weights of {weights} on a device of {memory}")
    block = settings.block_size_tokens
    tokens = _kv_tokens(space, settings, typical) // settings.data_parallel_size
    return Room(settings, max(tokens // block, -(-(longest + 1) // block) + 1), longest, typical)


def _server(deployment: Deployment, room: Room) -> LlmServer:
    settings = room.settings
    facts = engine(settings.engine if settings.engine in engines() else _OTHER_ENGINES_AS)
    costs = step_costs(deployment.architecture, deployment.device, settings, typical_tokens=room.typical_tokens)
    return LlmServer(
        deployment="one",
        model="one",
        replicas=1,
        costs=costs,
        kv_blocks=room.kv_blocks,
        block_size_tokens=settings.block_size_tokens,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=room.longest_tokens + 1,
        admission=facts.admission,
        prefill_first=facts.prefill_first or _first_vllm(settings),
    )


def _kv_tokens(space: Footprint, settings: EngineSettings, typical: int) -> int:
    """Tokens in the cache of a replica, also of one that starts against the rules of the memory model."""
    if space.fits or space.kv_bytes_per_sequence <= 0:
        return space.kv_tokens
    return space.kv_cache_bytes * typical // space.kv_bytes_per_sequence * settings.data_parallel_size


def _first_vllm(settings: EngineSettings) -> bool:
    """vLLM before chunked prefill became its default: prompts have steps of their own."""
    old = bool(settings.version) and version_key(settings.version) < version_key(_VLLM_MIXES_SINCE)
    return settings.engine == "vllm" and old


def _test(deployment: Deployment, load: Load, server: LlmServer, tokens: float) -> _Test:
    there = deployment.engines
    if load.kind == "open":
        lasting = min(MOST_IN_FLIGHT, math.ceil(load.lasts_s * load.rate_per_s / there))
        requests = math.ceil(load.sent / there) or max(OPEN_REQUESTS, lasting)
        return _Test(there, requests, requests)
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


@lru_cache(maxsize=256)
def _lengths(input_tokens: float, output_tokens: float, shortest: float, count: int) -> StageLengths:
    """`count` requests, uniform between the shortest share of the nominal lengths and all of them."""
    rng = generator(0, "predict", "lengths")
    prompts, answers = (
        np.maximum(1, np.rint(nominal * rng.uniform(shortest, 1.0, count))).astype(np.int64)
        for nominal in (input_tokens, output_tokens)
    )
    return StageLengths(prompts, answers)


def _metric(found: Distribution, band: accuracy.MetricBand) -> Metric:
    return Metric(
        found.mean,
        found.p50,
        found.p95,
        found.p99,
        found.mean / (1.0 + band.relative_error),
        found.mean * (1.0 + band.relative_error),
        found.mean * (1.0 + band.relative_error95),
        band.provenance,
    )
