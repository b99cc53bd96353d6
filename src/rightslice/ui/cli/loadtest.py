"""`rightslice loadtest`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

from cyclopts import Parameter

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.options import quantity_of
from rightslice.core.quantities import parse_rate, parse_seconds
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import Progress, terminal, write_json, write_note, write_text

if TYPE_CHECKING:
    from rightslice.app.loadtest import Asked
    from rightslice.core.slo import Slo
    from rightslice.loadtesting.exchange import Exchange
    from rightslice.loadtesting.results import LoadTest

MAX_TOKENS: Final = 4_000_000
MAX_REQUESTS: Final = 2_000_000
MAX_STREAMS: Final = 16_384
MAX_POINTS: Final = 64
INTERRUPTED: Final = 130


def _text(words: str) -> Parameter:
    return Parameter(show_default=False, help=words)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Options:
    """How the requests look and what is wanted of their answers."""

    api: Annotated[
        Literal["chat", "completions", "embeddings", "rerank", "transcriptions", "speech"], Parameter(help="Interface.")
    ] = "chat"
    input_tokens: Annotated[int, Parameter(help="Tokens of a prompt, by the server's own count.")] = 256
    output_tokens: Annotated[int, Parameter(help="Tokens of an answer.")] = 64
    shared_prefix: Annotated[int, Parameter(help="Tokens at the start that all prompts share.")] = 0
    prompts: Annotated[Path | None, _text("File of prompts: one JSON object a line with prompt or messages.")] = None
    audio: Annotated[Path | None, _text("WAV file to transcribe; else synthetic sound.")] = None
    audio_seconds: Annotated[float, Parameter(help="Length of synthetic sound.")] = 10.0
    voice: Annotated[str, _text("Of speech, by the server's name for it.")] = ""
    metrics_url: Annotated[str, _text("Where the server shows its metrics, if not at a usual path.")] = ""
    requests: Annotated[int | None, _text("Requests of each load.")] = None
    duration: Annotated[str, _text("Seconds of sending of each load: 60s, 5min.")] = ""
    gap_cv: Annotated[float, Parameter(help="Burstiness of an open loop: 1 is Poisson.")] = 1.0
    slo: Annotated[str, _text("Objectives: ttft_p95=800ms,tpot_p95=50ms,e2e_p95=12s.")] = ""
    stream: Annotated[bool, Parameter(help="Streamed answers.")] = True
    timeout: Annotated[str, Parameter(help="Of one whole request.")] = "10min"
    api_key_env: Annotated[str, _text("Name of the variable that holds the key.")] = ""
    insecure: Annotated[Flag, Parameter(help="Accept any TLS certificate.")] = False
    self_check: Annotated[bool, Parameter(help="Check the client against a server with known times first.")] = True
    processes: Annotated[int, Parameter(help="Of the client, where one core is not enough.")] = 1
    engine: Annotated[Literal["own", "aiperf", "vllm"], Parameter(help="Run this installed tool as well.")] = "own"
    tokenizer: Annotated[str, _text("Folder of the model's tokenizer, which other tools need.")] = ""
    seed: Annotated[int, Parameter(help="Of prompts and arrivals.")] = 0


_AS_USUAL: Final = Options()


def loadtest(  # noqa: PLR0913 - the options of the command
    url: str,
    /,
    *,
    model: str = "",
    sweep: Annotated[str, _text("Closed loops of so many streams each: 1,2,4,8.")] = "",
    rate: Annotated[str, _text("Open loops at these rates: 2/s,4/s.")] = "",
    trace: Annotated[Path | None, _text("Requests as recorded in this file: times, lengths, shared blocks.")] = None,
    speed: Annotated[float, Parameter(help="How many times as fast the trace is replayed.")] = 1.0,
    find_knee: Flag = False,
    find_slo: Flag = False,
    export: Annotated[Literal["aiperf", "vllm", "job"] | None, Parameter(show_default=False)] = None,
    options: Options = _AS_USUAL,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], show_default=False)] = None,
    quiet: Flag = False,
    json: Flag = False,
) -> int:
    """Drive a real OpenAI-compatible server, and say whether the client could be trusted.

    Exit code 1 when an objective is missed at every load, or nothing was answered.

    Parameters
    ----------
    url
        The server's root, http://localhost:8000; a trailing /v1 is accepted.
    model
        The model's name there; by default the first that the server names.
    find_knee
        Double the streams until throughput stops growing, then look closer.
    find_slo
        Find the largest rate that keeps the objectives of --slo.
    export
        Send nothing: print the loads as commands of that tool, or as a Kubernetes Job of several pods.
    output
        Folder for loadtest.json, report.html and requests.csv.
    quiet
        No progress.
    json
        Print one JSON document.
    """
    asked = _asked(url, model, Loads(sweep, rate, trace, speed, find_knee, find_slo), options)
    from rightslice.app.loadtest import exported, run_loadtest  # noqa: PLC0415 - heavy

    if export is not None:
        write_text(exported(asked, export))
        return 0

    with Progress(quiet=quiet or json) as progress:
        report, exchanges = run_loadtest(asked, progress)
    if output is not None:
        _write(output, report, exchanges)
    if json:
        write_json(report)
    else:
        _show(report, output)
    if report.stopped.startswith("interrupted"):
        return INTERRUPTED
    kept = [all(p.goodput.met.values()) if p.goodput else p.completed > 0 for p in report.points]
    return 0 if any(kept) else 1


@dataclass(frozen=True, slots=True)
class Loads:
    """Which load was asked for."""

    sweep: str
    rate: str
    trace: Path | None
    speed: float
    find_knee: bool
    find_slo: bool

    def check(self, options: Options, wrong: list[Diagnostic]) -> None:
        """Only one kind of load, with what it needs."""
        kinds = {
            "--sweep": self.sweep,
            "--rate": self.rate,
            "--trace": self.trace,
            "--find-knee": self.find_knee,
            "--find-slo": self.find_slo,
        }
        chosen = [name for name, on in kinds.items() if on]
        if len(chosen) > 1:
            message = f"{' and '.join(chosen)} exclude each other"
            wrong.append(Diagnostic("RS0502", message, hint="run one after the other"))
        if self.find_slo and not options.slo:
            wrong.append(Diagnostic("RS0502", "--find-slo needs objectives", hint="--slo ttft_p95=800ms,tpot_p95=50ms"))
        if self.trace and options.prompts:
            hint = "drop --prompts: a trace says how long prompts are"
            wrong.append(Diagnostic("RS0502", "--trace and --prompts exclude each other", hint=hint))
        for file, api in ((options.prompts, "chat or completions"), (options.audio, "transcriptions")):
            if file and options.api not in api:
                message = f"{str(file)[:60]} cannot be sent with --api {options.api}"
                wrong.append(Diagnostic("RS0502", message, hint=f"--api {api}"))
        if options.engine != "own" and (self.trace or options.prompts or options.api not in ("chat", "completions")):
            message = f"--engine {options.engine} sends synthetic chat and completions only"
            wrong.append(Diagnostic("RS0502", message, hint="--sweep or --rate"))
        if self.trace and options.api not in ("chat", "completions"):
            wrong.append(Diagnostic("RS0502", "--trace replays chat and completions only", hint="--api chat"))


def _asked(url: str, model: str, loads: Loads, options: Options) -> Asked:
    wrong: list[Diagnostic] = []
    loads.check(options, wrong)
    alone = not (loads.rate or loads.trace or loads.find_knee or loads.find_slo)
    streams = _streams(loads.sweep or "1", wrong) if alone else ()
    rates = _rates(loads.rate, wrong) if loads.rate else ()
    slos = _slos(options.slo, wrong)
    _check_numbers(loads, options, wrong)
    duration_s = _seconds("duration", options.duration, wrong) if options.duration else None
    timeout_s = _seconds("timeout", options.timeout, wrong)
    if wrong:
        raise BadInputError(wrong)
    from rightslice.app.loadtest import Asked  # noqa: PLC0415 - heavy
    from rightslice.core.rng import checked_seed  # noqa: PLC0415 - heavy

    return Asked(
        url=url,
        model=model,
        api=options.api,
        concurrency=streams,
        rates=rates,
        trace=loads.trace,
        speed=loads.speed,
        find_knee=loads.find_knee,
        find_slo=loads.find_slo,
        requests=options.requests,
        duration_s=duration_s,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
        shared_prefix_tokens=options.shared_prefix,
        prompts=options.prompts,
        audio=options.audio,
        audio_s=options.audio_seconds,
        voice=options.voice,
        metrics_url=options.metrics_url,
        gap_cv=options.gap_cv,
        slos=slos,
        stream=options.stream,
        timeout_s=timeout_s or 600.0,
        token_env=options.api_key_env,
        verify_tls=not options.insecure,
        check_client=options.self_check,
        processes=options.processes,
        peer=None if options.engine == "own" else options.engine,
        tokenizer=options.tokenizer,
        seed=checked_seed(options.seed),
    )


def _check_numbers(loads: Loads, options: Options, wrong: list[Diagnostic]) -> None:
    for name, value, low, high in (
        ("input-tokens", options.input_tokens, 1, MAX_TOKENS),
        ("output-tokens", options.output_tokens, 1, MAX_TOKENS),
        ("shared-prefix", options.shared_prefix, 0, options.input_tokens),
        ("requests", options.requests if options.requests is not None else 1, 1, MAX_REQUESTS),
        ("gap-cv", options.gap_cv, 0.05, 20),
        ("speed", loads.speed, 0.01, 1000),
        ("processes", options.processes, 1, 64),
        ("audio-seconds", options.audio_seconds, 0.1, 3600),
    ):
        if not low <= value <= high:
            message = f"--{name} {str(value)[:24]} is out of range"
            wrong.append(Diagnostic("RS0501", message, hint=f"{low} to {high:,}"))


def _streams(text: str, wrong: list[Diagnostic]) -> tuple[int, ...]:
    found = []
    for word in text.split(",")[: MAX_POINTS + 1]:
        if not word.strip().isascii() or not word.strip().isdigit() or not 1 <= int(word[:9]) <= MAX_STREAMS:
            message = f'--sweep: "{word[:24]}" is not a number of streams'
            wrong.append(Diagnostic("RS0501", message, hint=f"1 to {MAX_STREAMS:,}, for example 1,2,4,8"))
            return ()
        found.append(int(word))
    return _few("sweep", tuple(found), wrong)


def _rates(text: str, wrong: list[Diagnostic]) -> tuple[float, ...]:
    found = []
    for word in text.split(",")[: MAX_POINTS + 1]:
        rate = quantity_of("--rate", parse_rate, word.strip())
        if not 0.0 < rate <= 1e5:
            wrong.append(Diagnostic("RS0501", f"--rate {word[:24]} is out of range", hint="for example 2/s,4/s"))
            return ()
        found.append(rate)
    return _few("rate", tuple(found), wrong)


T = TypeVar("T")


def _few(name: str, found: tuple[T, ...], wrong: list[Diagnostic]) -> tuple[T, ...]:
    if len(found) > MAX_POINTS:
        wrong.append(Diagnostic("RS0501", f"--{name} names too many loads", hint=f"at most {MAX_POINTS}"))
        return ()
    return found


def _seconds(name: str, text: str, wrong: list[Diagnostic]) -> float | None:
    found = quantity_of(f"--{name}", parse_seconds, text)
    if not 0.0 < found <= 86_400.0 or not math.isfinite(found):
        wrong.append(
            Diagnostic("RS0501", f"--{name} {text[:24]} is out of range", hint="for example 60s, at most a day")
        )
        return None
    return found


def _slos(text: str, wrong: list[Diagnostic]) -> tuple[Slo, ...]:
    if not text:
        return ()
    from rightslice.app.loadtest import objectives  # noqa: PLC0415 - heavy

    try:
        return objectives(text)
    except BadInputError as error:
        wrong += error.diagnostics
        return ()


def _write(folder: Path, report: LoadTest, exchanges: tuple[tuple[Exchange, ...], ...]) -> None:
    from rightslice.app.loadtest import result_files  # noqa: PLC0415 - heavy
    from rightslice.core.files import write_together  # noqa: PLC0415

    write_together(folder, result_files(report, exchanges))


def _show(report: LoadTest, output: Path | None) -> None:
    from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich
    from rightslice.reporting.loadtest_text import loadtest_text  # noqa: PLC0415 - rich

    seen = terminal()
    write_text(loadtest_text(report, Style(seen.width, seen.color, seen.ascii_only)))
    if output is not None:
        write_note(f"Wrote loadtest.json, report.html and requests.csv in {output}")
