"""`rightslice size`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from rightslice.core.engine import Dtype, KvDtype
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_text


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a model."""

    input_tokens: Annotated[int, Parameter(help="Tokens of the prompt.")] = 1024
    output_tokens: Annotated[int, Parameter(help="Tokens of the answer.")] = 256
    sequences: Annotated[int, Parameter(help="Requests in memory at the same time.")] = 1
    dtype: Annotated[Dtype | None, Parameter(help="Weight format; as published by default.")] = None
    kv_dtype: Annotated[KvDtype | None, Parameter(help="KV cache format.")] = None
    accelerator: Annotated[
        str | None, Parameter(help="This one only, or a slice of it: A100-SXM-80GB:MIG-3g.40gb.")
    ] = None
    method: Annotated[
        Literal["exact", "gke"], Parameter(help="From the real architecture, or by the formula of Google's GKE guide.")
    ] = "exact"


_DEFAULTS = Question()


def size(model: str, /, *, question: Question = _DEFAULTS, json: Flag = False) -> int:
    """The memory a model needs, and the accelerators that hold it. Exit code 1 when none does.

    Parameters
    ----------
    model
        A catalogue name, a hub id, a folder or a config.json.
    json
        Print one JSON document.
    """
    _check(question)
    from rightslice.app.sizing import size_model  # noqa: PLC0415 - heavy

    report = size_model(
        model,
        input_tokens=question.input_tokens,
        output_tokens=question.output_tokens,
        sequences=question.sequences,
        dtype=question.dtype,
        kv_dtype=question.kv_dtype,
        accelerator=question.accelerator,
        method=question.method,
    )
    if json:
        write_json(report)
    else:
        from rightslice.reporting.size_text import size_text  # noqa: PLC0415 - rich

        seen = terminal()
        write_text(size_text(report, width=seen.width, color=seen.color, ascii_only=seen.ascii_only))
    return 0 if report.fits else 1


def _check(question: Question) -> None:
    least = {"input-tokens": (question.input_tokens, 1), "output-tokens": (question.output_tokens, 0),
             "sequences": (question.sequences, 1)}  # fmt: skip
    wrong = [
        Diagnostic("RS0501", f"--{name} {value} is too small", hint=f"at least {smallest}")
        for name, (value, smallest) in least.items()
        if value < smallest
    ]
    if wrong:
        raise BadInputError(wrong)
