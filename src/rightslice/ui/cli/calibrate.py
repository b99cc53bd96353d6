"""`rightslice calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from rightslice.core.engine import DTYPE_BITS
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_note, write_text

MOST_FILES: Final = 200
LARGEST: Final = 10_000_000


def calibrate(  # noqa: PLR0913 - the options of the command
    results: Annotated[tuple[Path, ...], Parameter(show_default=False)],
    /,
    *,
    model: str = "",
    accelerator: str = "",
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    kv_cache_tokens: int | None = None,
    tp: int = 1,
    dtype: str = "",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], show_default=False)] = None,
    json: Flag = False,
) -> int:
    """Fit the time of an engine's iteration to load tests. Exit code 1 when the fit should not be used.

    Reads results of rightslice loadtest, guidellm, vllm bench serve, aiperf and inference-perf.

    Parameters
    ----------
    results
        Files of results: several concurrencies, long answers, long prompts, long contexts.
    model
        The model that was measured, by its name in the catalogue.
    accelerator
        What it ran on.
    max_num_seqs
        As the engine was started.
    max_num_batched_tokens
        As the engine was started.
    kv_cache_tokens
        Tokens of its KV cache, as its log says; by default enough.
    tp
        Tensor parallel size of the engine.
    dtype
        Precision of its weights; by default the checkpoint's.
    output
        Where to write the calibration.
    json
        Print one JSON document.
    """
    wrong = [
        Diagnostic("RS0501", f"--{name} {str(value)[:20]} is out of range", hint=f"1 to {LARGEST:,}")
        for name, value in (
            ("max-num-seqs", max_num_seqs),
            ("max-num-batched-tokens", max_num_batched_tokens),
            ("kv-cache-tokens", 1 if kv_cache_tokens is None else kv_cache_tokens),
            ("tp", tp),
        )
        if not 1 <= value <= LARGEST
    ]
    if dtype and dtype not in DTYPE_BITS:
        wrong.append(Diagnostic("RS0501", f"--dtype {dtype[:20]} is unknown", hint=did_you_mean(dtype, DTYPE_BITS)))
    if len(results) > MOST_FILES:
        wrong.append(Diagnostic("RS0501", f"{len(results)} files of results", hint=f"at most {MOST_FILES}"))
    if wrong:
        raise BadInputError(wrong)
    from rightslice.app.calibrate import calibrate as calibrated  # noqa: PLC0415 - heavy
    from rightslice.app.calibrate import read_results  # noqa: PLC0415 - heavy
    from rightslice.loadtesting.calibration import Engine  # noqa: PLC0415

    points, notes = read_results(results)
    engine = Engine(max_num_seqs, max_num_batched_tokens, kv_cache_tokens, tp, dtype)
    found = calibrated(points, engine, model=model, accelerator=accelerator, notes=notes)
    if output is not None:
        from rightslice.core.documents import to_json  # noqa: PLC0415 - heavy
        from rightslice.core.files import write_atomically  # noqa: PLC0415

        write_atomically(output, to_json(found))
        write_note(f"Wrote {output}")
    if json:
        write_json(found)
    else:
        from rightslice.reporting.calibration_text import calibration_text  # noqa: PLC0415 - rich
        from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich

        seen = terminal()
        write_text(calibration_text(found, Style(seen.width, seen.color, seen.ascii_only)))
    return 0 if found.accepted else 1
