"""`rightslice simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.quantities import QuantityError, parse_seconds
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import Progress, terminal, write_json, write_text


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
    seed: Annotated[int | None, Parameter(help="Seed of the traffic; the plan's by default.")] = None
    horizon: Annotated[
        str | None, Parameter(help="How long is simulated: 6h. As long as the plan's verification by default.")
    ] = None


_NOTHING = Change()


def simulate(plan: Path, /, *, change: Change = _NOTHING, json: Flag = False) -> int:
    """Play a plan again, as it stands or with something changed. Exit code 1 when an objective is missed.

    Parameters
    ----------
    plan
        A plan.json, or the folder that `rightslice plan -o` wrote it to.
    json
        Print one JSON document.
    """
    from rightslice.app.simulating import WhatIf, simulate_plan  # noqa: PLC0415 - heavy

    what_if = WhatIf(change.trace, change.rate, change.users, change.values, change.seed, _seconds(change.horizon))
    with Progress(quiet=json) as progress:
        progress("simulating")
        replay = simulate_plan(plan, what_if)
    if json:
        write_json(replay.document())
    else:
        from rightslice.reporting.replay_text import replay_text  # noqa: PLC0415 - rich

        seen = terminal()
        write_text(replay_text(replay, width=seen.width, color=seen.color, ascii_only=seen.ascii_only))
    return 0 if replay.holds else 1


def _seconds(horizon: str | None) -> float | None:
    try:
        return None if horizon is None else parse_seconds(horizon)
    except QuantityError as error:
        raise BadInputError(Diagnostic("RS0501", f"--horizon: {error}")) from None
