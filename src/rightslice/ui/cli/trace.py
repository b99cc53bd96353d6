"""`rightslice trace`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.options import quantity_of
from rightslice.core.quantities import parse_seconds
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_note, write_text

if TYPE_CHECKING:
    from rightslice.app.traces import Changes

LARGEST_SCALE = 1e6


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Wanted:
    """What is done to the trace before it is described or written."""

    start: Annotated[str, Parameter(show_default=False, help="Leave out what comes before: 30min, 2h.")] = ""
    window: Annotated[str, Parameter(show_default=False, help="Keep no more than this: 10min, 1h.")] = ""
    sample: Annotated[float, Parameter(help="Keep this share of the requests; bursts and conversations stay.")] = 1.0
    scale: Annotated[float, Parameter(help="Run it this many times as fast.")] = 1.0
    seed: Annotated[int, Parameter(help="Of whatever is drawn, up to 2^53 - 1.")] = 0
    lengths: Annotated[
        Path | None, Parameter(show_default=False, help="Histograms of token lengths that go with client laws.")
    ] = None
    only: Annotated[str, Parameter(show_default=False, help="Of client laws only this model class.")] = ""


_AS_IT_IS = Wanted()


def trace(
    file: Path,
    /,
    *,
    to: Literal["csv", "mooncake"] | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], show_default=False)] = None,
    wanted: Wanted = _AS_IT_IS,
    json: Flag = False,
) -> int:
    """Describe recorded traffic, or convert it.

    The format is found by content: CSV with t_s,input_tokens,output_tokens, Azure, BurstGPT, Mooncake, Qwen-Bailian, or
    client laws of ServeGen, from which requests are drawn. Plain or gzip.

    Parameters
    ----------
    file
        The trace; for ServeGen its folder or table.
    to
        Write it in this format.
    output
        Where to; with .gz at the end it is compressed. With --to.
    json
        Print the description as one JSON document.
    """
    changes = _changes(wanted)
    if (to is None) != (output is None):
        raise BadInputError(Diagnostic("RS0502", "--to and -o go together", hint="--to csv -o trace.csv"))
    from rightslice.app.traces import converted, open_trace  # noqa: PLC0415 - heavy

    requests, report = open_trace(file, changes)
    if to is not None and output is not None:
        from rightslice.core.files import write_atomically  # noqa: PLC0415 - not needed for `--help`

        data, notes = converted(requests, to, packed=output.suffix == ".gz")
        write_atomically(output, data)
        for note in (*notes, f"Wrote {output}"):
            write_note(note)
    if json:
        write_json(report)
        return 0
    from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich
    from rightslice.reporting.trace_text import trace_text  # noqa: PLC0415 - rich

    seen = terminal()
    style = Style(seen.width, seen.color, seen.ascii_only)
    write_text(trace_text(f"{report.file}: {report.format}", report.summary, report.skipped, report.notes, style))
    return 0


def _changes(wanted: Wanted) -> Changes:
    from rightslice.app.traces import Changes  # noqa: PLC0415 - heavy
    from rightslice.core.rng import checked_seed  # noqa: PLC0415 - heavy

    checked_seed(wanted.seed)
    wrong = []
    if not 0.0 < wanted.sample <= 1.0:
        wrong.append(Diagnostic("RS0501", f"--sample {wanted.sample:g} is not a share", hint="above 0, at most 1"))
    if not 1.0 / LARGEST_SCALE <= wanted.scale <= LARGEST_SCALE:
        wrong.append(Diagnostic("RS0501", f"--scale {wanted.scale:g} is out of range", hint="for example 0.5 or 2"))
    if wrong:
        raise BadInputError(wrong)
    start_s, window_s = _seconds("start", wanted.start), _seconds("window", wanted.window)
    if window_s == 0.0:
        raise BadInputError(Diagnostic("RS0501", "--window is empty", hint="for example 1h"))
    return Changes(start_s, window_s, wanted.sample, wanted.scale, wanted.seed, wanted.lengths, wanted.only)


def _seconds(name: str, text: str) -> float | None:
    if not text:
        return None
    found = quantity_of(f"--{name}", parse_seconds, text)
    if found < 0.0:
        raise BadInputError(Diagnostic("RS0501", f"--{name} {text[:40]} is negative"))
    return found
