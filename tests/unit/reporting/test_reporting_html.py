"""The page: self-contained, escaped, well formed, the same every time, nothing lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import sample_plans
from markupsafe import Markup

import plans
from rightslice.core.plan import Plan
from rightslice.reporting import svg
from rightslice.reporting.html import plan_html

VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})
FETCHING = frozenset({"src", "href", "srcset", "data", "poster", "action", "xlink:href", "background", "formaction"})
ALL: tuple[Callable[[], Plan], ...] = (
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


class Reader(HTMLParser):
    """Checks nesting, collects elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute twice in <{tag}>"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split()).replace("\u00a0", " ")

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("make", ALL)
def test_the_page_is_well_formed_and_asks_nobody_for_anything(make: Callable[[], Plan]) -> None:
    page = plan_html(make())
    reader = Reader(page)
    assert page.startswith("<!doctype html>\n")
    assert reader.open == []
    assert not {"script", "iframe", "object", "embed", "img", "image", "use", "base", "form"} & {
        tag for tag, _ in reader.elements
    }
    for tag, attributes in reader.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in FETCHING:
                assert value is not None
                assert value.startswith(("#", "data:,")), (tag, name, value)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page)
    policy = next(a["content"] for a in reader.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")


@pytest.mark.parametrize("make", ALL)
def test_identifiers_are_unique_and_every_reference_leads_somewhere(make: Callable[[], Plan]) -> None:
    reader = Reader(plan_html(make()))
    identifiers = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    pointed = [a["aria-labelledby"] for _, a in reader.elements if "aria-labelledby" in a]
    pointed += [(a["href"] or "").removeprefix("#") for a in reader.named("a")]
    assert set(pointed) <= set(identifiers)
    assert len(reader.named("h1")) == 1
    assert all(a.get("scope") == "col" for a in reader.named("th"))


def test_every_figure_has_a_name_and_a_description() -> None:
    reader = Reader(plan_html(sample_plans.voice()))
    order = [tag for tag, _ in reader.elements]
    figures = [i for i, (tag, a) in enumerate(reader.elements) if tag == "svg" and a.get("role") == "img"]
    assert len(figures) > 15
    assert all(order[i + 1 : i + 3] == ["title", "desc"] for i in figures)


def test_names_from_the_file_stay_text() -> None:
    page = plan_html(sample_plans.hostile())
    reader = Reader(page)
    assert "<script" not in page
    assert not {"\x1b", "\x9b", "\u202e"} & set(page)
    assert "<script>alert(1)</script>" in reader.text
    page.encode("utf-8")
    assert plan_html(replace(sample_plans.voice(), name="\udcff")).encode("utf-8")


def test_the_page_says_what_the_plan_says() -> None:
    plan = sample_plans.voice()
    text = Reader(plan_html(plan)).text
    for fact in (
        "$7,401",
        "$6,930 – $7,880",
        "2026-08-03, exact",
        "−33 %",
        "97 %",
        "58 of 60",
        "98.7 %",
        "a2-ultragpu-1g",
    ):
        assert fact in text
    for rejection in plan.rejected:
        assert rejection.code in text
        assert rejection.reason in text
    for choice in plan.alternatives:
        assert choice.option in text
    for assumption in plan.assumptions:
        assert assumption in text
    assert "quota" in text
    assert "434,995 tokens" in text


def test_an_honest_no_gets_a_page_and_a_plan_that_came_close_is_shown_with_it() -> None:
    text = Reader(plan_html(sample_plans.infeasible())).text
    assert "No deployment meets this workload" in text
    assert "ttft_p95: 480ms" in text
    assert "Verified in simulation" not in text
    close = Reader(plan_html(sample_plans.over_budget())).text
    assert "The closest that was found" in close
    assert "87.1 % missed" in close


def test_colours_are_explained_where_a_slice_is_too_narrow_for_its_label() -> None:
    reader = Reader(plan_html(sample_plans.seven_slices()))
    assert [a.get("class") for a in reader.named("p")].count("keys") == 1
    assert [a.get("class") for a in Reader(plan_html(sample_plans.voice())).named("p")].count("keys") == 0
    assert reader.text.count("classifier") >= 5


def test_same_plan_same_bytes() -> None:
    assert plan_html(sample_plans.voice()) == plan_html(sample_plans.voice())


def test_svg_attributes_and_text_cannot_break_out() -> None:
    made = svg.tag("text", '<b>"', class_='x" onload="y')
    assert made == Markup('<text class="x&#34; onload=&#34;y">&lt;b&gt;&#34;</text>')


@pytest.mark.parametrize(
    ("largest", "last", "count"), [(7401.0, 8000.0, 4), (12000.0, 12500.0, 5), (133590.0, 150000.0, 3), (0.0, 1.0, 1)]
)
def test_ticks_are_round_and_reach_the_largest(largest: float, last: float, count: int) -> None:
    ticks = svg.nice_ticks(largest)
    assert ticks[0] == 0.0
    assert ticks[-1] >= largest
    assert (ticks[-1], len(ticks) - 1) == (last, count)


def test_the_rail_begins_where_the_lowest_share_still_has_room() -> None:
    assert svg.gauge_floor([0.987, 0.95]) == 0.9
    assert svg.gauge_floor([0.42, 0.95]) == 0.0
    assert svg.gauge_floor([0.9995, 0.999]) == 0.99
    assert svg.gauge_floor([]) == 0.0
