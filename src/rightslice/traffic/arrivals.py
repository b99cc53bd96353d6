"""Open-loop demand: when requests arrive and how long they are, as arrays sorted by time.

A plan is verified at its peak: `diurnal` is Poisson at the planned peak rate, like `constant`; `bursty` is a renewal
process with gamma gaps. Offline work (`tokens`) is spread evenly over the day before its deadline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.spec.workload import Sessions, Tokens, TrafficClass
from rightslice.traffic.generators import RateProfile, daily, following, gamma_bursts, measured_day, poisson
from rightslice.traffic.lengths import Side, lengths
from rightslice.traffic.traces import Trace

PS_PER_S: Final = 1e12
DAY_S: Final = 86_400.0

BURSTY_GAP_CV: Final = 4.7
"""Coefficient of variation of the gaps of `bursty` traffic: root mean square over the 43 one-minute windows with more
than 20 gaps, weighted by gaps, of the Azure LLM inference trace 2023, code completion (8,819 requests). A gamma process
with it has a variance-to-mean ratio of one-second counts of 13.4 at that trace's rate; the trace has 13.2.
Source: Azure Public Dataset, CC-BY 4.0; Patel et al., Splitwise, ISCA 2024."""

MAX_REQUESTS: Final = 20_000_000
"""Requests of one class in one run; about 640 MB of arrays."""

PlannedRate = Literal["planned", "mean"] | float
"""`planned`: the peak where the class has one; `mean`; or a number: requests/s of all classes together, same mix."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests sorted by time. `class_index` is the position of the request's class in the list that was given."""

    arrival_ps: NDArray[np.int64]
    class_index: NDArray[np.int32]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival_ps)

    def of_class(self, index: int) -> Arrivals:
        """The requests of one class."""
        return self.where(self.class_index == index)

    def where(self, chosen: NDArray[np.bool_]) -> Arrivals:
        """The requests for which `chosen` (as many entries) is true."""
        return Arrivals(
            self.arrival_ps[chosen], self.class_index[chosen], self.input_tokens[chosen], self.output_tokens[chosen]
        )


def offered_per_s(
    traffic: TrafficClass,
    rate: Literal["planned", "mean"] = "planned",
    traces: Mapping[str, Trace] | None = None,
) -> float:
    """Requests/s of one class: its rate, its trace's mean rate, or tokens / (tokens of a mean request) / 86,400 s.

    Offline `tokens` count input and output together and are due every day. Raises BadInputError (RS0202) for offline
    work without token lengths, KeyError for a trace that is not in `traces`.
    """
    if traffic.rate is not None:
        return traffic.rate.planned_per_s if rate == "planned" else traffic.rate.mean
    if traffic.trace is not None:
        return (traces or {})[traffic.trace].requests_per_s
    per_request = sum(side.mean for side in (traffic.input_tokens, traffic.output_tokens) if side is not None)
    if per_request == 0:
        hint = "add input_tokens and output_tokens"
        raise BadInputError(Diagnostic("RS0202", f'class "{traffic.name}" has tokens but no token lengths', hint=hint))
    return (traffic.tokens or 0) / per_request / DAY_S


def mean_day(
    classes: Sequence[TrafficClass], width_s: float, traces: Mapping[str, Trace] | None = None
) -> NDArray[np.float64]:
    """Expected requests/s of all classes in each slice of `width_s` seconds of a day, at the middle of the slice.

    `diurnal` classes follow the hours of a measured day, the others come evenly. Raises as `offered_per_s`.
    """
    middles_s = np.arange(width_s / 2.0, DAY_S, width_s)
    total = np.zeros_like(middles_s)
    for traffic in classes:
        per_s = offered_per_s(traffic, "mean", traces)
        if traffic.shape == "diurnal":
            profile = _day(traffic, per_s, 1)
            total += np.interp(middles_s, profile.times_s, profile.rates_per_s)
        else:
            total += per_s
    return total


