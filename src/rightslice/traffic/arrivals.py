"""Open-loop demand: when requests arrive and how long they are, as arrays sorted by time.

A plan is verified at its peak: `diurnal` is Poisson at the planned peak rate, like `constant`; `bursty` is a renewal
process with gamma gaps. Offline work (`tokens`) is spread evenly over the day before its deadline.

Where a class shares prompts (sessions with history, common prefixes, a stated hit rate, a trace with block ids), all
requests carry the ids of their blocks, so that prefix caches can be simulated. Ids of a trace are new in each round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.traffic.conversations import BLOCK_TOKENS, Conversation, conversations
from rightslice.traffic.generators import RateProfile, daily, following, gamma_bursts, measured_day, poisson
from rightslice.traffic.lengths import Side, lengths
from rightslice.traffic.operations import merged
from rightslice.traffic.prompts import with_blocks
from rightslice.traffic.recorded import NONE, Labels, PrefixBlocks, offsets_of
from rightslice.traffic.traces import Trace

if TYPE_CHECKING:
    from rightslice.spec.workload import Tokens, TrafficClass

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
class Sharing:
    """What prompts have in common: block ids, tokens of each that an earlier request had (a prefix cache without limit
    would hold them), and sessions (NONE outside of one; None: not known)."""

    blocks: PrefixBlocks
    seen_tokens: NDArray[np.int64]
    session: NDArray[np.int64] | None

    def where(self, chosen: NDArray[np.bool_]) -> Sharing:
        """Of the requests for which `chosen` (as many entries) is true."""
        session = None if self.session is None else self.session[chosen]
        return Sharing(self.blocks.take(np.flatnonzero(chosen)), self.seen_tokens[chosen], session)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests sorted by time. `class_index` is the position of the request's class in the list that was given."""

    arrival_ps: NDArray[np.int64]
    class_index: NDArray[np.int32]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    sharing: Sharing | None = None

    def __len__(self) -> int:
        return len(self.arrival_ps)

    def of_class(self, index: int) -> Arrivals:
        """The requests of one class."""
        return self.where(self.class_index == index)

    def where(self, chosen: NDArray[np.bool_]) -> Arrivals:
        """The requests for which `chosen` (as many entries) is true."""
        return Arrivals(
            self.arrival_ps[chosen],
            self.class_index[chosen],
            self.input_tokens[chosen],
            self.output_tokens[chosen],
            self.sharing.where(chosen) if self.sharing else None,
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
    streams = rng.spawn(len(classes))
    parts: list[Trace] = []
    for traffic, own_per_s, stream in zip(classes, offered, streams, strict=True):
        per_s = own_per_s * scale
        _refuse_too_many(traffic, per_s, horizon_s)
        if traffic.trace is not None:
            parts.append(_replayed((traces or {})[traffic.trace], horizon_s, per_s))
        else:
            parts.append(_drawn(_Starts(traffic, stream, by_hour), per_s, horizon_s, max_context))
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Arrivals(empty, empty.astype(np.int32), empty, empty)
    return _arrivals(_merged(classes, parts, streams), parts, horizon_s)


def _refuse_too_many(traffic: TrafficClass, per_s: float, horizon_s: float) -> None:
    lead_s = traffic.sessions.turns * traffic.sessions.gap if traffic.sessions else 0.0
    if per_s * (horizon_s + lead_s) > MAX_REQUESTS:
        message = f'class "{traffic.name}" has {per_s * (horizon_s + lead_s):.3g} requests in one run'
        raise BadInputError(
            Diagnostic("RS0106", message, hint=f"at most {MAX_REQUESTS:,}: split the workload, for example by region")
        )


def _merged(classes: Sequence[TrafficClass], parts: Sequence[Trace], streams: Sequence[np.random.Generator]) -> Trace:
    """All classes by time; labels are their positions. With block ids for every request where any class shares."""
    names = tuple(str(index) for index in range(len(parts)))
    labelled = [
        replace(part, traffic_class=Labels(np.full(len(part), index, dtype=np.int32), names))
        for index, part in enumerate(parts)
    ]
    own = [part for part in labelled if part.prefix is None]
    recorded = [part for part in labelled if part.prefix is not None]
    if not recorded and not any(c.shares_prompts for c in classes):
        return merged(labelled)
    sizes = {part.prefix.block_tokens for part in recorded if part.prefix}
    drawn = [with_blocks(merged(own), classes, streams, math.lcm(*sizes, BLOCK_TOKENS))] if own else []
    try:
        return merged([*drawn, *recorded])
    except ValueError:
        message = f"traces of one model have blocks of {' and '.join(map(str, sorted(sizes)))} tokens"
        hint = "the largest must be a multiple of the others"
        raise BadInputError(Diagnostic("RS0204", message, hint=hint)) from None


def _arrivals(whole: Trace, parts: Sequence[Trace], horizon_s: float) -> Arrivals:
    assert whole.traffic_class is not None  # noqa: S101 - every part has one
    arrival_ps = np.rint(whole.arrival_s * PS_PER_S).astype(np.int64)
    sharing = None
    if whole.prefix is not None:
        seen = whole.prefix.seen_before() * whole.prefix.block_tokens
        loose = any(part.prefix is not None and part.session is None for part in parts)
        session = np.full(len(whole), NONE, dtype=np.int64) if whole.session is None else whole.session
        sharing = Sharing(whole.prefix, np.minimum(seen, whole.input_tokens - 1), None if loose else session)
    found = Arrivals(arrival_ps, whole.traffic_class.codes, whole.input_tokens, whole.output_tokens, sharing)
    inside = arrival_ps < round(horizon_s * PS_PER_S)
    return found if inside.all() else found.where(inside)


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


def _lengths(
    tokens: Tokens | None, n: int, rng: np.random.Generator, maximum: int | None, side: Side
) -> NDArray[np.int64]:
    """Lengths of one side; 1 where the class gives none (a stage without tokens)."""
    if tokens is None:
        return np.ones(n, dtype=np.int64)
    return lengths(tokens.mean, tokens.p95, rng, n, maximum, side)


def _drawn(begun: _Starts, per_s: float, horizon_s: float, max_context: int | None) -> Trace:
    """Requests of a class at `per_s`, single or in sessions, with its common prefix before their input.

    Within `max_context` an answer keeps its length and the prompt gives way. Of a conversation that no longer fits the
    oldest turns go, so that such a prompt has nothing in common with the one before: it stands outside of its session.
    """
    traffic, rng, sessions = begun.traffic, begun.rng, begun.traffic.sessions
    room = None if max_context is None else max(max_context - 1, 1)
    inputs = partial(_lengths, traffic.input_tokens, maximum=room, side="input")
    outputs = partial(_lengths, traffic.output_tokens, maximum=room, side="output")
    if sessions is not None:
        turns = (0.0,) * (sessions.turns - 1) + (1.0,)
        law = Conversation(turns, sessions.gap, 0.0, inputs, outputs, sessions.carries_history)
        found = conversations(law, per_s, horizon_s, lambda rate, span_s, _: begun.times(rate, span_s), rng)
    else:
        times = begun.times(per_s, horizon_s)
        answers = outputs(len(times), rng)
        found = Trace(times, inputs(len(times), rng), answers)
    if traffic.prefix and traffic.prefix.tokens:
        found = replace(found, input_tokens=found.input_tokens + traffic.prefix.tokens)
    return found if max_context is None else _within(found, max_context)


def _within(trace: Trace, max_context: int) -> Trace:
    """Prompts cut to what the answer leaves."""
    kept = np.clip(trace.input_tokens, 1, np.maximum(max_context - trace.output_tokens, 1))
    session = None if trace.session is None else np.where(kept < trace.input_tokens, NONE, trace.session)
    return replace(trace, input_tokens=kept, session=session)


def _replayed(trace: Trace, horizon_s: float, per_s: float) -> Trace:
    """The trace end to end until the horizon, its clock stretched so that its mean rate is `per_s`.

    Sessions and blocks of one round are not those of another: the same people do not come again with the same text.
    """
    stretch = trace.requests_per_s / per_s
    period_s = len(trace) / per_s
    rounds = max(1, math.ceil(horizon_s / period_s))
    times = (np.arange(rounds)[:, None] * period_s + (trace.arrival_s - trace.arrival_s[0])[None, :] * stretch).ravel()
    inside = np.flatnonzero(times < horizon_s)  # what comes later may not fit 64-bit picoseconds
    again = Trace(
        times,
        np.tile(trace.input_tokens, rounds),
        np.tile(trace.output_tokens, rounds),
        session=None if trace.session is None else _apart(trace.session, rounds),
        prefix=_repeated(trace.prefix, rounds) if trace.prefix else None,
    )
    return again.take(inside)


def _repeated(prefix: PrefixBlocks, rounds: int) -> PrefixBlocks:
    offsets = offsets_of(np.tile(np.diff(prefix.offsets), rounds))
    return PrefixBlocks(offsets, _apart(prefix.ids, rounds), prefix.block_tokens)


def _apart(numbers: NDArray[np.int64], rounds: int) -> NDArray[np.int64]:
    """The numbers again and again, those of each round above those before; NONE stays."""
    step = int(numbers.max(initial=NONE)) + 1
    again = numbers[None, :] + step * np.arange(rounds)[:, None]
    return np.where(numbers[None, :] == NONE, NONE, again).ravel()
