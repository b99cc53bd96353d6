"""What the page of a tuned autoscaler shows: each setting's cost against its success, and the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from rightslice.core.quantities import format_usd
from rightslice.core.replay import Trial
from rightslice.reporting import svg
from rightslice.reporting.charts import HEIGHT_OF_SCATTER, across, height, scale, upright
from rightslice.reporting.text import figure, percent


@dataclass(frozen=True, slots=True)
class ScatterView:
    """The plot, the column of figures to its left, the axis and its name below."""

    title: str
    unit: str
    keys: tuple[tuple[str, str], ...]
    scale: Markup
    plot: Markup
    axis: Markup


def scatter(trials: Sequence[Trial], best: Sequence[Trial]) -> ScatterView:
    """Cost to the right, share of requests up; the frontier as steps, settings that hold full, others open."""
    priced = all(trial.usd is not None for trial in trials)
    costs = svg.nice_ticks(max(trial.cost for trial in trials))
    low = svg.gauge_floor([trial.achieved for trial in trials])
    shares = [low, (low + 1.0) / 2.0, 1.0]
    parts = [across(height(share, low, 1.0, HEIGHT_OF_SCATTER), "grid") for share in shares]
    parts += [upright(cost / costs[-1], "grid", HEIGHT_OF_SCATTER) for cost in costs]
    parts += _frontier(best, costs[-1], low)
    parts += [_mark(trial, trial in best, costs[-1], low) for trial in trials]
    cheapest = next((trial for trial in trials if trial.holds), None)
    description = f"{len(trials)} settings, {len(best)} on the frontier; " + (
        f"the cheapest that holds costs {amount(cheapest)}" if cheapest else "none holds"
    )
    keys = (("holds", "swatch-holds"), ("does not hold", "swatch-open"), ("frontier", "s0"))
    return ScatterView(
        title="Requests that meet the tightest objective",
        unit="USD over the run" if priced else "GPU-hours over the run",
        keys=keys,
        scale=scale(shares, low, "%", HEIGHT_OF_SCATTER),
        plot=svg.figure("Cost against success", description, HEIGHT_OF_SCATTER, *parts, css="plot"),
        axis=svg.axis(costs, [f"{'$' if priced else ''}{cost:,g}" for cost in costs]),
    )


def _frontier(best: Sequence[Trial], most: float, low: float) -> list[Markup]:
    """Steps from one setting of the frontier to the next."""
    lines = []
    for one, dearer in pairwise(best):
        x1, x2 = svg.at(one.cost / most), svg.at(dearer.cost / most)
        y1, y2 = (f"{height(trial.achieved, low, 1.0, HEIGHT_OF_SCATTER):.1f}" for trial in (one, dearer))
        lines.append(svg.tag("line", x1=x1, y1=y1, x2=x2, y2=y1, class_="frontier"))
        lines.append(svg.tag("line", x1=x2, y1=y1, x2=x2, y2=y2, class_="frontier"))
    return lines


def _mark(trial: Trial, on_frontier: bool, most: float, low: float) -> Markup:
    x, y = svg.at(trial.cost / most), f"{height(trial.achieved, low, 1.0, HEIGHT_OF_SCATTER):.1f}"
    held = "holds" if trial.holds else "does not hold"
    aimed = "the target given" if trial.share is None else f"{trial.share:.0%} of the rated load"
    title = f"{aimed}, at least {trial.min_replicas}, windows {trial.windows}: {amount(trial)}, {held}"
    css = f"mark {'verified' if trial.holds else 'unverified'}{' chosen' if on_frontier and trial.holds else ''}"
    dot = svg.tag("circle", svg.tag("title", title), cx=x, cy=y, r=5, class_=css)
    ring = svg.tag("circle", cx=x, cy=y, r=9, class_="ring") if on_frontier else Markup("")
    return Markup("").join((ring, dot))


def amount(trial: Trial) -> str:
    """`$427`, or `85 GPU-hours` without a price."""
    return format_usd(trial.usd) if trial.usd is not None else f"{figure(trial.gpu_hours)} GPU-hours"


def setting_rows(trials: Sequence[Trial], best: Sequence[Trial]) -> list[list[str]]:
    """One row for each setting, in the order given."""
    return [
        [
            percent(t.share, 0) if t.share is not None else "as given",
            f"{t.min_replicas:,}",
            t.windows,
            format_usd(t.usd) if t.usd is not None else "–",
            f"{t.gpu_hours:,.1f}",
            t.objective or "–",
            percent(t.achieved),
            f"{t.changes:,}",
            "yes" if t.holds else "no",
            "yes" if t in best else "",
        ]
        for t in trials
    ]