def open_loop(
    classes: Sequence[TrafficClass],
    horizon_s: float,
    rng: np.random.Generator,
    rate: PlannedRate = "planned",
    *,
    max_context: int | None = None,
    traces: Mapping[str, Trace] | None = None,
    by_hour: bool = False,
) -> Arrivals:
    """Requests of all classes in [0, horizon_s), sorted by time (ties: order of classes).

    `by_hour`: `diurnal` classes follow the hours of a measured day around their rate, stretched to their peak.

    Each class draws from its own child of `rng`. `max_context` caps input + output of every generated request; rows of
    a trace are replayed as they are, end to end until the horizon. `traces`: trace file name -> its rows.
    Raises BadInputError (RS0106) when one class has more than MAX_REQUESTS requests.
    """
    offered = [offered_per_s(c, "mean" if rate == "mean" else "planned", traces) for c in classes]
    scale = float(rate) / sum(offered) if not isinstance(rate, str) and offered else 1.0
    parts: list[_Requests] = []
    for traffic, own_per_s, stream in zip(classes, offered, rng.spawn(len(classes)), strict=True):
        per_s = own_per_s * scale
        _refuse_too_many(traffic, per_s, horizon_s)
        if traffic.trace is not None:
            parts.append(_replayed((traces or {})[traffic.trace], horizon_s, per_s))
        elif traffic.sessions is not None:
            starts = _Starts(traffic, stream, by_hour)
            parts.append(_conversations(starts, traffic.sessions, per_s, horizon_s, max_context))
        else:
            times = _Starts(traffic, stream, by_hour).times(per_s, horizon_s)
            parts.append(_Requests(times, *token_lengths(traffic, len(times), stream, max_context)))
    return _merged(parts, horizon_s)


@dataclass(frozen=True, slots=True)
class _Requests:
    arrival_s: NDArray[np.float64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]


def _refuse_too_many(traffic: TrafficClass, per_s: float, horizon_s: float) -> None:
    lead_s = traffic.sessions.turns * traffic.sessions.gap if traffic.sessions else 0.0
    if per_s * (horizon_s + lead_s) > MAX_REQUESTS:
        message = f'class "{traffic.name}" has {per_s * (horizon_s + lead_s):.3g} requests in one run'
        raise BadInputError(
            Diagnostic("RS0106", message, hint=f"at most {MAX_REQUESTS:,}: split the workload, for example by region")
        )


def _merged(parts: Sequence[_Requests], horizon_s: float) -> Arrivals:
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Arrivals(empty, empty.astype(np.int32), empty, empty)
    times = np.concatenate([p.arrival_s for p in parts])
    index = np.concatenate([np.full(len(p.arrival_s), i, dtype=np.int32) for i, p in enumerate(parts)])
    arrival_ps = np.rint(times * PS_PER_S).astype(np.int64)
    order = np.argsort(arrival_ps, kind="stable")
    order = order[arrival_ps[order] < round(horizon_s * PS_PER_S)]
    inputs = np.concatenate([p.input_tokens for p in parts])
    outputs = np.concatenate([p.output_tokens for p in parts])
    return Arrivals(arrival_ps[order], index[order], inputs[order], outputs[order])


@dataclass(frozen=True, slots=True)
class _Starts:
    """When requests (or sessions) of a class begin."""

    traffic: TrafficClass
    rng: np.random.Generator
    by_hour: bool

    def times(self, per_s: float, horizon_s: float) -> NDArray[np.float64]:
        """Sorted times in [0, horizon_s)."""
        traffic, rng = self.traffic, self.rng
        if traffic.tokens is not None:
            return (np.arange(math.ceil(per_s * horizon_s), dtype=np.float64) + rng.random()) / per_s
        if traffic.shape == "bursty":
            return gamma_bursts(per_s, horizon_s, rng, gap_cv=BURSTY_GAP_CV)
        if traffic.shape == "diurnal" and self.by_hour:
            times = following(_day(traffic, per_s, math.ceil(horizon_s / DAY_S)), rng)
            return times[times < horizon_s]
        return poisson(per_s, horizon_s, rng)


