"""Plans, simulations, tuned autoscalers and load tests as self-contained HTML pages: no script, nothing fetched, every
string escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from rightslice.core.plan import Plan
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.replay import Replay, Tuning
from rightslice.core.text import plural, visible
from rightslice.core.timeline import Timeline
from rightslice.loadtesting.dialects import SOUND
from rightslice.loadtesting.results import LoadTest
from rightslice.reporting import loadtest_page, page, replay_page, summary, svg, trials_page
from rightslice.reporting.autoscaling_text import scaled_day_text, scaling_rows, trial_rows
from rightslice.reporting.changes_text import change_rows, summary_text
from rightslice.reporting.course import run_views
from rightslice.reporting.loadtest_text import findings
from rightslice.reporting.reasons_text import limit_texts, partition_row
from rightslice.reporting.replay_words import stated_rows, unmeasured_text, verdict_text
from rightslice.reporting.text import figure, percent, priced_text

_TEMPLATES = Path(__file__).parent / "templates"
PLAN, SIMULATION, LOADTEST = "rightslice plan", "rightslice simulate", "rightslice loadtest"
"""What made a page, as it says itself."""
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms\b|s\b|GiB\b|GB\b))")


def plan_html(plan: Plan, timelines: Sequence[Timeline] = ()) -> str:
    """The whole report. It states its own content policy: no script, no network.

    `timelines`: the simulation behind the plan, over time.
    """
    gauges, floor, more_gauges = page.gauges(summary.objectives(plan))
    dots, axis = page.cost_dots(plan)
    return _rendered(
        "plan.html.j2",
        PLAN,
        plan=plan,
        counts=summary.counts_text(plan),
        colors=page.colors_to_explain(plan),
        pools=page.pools(plan),
        cost_range=_range(plan),
        price=summary.price_text(plan),
        saving=summary.saving_text(plan),
        day=summary.day_text(plan),
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
        scaled_day=scaled_day_text(plan),
        trials=trial_rows(plan),
        partitions=[partition_row(found) for found in plan.partitions if found.partition != "whole"],
        limits=limit_texts(plan.platform_costs, plan.savings),
        changed=summary_text(plan.changes) if plan.changes else "",
        changes=change_rows(plan.changes) if plan.changes else [],
        usd=format_usd,
        runs=run_views(timelines),
        part=next((percent(timeline.share, 0) for timeline in timelines if timeline.share < 1.0), ""),
    )


def replay_html(replay: Replay) -> str:
    """The report of a simulation; `timeline.csv` lies beside it."""
    gauges, floor, more_gauges = page.gauges(replay_page.objectives(replay))
    events = replay_page.event_rows(replay)
    return _rendered(
        "replay.html.j2",
        SIMULATION,
        replay=replay,
        priced=priced_text(replay.price_date, replay.price_quality) if replay.usd is not None else "",
        stated=stated_rows(replay),
        span=format_seconds(replay.horizon_s),
        verdict=verdict_text(replay),
        unmeasured=unmeasured_text(replay),
        gauges=gauges,
        gauge_floor=percent(floor),
        more_gauges=more_gauges,
        requests=replay_page.requests_rows(replay),
        cost=replay_page.cost_text(replay),
        hours=figure(replay.gpu_hours),
        bars=replay_page.hours_bars(replay),
        bins=replay_page.bins_text(replay),
        runs=run_views(replay.timelines, everything=True),
        times=replay_page.time_rows(replay),
        deployments=replay_page.deployment_rows(replay),
        events=events,
        more_events=len(replay.scale_events) + len(replay.preemptions) - len(events),
        asked=replay_page.asked_rows(replay),
    )


def trials_html(tuning: Tuning) -> str:
    """The report of a tuned autoscaler; `trials.csv` lies beside it."""
    trials, best = tuning.trials, tuning.frontier
    holding = sum(trial.holds for trial in trials)
    return _rendered(
        "trials.html.j2",
        SIMULATION,
        name=tuning.plan,
        seed=tuning.seed,
        verdict=f"{holding} of {plural(len(trials), 'setting')} hold over the same traffic",
        scatter=trials_page.scatter(trials, best),
        settings=trials_page.setting_rows(trials, best),
        priced=priced_text(tuning.price_date, tuning.price_quality),
    )


def loadtest_html(report: LoadTest) -> str:
    """The report of a load test; `requests.csv` lies beside it."""
    return _rendered(
        "loadtest.html.j2",
        LOADTEST,
        report=report,
        verdict=loadtest_page.verdict(report),
        findings=list(findings(report)),
        trust=loadtest_page.trust(report),
        asked=loadtest_page.asked_rows(report),
        curves=loadtest_page.curves(report),
        gaps=loadtest_page.gaps(report),
        points=loadtest_page.point_rows(report),
        made="Speed" if report.api in SOUND else "Tokens/s",
        server=loadtest_page.server_rows(report),
        troubles=loadtest_page.trouble_rows(report),
    )


def _rendered(template: str, generator: str, **values: object) -> str:
    css = Markup((_TEMPLATES / "plan.css").read_text(encoding="utf-8"))  # noqa: S704 - our own file
    found = _environment().get_template(template)
    return found.render(generator=generator, css=css, hatch=svg.hatch(), **values) + "\n"


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
