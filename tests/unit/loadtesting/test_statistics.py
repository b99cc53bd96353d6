"""The figures of a run, from exchanges with known times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.core.slo import Slo
from rightslice.loadtesting.exchange import UNFINISHED, Exchange
from rightslice.loadtesting.schedule import ClosedLoop, OpenLoop
from rightslice.loadtesting.statistics import ClientCost, Point, histogram, meets, point_of, wilson

IDLE = ClientCost(cpu_s=0.1, wall_s=10.0, loop_delay_s=0.0)


def answered(number: int, start_s: float, ttft_s: float = 0.1, tokens: int = 11, itl_s: float = 0.02) -> Exchange:
    first = start_s + ttft_s
    last = first + (tokens - 1) * itl_s
    return Exchange(
        number, start_s, start_s, start_s + 0.01, start_s + 0.05, first, last, last, 100, 0, tokens, tokens, True, ""
    )


def closed(streams: int, rounds: int) -> Point:
    """Each stream sends again at once: an answer takes 0.3 s."""
    return point_of(
        ClosedLoop(streams),
        [answered(r * streams + s, 0.3 * r) for r in range(rounds) for s in range(streams)],
        (),
        IDLE,
    )


def test_times_of_one_exchange() -> None:
    exchange = answered(0, 1.0)
    assert exchange.ttft_s == pytest.approx(0.1)
    assert exchange.tpot_s == pytest.approx(0.02)
    assert exchange.e2e_s == pytest.approx(0.3)
    assert math.isnan(answered(0, 1.0, tokens=1).tpot_s)


def test_a_closed_loop_delivers_what_littles_law_says() -> None:
    point = closed(4, 11)
    assert point.requests == 40
    assert point.requests_per_s == pytest.approx(4 / 0.3, rel=0.15)
    assert point.output_tokens_per_s == pytest.approx(4 * 11 / 0.3, rel=0.15)
    assert (point.valid, point.failed, point.counted) == (True, 0, 40)


def test_the_first_round_is_left_out_only_where_enough_follow() -> None:
    assert closed(4, 2).requests == 8
    assert closed(4, 3).requests == 8


def test_failures_and_unfinished_requests_are_counted_apart_and_add_up() -> None:
    broken = Exchange(1, 0.1, 0.1, error="http_500", detail="out of memory")
    lost = Exchange(2, 0.2, 0.2, error=UNFINISHED)
    unsent = Exchange(3, 0.3)
    point = point_of(OpenLoop(10.0), [answered(0, 0.0), broken, lost, unsent], (), IDLE)
    assert (point.requests, point.completed, point.failed, point.unfinished) == (3, 1, 1, 1)
    assert (point.errors, point.error_details) == ({"http_500": 1}, ("out of memory",))


def test_tokens_after_the_last_sending_do_not_count_to_the_rate() -> None:
    """Ten answers start within a second, each takes ten: the rate of the second is not that of eleven."""
    sent = [answered(i, i / 9, ttft_s=0.0, tokens=101, itl_s=0.1) for i in range(10)]
    point = point_of(OpenLoop(10.0), sent, (), IDLE)
    assert point.window_s == pytest.approx(1.0)
    assert point.output_tokens_per_s == pytest.approx(sum((1.0 - i / 9) * 10.1 for i in range(10)), rel=1e-6)


def test_a_late_client_makes_the_run_invalid() -> None:
    late = [answered(i, i * 0.1) for i in range(20)]
    for exchange in late:
        exchange.sent_s += 0.05
    point = point_of(OpenLoop(10.0), late, (), IDLE)
    assert not point.valid
    assert "client was the bottleneck" in point.reasons[0]
    starved = point_of(OpenLoop(10.0), [answered(0, 0.0)], (), ClientCost(9.9, 10.0, 0.2))
    assert "it lacked CPU" in starved.reasons[0]
    assert starved.client.headroom == pytest.approx(0.01)


def test_goodput_counts_failures_as_missed() -> None:
    slos = (Slo("ttft", 0.15, 0.9), Slo("tpot", 0.05, 0.5))
    sent = [answered(i, i * 0.1, ttft_s=0.1 if i % 2 else 0.2) for i in range(10)]
    sent.append(Exchange(10, 1.0, 1.0, error="timeout"))
    good = point_of(OpenLoop(10.0), sent, slos, IDLE).goodput
    assert good is not None
    assert good.share == pytest.approx(5 / 11)
    assert good.met == {"ttft_p90": False, "tpot_p50": True}
    assert good.low < good.share < good.high


def test_one_token_has_no_time_per_token_to_judge() -> None:
    assert meets(answered(0, 0.0, tokens=1), Slo("tpot", 0.01)) is None
    assert meets(Exchange(0, 0.0, 0.0, error=UNFINISHED), Slo("ttft", 1.0)) is None


def test_waits_that_grow_are_told() -> None:
    growing = [answered(i, i * 0.1, ttft_s=0.1 + 0.05 * i) for i in range(80)]
    assert point_of(OpenLoop(10.0), growing, (), IDLE).oversaturated
    assert not point_of(OpenLoop(10.0), [answered(i, i * 0.1) for i in range(80)], (), IDLE).oversaturated


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634)]
)
def test_wilson_intervals_as_published(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits, of) == pytest.approx((low, high), abs=5e-4)
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.lists(st.floats(1e-6, 100.0), max_size=60), st.lists(st.floats(1e-6, 100.0), max_size=60))
def test_histograms_add_up(one: list[float], other: list[float]) -> None:
    both, first, second = histogram(one + other), histogram(one), histogram(other)
    assert {edge: first.get(edge, 0) + second.get(edge, 0) for edge in both} == both
    assert sum(both.values()) == len(one) + len(other)
