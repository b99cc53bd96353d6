"""`rightslice accuracy`: predictions scored on a table of measurements, and the bar that they have to pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rightslice.app.predict_rows import predicted_rows, read_rows
from rightslice.app.scoring import METRICS, Scored, scored
from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean
from rightslice.core.results import Score

_AT_MOST: Final = ("median_ape", "macro_median_ape")
_AT_LEAST: Final = ("within_20pct", "interval_coverage")
Bar = Mapping[str, Mapping[str, float] | float]


def score_table(path: Path) -> Scored:
    """Predict and score every row of a CSV file. Raises BadInputError as `read_rows`, and RS0402 for no number."""
    rows = read_rows(path)
    try:
        return scored(predicted_rows(rows))
    except ValueError as error:
        raise BadInputError(Diagnostic("RS0402", f"no number: {error}"[:200], Location(str(path)[:200]))) from None


def read_bar(path: Path) -> Bar:
    """Limits by metric, `{"tpot": {"median_ape": 0.1}, "coverage": 1.0}`: errors at most, shares at least.

    Raises BadInputError RS0401 or RS0402.
    """
    where = Location(str(path)[:200])
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no JSON document"
        raise BadInputError(Diagnostic("RS0401", reason, where)) from None
    known = (*METRICS, "coverage")
    if not isinstance(found, dict):
        raise BadInputError(Diagnostic("RS0402", "no mapping", where, 'for example {"tpot": {"median_ape": 0.1}}'))
    for name, limits in found.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"known are {', '.join(known)}"
            raise BadInputError(Diagnostic("RS0402", f'unknown metric "{name[:40]}"', where, hint))
        numbers = [limits] if name == "coverage" else [*limits.values()] if isinstance(limits, dict) else [None]
        names = [] if name == "coverage" or not isinstance(limits, dict) else [*limits]
        wrong = [n for n in names if n not in (*_AT_MOST, *_AT_LEAST)]
        if wrong or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
            hint = f"known are {', '.join((*_AT_MOST, *_AT_LEAST))}, each a number"
            raise BadInputError(Diagnostic("RS0402", f'the limits of "{name}" are not understood', where, hint))
    return found


def exceeded(found: Scored, bar: Bar) -> tuple[str, ...]:
    """Every limit that is not kept; a metric without rows keeps none."""
    misses = []
    for name, limits in bar.items():
        if not isinstance(limits, Mapping):
            if found.coverage < limits:
                misses.append(f"coverage {found.coverage:.4g}, the bar is {limits:.4g}")
            continue
        score: Score | None = getattr(found, name)
        for figure, limit in limits.items():
            value = getattr(score, figure) if score else None
            if value is None or (value > limit if figure in _AT_MOST else value < limit):
                shown = "no rows" if value is None else f"{value:.4g}"
                misses.append(f"{name} {figure} {shown}, the bar is {limit:.4g}")
    return tuple(misses)
