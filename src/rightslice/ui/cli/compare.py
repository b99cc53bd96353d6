"""`rightslice compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import Progress, terminal, write_json, write_text


def compare(
    workload: Path,
    /,
    *,
    models: str,
    replaces: Annotated[str, Parameter(name="--for", show_default=False)] = "",
    scores: Annotated[Path | None, Parameter(show_default=False)] = None,
    seed: int = 0,
    json: Flag = False,
) -> int:
    """The same traffic and objectives on several models. Exit code 1 when none keeps them.

    Parameters
    ----------
    workload
        The workload file.
    models
        Their sources, separated by commas: catalogue names, hub ids, folders.
    replaces
        The model of the workload that they would replace, where several have a source.
    scores
        File of quality scores, kind: ModelScores.
    seed
        Seed of the simulations.
    json
        Print one JSON document.
    """
    from rightslice.app.candidate_models import compare_models  # noqa: PLC0415 - heavy

    sources = [word.strip() for word in models.split(",")]
    with Progress(quiet=json) as progress:
        found = compare_models(workload, sources, name=replaces, scores=scores, seed=seed, progress=progress)
    if json:
        write_json(found)
    else:
        from rightslice.reporting.candidates_text import candidates_text  # noqa: PLC0415 - rich
        from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich

        seen = terminal()
        write_text(candidates_text(found, Style(seen.width, seen.color, seen.ascii_only)))
    return 0 if any(one.holds for one in found.models) else 1
