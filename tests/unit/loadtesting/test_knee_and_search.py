"""Knees and largest rates of servers whose curves are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.loadtesting.knee import knee_of, next_concurrency
from rightslice.loadtesting.prompts import TokenLaw, text_of
from rightslice.loadtesting.schedule import ClosedLoop, Limits, OpenLoop, intended_times
from rightslice.loadtesting.search import CLOSE, best_rate, next_rate
from rightslice.loadtesting.statistics import ClientCost, Goodput, Latency, Point, point_of

EMPTY = point_of(ClosedLoop(1), (), (), ClientCost(0.0, 1.0, 0.0))


def at(concurrency: int, tokens_per_s: float, ttft_ms: float = 100.0) -> Point:
    latency = Latency(*(ttft_ms,) * 6)
    return replace(
        EMPTY, concurrency=concurrency, completed=10, output_tokens_per_s=tokens_per_s, ttft_ms=latency, e2e_ms=latency
    )


def at_rate(rate: float, *, holds: bool) -> Point:
    good = Goodput(rate, 1.0 if holds else 0.5, 0.0, 1.0, {"ttft_p95": holds})
    return replace(EMPTY, concurrency=None, rate=rate, completed=10, goodput=good)


@pytest.mark.parametrize("slots", [1, 3, 16, 40, 100])
def test_the_knee_of_a_server_with_slots_is_found_near_them(slots: int) -> None:
    points: list[Point] = []
    while (streams := next_concurrency(points, 1024)) is not None:
        points.append(at(streams, 50.0 * min(streams, slots)))
        assert len(points) < 20
    knee = knee_of(points)
    assert knee is not None
    assert 0.75 * slots <= knee.concurrency <= max(1.2 * slots, 1)


def test_a_curve_that_still_grows_says_so() -> None:
    knee = knee_of([at(1, 10.0), at(2, 20.0), at(4, 40.0)])
    assert knee is not None
    assert "may lie beyond" in knee.reason


def test_one_point_and_no_answer_have_no_knee() -> None:
    assert knee_of([at(1, 10.0)]) is None
    assert knee_of([at(1, 0.0), at(2, 0.0)]) is None
    assert next_concurrency([replace(EMPTY, concurrency=1)], 1024) is None


@pytest.mark.parametrize("capacity", [0.02, 0.7, 9.0, 333.0])
def test_the_largest_rate_is_found_within_a_tenth(capacity: float) -> None:
    points: list[Point] = []
    rate: float | None = 1.0
    while rate is not None:
        points.append(at_rate(rate, holds=rate <= capacity))
        rate = next_rate(points)
        assert len(points) <= 24
    best = best_rate(points)
    assert best.broken == ("ttft_p95",)
    if capacity > 0.1:
        assert best.requests_per_s <= capacity < best.requests_per_s * CLOSE * 1.001


def test_nothing_holds_and_nothing_breaks() -> None:
    assert best_rate([at_rate(1.0, holds=False)]).requests_per_s == 0.0
    assert best_rate([at_rate(1.0, holds=True)]).broken_at is None


def test_prompts_have_the_words_that_the_law_asks_for() -> None:
    law = TokenLaw.through((32, 75), (160, 331))
    assert (law.per_word, law.overhead) == (2.0, 11.0)
    assert law.words(211) == 100
    rng = np.random.default_rng(0)
    one, other = text_of(50, rng, 10), text_of(50, rng, 10)
    assert one != other
    assert one.split()[:10] == other.split()[:10]
    assert len(one.split()) == 50
    with pytest.raises(ValueError, match="counts no tokens"):
        TokenLaw.through((32, 10), (160, 10))


def test_open_loops_send_as_often_as_asked() -> None:
    rng = np.random.default_rng(1)
    times = intended_times(OpenLoop(50.0), Limits(requests=2000), rng)
    assert len(times) == 2000
    assert 2000 / times[-1] == pytest.approx(50.0, rel=0.1)
    bursty = np.diff(intended_times(OpenLoop(50.0, 3.0), Limits(requests=5000), rng))
    assert bursty.std() / bursty.mean() == pytest.approx(3.0, rel=0.15)
    assert intended_times(OpenLoop(50.0), Limits(None, 2.0), rng)[-1] < 2.0
    with pytest.raises(ValueError, match="needs an end"):
        Limits()