def _day(traffic: TrafficClass, per_s: float, days: int) -> RateProfile:
    """Days of mean rate `per_s`: the measured hours, drawn out until the busiest is the class's peak.

    Every hour to the same power keeps their order and leaves none without requests.
    """
    rate = traffic.rate
    peak = rate.planned_per_s / rate.mean if rate is not None else 1.0
    hours = np.array(measured_day())
    low, high = 0.0, _STEEPEST
    for _ in range(60):
        power = (low + high) / 2.0
        drawn = hours**power
        low, high = (power, high) if drawn.max() / drawn.mean() < peak else (low, power)
    return daily(per_s, days, hourly=(hours**low).tolist())


_STEEPEST: Final = 60.0
"""Power at which nearly all requests of a day come in one hour."""


def _drawn(
    tokens: Tokens | None, n: int, rng: np.random.Generator, maximum: int | None, side: Side
) -> NDArray[np.int64]:
    """Lengths of one side; 1 where the class gives none (a stage without tokens)."""
    if tokens is None:
        return np.ones(n, dtype=np.int64)
    return lengths(tokens.mean, tokens.p95, rng, n, maximum, side)


def token_lengths(
    traffic: TrafficClass, n: int, rng: np.random.Generator, max_context: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Input and output tokens of n requests of a class, drawn independently; 1 where the class gives none.

    Within `max_context` an answer keeps its length and the prompt gives way.
    """
    room = None if max_context is None else max(max_context - 1, 1)
    outputs = _drawn(traffic.output_tokens, n, rng, room, "output")
    inputs = _drawn(traffic.input_tokens, n, rng, room, "input")
    if max_context is not None:
        inputs = np.clip(inputs, 1, np.maximum(max_context - outputs, 1))
    return inputs, outputs


def _conversations(
    begun: _Starts, sessions: Sessions, per_s: float, horizon_s: float, max_context: int | None
) -> _Requests:
    """Sessions start at rate / turns; turn k comes k gaps later; the rate of requests is `per_s` from time 0 on.

    With `carries_history` the input of a turn is its new text plus all inputs and answers before it, cut to what
    `max_context` leaves beside the answer.
    """
    turns, gap_s = sessions.turns, sessions.gap
    lead_s = (turns - 1) * gap_s
    starts = begun.times(per_s / turns, horizon_s + lead_s) - lead_s
    drawn = token_lengths(begun.traffic, len(starts) * turns, begun.rng, max_context)
    inputs, outputs = (side.reshape(len(starts), turns) for side in drawn)
    if sessions.carries_history:
        before = np.cumsum(inputs + outputs, axis=1) - inputs - outputs
        inputs = inputs + before
        if max_context is not None:
            inputs = np.clip(inputs, 1, np.maximum(max_context - outputs, 1))
    times = starts[:, None] + gap_s * np.arange(turns)[None, :]
    kept = (times >= 0.0) & (times < horizon_s)
    return _Requests(times[kept], inputs[kept], outputs[kept])


def _replayed(trace: Trace, horizon_s: float, per_s: float) -> _Requests:
    """The trace end to end until the horizon, its clock stretched so that its mean rate is `per_s`."""
    stretch = trace.requests_per_s / per_s
    period_s = len(trace) / per_s
    rounds = max(1, math.ceil(horizon_s / period_s))
    times = (np.arange(rounds)[:, None] * period_s + (trace.arrival_s - trace.arrival_s[0])[None, :] * stretch).ravel()
    inside = times < horizon_s  # what comes later may not fit 64-bit picoseconds
    inputs, outputs = np.tile(trace.input_tokens, rounds), np.tile(trace.output_tokens, rounds)
    return _Requests(times[inside], inputs[inside], outputs[inside])
