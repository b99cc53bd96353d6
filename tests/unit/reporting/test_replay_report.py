"""The files of a simulation: one page that is whole, safe and the same every time; tables that add up."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import sample_plans
import sample_replays
from test_reporting_html import FETCHING, Reader

from rightslice.core.documents import to_json
from rightslice.core.replay import Replay
from rightslice.reporting.charts import Chart, Series, chart
from rightslice.reporting.course import run_views
from rightslice.reporting.csv_text import TIMELINE_COLUMNS, timeline_csv, trials_csv
from rightslice.reporting.html import plan_html, replay_html, trials_html
from rightslice.reporting.replay_text import replay_text

PAGES: dict[str, Callable[[], str]] = {
    "scaled": lambda: replay_html(sample_replays.scaled()),
    "hostile": lambda: replay_html(sample_replays.hostile()),
    "silent": lambda: replay_html(sample_replays.silent()),
    "tuning": lambda: trials_html(sample_replays.tuning()),
    "plan": lambda: plan_html(sample_plans.voice(), (sample_replays.timeline(), sample_replays.timeline("asr"))),
}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_well_formed_and_asks_nobody_for_anything(name: str) -> None:
    page = PAGES[name]()
    reader = Reader(page)
    assert page.startswith("<!doctype html>\n")
    assert reader.open == []
    assert not {"script", "iframe", "object", "img", "image", "use", "form"} & {tag for tag, _ in reader.elements}
    for tag, attributes in reader.elements:
        for key, value in attributes.items():
            assert not key.startswith("on"), (tag, key)
            if key in FETCHING:
                assert str(value).startswith(("#", "data:,")) or value in {"timeline.csv", "trials.csv"}
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page)
    identifiers = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    assert {a["aria-labelledby"] for _, a in reader.elements if "aria-labelledby" in a} <= set(identifiers)
    order = [tag for tag, _ in reader.elements]
    figures = [i for i, (tag, a) in enumerate(reader.elements) if tag == "svg" and a.get("role") == "img"]
    assert all(order[i + 1 : i + 3] == ["title", "desc"] for i in figures)
    assert PAGES[name]() == page


def test_names_from_the_file_stay_text() -> None:
    page = PAGES["hostile"]()
    assert "<script" not in page
    assert not {"\x1b", "\x9b", "\u202e"} & set(page)
    assert "<script>alert(1)</script>" in Reader(page).text
    page.encode("utf-8")


def test_the_page_says_what_happened() -> None:
    text = Reader(PAGES["scaled"]()).text
    for fact in (
        "1,000 requests in 18 min 20 s: not everything holds",
        "93.1 % missed",
        "… lost with a node 15",
        "… waited too long 10",
        "… too long, or nobody serves them 5",
        "950 ms ± 50 ms",
        "node pool-1 lost",
        "21 computed again, 15 lost",
        "1 → 3 replicas",
        "perfect autoscaler 0.35 h",
        "3 replicas of the peak, always 0.92 h",
        "--fault zone@450s",
        "Bins of 5 min",
        "node lost, 7 min 30 s (2 times)",
    ):
        assert fact in text
    (run,) = run_views((sample_replays.timeline(),))
    titles = [view.title for track in run.tracks for view in track.charts]
    assert titles == ["Load", "SLO attainment", "Queue", "KV cache in use", "Replicas", "Nodes", "Cost so far"]


def test_a_plan_shows_its_simulation_folded_and_only_where_there_is_one() -> None:
    reader = Reader(PAGES["plan"]())
    assert any(a.get("class") == "course" and "open" not in a for a in reader.named("details"))
    assert "That simulation over time" in reader.text
    assert "That simulation over time" not in Reader(plan_html(sample_plans.voice())).text
    part = (replace(sample_replays.timeline(), share=0.25),)
    assert "25 % of the traffic" in Reader(plan_html(sample_plans.voice(), part)).text


def test_the_table_adds_up_to_the_record() -> None:
    replay = sample_replays.scaled()
    rows = rows_of(timeline_csv(replay.timelines))
    record = replay.record()
    assert tuple(rows[0]) == TIMELINE_COLUMNS
    assert len(rows) == 4
    for column, total in (("offered", "requests"), ("completed", "completed"), ("failed", "failed"), ("lost", "lost")):
        assert sum(int(row[column]) for row in rows) == record[total]
    assert int(rows[-1]["in_flight"]) == record["unfinished"] == 20
    assert float(rows[-1]["usd"]) == record["usd"]
    assert float(rows[-1]["offered_per_s"]) == 1.0
    assert float(rows[1]["slo_attainment"]) == 0.85
    assert record["failed_why"] == {"refused": 5, "timed_out": 10, "lost": 15}
    assert record["asked"] == {"autoscaler": "hpa", "faults": ["zone@450s"], "horizon_s": 1100.0}
    assert record["timeline"]["runs"][0]["totals"]["chat"]["offered"] == 1000
    assert "cpu_s" not in record
    assert json.loads(to_json(record)) == json.loads(to_json(sample_replays.scaled().record()))


def test_a_track_without_requests_leaves_their_cells_empty() -> None:
    course = sample_replays.timeline()
    (track,) = course.tracks
    (row, *_) = rows_of(timeline_csv([replace(course, tracks=(replace(track, requests=None),), usd=None)]))
    assert (row["offered"], row["slo_attainment"], row["usd"], row["waiting"]) == ("", "", "", "0.0")


def test_the_frontier_is_what_no_setting_beats() -> None:
    tuning = sample_replays.tuning()
    assert [trial.achieved for trial in tuning.frontier] == [0.91, 0.97, 0.999]
    rows = rows_of(trials_csv(tuning))
    assert [(row["achieved_share"], row["holds"], row["on_frontier"]) for row in rows] == [
        ("0.97", "yes", "yes"), ("0.999", "yes", "yes"), ("0.99", "yes", "no"), ("0.91", "no", "yes"),
    ]  # fmt: skip
    text = Reader(trials_html(tuning)).text
    assert "the cheapest that holds costs $60.00" in text
    assert "USD over the run" in text
    unpriced = Reader(trials_html(sample_replays.tuning(priced=False))).text
    assert "GPU-hours over the run" in unpriced
    assert "24 GPU-hours" in unpriced


@pytest.mark.parametrize("make", [sample_replays.scaled, sample_replays.silent, sample_replays.hostile])
@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_the_terminal_keeps_its_width_and_its_characters(make: Callable[[], Replay], width: int) -> None:
    plain = replay_text(make(), width=width, ascii_only=True)
    assert plain.isascii()
    assert "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) <= width
    assert "\x1b[" in replay_text(make(), width=width, color=True)


def test_the_terminal_shows_the_course() -> None:
    lines = replay_text(sample_replays.scaled(), width=80).splitlines()
    shown = {line.split()[0]: line for line in lines if line.startswith("  ") and line.split()}
    assert shown["load"].endswith("0.333 to 1.33 /s")
    assert shown["SLO"].endswith("85 % to 100 %")
    assert shown["queue"].endswith("0 to 12.5 wait")
    assert shown["replicas"].endswith("1 to 2.9 ready")


# --- charts ----------------------------------------------------------------------------------------------------------


def test_bins_without_a_value_are_gaps_and_equal_neighbours_one_step() -> None:
    made = chart(Chart("x", "", (0.0, 10.0, 20.0, 30.0, 40.0), (Series("a", (1.0, 1.0, None, 2.0), "s0"),)))
    assert 'd="M0 50H500M750 0H1000"' in made.plot
    assert made.rows == (("a", "1", "1.33", "2"),)


def test_a_chart_of_nothing_has_axes() -> None:
    made = chart(Chart("x", "%", (0.0, 1.0), (Series("a", (None,), "s0"),), level=0.95))
    assert "95 % asked" in dict(made.keys)
    assert made.rows == (("a", "–", "–", "–"),)
    assert "90 %" in Reader(str(made.scale)).text


@pytest.mark.parametrize(
    ("begin_s", "end_s", "first", "last"),
    [
        (0.0, 86_400.0, "0 h", "24 h"),
        (0.0, 604_800.0, "0 d", "6 d"),
        (60.0, 600.0, "2 min", "10 min"),
        (0.0, 4.0, "0 s", "4 s"),
    ],
)
def test_times_are_round(begin_s: float, end_s: float, first: str, last: str) -> None:
    made = chart(Chart("x", "", (begin_s, end_s), (Series("a", (1.0,), "s0"),)))
    labels = Reader(str(made.axis)).words
    assert (labels[0], labels[-1]) == (first, last)
    assert len(labels) <= 7
