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
from rightslice.traffic.arrivals import DAY_S, Arrivals, mean_day, offered_per_s, open_loop
from rightslice.traffic.recorded import PrefixBlocks
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


def test_the_expected_day_is_the_one_that_is_drawn() -> None:
    diurnal = TrafficClass.model_validate(
        {"rate": {"mean": "10/s", "peak": "30/s"}, "shape": "diurnal", "input_tokens": 10}
    )
    even = traffic(rate="2/s")
    expected = mean_day([diurnal, even], 900.0)
    assert expected.shape == (96,)
    assert expected.mean() == pytest.approx(12.0, rel=1e-3)
    assert expected.max() == pytest.approx(32.0, rel=0.03)
    drawn = open_loop([diurnal, even], DAY_S, np.random.default_rng(5), "mean", by_hour=True)
    per_slice = np.bincount((drawn.arrival_ps / 1e12 / 900.0).astype(int), minlength=96) / 900.0
    assert np.abs(per_slice - expected).max() < 4.0 * np.sqrt(expected.max() / 900.0)


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


# --- what prompts have in common --------------------------------------------------------------------------------------


def seen_share(got: Arrivals) -> float:
    assert got.sharing is not None
    return float(got.sharing.seen_tokens.sum() / got.input_tokens.sum())


def test_prompts_that_share_nothing_carry_no_blocks() -> None:
    assert drawn(traffic(rate="5/s")).sharing is None
    assert drawn(traffic(rate="5/s", sessions={"turns": 3, "gap": "5s", "carries_history": False})).sharing is None
    assert drawn(traffic(rate="5/s", sessions={"turns": 3, "gap": "5s"}, prefix_hit_rate=0.0)).sharing is None


def test_a_turn_shares_the_prompt_before_it() -> None:
    """Turns of 400, 900, 1,400 and 1,900 tokens: 2,700 of 4,600 were sent before, half a block of 16 less each time."""
    one = traffic(rate="10/s", sessions={"turns": 4, "gap": "5s"})
    got = drawn(one)
    assert seen_share(got) == pytest.approx((2700 - 3 * 7.5) / 4600, rel=0.01)
    assert got.sharing is not None
    assert got.sharing.session is not None
    sizes = np.bincount(got.sharing.session)
    assert np.median(sizes) == sizes.max() == 4


def test_a_gap_holds_between_turns() -> None:
    got = drawn(traffic(rate="3/s", sessions={"turns": 4, "gap": "20s"}))
    assert got.sharing is not None
    assert got.sharing.session is not None
    order = np.lexsort((got.arrival_ps, got.sharing.session))
    gaps = np.diff(got.arrival_ps[order])[np.diff(got.sharing.session[order]) == 0]
    assert len(gaps) > 1000
    assert (np.abs(gaps - 20 * PS) <= 2).all()


def test_a_cut_prompt_shares_nothing_with_its_session() -> None:
    one = traffic(rate="3/s", sessions={"turns": 30, "gap": "5s"})
    got = open_loop((one,), 2000.0, generator(1, "a"), max_context=3000)
    assert got.sharing is not None
    cut = got.input_tokens + got.output_tokens == 3000
    assert cut.mean() > 0.5
    assert got.sharing.seen_tokens[cut].max() == 0
    assert got.sharing.seen_tokens[~cut].max() > 0


def test_a_common_prefix_stands_before_the_input() -> None:
    one = traffic(rate="3/s", prefix={"tokens": 1200, "distinct": 5})
    got = drawn(one)
    assert got.input_tokens.mean() == pytest.approx(1600, rel=0.01)
    assert got.sharing is not None
    assert sorted(set(got.sharing.seen_tokens.tolist())) == [0, 1200]
    assert (got.sharing.seen_tokens == 0).sum() == 5


@pytest.mark.parametrize("stated", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("sessions", [None, {"turns": 8, "gap": "1s"}])
def test_a_stated_hit_rate_is_what_a_cache_without_limit_would_hold(stated: float, sessions: object) -> None:
    """With sessions it cannot be more than they share: (400 + 900 + … + 3,400) of (400 + … + 3,900)."""
    got = drawn(traffic(rate="10/s", prefix_hit_rate=stated, sessions=sessions))
    most = 13_300 / 17_200 * 0.99 if sessions else 0.97  # less what is left of the last block of each prompt
    assert seen_share(got) == pytest.approx(min(stated, most), abs=0.025)


def test_classes_of_one_group_share_its_texts() -> None:
    def two(group: str) -> Arrivals:
        first = traffic(rate="1/s", prefix={"tokens": 320, "group": "support"})
        other = traffic(rate="1/s", prefix={"tokens": 480, "group": group}, **{"class": "d"})
        return drawn(first, other)

    together, apart = two("support"), two("sales")
    assert together.sharing is not None
    assert apart.sharing is not None
    firsts = [set(a.sharing.blocks.ids[a.sharing.blocks.offsets[:-1]].tolist()) for a in (together, apart) if a.sharing]
    assert [len(ids) for ids in firsts] == [1, 2]


def test_a_class_beside_one_that_shares_takes_room_and_finds_nothing() -> None:
    got = drawn(traffic(rate="3/s", prefix={"tokens": 320}), traffic(rate="3/s", **{"class": "d"}))
    alone = got.of_class(1)
    assert alone.sharing is not None
    assert alone.sharing.seen_tokens.max() == 0
    assert (np.diff(alone.sharing.blocks.offsets) == -(-alone.input_tokens // 16)).all()


def test_a_trace_brings_its_blocks_and_a_further_round_brings_others() -> None:
    trace = read_trace(Path(__file__).parents[2] / "data" / "traces" / "mooncake_fast25_conversation_head.jsonl")
    one = traffic(trace="t.jsonl", input_tokens=None, output_tokens=None)
    got = open_loop((one,), 2.5 * len(trace), generator(1, "a"), 1.0, traces={"t.jsonl": trace})
    assert trace.prefix is not None
    assert got.sharing is not None
    assert got.sharing.blocks.block_tokens == 512
    assert got.sharing.session is None
    once = np.minimum(trace.prefix.seen_before() * 512, trace.input_tokens - 1)
    n = len(trace)
    assert got.sharing.seen_tokens[:n].tolist() == got.sharing.seen_tokens[n : 2 * n].tolist() == once.tolist()


def test_long_runs_compare_prompts_in_larger_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    one = traffic(rate="10/s", prefix={"tokens": 1024})
    fine = drawn(one)
    monkeypatch.setattr("rightslice.traffic.prompts.MAX_BLOCKS", 300_000)
    coarse = drawn(one)
    assert fine.sharing is not None
    assert coarse.sharing is not None
    assert (fine.sharing.blocks.block_tokens, coarse.sharing.blocks.block_tokens) == (16, 128)
    assert len(coarse.sharing.blocks.ids) <= 300_000 + len(coarse)
    assert seen_share(coarse) == pytest.approx(seen_share(fine), rel=0.01)


def test_blocks_that_cannot_be_joined_are_refused() -> None:
    ids = np.array([1, 2], dtype=np.int64)
    traces = {
        name: Trace(
            np.array([0.0, 1.0]),
            np.array([size, size]),
            np.array([1, 1]),
            prefix=PrefixBlocks(np.array([0, 1, 2]), ids, size),
        )
        for name, size in (("a", 16), ("b", 24))
    }
    classes = [traffic(trace=name, input_tokens=None, output_tokens=None, **{"class": name}) for name in traces]
    with pytest.raises(BadInputError, match="blocks of 16 and 24 tokens"):
        open_loop(classes, 2.0, generator(1, "a"), traces=traces)
