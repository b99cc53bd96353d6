"""A plan as one self-contained HTML page: no script, nothing fetched, every string escaped."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from rightslice.core.plan import Plan
from rightslice.core.quantities import format_usd
from rightslice.core.text import visible
from rightslice.reporting import page, summary, svg
from rightslice.reporting.autoscaling_text import day_text, scaling_rows, trial_rows
from rightslice.reporting.text import percent

_TEMPLATES = Path(__file__).parent / "templates"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms\b|s\b|GiB\b|GB\b))")


def plan_html(plan: Plan) -> str:
    """The whole report. It states its own content policy: no script, no network."""
    gauges, floor, more_gauges = page.gauges(plan)
    dots, axis = page.cost_dots(plan)
    return _environment().get_template("plan.html.j2").render(
        plan=plan,
        css=Markup((_TEMPLATES / "plan.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        hatch=svg.hatch(),
        counts=summary.counts_text(plan),
        colors=page.colors_to_explain(plan),
        pools=page.pools(plan),
        cost_range=_range(plan),
        price=summary.price_text(plan),
        saving=summary.saving_text(plan),
        cost_bars=page.cost_bars(plan),
        tightest=summary.tightest_text(plan).removeprefix("tightest: "),
        attainment=summary.attainment_text(plan),
        gauges=gauges,
        gauge_floor=percent(floor),
        more_gauges=more_gauges,
        trust=page.trust(plan),
        chance="" if plan.slo_probability is None else percent(plan.slo_probability, 0),
        objectives=page.objective_rows(plan),
        models=page.model_rows(plan),
        memories=page.memories(plan),
        dots=dots,
        axis=axis,
        facts=page.verification_rows(plan),
        scaling=scaling_rows(plan),
        day=day_text(plan),
        trials=trial_rows(plan),
        usd=format_usd,
    ) + "\n"  # fmt: skip


def _range(plan: Plan) -> str:
    cost = plan.monthly_usd
    return f"{format_usd(cost.low)} – {format_usd(cost.high)}" if cost else ""


def _shown(value: object) -> object:
    """Plain strings: harmful characters made visible, a figure kept beside its unit."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _BEFORE_UNIT.sub("\u00a0", visible(value))


def _prose(text: str) -> Markup:
    """A sentence whose `quoted` words are code."""
    pieces = visible(text).split("`")
    if len(pieces) % 2 == 0:
        return escape(visible(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(piece) for number, piece in enumerate(pieces)
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["prose"] = _prose
    return environment
