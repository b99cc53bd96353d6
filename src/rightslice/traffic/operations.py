"""What is done to a trace before it is used: another rate, a window, a sample, several as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rightslice.traffic.recorded import NONE, Labels, PrefixBlocks, Trace, offsets_of, regrouped

SAMPLE_WINDOW_S: Final = 300.0
"""Sampling keeps the course of the rate over windows of about this length. Of the gaps' coefficient of variation in the
Azure LLM inference trace 2023, code (13.2), half the requests keep 97 % so, and 71 % when drawn one by one."""


def at_rate(trace: Trace, factor: float) -> Trace:
    """The same requests `factor` times as fast: the clock is compressed, so gaps keep their relative spread.

    Raises ValueError unless `factor` is positive and finite.
    """
    if not (np.isfinite(factor) and factor > 0.0):
        raise ValueError(f"rate factor {factor}")
    return trace.take(np.arange(len(trace)), trace.arrival_s / factor)


def window(trace: Trace, start_s: float, length_s: float) -> Trace:
    """The requests in [start, start + length), `start_s` counted from the first request; times count from the start."""
    times = trace.arrival_s - trace.arrival_s[0] if len(trace) else trace.arrival_s
    first, last = np.searchsorted(times, (start_s, start_s + length_s))
    inside = np.arange(first, last)
    return trace.take(inside, times[inside] - start_s)


def sampled(trace: Trace, share: float, rng: np.random.Generator) -> Trace:
    """`share` of the requests in expectation, bursts kept.

    With sessions, whole conversations are drawn (a request outside of one counts as its own), each with probability
    `share`. Without, requests are not thinned one by one, which would turn bursts into Poisson traffic: of each
    window a random stretch of length `share` (it may wrap around) is kept and spread over the window, so that gaps keep
    their relative spread and the rate its course. Raises ValueError unless 0 < share <= 1.
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share {share}")
    if trace.session is not None:
        alone = rng.random(len(trace)) < share
        drawn = rng.random(int(trace.session.max(initial=NONE)) + 2) < share  # the last is not used
        return trace.take(np.flatnonzero(np.where(trace.session == NONE, alone, drawn[trace.session])))
    if not len(trace):
        return trace
    start, span_s = trace.arrival_s[0], float(trace.arrival_s[-1] - trace.arrival_s[0])
    windows = max(round(span_s / SAMPLE_WINDOW_S), 1)
    window_s = (span_s or 1.0) / windows
    which = np.minimum(((trace.arrival_s - start) / window_s).astype(np.int64), windows - 1)
    within = trace.arrival_s - start - which * window_s
    drawn_s = np.mod(within - rng.uniform(0.0, window_s, windows)[which], window_s) / share
    kept = np.flatnonzero(drawn_s < window_s)
    return trace.take(kept, (start + which * window_s + drawn_s)[kept]).sorted_by_time()


def merged(traces: Sequence[Trace]) -> Trace:
    """All requests on one clock. Sessions and blocks of different traces stay different; equal names are one label.

    A column that only some have is empty for the others. Raises ValueError without traces, or when blocks of one
    cannot be joined to the largest block size.
    """
    if not traces:
        raise ValueError("nothing to merge")
    return Trace(
        np.concatenate([trace.arrival_s for trace in traces]),
        np.concatenate([trace.input_tokens for trace in traces]),
        np.concatenate([trace.output_tokens for trace in traces]),
        _labels([trace.model for trace in traces], traces),
        _labels([trace.traffic_class for trace in traces], traces),
        _sessions(traces),
        _priorities(traces),
        _prefixes(traces),
    ).sorted_by_time()


def _labels(parts: Sequence[Labels | None], traces: Sequence[Trace]) -> Labels | None:
    if all(part is None for part in parts):
        return None
    known: dict[str, int] = {}
    codes = []
    for part, trace in zip(parts, traces, strict=True):
        if part is None:
            codes.append(np.full(len(trace), NONE, dtype=np.int32))
            continue
        numbers = [known.setdefault(name, len(known)) for name in part.names]
        codes.append(np.array([*numbers, NONE], dtype=np.int32)[part.codes])
    return Labels(np.concatenate(codes), tuple(known))


def _sessions(traces: Sequence[Trace]) -> NDArray[np.int64] | None:
    if all(trace.session is None for trace in traces):
        return None
    parts, before = [], 0
    for trace in traces:
        own = trace.session if trace.session is not None else np.full(len(trace), NONE, dtype=np.int64)
        parts.append(np.where(own == NONE, NONE, own + before))
        before += int(own.max(initial=NONE)) + 1
    return np.concatenate(parts)


def _priorities(traces: Sequence[Trace]) -> NDArray[np.int64] | None:
    if all(trace.priority is None for trace in traces):
        return None
    return np.concatenate([np.zeros(len(t), dtype=np.int64) if t.priority is None else t.priority for t in traces])


def _prefixes(traces: Sequence[Trace]) -> PrefixBlocks | None:
    sizes = [trace.prefix.block_tokens for trace in traces if trace.prefix is not None]
    if not sizes:
        return None
    counts, ids, before = [], [], 0
    for trace in traces:
        if trace.prefix is None:
            counts.append(np.zeros(len(trace), dtype=np.int64))
            continue
        blocks = regrouped(trace.prefix, max(sizes))
        counts.append(np.diff(blocks.offsets))
        ids.append(blocks.ids + before)
        before += int(blocks.ids.max(initial=-1)) + 1
    return PrefixBlocks(offsets_of(np.concatenate(counts)), np.concatenate(ids), max(sizes))
