"""Open-loop arrivals: rates, order, shapes, sessions, offline work, replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.errors import BadInputError
from rightslice.core.rng import generator
from rightslice.spec.workload import TrafficClass
from rightslice.traffic.arrivals import DAY_S, Arrivals, offered_per_s, open_loop
from rightslice.traffic.traces import Trace, read_trace

PS = 10**12


def traffic(**fields: object) -> TrafficClass:
    tokens = {"input_tokens": {"mean": 400, "p95": 900}, "output_tokens": 100}
    return TrafficClass.model_validate(tokens | {"class": "c"} | fields)


def drawn(*classes: TrafficClass, horizon_s: float = 2000.0, seed: int = 1) -> Arrivals:
    return open_loop(classes, horizon_s, generator(seed, "arrivals"))


@settings(max_examples=40)
@given(
    st.floats(0.1, 40.0),
    st.sampled_from(["constant", "diurnal", "bursty"]),
    st.integers(1, 8),
    st.sampled_from([None, 3000]),
    st.integers(0, 10**6),
)
def test_sorted_within_the_horizon_and_at_the_rate(
    rate: float, shape: str, turns: int, max_context: int | None, seed: int
) -> None:
    sessions = {"turns": turns, "gap": "20s"} if turns > 1 else None
    one = traffic(rate=f"{rate}/s", shape=shape, sessions=sessions)
    got = open_loop((one,), 2000.0, generator(seed, "a"), max_context=max_context)
    assert (np.diff(got.arrival_ps) >= 0).all()
    assert (got.arrival_ps >= 0).all()
    assert (got.arrival_ps < 2000 * PS).all()
    assert (got.input_tokens >= 1).all()
    assert (got.output_tokens >= 1).all()
    if max_context:
        assert (got.input_tokens + got.output_tokens <= max_context).all()
    # six standard deviations of a count whose variance is mean x turns x (CV^2 for bursts)
    spread = (rate * 2000.0 * turns * (22.1 if shape == "bursty" else 1.0)) ** 0.5
    assert abs(len(got) - rate * 2000.0) < 6 * spread + 1


def test_constant_is_poisson_and_bursty_is_not() -> None:
    """Variance to mean of one-second counts: 1, and at 2.57/s the 13.2 of the recorded code completion traffic."""
    for shape, expected in (("constant", 1.0), ("diurnal", 1.0), ("bursty", 13.2)):
        seconds = drawn(traffic(rate="2.57/s", shape=shape), horizon_s=100_000.0).arrival_ps // PS
        counts = np.bincount(seconds, minlength=100_000)
        assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.06), shape


def test_planned_is_the_peak() -> None:
    one = traffic(rate={"mean": "2/s", "peak": "6/s"})
    assert (offered_per_s(one), offered_per_s(one, "mean")) == (6.0, 2.0)
    for rate, expected in (("planned", 6.0), ("mean", 2.0), (11.0, 11.0)):
        got = open_loop((one,), 5000.0, generator(1, "a"), rate)  # type: ignore[arg-type]
        assert len(got) / 5000.0 == pytest.approx(expected, rel=0.03)


def test_a_number_scales_the_mix_and_keeps_it() -> None:
    mix = (traffic(rate="3/s"), traffic(rate="1/s", **{"class": "d"}))
    got = open_loop(mix, 5000.0, generator(1, "a"), 20.0)
    assert [len(got.of_class(i)) / 5000.0 for i in (0, 1)] == [pytest.approx(15, rel=0.03), pytest.approx(5, rel=0.03)]
    assert len(got.of_class(0)) + len(got.of_class(1)) == len(got)


def test_a_further_class_leaves_the_others_alone() -> None:
    first, second = traffic(rate="3/s"), traffic(rate="1/s", shape="bursty", **{"class": "d"})
    alone, together = drawn(first), drawn(first, second).of_class(0)
    assert alone.arrival_ps.tobytes() == together.arrival_ps.tobytes()
    assert alone.input_tokens.tobytes() == together.input_tokens.tobytes()


def test_history_grows_with_the_turn() -> None:
    """Inputs of a turn: its own text plus everything before; mean of turn k = k x 400 + (k - 1) x 100 tokens."""
    one = traffic(rate="10/s", sessions={"turns": 4, "gap": "10s"})
    got = drawn(one, horizon_s=20_000.0)
    assert len(got) / 20_000.0 == pytest.approx(10.0, rel=0.03)
    expected = np.mean([k * 400 + (k - 1) * 100 for k in (1, 2, 3, 4)])
    assert got.input_tokens.mean() == pytest.approx(expected, rel=0.02)
    assert got.output_tokens.mean() == pytest.approx(100, rel=0.02)
    fresh = drawn(traffic(rate="10/s", sessions={"turns": 4, "gap": "10s", "carries_history": False}))
    assert fresh.input_tokens.mean() == pytest.approx(400, rel=0.02)


def test_sessions_are_stationary_from_the_start() -> None:
    """Conversations begun before time 0 go on: the first minute has the rate and the lengths of the last."""
    one = traffic(rate="50/s", sessions={"turns": 10, "gap": "60s"})
    got = drawn(one, horizon_s=1200.0)
    minute = got.arrival_ps // (60 * PS)
    first, last = got.input_tokens[minute == 0], got.input_tokens[minute == 19]
    assert len(first) == pytest.approx(3000, rel=0.2)
    assert first.mean() == pytest.approx(last.mean(), rel=0.1)


def test_offline_tokens_are_spread_over_the_day() -> None:
    night = traffic(tokens="2e9", input_tokens=2000, output_tokens=300, deadline="06:00")
    rate = 2e9 / 2300 / 86_400
    assert offered_per_s(night) == pytest.approx(rate)
    got = drawn(night, horizon_s=3600.0)
    assert len(got) == pytest.approx(3600 * rate, abs=1)
    assert np.diff(got.arrival_ps).max() - np.diff(got.arrival_ps).min() <= 2
    with pytest.raises(BadInputError, match="no token lengths"):
        offered_per_s(TrafficClass.model_validate({"tokens": "2e9"}))


def test_stage_requests_have_one_token() -> None:
    got = drawn(TrafficClass.model_validate({"rate": "3/s"}))
    assert set(got.input_tokens.tolist()) == set(got.output_tokens.tolist()) == {1}


def test_trace_is_replayed_end_to_end() -> None:
    trace = Trace(np.array([5.0, 6.0, 9.0]), np.array([10, 20, 30]), np.array([1, 2, 3]))
    one = traffic(trace="t.csv", input_tokens=None, output_tokens=None)
    assert offered_per_s(one, traces={"t.csv": trace}) == 0.5  # 2 gaps in 4 s
    got = open_loop((one,), 9.0, generator(1, "a"), traces={"t.csv": trace})
    assert (got.arrival_ps / PS).tolist() == [0.0, 1.0, 4.0, 6.0, 7.0]
    assert got.input_tokens.tolist() == [10, 20, 30, 10, 20]
    twice = open_loop((one,), 4.5, generator(1, "a"), 1.0, traces={"t.csv": trace})
    assert (twice.arrival_ps / PS).tolist() == [0.0, 0.5, 2.0, 3.0, 3.5]


def test_recorded_trace_keeps_its_rate_and_lengths() -> None:
    trace = read_trace(Path(__file__).parents[2] / "data" / "traces" / "azure_llm_2023_conv_head.csv")
    one = traffic(trace="t.csv", input_tokens=None, output_tokens=None)
    got = open_loop((one,), 3600.0, generator(1, "a"), 8.0, traces={"t.csv": trace})
    assert len(got) / 3600.0 == pytest.approx(8.0, rel=0.05)
    assert got.input_tokens.tolist()[:2000] == trace.input_tokens.tolist()


def test_same_seed_same_bytes() -> None:
    one = traffic(rate="5/s", shape="bursty", sessions={"turns": 3, "gap": "5s"})
    first, second, other = (drawn(one, seed=seed) for seed in (1, 1, 2))
    for field in ("arrival_ps", "class_index", "input_tokens", "output_tokens"):
        assert getattr(first, field).tobytes() == getattr(second, field).tobytes()
    assert first.arrival_ps.tobytes() != other.arrival_ps.tobytes()


def test_too_many_requests_are_refused() -> None:
    with pytest.raises(BadInputError, match="requests in one run"):
        drawn(traffic(rate="100000/s"), horizon_s=3600.0)
    with pytest.raises(BadInputError, match="requests in one run"):
        drawn(traffic(rate="10/s", sessions={"turns": 10_000, "gap": "10h"}), horizon_s=60.0)


def test_no_classes_no_requests() -> None:
    assert len(open_loop((), 10.0, generator(1, "a"))) == 0


@pytest.mark.parametrize("peak", [10.0, 14.0, 30.0])
def test_a_day_has_its_mean_its_peak_and_no_empty_hour(peak: float) -> None:
    rate = {"mean": "10/s", "peak": f"{peak}/s"}
    traffic = TrafficClass.model_validate({"rate": rate, "shape": "diurnal", "input_tokens": 10})
    drawn = open_loop([traffic], 2 * DAY_S, np.random.default_rng(5), "mean", by_hour=True)
    per_hour = np.bincount((drawn.arrival_ps / 1e12 / 3600.0).astype(int), minlength=48) / 3600.0
    assert len(drawn) / (2 * DAY_S) == pytest.approx(10.0, rel=0.01)
    per_10_min = np.bincount((drawn.arrival_ps / 1e12 / 600.0).astype(int)) / 600.0
    assert per_10_min.max() == pytest.approx(peak, rel=0.04)
    assert per_hour.min() > 0.5
    assert np.corrcoef(per_hour[:24], per_hour[24:])[0, 1] > (0.9 if peak > 10 else -1.0)
