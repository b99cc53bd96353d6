"""`rightslice predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from rightslice.core.engine import Dtype, KvDtype
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import Progress, terminal, write_json, write_note, write_text

if TYPE_CHECKING:
    from rightslice.app.predict import Load
    from rightslice.app.predict_one import Answer

MOST_TOKENS = 2_000_000
MOST_REQUESTS = 20_000


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Deployed:
    """What serves the model."""

    accelerator: Annotated[str | None, Parameter(help="Accelerator, or a slice: A100-SXM-80GB:MIG-3g.40gb.")] = None
    gpus: Annotated[int, Parameter(help="Accelerators in all; by default those of one replica.")] = 0
    engine: Annotated[str, Parameter(help="vllm, tensorrt-llm, sglang, …")] = "vllm"
    engine_version: Annotated[str, Parameter(help="The newest by default.")] = ""
    tp: Annotated[int, Parameter(help="Tensor parallel size.")] = 1
    pp: Annotated[int, Parameter(help="Pipeline parallel size.")] = 1
    dp: Annotated[int, Parameter(help="Data parallel ranks of attention.")] = 1
    ep: Annotated[bool, Parameter(negative=(), show_default=False, help="Experts spread over the ranks.")] = False
    dtype: Annotated[Dtype | None, Parameter(help="Weight format; as published by default.")] = None
    kv_dtype: Annotated[KvDtype | None, Parameter(help="KV cache format.")] = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Loaded:
    """What it is asked to do: one of --concurrency, --rate, --batch and --saturated."""

    input_tokens: Annotated[int, Parameter(name=("--input-tokens", "--isl"), help="Tokens of the prompt.")] = 1024
    output_tokens: Annotated[int, Parameter(name=("--output-tokens", "--osl"), help="Tokens of the answer.")] = 256
    concurrency: Annotated[int | None, Parameter(help="Requests in flight all the time.")] = None
    rate: Annotated[float | None, Parameter(help="Requests per second that come, answered or not.")] = None
    batch: Annotated[int | None, Parameter(help="Requests handed over at once, run to the end.")] = None
    saturated: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Always enough waiting: the peak throughput.")
    ] = False


_DEPLOYED, _LOADED = Deployed(), Loaded()


def predict(
    model: str | None = None,
    *,
    deployed: Deployed = _DEPLOYED,
    loaded: Loaded = _LOADED,
    rows: Path | None = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), negative=())] = None,
    json: Flag = False,
) -> int:
    """How fast one deployment is under a load, with 80 % intervals; or every row of a table with --rows.

    Parameters
    ----------
    model
        A catalogue name, a hub id, a folder or a config.json.
    rows
        A CSV file of deployments and loads instead: id, model, hw, isl, osl, load, and further columns of published
        measurements. A row that cannot be predicted says why.
    output
        With --rows: the CSV file to write; standard output by default.
    json
        Print one JSON document.
    """
    if rows is not None:
        return _table(model, rows, output, json=json)
    if model is None or deployed.accelerator is None or output is not None:
        hint = "rightslice predict MODEL --accelerator A --concurrency N, or --rows IN.csv -o OUT.csv"
        raise BadInputError(Diagnostic("RS0502", "a model and its accelerator, or a table, are needed", hint=hint))
    load = _load(loaded)
    from rightslice.app.predict_one import Asked, predict_one  # noqa: PLC0415 - heavy

    asked = Asked(
        model=model,
        accelerator=deployed.accelerator,
        accelerators=_within("--gpus", deployed.gpus, 0, 100_000),
        engine=deployed.engine,
        engine_version=deployed.engine_version,
        tensor_parallel_size=_within("--tp", deployed.tp, 1, 1024),
        pipeline_parallel_size=_within("--pp", deployed.pp, 1, 1024),
        data_parallel_size=_within("--dp", deployed.dp, 1, 1024),
        expert_parallel=deployed.ep,
        dtype=deployed.dtype,
        kv_dtype=deployed.kv_dtype,
    )
    answer = predict_one(asked, load, loaded.input_tokens, loaded.output_tokens)
    if json:
        write_json(answer.document())
    else:
        write_text(_text(answer))
    return 0


def _within(option: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise BadInputError(Diagnostic("RS0501", f"{option} {value} is out of range", hint=f"{least} to {most:,}"))
    return value


def _load(loaded: Loaded) -> Load:
    _within("--input-tokens", loaded.input_tokens, 1, MOST_TOKENS)
    _within("--output-tokens", loaded.output_tokens, 1, MOST_TOKENS)
    given = [loaded.concurrency is not None, loaded.rate is not None, loaded.batch is not None, loaded.saturated]
    if sum(given) != 1:
        hint = "for example --concurrency 32"
        raise BadInputError(
            Diagnostic("RS0502", "one of --concurrency, --rate, --batch, --saturated is needed", hint=hint)
        )
    if loaded.rate is not None and not 1e-6 <= loaded.rate <= 1e6:
        raise BadInputError(Diagnostic("RS0501", f"--rate {loaded.rate:g} is out of range", hint="for example 5"))
    from rightslice.app.predict import Load  # noqa: PLC0415 - heavy

    if loaded.concurrency is not None:
        return Load("closed", requests=_within("--concurrency", loaded.concurrency, 1, MOST_REQUESTS))
    if loaded.batch is not None:
        return Load("static_batch", requests=_within("--batch", loaded.batch, 1, MOST_REQUESTS))
    return Load("saturated") if loaded.rate is None else Load("open", rate_per_s=loaded.rate)


def _table(model: str | None, rows: Path, output: Path | None, *, json: bool) -> int:
    if model is not None:
        raise BadInputError(Diagnostic("RS0502", "--rows names its models itself", hint="leave the model out"))
    from rightslice.app.predict_rows import predicted_rows, read_rows, record, table  # noqa: PLC0415 - heavy

    wanted = read_rows(rows)
    found = []
    with Progress(quiet=json) as progress:
        for number, one in enumerate(predicted_rows(wanted), start=1):
            found.append(one)
            if number % 100 == 0:
                progress(f"predicted {number:,} of {len(wanted):,} rows")
    if output is not None:
        from rightslice.core.files import write_atomically  # noqa: PLC0415 - not needed for `--help`

        write_atomically(output, table(found))
        answered = sum(prediction is not None for _, prediction, _ in found)
        write_note(f"Wrote {output}: {answered:,} of {len(wanted):,} rows predicted")
    if json:
        write_json({"rows": [record(*one) for one in found]})
    elif output is None:
        write_text(table(found))
    return 0


def _text(answer: Answer) -> str:
    from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich
    from rightslice.reporting.predict_text import predict_text  # noqa: PLC0415 - rich

    found, seen = answer.prediction, terminal()
    title = (
        f"{answer.model} on {answer.accelerators} x {answer.accelerator}, {answer.engine}: "
        f"{answer.input_tokens:,} in, {answer.output_tokens:,} out"
    )
    times = {"TTFT, ms": found.ttft_ms, "E2E, ms": found.e2e_ms}
    if found.tpot_ms is not None:
        times = {"TTFT, ms": found.ttft_ms, "TPOT, ms": found.tpot_ms, "E2E, ms": found.e2e_ms}
    rates = {"output tokens/s": found.output_tokens_per_s, "requests/s": found.requests_per_s}
    basis = f"{found.provenance}, errors as measured in {found.cell}"
    if found.provenance == "unvalidated":
        basis = f"unvalidated: no measurements like this one ({found.cell})"
    return predict_text(title, times, rates, basis, Style(seen.width, seen.color, seen.ascii_only))
