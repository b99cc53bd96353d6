"""The answer of a load test."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.core.slo import Slo
from rightslice.loadtesting.dialects import ApiName
from rightslice.loadtesting.imports import Measured
from rightslice.loadtesting.knee import Knee
from rightslice.loadtesting.search import Best
from rightslice.loadtesting.statistics import Goodput, Percentiles, Point


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Milliseconds by which the client saw first and last tokens later than a server with known times sent them."""

    streams: int
    first_token_ms: Percentiles
    last_token_ms: Percentiles
    passed: bool


@dataclass(frozen=True, slots=True)
class Client:
    """What the client spent over all points, the least headroom of one, and how true its times were before."""

    cpu_s: float
    headroom: float
    processes: int
    self_check: SelfCheck | None


@dataclass(frozen=True, slots=True)
class PeerPoint:
    """The same load as another tool saw it."""

    tool: str
    name: str
    measured: Measured


@dataclass(frozen=True, slots=True)
class LoadTest:
    """`stopped`: empty, or why it ended early; what was measured until then is kept. `peers`: other tools on the same
    loads.

    `goodput`: the highest of the points, with objectives. `largest_rate`: of a search for one.
    """

    url: str
    model: str
    api: ApiName
    input_tokens: int
    output_tokens: int
    slos: tuple[Slo, ...]
    points: tuple[Point, ...]
    knee: Knee | None
    goodput: Goodput | None
    largest_rate: Best | None
    client: Client
    peers: tuple[PeerPoint, ...]
    stopped: str
    notes: tuple[str, ...]
