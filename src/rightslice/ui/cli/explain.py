"""`rightslice explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import Progress, terminal, write_json, write_text


def explain(
    plan: Path,
    /,
    *,
    why_not: Annotated[str, Parameter(show_default=False)] = "",
    risk: float = 0.05,
    json: Flag = False,
) -> int:
    """Why a plan is as it is, and the one assumption that would turn the choice.

    Parameters
    ----------
    plan
        A plan.json, or the folder that holds one.
    why_not
        Only why this is not chosen: an accelerator, a machine type, a model's source, a way of sharing.
    risk
        Accepted probability with which it was planned.
    json
        Print one JSON document.
    """
    from rightslice.app.explanation import explain_plan  # noqa: PLC0415 - heavy

    with Progress() as progress:
        found = explain_plan(plan, why_not, risk=risk, progress=progress)
    if json:
        write_json(found)
    else:
        from rightslice.reporting.canvas import Style  # noqa: PLC0415 - heavy
        from rightslice.reporting.reasons_text import explanation_text  # noqa: PLC0415 - heavy

        seen = terminal()
        write_text(explanation_text(found, Style(seen.width, seen.color, seen.ascii_only)))
    return 0
