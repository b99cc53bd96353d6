"""Why models run where they do, what a GPU more would save, and what would turn the choice: one line each."""

from __future__ import annotations

from rightslice.core.quantities import format_bytes, format_usd
from rightslice.core.reasons import PartitionReason, PlatformCost, Saving
from rightslice.reporting.text import figure, percent


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
