"""Who starts, who is evicted, and what a prompt finds in the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rightslice.core.results import SimulationResult
from rightslice.performance.costs import StepCosts
from rightslice.simulation import LlmServer, OpenClass, Prefixes, Routing, Scenario, simulate
from rightslice.simulation.layout import NOT_YET, PREEMPTIONS, TIMED_OUT
from rightslice.simulation.play import Played, SteppedRun, play
from rightslice.simulation.prefix_ids import chained
from rightslice.simulation.scenario import Admission
from simulation_cases import arrivals

STEP_PS = 1000


def engine(
    blocks: int = 100, seqs: int = 8, *, replicas: int = 1, admission: Admission = "prompt", prefix: bool = False
) -> LlmServer:
    """Every step takes 1,000 ps and 1 ps per prompt token; blocks of 4 tokens, 1,024 tokens a step."""
    costs = StepCosts(np.arange(1025), 0, 0, 0, STEP_PS, 0, 0.4, "first-principles")
    return LlmServer("d", "m", replicas, costs, blocks, 4, seqs, 1024, 10_000, admission, prefix)


def requests(times: Sequence[int], prompts: Sequence[int], answers: Sequence[int], priority: int = 0) -> OpenClass:
    return OpenClass("m", f"c{priority}", arrivals(times, prompts, answers), priority=priority)


def order_of_ends(*classes: OpenClass, server: LlmServer) -> list[int]:
    played = play(Scenario((server,), classes, horizon_s=1e-6))
    return [int(i) for i in np.argsort(played.finish_ps)]


def test_higher_priorities_are_served_first_and_equal_ones_in_order() -> None:
    low = requests([0, 100, 110], [4, 4, 4], [5, 5, 5])
    high = requests([200, 210], [4, 4], [5, 5], priority=1)
    assert order_of_ends(low, high, server=engine(seqs=1)) == [0, 3, 4, 1, 2]


@pytest.mark.parametrize(("priorities", "evicted"), [((0, 0), 1), ((0, 1), 0), ((1, 0), 1)])
def test_the_lowest_priority_is_evicted_and_the_last_among_equals(priorities: tuple[int, int], evicted: int) -> None:
    """Two answers outgrow 4 blocks of 4 tokens."""
    first = requests([0], [6], [8], priorities[0])
    second = OpenClass("m", "second", arrivals([1], [6], [8]), priority=priorities[1])
    played = play(Scenario((engine(blocks=4),), (first, second), horizon_s=1e-6))
    assert played.totals[0, PREEMPTIONS] == 1
    assert int(np.argmax(played.finish_ps)) == evicted


def test_whole_answers_are_never_evicted_and_start_later() -> None:
    """The same two: the second fits only when the first has ended."""
    classes = (requests([0, 0], [6, 6], [8, 8]),)
    played = play(Scenario((engine(blocks=4, admission="answer"),), classes, horizon_s=1e-6))
    assert played.totals[0, PREEMPTIONS] == 0
    assert played.first_ps[1] > played.finish_ps[0]


@pytest.mark.parametrize(("rule", "soon", "evicted"), [("prompt", 6, 3), ("estimate", 4, 1), ("answer", 3, 0)])
def test_expectation_is_between_prompt_and_guarantee(rule: Admission, soon: int, evicted: int) -> None:
    """60 blocks of 4 tokens; six requests, 3 blocks for a prompt and 18 for prompt and answer: three surely fit."""
    traffic = requests([4_000 * i for i in range(6)], [10] * 6, [60] * 6)
    played = play(Scenario((engine(blocks=60, admission=rule),), (traffic,), horizon_s=1e-6))
    assert int(np.count_nonzero(played.first_ps < 25 * STEP_PS)) == soon
    assert played.totals[0, PREEMPTIONS] == evicted


@pytest.mark.parametrize(
    ("prompts", "retracted"), [((10, 10, 10, 10), 3), ((10, 10, 11, 10), 2), ((11, 10, 10, 10), 3)]
)
def test_retraction_takes_the_fewest_tokens_and_then_the_longest_prompt(
    prompts: tuple[int, ...], retracted: int
) -> None:
    """The last two come together; the one with the longer prompt goes, or else the last."""
    traffic = requests([0, 4_000, 12_000, 12_000], prompts, [60] * 4)
    played = play(Scenario((engine(blocks=64, admission="estimate"),), (traffic,), horizon_s=1e-6))
    assert played.totals[0, PREEMPTIONS] == 1
    assert int(np.argmax(played.finish_ps)) == retracted


def impatient(times: Sequence[int], answers: Sequence[int], timeout_ps: int) -> Scenario:
    """One sequence at a time, prompts of 4 tokens."""
    traffic = OpenClass("m", "c", arrivals(times, [4] * len(times), answers), timeout_s=timeout_ps / 1e12)
    return Scenario((engine(seqs=1),), (traffic,), horizon_s=1e-6)


def test_who_waits_too_long_is_dropped_and_counted() -> None:
    """A step takes 1,000 ps and 1 more per token. The second has waited 2,500 ps before the first has ended."""
    scenario = impatient([0, 10, 3_000], [5, 1, 1], 2_500)
    assert play(scenario).finish_ps.tolist() == [5_008, TIMED_OUT, 6_012]
    result = simulate(scenario).per_class[0]
    assert (result.completed, result.failed, result.timed_out) == (2, 1, 1)


def test_a_dropped_request_makes_way_at_the_end_of_the_step() -> None:
    """The first in line needs more blocks than are free; when it gives up, the one behind it joins in mid-run."""
    big = OpenClass("m", "big", arrivals([10], [40], [1]), timeout_s=2.5e-9)
    small = requests([0, 20], [4, 4], [20, 1])
    played = play(Scenario((engine(blocks=10),), (small, big), horizon_s=1e-6))
    assert played.finish_ps.tolist() == [20_027, TIMED_OUT, 4_011]


def test_requests_time_out_while_no_replica_is_ready() -> None:
    run = SteppedRun(impatient([0, 3_000], [1, 1], 2_500))
    run.order(0, "starting")
    run.advance(4_000 / 1e12)
    run.order(0, "ready")
    assert run.finish().finish_ps.tolist() == [TIMED_OUT, 5_004]


def with_prefixes(
    prompts: Sequence[int], ids: Sequence[Sequence[int]], gap_ps: int = 10_000_000, answer: int = 1
) -> OpenClass:
    """Requests far apart whose prompts start with these blocks of 4 tokens."""
    starts = np.cumsum([0, *(len(some) for some in ids)])
    flat = np.array([block for some in ids for block in some], dtype=np.int64)
    asked = arrivals([i * gap_ps for i in range(len(prompts))], prompts, [answer] * len(prompts))
    return OpenClass("m", "c", asked, prefixes=Prefixes(4, starts, flat))


def hits(server: LlmServer, traffic: OpenClass) -> list[int]:
    return [int(tokens) for tokens in play(Scenario((server,), (traffic,), horizon_s=1.0)).hit_tokens]


def test_a_prompt_finds_its_leading_known_blocks_but_for_one_token() -> None:
    ids = [[1, 2, 3], [1, 2, 9], [1, 2, 3], [8, 2, 3], [1, 2, 3]]
    assert hits(engine(prefix=True), with_prefixes([14, 14, 12, 14, 13], ids)) == [0, 8, 8, 0, 12]


def test_only_full_blocks_count_and_only_where_the_cache_is_on() -> None:
    ids = [[1, 2, 3], [1, 2, 3]]
    assert hits(engine(prefix=True), with_prefixes([11, 14], ids)) == [0, 8]
    assert hits(engine(prefix=False), with_prefixes([14, 14], ids)) == [0, 0]


def test_known_tokens_take_no_time() -> None:
    traffic = with_prefixes([402, 402], [list(range(100))] * 2)
    played = play(Scenario((engine(blocks=200, prefix=True),), (traffic,), horizon_s=1.0))
    ttft = played.first_ps - np.array([0, 10_000_000])
    assert ttft.tolist() == [STEP_PS + 402, STEP_PS + 2]


def test_blocks_without_users_are_dropped_longest_unused_first_and_from_their_end() -> None:
    """6 blocks. Prompts of 2 full blocks and a part of a third: a, b, then c drops the end of a, then its start."""
    a, b, c = [1, 2], [3, 4], [5, 6]
    server = engine(blocks=6, prefix=True)
    assert hits(server, with_prefixes([10] * 3, [a, b, a])) == [0, 0, 8]
    assert hits(server, with_prefixes([10] * 4, [a, b, c, a])) == [0, 0, 0, 4]
    assert hits(server, with_prefixes([10] * 4, [a, b, c, b])) == [0, 0, 0, 8]


def test_requests_at_once_share_the_blocks_of_their_prefix() -> None:
    """Eight prompts of 41 tokens, 10 blocks in common: 10 + 8 blocks instead of 88."""
    traffic = with_prefixes([41] * 8, [list(range(10))] * 8, gap_ps=0, answer=3)
    run = SteppedRun(Scenario((engine(prefix=True),), (traffic,), horizon_s=1e-6))
    run.advance(STEP_PS / 1e12)
    assert run.look().kv_blocks.tolist() == [18]
    run.advance(1e-7)
    assert run.look().kv_blocks.tolist() == [0]


def test_hits_of_an_unlimited_cache_are_those_of_all_prompts_before() -> None:
    numbers = np.random.default_rng(5)
    texts = numbers.integers(0, 30, 400)
    ids = [
        [100 * int(text) + at for at in range(int(n))]
        for text, n in zip(texts, numbers.integers(0, 20, 400), strict=True)
    ]
    prompts = [4 * len(some) + 3 for some in ids]
    seen: set[int] = set()
    expected = []
    for some in ids:
        expected.append(4 * sum(block in seen for block in some))
        seen.update(some)
    assert hits(engine(blocks=10_000, prefix=True), with_prefixes(prompts, ids)) == expected
    result = simulate(Scenario((engine(10_000, prefix=True),), (with_prefixes(prompts, ids),), horizon_s=1.0))
    assert result.per_class[0].prefix_hit_rate == pytest.approx(sum(expected) / sum(prompts))
    assert _without_prefixes(prompts).per_class[0].prefix_hit_rate is None


def _without_prefixes(prompts: Sequence[int]) -> SimulationResult:
    return simulate(Scenario((engine(10_000),), (requests([0] * len(prompts), prompts, prompts),), horizon_s=1.0))


def test_a_prefix_aware_router_sends_a_text_where_it_is_known() -> None:
    ids = [[1, 2], [3, 4], [5, 6]] * 20
    scenario = Scenario(
        (engine(replicas=3, prefix=True),),
        (with_prefixes([9] * 60, ids),),
        horizon_s=1.0,
        routing={"m": _prefix_first()},
    )
    assert _busy(play(scenario)) == [True, False, False]  # nothing waits, nothing is in use: the first among equals
    crowded = with_prefixes([9] * 60, ids, gap_ps=300, answer=2)
    played = play(
        Scenario((engine(12, replicas=3, prefix=True),), (crowded,), horizon_s=1.0, routing={"m": _prefix_first()})
    )
    assert all(_busy(played))
    assert (played.hit_tokens == 8).sum() > 40
    assert NOT_YET not in played.finish_ps


def _prefix_first() -> Routing:
    return Routing("score", queue_weight=1.0, kv_weight=1.0, prefix_weight=0.5)


def _busy(played: Played) -> list[bool]:
    return [bool(ps > 0) for ps in played.totals[:, 0]]


def test_a_part_of_a_class_keeps_its_prefixes() -> None:
    whole = with_prefixes([9, 9, 9, 9], [[1, 2], [3], [], [4, 5]])
    part = whole.where(np.array([False, True, True, True]))
    assert part.prefixes is not None
    assert (part.prefixes.starts.tolist(), part.prefixes.ids.tolist()) == ([0, 1, 1, 3], [3, 4, 5])
    assert len(part.arrivals) == 3


def test_prefixes_that_do_not_fit_the_engine_are_refused() -> None:
    traffic = with_prefixes([9], [[1]])
    odd = OpenClass("m", "odd", traffic.arrivals, prefixes=Prefixes(6, np.array([0, 1]), np.array([1])))
    with pytest.raises(ValueError, match="no multiple"):
        play(Scenario((engine(prefix=True),), (odd,), horizon_s=1.0))
    with pytest.raises(ValueError, match="one size"):
        play(Scenario((engine(prefix=True),), (traffic, odd), horizon_s=1.0))
    with pytest.raises(ValueError, match="starts for"):
        OpenClass("m", "short", traffic.arrivals, prefixes=Prefixes(4, np.array([0]), np.array([1])))


def test_a_text_known_up_to_where_another_forks_off_is_used_up_to_there() -> None:
    """Blocks 1 and 2 open both prompts; the rest of each is dropped from its end."""
    fork = [[1, 2, 3, 4], [1, 2, 7, 8], [1, 2, 3, 4], [1, 2, 7, 8]]
    assert hits(engine(prefix=True), with_prefixes([17] * 4, fork)) == [0, 8, 16, 16]
    assert hits(engine(blocks=6, prefix=True), with_prefixes([17] * 4, fork)) == [0, 8, 12, 12]


def test_an_id_after_other_blocks_is_another_block() -> None:
    """An engine hashes a block with all before it: 2 after 1 is not 2 at the start, nor 2 after 3."""
    assert hits(engine(prefix=True), with_prefixes([9] * 4, [[1, 2], [2, 1], [3, 2], [1, 2]])) == [0, 0, 0, 8]
    ids = chained(np.array([5, 6, 6, 5, 5, 6, 5]), np.array([0, 2, 4, 4, 7]))
    assert ids.tolist() == [0, 1, 2, 3, 0, 1, 4]
