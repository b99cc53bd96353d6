"""Traces written, scaled, cut, sampled, merged and described."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.rng import generator
from rightslice.traffic.describe import describe, gap_cv, peak_per_s
from rightslice.traffic.operations import at_rate, merged, sampled, window
from rightslice.traffic.recorded import NONE, Labels, PrefixBlocks, Trace, dense, first_at, offsets_of, regrouped
from rightslice.traffic.trace_files import left_out, written
from rightslice.traffic.traces import read_trace

DATA = Path(__file__).parents[2] / "data" / "traces"
CODE = read_trace(DATA / "azure_llm_2023_code_head.csv")
MOONCAKE = read_trace(DATA / "mooncake_fast25_conversation_head.jsonl")


def same(one: object, other: object) -> bool:
    """Equal in every field, arrays element by element."""
    if dataclasses.is_dataclass(one) and dataclasses.is_dataclass(other):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


@st.composite
def drawn_traces(draw: st.DrawFn) -> Trace:
    n = draw(st.integers(1, 30))
    inputs = draw(st.lists(st.integers(1, 3000), min_size=n, max_size=n))
    counts = [-(-tokens // 512) for tokens in inputs]
    ids = draw(st.lists(st.integers(0, 9), min_size=sum(counts), max_size=sum(counts)))
    sessions = np.array(draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)), dtype=np.int64)
    sessions[sessions != NONE] = dense(sessions[sessions != NONE])
    names = draw(
        st.lists(st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1), min_size=n, max_size=n)
    )
    known = tuple(dict.fromkeys(names))
    times = draw(st.lists(st.integers(0, 10**7), min_size=n, max_size=n))
    return Trace(
        np.sort(np.array(times, dtype=np.int64)) / 1e3,
        np.array(inputs, dtype=np.int64),
        np.array(draw(st.lists(st.integers(1, 99), min_size=n, max_size=n)), dtype=np.int64),
        model=Labels(np.array([known.index(name) for name in names], dtype=np.int32), known),
        session=sessions,
        priority=np.array(draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n)), dtype=np.int64),
        prefix=PrefixBlocks(offsets_of(np.array(counts)), dense(np.array(ids, dtype=np.int64)), 512),
    )


@settings(max_examples=60)
@given(drawn_traces(), st.booleans())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, trace: Trace, packed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip"
    path.write_bytes(written(trace, "csv", packed=packed))
    back = read_trace(path)
    for name in ("arrival_s", "input_tokens", "output_tokens", "model", "session", "priority"):
        assert same(getattr(back, name), getattr(trace, name)), name
    assert trace.prefix is not None
    assert back.prefix is not None
    assert same(back.prefix.ids, trace.prefix.ids)
    path.write_bytes(written(trace, "mooncake", packed=packed))
    back = read_trace(path)
    assert same(back.input_tokens, trace.input_tokens)
    assert np.array_equal(back.arrival_s, trace.arrival_s)
    assert back.prefix is not None
    assert same(back.prefix.ids, trace.prefix.ids)
    assert left_out(trace, "mooncake") == ("model", "session", "priority")


def test_mooncake_is_written_as_published() -> None:
    source = (DATA / "mooncake_fast25_conversation_head.jsonl").read_text()
    assert written(MOONCAKE, "mooncake").decode() == source
    packed = written(MOONCAKE, "mooncake", packed=True)
    assert gzip.decompress(packed).decode() == source
    assert packed == written(MOONCAKE, "mooncake", packed=True)
    lines = written(CODE, "mooncake").decode().splitlines()
    assert json.loads(lines[0]) == {"timestamp": 0, "input_length": 4808, "output_length": 10}


def test_small_blocks_are_joined_to_large_ones() -> None:
    """Blocks of 16 to blocks of 32: equal only where both halves and everything before are equal."""
    rows = [[1, 2, 3], [1, 2, 4], [5, 2, 3], [1, 2, 3, 6]]
    counts = np.array([len(row) for row in rows])
    fine = PrefixBlocks(offsets_of(counts), np.array([one for row in rows for one in row], dtype=np.int64), 16)
    coarse = regrouped(fine, 32)
    assert [coarse.of(i).tolist() for i in range(4)] == [[0, 1], [0, 2], [3, 4], [0, 5]]
    assert regrouped(fine, 16) is fine
    with pytest.raises(ValueError, match="cannot be joined"):
        regrouped(coarse, 16)


@given(st.lists(st.one_of(st.integers(-3, 9), st.integers(-(2**62), 2**62)), max_size=40))
def test_ids_are_numbered_as_they_occur(values: list[int]) -> None:
    """Narrow and wide ranges of ids, against a dictionary."""
    known: dict[int, int] = {}
    expected = [known.setdefault(value, len(known)) for value in values]
    ids = np.array(values, dtype=np.int64)
    assert dense(ids).tolist() == expected
    assert first_at(ids).tolist() == [values.index(value) for value in values]


@given(st.floats(0.01, 100.0))
def test_a_rate_is_scaled_and_nothing_else(factor: float) -> None:
    fast = at_rate(CODE, factor)
    assert fast.requests_per_s == pytest.approx(CODE.requests_per_s * factor)
    assert gap_cv(fast.arrival_s) == pytest.approx(gap_cv(CODE.arrival_s))
    assert same(fast.input_tokens, CODE.input_tokens)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_no_rate(factor: float) -> None:
    with pytest.raises(ValueError, match="rate factor"):
        at_rate(CODE, factor)


def test_windows_join_to_the_whole() -> None:
    parts = [window(MOONCAKE, start, 20.0) for start in np.arange(0.0, 120.0, 20.0)]
    assert sum(map(len, parts)) == len(MOONCAKE)
    assert all(((part.arrival_s >= 0.0) & (part.arrival_s < 20.0)).all() for part in parts)
    assert parts[1].prefix is not None
    assert MOONCAKE.prefix is not None
    assert same(parts[1].prefix.of(0), MOONCAKE.prefix.of(len(parts[0])))
    assert len(window(MOONCAKE, 1e6, 1.0)) == 0


def test_a_sample_keeps_bursts_and_the_course_of_the_rate() -> None:
    """Half the requests, 40 seeds: count within 3 standard errors; gaps wider spread than when drawn one by one."""
    samples = [sampled(CODE, 0.5, generator(seed, "sample")) for seed in range(40)]
    sizes = np.array([len(sample) for sample in samples]) / len(CODE)
    assert abs(sizes.mean() - 0.5) < 3 * sizes.std() / 40**0.5
    thinned = [CODE.arrival_s[generator(seed, "thin").random(len(CODE)) < 0.5] for seed in range(40)]
    whole, kept, drawn = (
        float(np.mean([gap_cv(times) for times in many]))
        for many in ([CODE.arrival_s], [sample.arrival_s for sample in samples], thinned)
    )
    assert kept > 0.75 * whole
    assert kept > 1.1 * drawn
    assert same(sampled(CODE, 0.5, generator(1, "s")), sampled(CODE, 0.5, generator(1, "s")))
    assert len(sampled(CODE, 1.0, generator(1, "s"))) == len(CODE)


def test_a_sample_takes_whole_conversations() -> None:
    sessions = np.repeat(np.arange(400), 3)
    lone = np.full(600, NONE)
    n = len(sessions) + len(lone)
    one = np.ones(n, dtype=np.int64)
    trace = Trace(np.arange(n, dtype=np.float64), one, one, session=np.concatenate((sessions, lone)))
    kept = sampled(trace, 0.3, generator(1, "s"))
    assert kept.session is not None
    turns = np.bincount(kept.session + 1, minlength=401)
    assert set(turns[1:].tolist()) == {0, 3}
    assert abs((turns[1:] > 0).sum() - 120) < 4 * (400 * 0.3 * 0.7) ** 0.5
    assert abs(turns[0] - 180) < 4 * (600 * 0.3 * 0.7) ** 0.5
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match="share"):
            sampled(trace, share, generator(1, "s"))


def test_merging_keeps_columns_apart() -> None:
    first = window(MOONCAKE, 0.0, 10.0)
    n = len(first)
    first = dataclasses.replace(first, model=Labels(np.zeros(n, dtype=np.int32), ("m",)), session=np.arange(n))
    both = merged([first, CODE, first])
    assert len(both) == 2 * n + len(CODE)
    assert (np.diff(both.arrival_s) >= 0).all()
    assert both.prefix is not None
    assert first.prefix is not None
    assert len(np.unique(both.prefix.ids)) == 2 * len(np.unique(first.prefix.ids))
    assert both.session is not None
    assert np.bincount(both.session + 1).tolist() == [len(CODE)] + [1] * 2 * n
    assert both.model is not None
    assert both.model.names == ("m",)
    assert (both.model.codes == 0).sum() == 2 * n
    assert both.priority is None
    with pytest.raises(ValueError, match="nothing to merge"):
        merged([])


def test_description_of_the_recorded_head() -> None:
    """Figures counted in other ways: spans by hand, first occurrences with a set."""
    found = describe(MOONCAKE)
    assert (found.requests, found.input_tokens.max) == (300, int(MOONCAKE.input_tokens.max()))
    assert found.requests_per_s == pytest.approx(299 / found.span_s)
    assert found.input_tokens.p50 == float(np.median(MOONCAKE.input_tokens))
    known: set[int] = set()
    hits = 0
    assert MOONCAKE.prefix is not None
    for request in range(300):
        ids = MOONCAKE.prefix.of(request).tolist()
        hits += next((at for at, block in enumerate(ids) if block not in known), len(ids))
        known.update(ids)
    assert found.prefix is not None
    assert found.prefix.seen_share == hits / len(MOONCAKE.prefix.ids)
    assert found.prefix.distinct_blocks == len(known)
    assert sum(found.rates_per_s) * found.span_s / 60 == pytest.approx(300)
    assert found.sessions is None


def test_peaks_are_those_of_the_busiest_window_wherever_it_begins() -> None:
    times = np.array([0.0, 5.5, 5.9, 6.2, 6.4, 20.0])
    assert peak_per_s(times, 1.0) == 4.0
    assert peak_per_s(times, 0.3) == pytest.approx(2 / 0.3)
    assert gap_cv(np.array([0.0, 1.0])) is None
    assert gap_cv(np.array([0.0, 1.0, 2.0])) == 0.0


def test_one_request_can_be_described() -> None:
    one = np.ones(1, dtype=np.int64)
    found = describe(Trace(np.zeros(1), one, one))
    assert (found.requests, found.span_s, found.requests_per_s, found.gap_cv, found.peaks) == (1, 0.0, 1.0, None, ())
    with pytest.raises(ValueError, match="without requests"):
        describe(CODE.take(np.zeros(0, dtype=np.int64)))
