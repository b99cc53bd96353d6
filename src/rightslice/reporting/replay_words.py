"""The verdict on a simulation in words, the same in the terminal and on the page."""

from __future__ import annotations

from typing import Final

from rightslice.core.quantities import format_seconds
from rightslice.core.replay import Replay
from rightslice.core.text import plural

_MOST_WINDOWS = 3


def verdict_text(replay: Replay) -> str:
    """`1,200 requests in 9 min, after 1 min of warm-up: every objective holds`."""
    return f"{plural(replay.requests, 'request')} in {_windows_text(replay)}: {_verdict(replay)}"


def unmeasured_text(replay: Replay) -> str:
    """Whose objectives say nothing, and what would change that; empty where all do."""
    if not replay.unmeasured:
        return "" if replay.measured else "No model of the plan has traffic or users"
    names = ", ".join(replay.unmeasured)
    why = "no request of that time can be judged" if replay.requests else "no request came in that time"
    return f"Not measured: {names} ({why}; a longer --horizon or another rate may change that)"


def _verdict(replay: Replay) -> str:
    if not replay.measured:
        return "nothing was measured"
    if not replay.holds:
        return "not everything holds"
    return "every objective that was measured holds" if replay.unmeasured else "every objective holds"


def _windows_text(replay: Replay) -> str:
    """How long was measured: each window once, or the longest of many."""
    found = replay.windows_s
    if len(found) > _MOST_WINDOWS:
        return f"up to {format_seconds(max(end_s - begin_s for begin_s, end_s in found))}"
    return " and ".join(
        format_seconds(end_s - begin_s) + (f", after {format_seconds(begin_s)} of warm-up" if begin_s else "")
        for begin_s, end_s in found
    )


STATED_COLUMNS: Final = ("part", "figure", "stated", "simulated", "unexplained")


def stated_rows(replay: Replay) -> list[list[str]]:
    """What was stated beside what was simulated: a row for each figure."""
    return [
        [
            found.part,
            found.what,
            _in_unit(found.stated, found.unit),
            "–" if found.simulated is None else _in_unit(found.simulated, found.unit),
            "–" if found.unexplained is None else _in_unit(found.unexplained, found.unit, signed=True),
        ]
        for found in replay.stated
    ]


def _in_unit(value: float, unit: str, *, signed: bool = False) -> str:
    sign, value = "+" if signed else "", round(value, 9) + 0.0
    if unit == "share":
        return f"{value * 100:{sign}.3g} %".replace("-", "−")
    return f"{value:{sign}.3g} {unit}".strip().replace("-", "−")
