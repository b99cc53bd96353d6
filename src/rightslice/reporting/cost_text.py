"""The answers of `rightslice cost` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rightslice.core.quantities import format_usd
from rightslice.procurement.own import PAY_BACK_AT, Owning
from rightslice.procurement.reserve import Prices, Reservation
from rightslice.reporting.canvas import Canvas, Column, Style
from rightslice.reporting.text import percent

_SWINGS: Final = 5
_PEAKS: Final = 5
_CAUSES: Final = ("capital", "energy", "space", "maintenance", "staff")


def reserve_text(file: str, prices: Prices, pools: Sequence[Reservation], notes: Sequence[str], style: Style) -> str:
    """Per pool: the cheapest size, what more assurance costs, how it moves with the discount, peaks worth a date."""
    canvas = Canvas(style)
    per_hour = f"{format_usd(prices.reserved)} reserved against {format_usd(prices.alternative)} a GPU-hour (yours)"
    canvas.line(
        (f"{file}: ", "bold"), f"{per_hour}; cheapest to cover the lowest {percent(prices.percentile)} of hours"
    )
    for pool in pools:
        canvas.blank()
        _pool(canvas, pool)
    canvas.blank()
    for note in notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _pool(canvas: Canvas, pool: Reservation) -> None:
    name = f"{pool.pool}: " if pool.pool else ""
    gpus = f"{pool.reserve_gpus:,} GPU" + ("" if pool.reserve_gpus == 1 else "s")
    saved = pool.all_on_demand_usd - pool.total_usd
    share = f", {percent(saved / pool.all_on_demand_usd)} less than reserving none" if pool.all_on_demand_usd else ""
    demand = f"demand {pool.mean_gpus:,.1f} on average, {pool.peak_gpus:,.4g} at the peak, {pool.hours:,} hours"
    canvas.line((f"{name}reserve {gpus}", "bold"), f": {format_usd(pool.total_usd)}{share}")
    canvas.line(demand, indent=2)
    columns = ("size", "GPUs", "cost", "premium", "hours short", "used", "pays from a discount of")
    aligned = [Column(columns[0]), *(Column(title, "right") for title in columns[1:])]
    canvas.table(aligned, list(_levels(pool)))
    if pool.sensitivity:
        steps = " · ".join(f"{percent(s.discount, 0)}: {s.gpus:,}" for s in pool.sensitivity)
        canvas.line(f"At another discount, reserve {steps} GPUs", indent=2)
    for peak in pool.peaks[:_PEAKS]:
        dated = f"hours {peak.start_hour:,} to {peak.start_hour + peak.hours:,}: {peak.gpus:,} more in every hour"
        canvas.line(f"Dated capacity (calendar or future reservation) would serve {dated}", indent=2)
    if len(pool.peaks) > _PEAKS:
        canvas.line(f"… and {len(pool.peaks) - _PEAKS} more such peaks", indent=2)


def _levels(pool: Reservation) -> Iterator[tuple[str, ...]]:
    for level in pool.levels:
        used = "–" if level.used_share is None else percent(level.used_share)
        pays = "–" if level.break_even_discount is None else percent(level.break_even_discount)
        premium = format_usd(level.premium_usd) if level.premium_usd >= 0.005 else "–"
        yield (
            level.name,
            f"{level.gpus:,}",
            format_usd(level.total_usd),
            premium,
            f"{level.short_hours:,}",
            used,
            pays,
        )


def own_text(answer: Owning, figures_date: str, notes: Sequence[str], style: Style) -> str:
    """The price of an owned GPU-hour by cause, against rent, what moves it most, and every assumption."""
    canvas = Canvas(style)
    title = f"{answer.gpus} × {answer.accelerator}, owned: {format_usd(answer.usd_per_gpu_hour)} per GPU-hour"
    canvas.line((title, "bold"), f" (figures of {figures_date}; assumed where marked)")
    total = answer.yearly.total
    causes = [(cause, getattr(answer.yearly, cause)) for cause in _CAUSES]
    parts = (f"{cause} {percent(usd / total, 0)}" for cause, usd in causes if usd > 0.0)
    canvas.line(f"{format_usd(total)} a year: {', '.join(parts)}", indent=2)
    canvas.blank()
    if answer.rents:
        _rents(canvas, answer)
        canvas.blank()
    canvas.line("What moves the price most, over the range of each figure")
    canvas.rows(
        [
            (s.name, f"{format_usd(s.low_usd_per_gpu_hour)} – {format_usd(s.high_usd_per_gpu_hour)}")
            for s in answer.swings[:_SWINGS]
        ]
    )
    canvas.blank()
    canvas.line("Assumptions; each is an option of its name")
    canvas.rows([(a.name, f"{a.value:,g} {a.unit}", a.quality, a.source) for a in answer.assumptions])
    for note in notes:
        canvas.line((note, "dim"))
    return canvas.render()


def _rents(canvas: Canvas, answer: Owning) -> None:
    rows = []
    for rent in answer.rents:
        months = "never" if rent.pay_back_months is None else f"{rent.pay_back_months:.0f}"
        use = percent(rent.break_even_utilisation, 0) if rent.break_even_utilisation <= 1.0 else "never"
        where = f"{rent.provider} {rent.machine_type}, {rent.region}"
        rows.append((where, format_usd(rent.usd_per_gpu_hour), use, months, f"{rent.price_date}, {rent.quality}"))
    titles = ("GPU-hour", "pays above", "months")
    canvas.table([Column("rented on demand"), *(Column(t, "right") for t in titles), Column("price of")], rows)
    paid_back = f"months: to pay it back at {PAY_BACK_AT:.0%} use"
    canvas.line(f"pays above: share of hours in use from which owning is cheaper; {paid_back}", indent=2)
