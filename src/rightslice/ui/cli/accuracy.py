"""`rightslice accuracy`."""

from __future__ import annotations

from pathlib import Path

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_text


def accuracy(
    truth: Path | None = None, /, *, bar: Path | None = None, markdown: Flag = False, json: Flag = False
) -> int:
    """How far predictions were from published measurements, or are from yours. Exit code 1 when the bar is missed.

    Parameters
    ----------
    truth
        A CSV file of measurements (the columns of `predict --rows`); by default the shipped validation is printed.
    bar
        A JSON file of limits for TRUTH: {"tpot": {"median_ape": 0.1}, "coverage": 1.0}.
    markdown
        Print the shipped validation as the page of the documentation.
    json
        Print one JSON document.
    """
    if truth is None:
        if bar is not None:
            raise BadInputError(Diagnostic("RS0502", "--bar needs a table", hint="rightslice accuracy TRUTH.csv --bar"))
        return _shipped(markdown=markdown, json=json)
    if markdown:
        raise BadInputError(Diagnostic("RS0502", "--markdown is the shipped validation", hint="leave the table out"))
    from rightslice.app.accuracy import exceeded, read_bar, score_table  # noqa: PLC0415 - heavy

    limits = read_bar(bar) if bar is not None else {}
    found = score_table(truth)
    missed = exceeded(found, limits)
    if json:
        from rightslice.core.documents import to_jsonable  # noqa: PLC0415 - heavy

        write_json({**to_jsonable(found), "missed": missed})
    else:
        from rightslice.reporting.accuracy_text import scored_text  # noqa: PLC0415 - rich
        from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich

        seen = terminal()
        totals = {"throughput": found.throughput, "tpot": found.tpot, "ttft": found.ttft, "e2e": found.e2e}
        style = Style(seen.width, seen.color, seen.ascii_only)
        write_text(scored_text(totals, found.coverage, found.by_group, missed, style))
    return 1 if missed else 0


def _shipped(*, markdown: bool, json: bool) -> int:
    from rightslice.performance.accuracy import document  # noqa: PLC0415 - heavy

    found = document()
    if json:
        write_json(found.model_dump())
    elif markdown:
        from rightslice.reporting.accuracy_page import accuracy_page  # noqa: PLC0415

        write_text(accuracy_page(found))
    else:
        from rightslice.reporting.accuracy_text import shipped_text  # noqa: PLC0415 - rich
        from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich

        seen = terminal()
        write_text(shipped_text(found, Style(seen.width, seen.color, seen.ascii_only)))
    return 0
