"""What a run has shown: latencies, rates, errors, goodput, and whether the client could be trusted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rightslice.core.slo import Slo
from rightslice.loadtesting.exchange import UNFINISHED, Exchange
from rightslice.loadtesting.schedule import ClosedLoop, Load
from rightslice.loadtesting.server_metrics import ServerView

Z_95: Final = 1.959964
"""0.975 quantile of the normal distribution."""
WARM_UP_ROUNDS: Final = 3
"""The first request of every stream is left out of the figures when each stream has sent so many on average."""
MAX_DELAY_S: Final = 0.010
MAX_DELAY_SHARE: Final = 0.05
"""The client is the bottleneck when requests leave later than intended by more than the larger of both (p99; the share
is of the median time to the first token), or when its event loop is late by as much."""
GROWTH: Final = 2.0
_MIN_FOR_GROWTH: Final = 40
GAP_STEP: Final = 1.1
"""Ratio of neighbouring edges of the histogram of gaps."""
_GAP_LOW_S: Final = 1e-4
_GAP_BINS: Final = 146

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds; percentiles by linear interpolation."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests that met every objective: their rate, their share of those judged, and its 95 % Wilson interval."""

    requests_per_s: float
    share: float
    low: float
    high: float
    met: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class ClientCost:
    """What the client itself spent. `loop_delay_s`: 99th percentile of how late its event loop was, or the latest of
    several `processes`."""

    cpu_s: float
    wall_s: float
    loop_delay_s: float
    processes: int = 1

    @property
    def headroom(self) -> float:
        """Share of one core, or of one each, that was left."""
        return max(1.0 - self.cpu_s / (self.wall_s * self.processes), 0.0) if self.wall_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """One run at one load. Rates are over `window_s`, from the first measured request to the last one's sending.

    `concurrency` or `rate` is what was asked for; `input_tokens`, `output_tokens` are the server's counts of the
    completed requests (`counted` of them; else chunks with content). `audio_s`: sound transcribed or spoken; `rtfx`:
    its seconds per second. `gap_histogram`: upper edge in ms -> gaps between
    chunks. `oversaturated`: first tokens came ever later. `reasons`: why the run is not valid.
    """

    name: str
    concurrency: int | None
    rate: float | None
    requests: int
    completed: int
    failed: int
    unfinished: int
    errors: Mapping[str, int]
    error_details: tuple[str, ...]
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    counted: int
    window_s: float
    requests_per_s: float
    output_tokens_per_s: float
    audio_s: float
    rtfx: float | None
    ttft_ms: Latency | None
    tpot_ms: Latency | None
    e2e_ms: Latency | None
    first_byte_ms: Latency | None
    first_chunk_ms: Latency | None
    dispatch_delay_ms: Percentiles | None
    gap_histogram: Mapping[str, int]
    goodput: Goodput | None
    oversaturated: bool
    valid: bool
    reasons: tuple[str, ...]
    client: ClientCost
    server: ServerView | None


