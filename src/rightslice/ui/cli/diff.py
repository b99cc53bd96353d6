"""`rightslice diff`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_text


def diff(
    old: Path,
    new: Path,
    /,
    *,
    max_increase: Annotated[str | None, Parameter(show_default=False)] = None,
    json: Flag = False,
) -> int:
    """What differs between two plans: cost, GPUs, replicas, and which GPUs change in which order.

    Parameters
    ----------
    old
        A plan.json, or the folder that holds one.
    new
        The plan that is to replace it.
    max_increase
        The exit code is 1 when the cost rises by more than this: 5%.
    json
        Print one JSON document.
    """
    most = None if max_increase is None else _share(max_increase)
    from rightslice.app.difference import diff_plans  # noqa: PLC0415 - heavy

    found = diff_plans(old, new)
    if json:
        write_json(found)
    else:
        from rightslice.reporting.canvas import Style  # noqa: PLC0415 - heavy
        from rightslice.reporting.changes_text import difference_text  # noqa: PLC0415 - heavy

        seen = terminal()
        write_text(difference_text(found, Style(seen.width, seen.color, seen.ascii_only)))
    return 1 if most is not None and (found.increase or 0.0) > most + 1e-9 else 0


def _share(text: str) -> float:
    """`5%` -> 0.05."""
    try:
        share = float(text.removesuffix("%")) / 100.0
    except ValueError:
        share = math.nan
    if not (text.endswith("%") and math.isfinite(share) and share >= 0.0):
        raise BadInputError(Diagnostic("RS0501", f'--max-increase "{text}" is no share of the cost', hint="5%"))
    return share
