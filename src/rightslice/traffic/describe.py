"""What a trace is like: rates, lengths, burstiness, and how much of its prompts repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rightslice.traffic.recorded import NONE, Labels, Trace

PEAK_WINDOWS_S: Final = (1.0, 10.0, 60.0, 600.0, 3600.0)
PROFILE_BINS: Final = 60


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Tokens of one side: mean, percentiles, extremes."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most requests of any window of that length, wherever it begins, per second."""

    window_s: float
    requests_per_s: float


@dataclass(frozen=True, slots=True)
class PrefixSummary:
    """`seen_share`: blocks at the head of prompts that came before, of all blocks: what no cache can exceed."""

    block_tokens: int
    blocks: int
    distinct_blocks: int
    seen_share: float


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace in figures. `gap_cv`: standard deviation / mean of the gaps, 1 for Poisson; None below three requests.

    `rates_per_s`: the rate in PROFILE_BINS equal parts of the span, all at one moment counted as one second.
    """

    requests: int
    span_s: float
    requests_per_s: float
    peaks: tuple[Peak, ...]
    gap_cv: float | None
    input_tokens: LengthSummary
    output_tokens: LengthSummary
    rates_per_s: tuple[float, ...]
    sessions: int | None
    turns_per_session: float | None
    models: Mapping[str, int]
    classes: Mapping[str, int]
    prefix: PrefixSummary | None


def describe(trace: Trace) -> TraceSummary:
    """The figures of a trace. Raises ValueError when it has no requests."""
    if not len(trace):
        raise ValueError("a trace without requests")
    times = trace.arrival_s - trace.arrival_s[0]
    span_s = float(times[-1])
    talks = None if trace.session is None else trace.session[trace.session != NONE]
    sessions = None if talks is None else len(np.unique(talks))
    return TraceSummary(
        requests=len(trace),
        span_s=span_s,
        requests_per_s=trace.requests_per_s,
        peaks=tuple(Peak(length, peak_per_s(times, length)) for length in PEAK_WINDOWS_S if length <= span_s),
        gap_cv=gap_cv(times),
        input_tokens=_lengths(trace.input_tokens),
        output_tokens=_lengths(trace.output_tokens),
        rates_per_s=_profile(times),
        sessions=sessions,
        turns_per_session=len(talks) / sessions if talks is not None and sessions else None,
        models=_counts(trace.model),
        classes=_counts(trace.traffic_class),
        prefix=_prefix(trace),
    )


def peak_per_s(times: NDArray[np.float64], window_s: float) -> float:
    """The most requests of sorted `times` in any [t, t + window), over the window."""
    inside = np.searchsorted(times, times + window_s, side="left") - np.arange(len(times))
    return float(inside.max(initial=0)) / window_s


def gap_cv(times: NDArray[np.float64]) -> float | None:
    """Standard deviation / mean of the gaps of sorted times; None for fewer than two gaps or all at one moment."""
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.any() else None


def _lengths(tokens: NDArray[np.int64]) -> LengthSummary:
    p50, p90, p95, p99 = (float(value) for value in np.percentile(tokens, (50, 90, 95, 99)))
    return LengthSummary(float(tokens.mean()), p50, p90, p95, p99, int(tokens.max()))


def _profile(times: NDArray[np.float64]) -> tuple[float, ...]:
    width_s = float(times[-1]) / PROFILE_BINS or 1.0 / PROFILE_BINS
    which = np.minimum((times / width_s).astype(np.int64), PROFILE_BINS - 1)
    return tuple((np.bincount(which, minlength=PROFILE_BINS) / width_s).tolist())


def _counts(labels: Labels | None) -> Mapping[str, int]:
    """Requests by name, most first; those without a name under an empty one."""
    if labels is None:
        return {}
    counts = np.bincount(labels.codes + 1, minlength=len(labels.names) + 1).tolist()
    named = zip(("", *labels.names), counts, strict=True)
    return dict(sorted(((name, count) for name, count in named if count), key=lambda one: (-one[1], one[0])))


def _prefix(trace: Trace) -> PrefixSummary | None:
    if trace.prefix is None or not len(trace.prefix.ids):
        return None
    blocks = len(trace.prefix.ids)
    seen = int(trace.prefix.seen_before().sum())
    return PrefixSummary(trace.prefix.block_tokens, blocks, len(np.unique(trace.prefix.ids)), seen / blocks)
