"""`rightslice plan`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from rightslice.core.files import check_folder
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import Progress, terminal, write_json, write_line, write_note, write_text

if TYPE_CHECKING:
    from rightslice.core.plan import Plan


def plan(  # noqa: PLR0913 - the options of the command
    workload: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), negative=())] = None,
    seed: int = 0,
    risk: float = 0.05,
    current: Annotated[Path | None, Parameter(negative=(), show_default=False)] = None,
    calibration: Annotated[tuple[Path, ...], Parameter(negative=(), show_default=False)] = (),
    no_emit: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """What to deploy for a workload, what it costs, how sure that is. Exit code 1 when nothing meets it.

    Parameters
    ----------
    workload
        The workload file. `rightslice init` writes one.
    output
        Folder for plan.json, report.html and kubernetes/. Without it nothing is written.
    seed
        Seed of the simulations, up to 2^53 - 1: the same file and seed give the same plan.
    risk
        Accepted probability that an objective fails because the predictions are wrong.
    current
        What runs now: a plan.json (or its folder) or a `kind: Layout` file. GPUs stay as they are where that costs next
        to nothing; the steps to the new plan are told.
    calibration
        File of measured times, as rightslice calibrate -o writes it; may be given several times.
    no_emit
        Write no kubernetes/ folder.
    json
        Print the plan document, and `timings`, as one JSON document.
    quiet
        Print three lines: DEPLOY, COST, SLO.
    """
    if output is not None:
        check_folder(output)
    from rightslice.app.autoscaling import plan_scaled  # noqa: PLC0415 - heavy
    from rightslice.app.planning import write_plan  # noqa: PLC0415 - heavy

    with Progress(quiet=quiet) as progress:
        outcome = plan_scaled(
            workload,
            seed=seed,
            risk=risk,
            progress=progress,
            over_time=output is not None,
            current=current,
            calibrations=calibration,
        )
    for warning in outcome.warnings:
        write_note(warning.one_line())
    written: tuple[str, ...] = ()
    if output is not None:
        written = write_plan(
            outcome.plan, output, emit=outcome.plan.feasible and not no_emit, timelines=outcome.timelines
        )
    if json:
        from rightslice.core.documents import to_jsonable  # noqa: PLC0415

        write_json({**to_jsonable(outcome.plan), "timings": outcome.timings})
    else:
        write_text(_shown(outcome.plan, quiet=quiet))
    if not quiet:
        (write_note if json else write_line)(_closing(workload, outcome.plan, output, written))
    return 0 if outcome.plan.feasible else 1


def _shown(plan: Plan, *, quiet: bool) -> str:
    from rightslice.reporting.terminal import plan_brief, plan_text  # noqa: PLC0415 - rich

    seen = terminal()
    if quiet:
        return plan_brief(plan, ascii_only=seen.ascii_only)
    return plan_text(plan, width=seen.width, color=seen.color, ascii_only=seen.ascii_only)


def _closing(workload: Path, plan: Plan, output: Path | None, written: tuple[str, ...]) -> str:
    """`Wrote …` and `Next …`."""
    if output is None:
        what = "the report and the manifests" if plan.feasible else "the report"
        return f"\nNext   rightslice plan {quote(str(workload))} -o out   writes {what}"
    manifests = [path for path in written if path.startswith("kubernetes/")]
    names = [path for path in written if path not in manifests]
    if manifests:
        names.append(f"kubernetes/ ({len(manifests)} files; start with kubernetes/README.md)")
    lines = [f"\nWrote  {'   '.join(names)}   in {output}"]
    then = " · read kubernetes/README.md" if manifests else ""
    lines.append(f"Next   open {quote(str(output / 'report.html'))}{then}")
    return "\n".join(lines)