def point_of(
    load: Load,
    exchanges: Sequence[Exchange],
    slos: Sequence[Slo],
    client: ClientCost,
    server: ServerView | None = None,
) -> Point:
    """The figures of a run. `exchanges` in order of sending; those never sent are left out."""
    sent = [e for e in exchanges if not math.isnan(e.sent_s)]
    measured = _without_warm_up(load, sent)
    done = [e for e in measured if e.completed]
    errors = Counter(e.error for e in measured if e.error and e.error != UNFINISHED)
    unfinished = sum(e.error == UNFINISHED for e in measured)
    window_s = _window_s(measured)
    ttft = _values([e.ttft_s for e in done])
    reasons = tuple(_reasons(sent, ttft, client))
    closed = isinstance(load, ClosedLoop)
    return Point(
        name=load.name,
        concurrency=load.concurrency if isinstance(load, ClosedLoop) else None,
        rate=None if isinstance(load, ClosedLoop) else load.requests_per_s,
        requests=len(measured),
        completed=len(done),
        failed=sum(errors.values()),
        unfinished=unfinished,
        errors=dict(sorted(errors.items())),
        error_details=tuple(dict.fromkeys(e.detail for e in measured if e.detail))[:5],
        input_tokens=sum(e.input_tokens for e in done),
        cached_tokens=sum(e.cached_tokens for e in done),
        output_tokens=sum(e.output_tokens for e in done),
        counted=sum(e.counted for e in done),
        window_s=window_s,
        requests_per_s=_ended_per_s(measured, window_s, lambda e: 1.0),
        output_tokens_per_s=_tokens_per_s(measured, window_s),
        audio_s=sum(e.audio_s for e in done),
        rtfx=_ended_per_s(measured, window_s, lambda e: e.audio_s) if any(e.audio_s for e in done) else None,
        ttft_ms=_latency(ttft),
        tpot_ms=_latency(_values([e.tpot_s for e in done])),
        e2e_ms=_latency(_values([e.e2e_s for e in done])),
        first_byte_ms=_latency(_values([e.first_byte_s - e.intended_s for e in done])),
        first_chunk_ms=_latency(_values([e.first_chunk_s - e.intended_s for e in done])),
        dispatch_delay_ms=_delays(sent),
        gap_histogram=histogram([gap for e in done for gap in e.gaps]),
        goodput=_goodput(measured, slos, window_s) if slos else None,
        oversaturated=not closed and _growing(measured),
        valid=not reasons and bool(done),
        reasons=reasons if done else (*reasons, "no request was completed"),
        client=client,
        server=server,
    )


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, J. Am. Stat. Assoc. 22, 1927); (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, Z_95**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def histogram(gaps_s: Sequence[float]) -> dict[str, int]:
    """Upper edge in milliseconds -> gaps below it and above the edge before; empty bins left out. Bins of all runs are
    the same, so that histograms can be added."""
    if not gaps_s:
        return {}
    logs = np.log(np.maximum(np.asarray(gaps_s), _GAP_LOW_S) / _GAP_LOW_S) / math.log(GAP_STEP)
    counts = np.bincount(np.minimum(np.floor(logs).astype(np.int64), _GAP_BINS), minlength=1)
    return {f"{_GAP_LOW_S * GAP_STEP ** (i + 1) * 1e3:.4g}": int(n) for i, n in enumerate(counts) if n}


def meets(exchange: Exchange, slo: Slo) -> bool | None:
    """Whether one request met one objective; None where it cannot be said (one token has no time per token)."""
    if exchange.error:
        return None if exchange.error == UNFINISHED else False
    value = {"ttft": exchange.ttft_s, "tpot": exchange.tpot_s, "e2e": exchange.e2e_s}[slo.metric]
    return None if math.isnan(value) else value <= slo.at_most_s


def _without_warm_up(load: Load, sent: Sequence[Exchange]) -> Sequence[Exchange]:
    if isinstance(load, ClosedLoop) and len(sent) >= WARM_UP_ROUNDS * load.concurrency:
        return sent[load.concurrency :]
    return sent


def _window_s(measured: Sequence[Exchange]) -> float:
    """From the first request's sending to the last one's: while the load was whole."""
    if not measured:
        return 0.0
    first, last = measured[0].sent_s, measured[-1].sent_s
    if last > first:
        return last - first
    ends = [e.end_s for e in measured if not math.isnan(e.end_s)]
    return max(ends, default=first) - first


def _ended_per_s(measured: Sequence[Exchange], window_s: float, worth: Callable[[Exchange], float]) -> float:
    """What was completed per second inside the window, counted at the end of each answer."""
    if window_s <= 0.0:
        return 0.0
    end = measured[0].sent_s + window_s
    return sum(worth(e) for e in measured if e.completed and e.end_s <= end) / window_s


def _tokens_per_s(measured: Sequence[Exchange], window_s: float) -> float:
    """Tokens per second inside the window, counted as evenly as they came."""
    if window_s <= 0.0:
        return 0.0
    end = measured[0].sent_s + window_s
    return sum(_tokens_before(e, end) for e in measured if e.completed) / window_s


def _tokens_before(exchange: Exchange, end_s: float) -> float:
    if exchange.last_token_s <= end_s or math.isnan(exchange.last_token_s):
        return exchange.output_tokens if exchange.end_s <= end_s or exchange.last_token_s <= end_s else 0.0
    if exchange.first_token_s >= end_s:
        return 0.0
    span = exchange.last_token_s - exchange.first_token_s
    return exchange.output_tokens * (end_s - exchange.first_token_s) / span


def _values(seconds: Sequence[float]) -> Values:
    found = np.asarray(seconds, dtype=np.float64)
    return found[~np.isnan(found)] * 1e3


def _latency(milliseconds: Values) -> Latency | None:
    if not milliseconds.size:
        return None
    p50, p90, p95, p99 = (float(v) for v in np.percentile(milliseconds, (50, 90, 95, 99)))
    return Latency(float(milliseconds.mean()), p50, p90, p95, p99, float(milliseconds.max()))


def _delays(sent: Sequence[Exchange]) -> Percentiles | None:
    if not sent:
        return None
    p50, p99 = (float(v) for v in np.percentile([e.dispatch_delay_s * 1e3 for e in sent], (50, 99)))
    return Percentiles(p50, p99)


def _goodput(measured: Sequence[Exchange], slos: Sequence[Slo], window_s: float) -> Goodput:
    verdicts = [[meets(e, slo) for slo in slos] for e in measured]
    judged = [v for v in verdicts if any(met is not None for met in v)]
    good = sum(all(met is not False for met in v) for v in judged)
    met = {}
    for i, slo in enumerate(slos):
        asked = [v[i] for v in verdicts if v[i] is not None]
        met[slo.name] = bool(asked) and sum(bool(a) for a in asked) >= slo.share * len(asked)
    share = good / len(judged) if judged else 0.0
    rate = _ended_per_s(measured, window_s, lambda e: all(meets(e, slo) is not False for slo in slos))
    return Goodput(rate, share, *wilson(good, len(judged)), met)


def _growing(measured: Sequence[Exchange]) -> bool:
    """Whether first tokens come ever later: the last quarter's median against the second's."""
    waits = [e.ttft_s if e.completed else math.inf for e in measured]
    if len(waits) < _MIN_FOR_GROWTH:
        return False
    quarter = len(waits) // 4
    early, late = np.median(waits[quarter : 2 * quarter]), np.median(waits[-quarter:])
    return bool(late > GROWTH * early)


def _reasons(sent: Sequence[Exchange], ttft_ms: Values, client: ClientCost) -> list[str]:
    median_s = float(np.median(ttft_ms)) / 1e3 if ttft_ms.size else 0.0
    limit_s = max(MAX_DELAY_S, MAX_DELAY_SHARE * median_s)
    found = []
    if sent:
        late_s = float(np.percentile([e.dispatch_delay_s for e in sent], 99))
        if late_s > limit_s:
            found.append(f"requests left up to {late_s * 1e3:.0f} ms late (p99): the client was the bottleneck")
    if client.loop_delay_s > limit_s:
        found.append(f"the client's event loop was {client.loop_delay_s * 1e3:.0f} ms late (p99): it lacked CPU")
    return found
