"""Generators against their laws: mean, spread and correlation within statistical bounds, with fixed seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rightslice.core.rng import generator
from rightslice.traffic.conversations import (
    Conversation,
    conversations,
    groups,
    parted,
    shared_blocks,
)
from rightslice.traffic.describe import describe, gap_cv
from rightslice.traffic.generators import (
    CalmAndBurst,
    RateProfile,
    daily,
    following,
    gamma_bursts,
    measured_day,
    modulated,
    poisson,
    ramp,
    steps,
)
from rightslice.traffic.recorded import NONE, Trace

SEEDS = range(60)
HOUR = 3600.0
SWITCHING = CalmAndBurst(burst_over_calm=8.0, calm_s=40.0, burst_s=10.0)


def counts(
    draw: Callable[[np.random.Generator], NDArray[np.float64]], bins: int, horizon_s: float
) -> NDArray[np.int64]:
    """(seeds, bins) requests in equal parts of the horizon."""
    edges = np.linspace(0.0, horizon_s, bins + 1)
    return np.array([np.histogram(draw(generator(seed, "law")), edges)[0] for seed in SEEDS])


@pytest.mark.parametrize(
    ("draw", "dispersion"),
    [
        (partial(poisson, 5.0, 1000.0), 1.0),
        (partial(gamma_bursts, 5.0, 1000.0, gap_cv=4.0), 16.0),
        (partial(gamma_bursts, 5.0, 1000.0, gap_cv=0.5), 0.25),
        (partial(modulated, SWITCHING, 5.0, 1000.0), 24.6),
    ],
)
def test_the_mean_is_exact_from_the_first_part_on(
    draw: Callable[[np.random.Generator], NDArray[np.float64]], dispersion: float
) -> None:
    """Each tenth of the horizon has a tenth of the requests: within 4.5 standard errors of a stationary process."""
    found = counts(draw, 10, 1000.0)
    error = 4.5 * (500.0 * max(dispersion, 1.0) / len(SEEDS)) ** 0.5
    assert np.abs(found.mean(axis=0) - 500.0).max() < error
    assert abs(found.mean() - 500.0) < error / 10**0.5


@pytest.mark.parametrize("cv", [0.3, 1.0, 4.7])
def test_gaps_have_the_spread_asked_for_and_no_memory(cv: float) -> None:
    times = gamma_bursts(10.0, 100_000.0, generator(1, "gaps"), gap_cv=cv)
    gaps = np.diff(times)
    assert gap_cv(times) == pytest.approx(cv, rel=0.02)
    assert gaps.mean() == pytest.approx(0.1, rel=0.02)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4.0 / len(gaps) ** 0.5


def test_calm_and_burst_by_law() -> None:
    """Rates r0, r1, stays s0, s1: counts of long windows have the variance / mean ratio 1 + 2 (r0 - r1)^2 p0 p1 tau / r
    with tau = s0 s1 / (s0 + s1), and counts of short bins the correlation that exp(-lag / tau) gives."""
    times = modulated(SWITCHING, 5.0, 400_000.0, generator(3, "switching"))
    calm, burst = SWITCHING.rates_per_s(5.0)
    assert burst == pytest.approx(8.0 * calm)
    assert (40.0 * calm + 10.0 * burst) / 50.0 == pytest.approx(5.0)
    assert len(times) / 400_000.0 == pytest.approx(5.0, rel=0.02)
    tau = 40.0 * 10.0 / 50.0
    variance = (burst - calm) ** 2 * 0.8 * 0.2
    window_s = 800.0
    long = np.bincount((times / window_s).astype(int))
    edge = 1.0 - tau / window_s * (1.0 - np.exp(-window_s / tau))  # what a window of finite length misses
    assert long.var() / long.mean() == pytest.approx(1.0 + 2.0 * variance * tau / 5.0 * edge, rel=0.15)
    short = np.bincount(times.astype(int)).astype(float)
    within = 2.0 * variance * tau * (1.0 - tau * (1.0 - np.exp(-1.0 / tau)))
    across = variance * tau**2 * (1.0 - np.exp(-1.0 / tau)) ** 2
    for lag in (1, 4, 8):
        expected = across * np.exp(-(lag - 1) / tau) / (5.0 + within)
        assert np.corrcoef(short[:-lag], short[lag:])[0, 1] == pytest.approx(expected, abs=0.02)


def test_a_profile_is_followed() -> None:
    """Expected requests in each part are the area above it, for Poisson and for bursts."""
    profile = steps([(100.0, 2.0), (50.0, 20.0), (100.0, 0.0), (50.0, 6.0)])
    assert profile.requests == 1500.0
    for cv in (1.0, 2.0):
        found = counts(partial(following, profile, gap_cv=cv), 6, 300.0).mean(axis=0)
        expected = np.array([100.0, 100.0, 1000.0, 0.0, 0.0, 300.0])
        assert (np.abs(found - expected) <= 4.5 * cv * (expected / len(SEEDS)) ** 0.5).all()


def test_a_ramp_grows_evenly() -> None:
    """Quarters of a ramp from 0 to r hold 1, 3, 5 and 7 sixteenths."""
    found = counts(partial(following, ramp(0.0, 8.0, 400.0)), 4, 400.0).mean(axis=0)
    assert found == pytest.approx([100.0, 300.0, 500.0, 700.0], rel=0.04)
    down = ramp(8.0, 0.0, 400.0)
    assert down.times_at(np.array([0.0, 700.0, 1600.0])) == pytest.approx([0.0, 100.0, 400.0])


def test_a_day_has_its_hours_and_the_week_its_days() -> None:
    shape = measured_day()
    assert len(shape) == 24
    assert np.mean(shape) == pytest.approx(1.0, abs=0.001)
    week = daily(3.0, 7, weekdays=(1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5))
    assert week.requests == pytest.approx(3.0 * 7 * 24 * HOUR)
    times = following(week, generator(1, "week"))
    per_day = np.bincount((times / (24 * HOUR)).astype(int))
    assert per_day[5:].mean() / per_day[:5].mean() == pytest.approx(0.5, rel=0.02)
    hours = np.bincount((times[times < 24 * HOUR] / HOUR).astype(int))
    assert hours[20] / hours[3] == pytest.approx(shape[20] / shape[3], rel=0.06)
    for bad in ((1.0,) * 23, ()):
        with pytest.raises(ValueError, match="hours"):
            daily(1.0, hourly=bad)


@given(
    st.lists(st.tuples(st.floats(0.1, 100.0), st.floats(0.0, 50.0)), min_size=1, max_size=6),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20),
)
def test_times_invert_the_area(levels: list[tuple[float, float]], shares: list[float]) -> None:
    """Area up to the time found is the area asked for; times rise with the area."""
    profile = RateProfile(
        tuple(np.concatenate(([0.0], np.cumsum([length for length, _ in levels])))),
        (levels[0][1], *(rate for _, rate in levels)),
    )
    asked = np.sort(np.array(shares)) * profile.requests
    times = profile.times_at(asked)
    assert (np.diff(times) >= -1e-9).all()
    assert times.max() <= profile.horizon_s
    grid = np.array(profile.times_s)
    for area, time in zip(asked, times, strict=True):
        knots = np.append(grid[grid < time], time)
        rates = np.interp(knots, grid, profile.rates_per_s)
        assert np.trapezoid(rates, knots) == pytest.approx(area, abs=1e-6 * max(profile.requests, 1.0))


@pytest.mark.parametrize(
    ("times", "rates"),
    [((0.0,), (1.0,)), ((1.0, 2.0), (1.0, 1.0)), ((0.0, 2.0, 1.0), (1.0,) * 3), ((0.0, 1.0), (1.0, -1.0))],
)
def test_no_profile(times: tuple[float, ...], rates: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rate profile"):
        RateProfile(times, rates)


def fixed(tokens: int) -> Callable[[int, np.random.Generator], NDArray[np.int64]]:
    return lambda n, _: np.full(n, tokens, dtype=np.int64)


TALK = Conversation(turns=(1.0, 1.0, 2.0), think_s=30.0, think_cv=1.0, new_tokens=fixed(100), answer_tokens=fixed(60))


def test_conversations_have_the_rate_the_turns_and_the_history() -> None:
    """Turn k has (k - 1) x 160 + 100 tokens; every minute has the same rate, the first as well."""
    traces = [conversations(TALK, 4.0, 600.0, poisson, generator(seed, "talk")) for seed in SEEDS]
    minutes = np.array([np.bincount((trace.arrival_s / 60.0).astype(int), minlength=10) for trace in traces])
    assert TALK.mean_turns == 2.25
    error = 4.5 * (240.0 * 3 / len(SEEDS)) ** 0.5  # three turns at most come together
    assert np.abs(minutes.mean(axis=0) - 240.0).max() < error
    prompts = np.concatenate([trace.input_tokens for trace in traces])
    shares = np.bincount((prompts - 100) // 160, minlength=3) / len(prompts)
    assert set(prompts.tolist()) == {100, 260, 420}
    assert shares == pytest.approx([4 / 9, 3 / 9, 2 / 9], abs=0.01)


def test_thinking_has_its_law() -> None:
    for cv in (0.0, 0.5, 1.0):
        law = Conversation((0.0, 1.0), 30.0, cv, fixed(10), fixed(10))
        trace = conversations(law, 5.0, 20_000.0, poisson, generator(1, "think"))
        assert trace.session is not None
        order = np.lexsort((trace.arrival_s, trace.session))
        session, times = trace.session[order], trace.arrival_s[order]
        gaps = np.diff(times)[np.diff(session) == 0]
        assert gaps.mean() == pytest.approx(30.0, rel=0.02)
        assert gaps.std() / 30.0 == pytest.approx(cv, abs=0.02)


def test_each_turn_finds_the_blocks_of_the_one_before() -> None:
    """Turns of 100, 260 and 420 tokens in blocks of 16: 6 full blocks of the first come back, 16 of the second."""
    trace = conversations(TALK, 1.0, 3000.0, poisson, generator(1, "talk"))
    assert trace.session is not None
    seen = shared_blocks(trace.input_tokens, trace.session).seen_before()
    late = trace.arrival_s > 1500.0  # whose conversations began within the horizon
    for prompt, blocks in ((100, 0), (260, 6), (420, 16)):
        assert set(seen[late & (trace.input_tokens == prompt)].tolist()) == {blocks}


def test_a_common_system_prompt_is_shared_within_its_group() -> None:
    n = 3000
    one = np.ones(n, dtype=np.int64)
    bare = Trace(np.arange(n, dtype=np.float64), 215 * one, one)
    group = groups(bare, 4, generator(1, "groups"))
    assert np.bincount(group) / n == pytest.approx([0.25] * 4, abs=4 * (0.75 * 0.25 / n) ** 0.5)
    blocks = shared_blocks(bare.input_tokens, -one, group, 165 * one)
    assert set(blocks.seen_before()[100:].tolist()) == {10}  # ten full blocks of 16 in 165 tokens
    summary = describe(dataclasses.replace(bare, prefix=blocks)).prefix
    assert summary is not None
    assert summary.seen_share == pytest.approx(10 / 14, abs=0.002)


def test_conversations_keep_their_group() -> None:
    talks = conversations(TALK, 2.0, 600.0, poisson, generator(1, "talk"))
    group = groups(talks, 2, generator(2, "groups"))
    assert talks.session is not None
    assert set(group.tolist()) == {0, 1}
    assert all(len(set(group[talks.session == one].tolist())) == 1 for one in range(int(talks.session.max()) + 1))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.9])
def test_parted_conversations_share_what_is_stated(share: float) -> None:
    """Of 100 + 260 + 420 tokens in three turns, 100 + 260 were sent before: 46 %, which nothing raises."""
    law = dataclasses.replace(TALK, turns=(0.0, 0.0, 1.0))
    talks = conversations(law, 20.0, 6000.0, poisson, generator(1, "talk"))
    part = parted(talks, share, generator(2, "parts"))
    order = np.argsort(part, kind="stable")
    goes_on = np.diff(part[order]) == 0
    earlier = talks.input_tokens[order][:-1][goes_on].sum()
    assert earlier / talks.input_tokens.sum() == pytest.approx(min(share, 360 / 780), abs=0.004)
    assert talks.session is not None
    assert all(len(set(talks.session[part == number].tolist())) == 1 for number in range(0, int(part.max()), 997))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 200), st.integers(-1, 3)), max_size=12), st.sampled_from([1, 16, 64]))
def test_blocks_cover_the_prompt(requests: list[tuple[int, int]], size: int) -> None:
    prompts = np.array([tokens for tokens, _ in requests], dtype=np.int64)
    session = np.array([number for _, number in requests], dtype=np.int64)
    blocks = shared_blocks(prompts, session, block_tokens=size)
    assert np.diff(blocks.offsets).tolist() == [-(-tokens // size) for tokens, _ in requests]
    for i in range(len(requests)):
        for j in range(i):
            common = np.intersect1d(blocks.of(i), blocks.of(j))
            same = session[i] == session[j] != NONE
            assert len(common) == (min(prompts[i], prompts[j]) // size if same else 0)


def test_nothing_asked_for_gives_nothing() -> None:
    assert len(poisson(0.0, 10.0, generator(1, "x"))) == 0
    assert len(gamma_bursts(0.0, 10.0, generator(1, "x"), gap_cv=2.0)) == 0
    assert len(conversations(TALK, 0.0, 10.0, poisson, generator(1, "x"))) == 0
    with pytest.raises(ValueError, match="out of range"):
        gamma_bursts(-1.0, 10.0, generator(1, "x"), gap_cv=2.0)
