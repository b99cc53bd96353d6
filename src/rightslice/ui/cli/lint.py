"""`rightslice lint`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from rightslice import __version__
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_text

if TYPE_CHECKING:
    from rightslice.app.linting import LintReport

Form = Literal["text", "json", "sarif", "github"]


def lint(
    path: Annotated[list[Path], Parameter(negative=(), allow_leading_hyphen=True)],
    /,
    *,
    select: Annotated[list[str] | None, Parameter(negative=(), show_default=False)] = None,
    ignore: Annotated[list[str] | None, Parameter(negative=(), show_default=False)] = None,
    accelerator: str = "",
    fail_on: Literal["error", "warn", "never"] = "error",
    format: Form = "text",  # noqa: A002 - the name of the option
    json: Flag = False,
) -> int:
    """Check Kubernetes manifests for GPU inference. Exit code 1 when there are errors.

    Parameters
    ----------
    path
        Files and folders of YAML or JSON, taken together; - is standard input.
    select
        Only these rules: codes, beginnings of codes, slugs or areas, as in RS64,probe,gpu.no-request.
    ignore
        Not these.
    accelerator
        What it runs on, where the manifests do not say.
    fail_on
        The least severity that makes the exit code 1.
    format
        text, json, sarif (2.1.0) or github (annotations of a workflow).
    json
        The same as --format json.
    """
    from rightslice.app.linting import lint_paths  # noqa: PLC0415 - heavy

    report = lint_paths(path, only=select or (), ignore=ignore or (), accelerator=accelerator)
    _write(report, "json" if json else format)
    return 1 if report.fails(fail_on) else 0


def _write(report: LintReport, form: Form) -> None:
    from rightslice.app.linting import lint_rules  # noqa: PLC0415 - heavy
    from rightslice.reporting.lint_text import github_annotations, lint_text, sarif  # noqa: PLC0415 - heavy

    if form == "json":
        write_json(report)
    elif form == "sarif":
        write_json(sarif(report.findings, lint_rules(), __version__))
    elif form == "github":
        write_text(github_annotations(report.findings))
    else:
        from rightslice.reporting.canvas import Style  # noqa: PLC0415 - heavy

        seen = terminal()
        style = Style(width=seen.width, color=seen.color, ascii_only=seen.ascii_only)
        write_text(lint_text(report.findings, report.files, report.objects, style))
