"""Why models run where they do, what a GPU more would save, and what would turn the choice: one line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rightslice.core.explanation import Explanation
from rightslice.core.plan import Rejection
from rightslice.core.quantities import format_bytes, format_usd
from rightslice.core.reasons import PartitionReason, PlatformCost, Saving
from rightslice.reporting.canvas import Canvas, Style
from rightslice.reporting.text import figure, percent

MOST_REJECTED: Final = 12


def partition_row(found: PartitionReason) -> list[str]:
    """Model, where, and the reason with its numbers."""
    place = "whole" if found.partition == "whole" else found.partition
    return [found.model, place, f"{found.reason}; {numbers_text(found)}"]


def numbers_text(found: PartitionReason) -> str:
    """`45 % of the SMs, busy 12 %, 9.5 GiB; × 1.22 (mps × 1.52 beside tts)`: times over those on a GPU alone."""
    parts = []
    if found.sm_demand is not None:
        parts.append(f"{percent(found.sm_demand, 0)} of the SMs")
    if found.duty is not None:
        parts.append("fills its GPUs" if found.duty >= 1.0 else f"busy {percent(found.duty, 0)}")
    parts.append(format_bytes(found.memory_bytes, binary=True))
    mine = found.slowdowns.get(found.partition)
    slower = f"; × {figure(mine)}" if mine is not None and found.partition != "whole" else ""
    others = [f"{n} × {figure(slow)}" for n, slow in found.slowdowns.items() if n not in ("whole", found.partition)]
    beside = f" beside {', '.join(found.neighbours)}" if found.neighbours else ""
    return ", ".join(parts) + slower + (f" ({', '.join(others)}{beside})" if others else "")


def saving_text(found: Saving) -> str:
    """`one more GPU of quota:gcp/us-central1/L4 saves $120 a month`."""
    return f"one more GPU of {found.limit.partition(':')[2]} saves {format_usd(found.monthly_usd)} a month"


def platform_text(found: PlatformCost) -> str:
    """`gke costs $4,054 a month more than gke+operator ($8,344): …`."""
    return (
        f"{found.platform} costs {format_usd(found.difference_usd)} a month more than {found.instead} "
        f"({format_usd(found.monthly_usd)}): the GPU Operator pays while running it costs less than that"
    )


def explanation_text(found: Explanation, style: Style) -> str:
    """The whole answer of `explain`."""
    canvas = Canvas(style)
    canvas.line("Why ", (found.plan, "bold"))
    canvas.blank()
    canvas.rows(list(_headlines(found)))
    sections: tuple[tuple[str, list[list[str]]], ...] = (
        ("Where models run (times over those on a GPU alone)", [partition_row(part) for part in found.partitions]),
        (
            "What limits cost",
            [[text] for text in (*map(platform_text, found.platform_costs), *map(saving_text, found.savings))],
        ),
        ("What would turn the choice", [[flip.rival, flip.text] for flip in found.flips]),
        ("Not chosen", [_rejection_row(rejection) for rejection in found.rejected[:MOST_REJECTED]]),
    )
    for title, rows in sections:
        if rows:
            canvas.blank()
            canvas.line((title, "bold"), indent=2)
            canvas.rows(rows, indent=4)
    if len(found.rejected) > MOST_REJECTED:
        canvas.line((f"… and {len(found.rejected) - MOST_REJECTED} more: --why-not NAME, or --json", "dim"), indent=4)
    for note in found.notes:
        canvas.blank()
        canvas.line(note, indent=2)
    return canvas.render()


def _headlines(found: Explanation) -> Iterator[list[str]]:
    if found.monthly_usd:
        yield ["COST", f"{format_usd(found.monthly_usd.value)} a month"]
    if found.bound:
        gap = f"this one is {percent(found.bound.gap)} above" if found.bound.gap > 0 else "this one is as cheap"
        yield ["BOUND", f"no plan costs less than {format_usd(found.bound.monthly_usd)}; {gap}"]
    if found.binding_slo:
        yield ["BINDS", found.binding_slo]


def _rejection_row(found: Rejection) -> list[str]:
    more = f"; allow it with {found.relaxation}" if found.relaxation else ""
    return [found.code, found.option, f"{found.reason}{more}"]
