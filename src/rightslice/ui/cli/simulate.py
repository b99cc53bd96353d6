"""`rightslice simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from rightslice.core.options import quantity_of
from rightslice.core.quantities import parse_seconds
from rightslice.core.replay import Replay, Tuning
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import Progress, terminal, write_json, write_line, write_note, write_text


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Change:
    """What differs from the plan."""

    trace: Annotated[
        Path | None, Parameter(help="Recorded requests instead of the drawn ones; the plan has one class of traffic.")
    ] = None
    rate: Annotated[str | None, Parameter(help="Another rate for that class: 20/s.")] = None
    users: Annotated[str | None, Parameter(help="Only this population of the pipelines.")] = None
    values: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            negative=(),
            show_default=False,
            help="One change, PATH=VALUE; may be repeated: models.chat.replicas=3, "
            "models.chat.accelerator=H100-SXM-80GB, or a value of the workload: models.chat.traffic.rate=20/s.",
        ),
    ] = ()
    autoscaler: Annotated[
        str | None,
        Parameter(
            help="Follow the load over a day: hpa, keda, perfect, fixed, or '{kind: hpa, signal: in_flight, target: 8, "
            "min: 1, max: 6}', for every model with traffic of its own; --set models.NAME.autoscaler=… for one."
        ),
    ] = None
    fault: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="What goes wrong; may be repeated: spot@0.1/h, nodes, gpu@10m, gpu:POOL@10m, pods@1/d, mps@10m, zone",
        ),
    ] = ()
    rollout: Annotated[
        str | None,
        Parameter(help="A rolling update of every deployment: 30m, or 30m,surge=1,unavailable=0."),
    ] = None
    seed: Annotated[int | None, Parameter(help="Seed of the traffic, up to 2^53 - 1; the plan's by default.")] = None
    horizon: Annotated[
        str | None,
        Parameter(
            help="How long is simulated, and users stay: 6h. By default the plan's verification, or the --trace."
        ),
    ] = None


_NOTHING = Change()


def simulate(
    plan: Path,
    /,
    *,
    change: Change = _NOTHING,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), negative=())] = None,
    reference: Annotated[Path | None, Parameter(show_default=False)] = None,
    tune: Flag = False,
    json: Flag = False,
) -> int:
    """Play a plan again, as it stands or with something changed. Exit code 1 when an objective is missed.

    Parameters
    ----------
    plan
        A plan.json, or the folder that `rightslice plan -o` wrote it to.
    output
        Folder for replay.json, timeline.csv and report.html, or for trials.csv and report.html of `--tune`.
    reference
        File of figures that were stated of this deployment, kind: Reference, to stand beside the simulated ones.
    tune
        Try targets, least sizes and windows of the autoscaler over the same day; the cheapest that holds comes first.
    json
        Print one JSON document.
    """
    if output is not None:
        from rightslice.app.replay_files import check_replay_folder  # noqa: PLC0415 - heavy

        check_replay_folder(output, tune=tune)
    from rightslice.app.simulating import simulate_plan  # noqa: PLC0415 - heavy
    from rightslice.app.tuning import tune_plan  # noqa: PLC0415 - heavy
    from rightslice.app.what_if import WhatIf  # noqa: PLC0415 - heavy

    what_if = WhatIf(
        trace=change.trace,
        rate=change.rate,
        users=change.users,
        changes=change.values,
        seed=change.seed,
        horizon_s=quantity_of("--horizon", parse_seconds, change.horizon) if change.horizon is not None else None,
        autoscaler=change.autoscaler,
        faults=change.fault,
        rollout=change.rollout,
    )
    with Progress(quiet=json) as progress:
        progress("simulating")
        found = tune_plan(plan, what_if, progress) if tune else simulate_plan(plan, what_if)
    if reference is not None and isinstance(found, Replay):
        from rightslice.app.referencing import referenced  # noqa: PLC0415 - heavy

        found = referenced(found, reference)
    written = _written(found, output) if output is not None else ""
    if isinstance(found, Tuning):
        _show_tuning(found, json=json)
    else:
        _show(found, json=json)
    if written:
        (write_note if json else write_line)(written)
    return 0 if found.holds else 1


def _written(found: Replay | Tuning, folder: Path) -> str:
    """Write the files; `Wrote …` and `Next …`."""
    from rightslice.app.replay_files import write_replay  # noqa: PLC0415 - heavy

    names = write_replay(found, folder)
    return f"\nWrote  {'   '.join(names)}   in {folder}\nNext   open {quote(str(folder / 'report.html'))}"


def _show(replay: Replay, *, json: bool) -> None:
    if json:
        write_json(replay.document())
        return
    from rightslice.reporting.replay_text import replay_text  # noqa: PLC0415 - rich

    seen = terminal()
    write_text(replay_text(replay, width=seen.width, color=seen.color, ascii_only=seen.ascii_only))


def _show_tuning(tuning: Tuning, *, json: bool) -> None:
    if json:
        from rightslice.core.documents import to_jsonable  # noqa: PLC0415

        write_json({"trials": to_jsonable(tuning.trials)})
        return
    from rightslice.reporting.replay_text import trials_text  # noqa: PLC0415 - rich

    seen = terminal()
    write_text(trials_text(tuning, width=seen.width, color=seen.color, ascii_only=seen.ascii_only))
