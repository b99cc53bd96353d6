"""`rightslice size`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from rightslice.core.engine import Dtype, KvDtype
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.options import quantity_of
from rightslice.core.quantities import parse_bytes
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_note, write_text

if TYPE_CHECKING:
    from rightslice.app.sizing import Start
    from rightslice.memory.advice import PrecisionReport
    from rightslice.memory.sizing import SizeReport
    from rightslice.memory.startup import StartupReport

_LONGEST_VERSION = 60
LARGEST = 1_000_000_000
"""Of tokens and of sequences."""


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
    device_memory: Annotated[
        str | None, Parameter(help="Memory that this accelerator shows, if not the catalogue's: 23.58GiB.")
    ] = None
    method: Annotated[
        Literal["exact", "gke"], Parameter(help="From the real architecture, or by the formula of Google's GKE guide.")
    ] = "exact"
    engine: Annotated[str | None, Parameter(help="Answer as this engine would at start-up: vllm, sglang, …")] = None
    engine_version: Annotated[str, Parameter(help="Version of that engine; the newest known by default.")] = ""
    engine_args: Annotated[
        str,
        Parameter(
            help='Its arguments in one string: --engine-args "-tp 2 --max-model-len 32768".', allow_leading_hyphen=True
        ),
    ] = ""
    free_memory: Annotated[
        str | None, Parameter(help="Memory free when that engine starts, where others use the accelerator: 67.2GiB.")
    ] = None

    @property
    def device_memory_bytes(self) -> int | None:
        """Raises BadInputError RS0501."""
        return _bytes("--device-memory", self.device_memory)

    @property
    def free_memory_bytes(self) -> int | None:
        """Raises BadInputError RS0501."""
        return _bytes("--free-memory", self.free_memory)


def _bytes(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    amount = quantity_of(option, parse_bytes, text)
    if not 1 << 20 <= amount <= 1 << 50:
        raise BadInputError(Diagnostic("RS0501", f"{option} {text[:40]} is the memory of no accelerator"))
    return amount


_DEFAULTS = Question()


def size(
    model: str,
    /,
    *,
    question: Question = _DEFAULTS,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), negative=())] = None,
    json: Flag = False,
) -> int:
    """The memory a model needs, and the accelerators that hold it. Exit code 1 when none does.

    With --engine it answers as that engine would at start-up: starts, does_not_start, refused or uncertain; requests
    longer than it takes are a no as well. With a
    --dtype or --kv-dtype that is not the published one it says what runs it, what it costs in accuracy and what to do.

    Parameters
    ----------
    model
        A catalogue name, a hub id, a folder or a config.json.
    output
        Folder for the recipe that quantises the model to --dtype, and for the Jobs that run and evaluate it.
    json
        Print one JSON document.
    """
    _check(question)
    from rightslice.app.sizing import size_model, start_up  # noqa: PLC0415 - heavy

    start = _start(question)
    report = size_model(
        model,
        input_tokens=question.input_tokens,
        output_tokens=question.output_tokens,
        sequences=question.sequences,
        dtype=question.dtype,
        kv_dtype=question.kv_dtype,
        accelerator=question.accelerator,
        device_memory_bytes=question.device_memory_bytes,
        method=question.method,
        start=start,
    )
    verdict = start_up(model, start) if start else None
    precision = _precision(model, question)
    written = _written(model, question, output)
    if json:
        write_json(_document(report, verdict, precision))
    else:
        from rightslice.reporting.size_text import size_text  # noqa: PLC0415 - rich

        seen = terminal()
        shown = size_text(
            report, verdict, precision=precision, width=seen.width, color=seen.color, ascii_only=seen.ascii_only
        )
        write_text(shown)
    if written:
        names = "   ".join(written)
        write_note(f"Wrote  {names}   in {output}\nNext   read {quote(str(Path(output or '') / 'QUANTISE.md'))}")
    if verdict is not None:
        return 0 if verdict.verdict in ("starts", "uncertain") and not (report.too_long and _lengths(question)) else 1
    return 0 if report.fits else 1


def _lengths(question: Question) -> bool:
    """Whether lengths are asked about."""
    usual = _DEFAULTS.input_tokens, _DEFAULTS.output_tokens
    return (question.input_tokens, question.output_tokens) != usual


def _start(question: Question) -> Start | None:
    if question.engine is None:
        return None
    if question.accelerator is None:
        hint = "for example --accelerator A100-SXM-80GB"
        raise BadInputError(Diagnostic("RS0502", "--engine needs --accelerator", hint=hint))
    from rightslice.app.sizing import Start  # noqa: PLC0415 - heavy
    from rightslice.memory.arguments import Formats  # noqa: PLC0415 - heavy

    memories = (question.device_memory_bytes, question.free_memory_bytes)
    asked = (question.accelerator, question.engine, question.engine_version, question.engine_args)
    return Start(*asked, *memories, Formats(question.dtype, question.kv_dtype))


def _precision(model: str, question: Question) -> PrecisionReport | None:
    if question.dtype is None and question.kv_dtype is None:
        return None
    from rightslice.app.precision import precision_of  # noqa: PLC0415 - heavy

    formats = question.dtype, question.kv_dtype
    return precision_of(model, formats, question.accelerator, question.engine, question.engine_version)


def _written(model: str, question: Question, output: Path | None) -> tuple[str, ...]:
    if output is None:
        return ()
    from rightslice.app.precision import write_quantisation  # noqa: PLC0415 - heavy

    return write_quantisation(model, question.dtype, question.accelerator, output)


def _document(
    report: SizeReport, verdict: StartupReport | None, precision: PrecisionReport | None
) -> dict[str, object]:
    from rightslice.core.documents import to_jsonable  # noqa: PLC0415 - heavy

    document: dict[str, object] = to_jsonable(report)
    if verdict is not None:
        starting: dict[str, object] = to_jsonable(verdict)
        notes = [*report.notes, *verdict.notes]
        document = {**document, **{k: v for k, v in starting.items() if k != "kv_cache_bytes"}, "notes": notes}
        document["kv_room_bytes"] = verdict.kv_cache_bytes
    if precision is not None:
        document["precision"] = to_jsonable(precision)
    return document


def _check(question: Question) -> None:
    least = {"input-tokens": (question.input_tokens, 1), "output-tokens": (question.output_tokens, 0),
             "sequences": (question.sequences, 1)}  # fmt: skip
    wrong = [
        Diagnostic("RS0501", f"--{name} {value} is too small", hint=f"at least {smallest}")
        for name, (value, smallest) in least.items()
        if value < smallest
    ]
    wrong += [
        Diagnostic("RS0501", f"--{name} is beyond any machine", hint=f"at most {LARGEST:,}")
        for name, (value, _) in least.items()
        if value > LARGEST
    ]
    if question.engine is None and (question.engine_version or question.engine_args or question.free_memory):
        names = "--engine-version, --engine-args and --free-memory"
        wrong.append(Diagnostic("RS0502", f"{names} need --engine", hint="--engine vllm"))
    if question.accelerator is None and question.device_memory:
        wrong.append(Diagnostic("RS0502", "--device-memory needs --accelerator"))
    if len(question.engine_version) > _LONGEST_VERSION:
        wrong.append(Diagnostic("RS0501", f'--engine-version "{question.engine_version[:20]}…" is no version'))
    if wrong:
        raise BadInputError(wrong)
