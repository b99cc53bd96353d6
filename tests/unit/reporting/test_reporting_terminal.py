"""The terminal report: order of the answers, width, harmless names, ASCII, colour, the honest no."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import sample_plans

import plans
from rightslice.core.plan import Plan, Slot
from rightslice.core.text import cells
from rightslice.reporting.bars import whole_cells
from rightslice.reporting.canvas import column_widths
from rightslice.reporting.summary import gpu_groups, saving_text, segments, trust_groups
from rightslice.reporting.terminal import plan_brief, plan_text
from rightslice.reporting.text import interval_ms, percent, ranges

PLANS: tuple[Callable[[], Plan], ...] = (
    sample_plans.voice,
    sample_plans.tp4,
    plans.custom_memory,
    plans.two_nodes,
    plans.uniform_slices,
    sample_plans.time_sliced,
    sample_plans.seven_slices,
    sample_plans.infeasible,
    sample_plans.over_budget,
    sample_plans.hostile,
)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("make", PLANS)
@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_no_line_is_wider_than_the_terminal(make: Callable[[], Plan], width: int) -> None:
    text = plan_text(make(), width=width)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert text.endswith("\n")
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("make", [sample_plans.hostile, sample_plans.infeasible])
def test_names_from_the_file_reach_neither_the_terminal_nor_rich(make: Callable[[], Plan], *, color: bool) -> None:
    text = ESCAPES.sub("", plan_text(make(), width=200, color=color))
    assert not set("\x1b\x9b\u202e\r\t") & set(text)
    if make is sample_plans.hostile:
        assert "[bold]x[/bold]" in text
    assert not set("\x1b\x9b\u202e") & set(plan_brief(make()))


def test_the_answers_come_in_order_and_without_colour_nothing_is_lost() -> None:
    plan = sample_plans.voice()
    plain = plan_text(plan, width=100)
    found = [
        plain.index(word) for word in ("DEPLOY", "COST", "SLO", "SURE?", "GPU 0", "  model  rep", "Not chosen", "Watch")
    ]
    assert found == sorted(found)
    assert "\x1b[" in plan_text(plan, width=100, color=True)
    assert ESCAPES.sub("", plan_text(plan, width=100, color=True)).split() == plain.split()
    for fact in ("−33 %", "$7,401 / month (6,930–7,880)", "2026-08-03", "97 %", "612 ms (800)", "RS4001", "2.6 /s"):
        assert fact in plain


def test_ascii_only_uses_no_other_character() -> None:
    for make in PLANS:
        assert plan_text(make(), width=80, ascii_only=True).isascii()
        assert plan_brief(make(), ascii_only=True).isascii()
    assert "[####" in plan_text(sample_plans.voice(), ascii_only=True)


def test_equal_gpus_stand_on_one_line_and_different_ones_do_not() -> None:
    (group,) = gpu_groups(sample_plans.tp4())
    assert group.numbers == tuple(range(24))
    assert plan_text(sample_plans.tp4()).count("GPU 0–23") == 1
    assert len(gpu_groups(sample_plans.voice())) == 2


def test_an_honest_no_names_what_binds_and_the_way_out() -> None:
    text = plan_text(sample_plans.infeasible(), width=100)
    found = [text.index(word) for word in ("No deployment meets", "What binds", "Cheapest way out", "ttft_p95: 480ms")]
    assert found == sorted(found)
    assert "DEPLOY" not in text
    assert "The closest that was found" in plan_text(sample_plans.over_budget())


def test_brief_is_three_lines_whatever_the_answer() -> None:
    for make in PLANS:
        lines = plan_brief(make()).splitlines()
        assert [line.split()[0] for line in lines] == ["DEPLOY", "COST", "SLO"]


def test_slots_of_shared_memory_are_as_wide_as_what_they_use() -> None:
    asr, tts, free = segments(sample_plans.time_sliced().placements[1])
    assert asr.slot is not None
    assert asr.share == pytest.approx(14.7 / 79.2, abs=1e-3)
    assert tts.share == pytest.approx(21.5 / 79.2, abs=1e-3)
    assert free.slot is None
    assert asr.share + tts.share + free.share == pytest.approx(1.0)


def test_slots_beyond_the_visible_memory_shrink_instead_of_overflowing() -> None:
    placement = sample_plans.voice().placements[0]
    slot = Slot("time-slicing", 0, "a", "a", 0, placement.memory_bytes, placement.memory_bytes)
    crowded = segments(replace(placement, slots=(slot, replace(slot, start=1, model="b"))))
    assert [segment.share for segment in crowded] == [0.5, 0.5]


def test_the_weakest_figure_decides_what_a_model_may_claim() -> None:
    assert trust_groups(sample_plans.voice()) == {
        "measured": ("asr",),
        "calibrated": ("llm",),
        "interpolated": ("tts",),
    }


def test_a_missed_objective_is_marked_without_colour() -> None:
    text = plan_text(replace(sample_plans.over_budget(), feasible=True))
    assert "! voice misses e2e_p95" in text


@pytest.mark.parametrize(
    ("shares", "total"), [((1.0,), 10), ((0.5, 0.497, 0.003), 50), ((0.001,) * 7 + (0.993,), 20), ((0.25,) * 4, 7)]
)
def test_bars_fill_their_width_exactly(shares: tuple[float, ...], total: int) -> None:
    found = whole_cells(shares, total)
    assert sum(found) == total
    assert min(found) >= 1


def test_the_widest_column_narrows_before_any_word_breaks() -> None:
    rows = [["name", "a sentence of several words"], ["longername", "x"]]
    assert column_widths(rows, 60) == [10, 27]
    assert column_widths(rows, 24) == [10, 12]
    assert sum(column_widths(rows, 10)) + 2 == 10


def test_figures_never_round_a_miss_up() -> None:
    assert percent(0.99999) == "> 99.9 %"
    assert percent(1.0) == "100 %"
    assert percent(0.987) == "98.7 %"
    assert ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    estimate = sample_plans.voice().pipelines[0].e2e_ms
    assert estimate is not None
    assert interval_ms(estimate) == "2.08–2.59 s"
    assert saving_text(replace(sample_plans.voice(), baseline=None)) == ""
