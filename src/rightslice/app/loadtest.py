"""`rightslice loadtest`: drive a real endpoint at one load, at several, or in search of its knee or of an objective."""

from __future__ import annotations

import asyncio
import csv
import io
import math
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from rightslice.adapters.endpoint import Run, Sending, new_event_loop, play
from rightslice.adapters.exchanging import Target, checked_url
from rightslice.adapters.peer import check_installed, run_peer
from rightslice.adapters.probe import Probed, probed
from rightslice.adapters.scraping import metrics_url, scraping
from rightslice.adapters.selfcheck import self_check
from rightslice.adapters.workers import parts_of, play_on
from rightslice.app.loadtest_inputs import prompts_of, recordings_of, replayed
from rightslice.core.documents import to_json
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.rng import generator
from rightslice.core.slo import Slo
from rightslice.kube.writer import dump_all
from rightslice.loadtesting.asking import Asking, Drawn, Given, Played, Recorded, Wordings
from rightslice.loadtesting.audio import Recording
from rightslice.loadtesting.dialects import GENERATES, ApiName, Prompt, Wanted
from rightslice.loadtesting.exchange import Exchange
from rightslice.loadtesting.knee import knee_of, next_concurrency
from rightslice.loadtesting.peers import PeerName, Shape, command, job
from rightslice.loadtesting.results import Client, LoadTest, PeerPoint, SelfCheck
from rightslice.loadtesting.schedule import ClosedLoop, Limits, Load, OpenLoop, Replay, intended_times
from rightslice.loadtesting.search import Best, best_rate, keeps, next_rate
from rightslice.loadtesting.server_metrics import seen
from rightslice.loadtesting.statistics import Point, point_of
from rightslice.reporting.html import loadtest_html
from rightslice.spec.fields import Slos
from rightslice.traffic.recorded import Trace

ROUNDS: Final = 6
LEAST_REQUESTS: Final = 20
OPEN_LOOP_S: Final = 30.0
LOADTEST_IMAGE: Final = "example.invalid/rightslice:set-me"
SELF_CHECK_STREAMS: Final = 256
FIRST_STREAMS: Final = 4

_COLUMNS: Final = ("sent_ms", "first_byte_ms", "first_chunk_ms", "first_token_ms", "last_token_ms", "end_ms")
_COUNTS: Final = ("input_tokens", "cached_tokens", "output_tokens", "audio_s")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to send where. Exactly one of `concurrency`, `rates`, `trace`, `find_knee`, `find_slo` is used.

    `requests`, `duration_s`: of each point; by default six rounds of a closed loop, 30 s of an open one, a whole trace.
    `speed`: of the trace. `prompts`: a file of the user's; `audio`: one to be transcribed, else synthetic sound of
    `audio_s`. `metrics_url`: of the server, by default a usual path of `url`.
    """

    url: str
    model: str = ""
    api: ApiName = "chat"
    concurrency: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    trace: Path | None = None
    speed: float = 1.0
    find_knee: bool = False
    find_slo: bool = False
    largest: int = 1024
    requests: int | None = None
    duration_s: float | None = None
    input_tokens: int = 256
    output_tokens: int = 64
    shared_prefix_tokens: int = 0
    prompts: Path | None = None
    audio: Path | None = None
    audio_s: float = 10.0
    voice: str = ""
    metrics_url: str = ""
    gap_cv: float = 1.0
    slos: tuple[Slo, ...] = ()
    stream: bool = True
    timeout_s: float = 600.0
    token_env: str = ""
    verify_tls: bool = True
    check_client: bool = True
    processes: int = 1
    peer: PeerName | None = None
    tokenizer: str = ""
    seed: int = 0


def run_loadtest(asked: Asked, progress: Progress) -> tuple[LoadTest, tuple[tuple[Exchange, ...], ...]]:
    """Measure, and the exchanges of every point.

    Raises BadInputError for options that make no sense and files that cannot be used, OutsideError RS0602 where the
    server does not answer at all.
    """
    files = _files(asked)
    if asked.peer is not None:
        check_installed(asked.peer)
    if asked.metrics_url:
        checked_url(asked.metrics_url)
    target = Target(checked_url(asked.url), _token(asked.token_env), (), asked.timeout_s, asked.verify_tls)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_Test(asked, files, target, progress).run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@dataclass(frozen=True, slots=True)
class _Files:
    trace: Trace | None
    prompts: tuple[Prompt, ...]
    recordings: tuple[Recording, ...]


def _files(asked: Asked) -> _Files:
    return _Files(
        replayed(asked.trace, asked.speed, asked.requests, asked.duration_s) if asked.trace else None,
        prompts_of(asked.prompts) if asked.prompts else (),
        recordings_of(asked.audio, asked.audio_s, asked.seed) if asked.api == "transcriptions" else (),
    )


class _Test:
    def __init__(self, asked: Asked, files: _Files, target: Target, progress: Progress) -> None:
        self._asked, self._files, self._target, self._progress = asked, files, target, progress
        self._metrics_url = ""
        self._points: list[Point] = []
        self._exchanges: list[tuple[Exchange, ...]] = []
        self._stopped = ""

    async def run(self) -> tuple[LoadTest, tuple[tuple[Exchange, ...], ...]]:
        asked = self._asked
        self._progress(f"asking {self._target.root}")
        wanted = Wanted(asked.api, asked.model, asked.stream, voice=asked.voice)
        server = await probed(self._target, wanted, asked.input_tokens, next(iter(self._files.recordings), None))
        self._metrics_url = await metrics_url(self._target, asked.metrics_url)
        check = await self._self_check()
        best = await self._measure(server)
        knee = knee_of(self._points)
        goods = [p.goodput for p in self._points if p.goodput]
        client = Client(
            sum(p.client.cpu_s for p in self._points),
            min((p.client.headroom for p in self._points), default=1.0),
            asked.processes,
            check,
        )
        found = LoadTest(
            url=self._target.root,
            model=server.wanted.model,
            api=asked.api,
            input_tokens=asked.input_tokens,
            output_tokens=asked.output_tokens,
            slos=asked.slos,
            points=tuple(self._points),
            knee=knee,
            goodput=max(goods, key=lambda good: good.requests_per_s, default=None),
            largest_rate=best,
            client=client,
            peers=tuple(self._peers(server.wanted.model)),
            stopped=self._stopped,
            notes=(*server.notes, *self._notes(server)),
        )
        return found, tuple(self._exchanges)

    def _peers(self, model: str) -> Iterator[PeerPoint]:
        """The loads again, by the other tool."""
        if self._asked.peer is None or self._stopped:
            return
        for point in self._points:
            self._progress(f"{self._asked.peer}: {point.name}")
            load: Load = ClosedLoop(point.concurrency) if point.concurrency else OpenLoop(point.rate or 1.0)
            shape = shape_of(self._asked, self._target.root, model, load)
            yield PeerPoint(self._asked.peer, point.name, run_peer(self._asked.peer, shape))

    async def _self_check(self) -> SelfCheck | None:
        if not self._asked.check_client:
            return None
        self._progress("checking the client against a server with known times")
        streams = max(self._asked.concurrency, default=FIRST_STREAMS)
        return await self_check(min(streams, SELF_CHECK_STREAMS))

    async def _measure(self, server: Probed) -> Best | None:
        asked = self._asked
        if asked.find_knee:
            while not self._stopped and (streams := next_concurrency(self._points, asked.largest)):
                await self._point(ClosedLoop(streams), server)
            order = sorted(range(len(self._points)), key=lambda i: self._points[i].concurrency or 0)
            self._points = [self._points[i] for i in order]
            self._exchanges = [self._exchanges[i] for i in order]
            return None
        if asked.find_slo:
            return await self._search(server)
        loads: list[Load] = [ClosedLoop(n) for n in asked.concurrency]
        loads += [OpenLoop(rate, asked.gap_cv) for rate in asked.rates]
        loads += [Replay(self._files.trace.requests_per_s)] if self._files.trace else []
        for load in loads:
            if self._stopped:
                break
            await self._point(load, server)
        return None

    async def _search(self, server: Probed) -> Best | None:
        first = await self._point(ClosedLoop(1), server)
        if not keeps(first) or first.e2e_ms is None:
            return best_rate(self._points)
        rate: float | None = 1e3 / first.e2e_ms.mean
        while rate is not None and not self._stopped:
            await self._point(OpenLoop(rate, self._asked.gap_cv), server)
            rate = next_rate(self._points)
        return best_rate(self._points)

    async def _point(self, load: Load, server: Probed) -> Point:
        limits, number = self._limits(load), len(self._points)
        async with scraping(self._target, self._metrics_url) as scraper:
            run = await self._run(load, limits, server, number)
        point = point_of(load, run.exchanges, self._asked.slos, run.client, seen(scraper.scrapes))
        self._stopped = run.stopped
        self._points.append(point)
        self._exchanges.append(run.exchanges)
        return point

    async def _run(self, load: Load, limits: Limits, server: Probed, number: int) -> Run:
        asking, times = self._asking(server, number), self._times(load, limits, number)
        sending = Sending(self._target, server.wanted, load, limits, asking, times)

        def progress(done: int, at_s: float) -> None:
            self._progress(f"{load.name}: {done:,} answered, {at_s:.0f} s")

        if self._asked.processes == 1:
            return await play(sending, progress)
        return await play_on(parts_of(sending, self._asked.processes), progress)

    def _asking(self, server: Probed, number: int) -> Asking:
        asked, files = self._asked, self._files
        wordings = Wordings(server.law, server.vocabulary, asked.seed, number)
        if files.recordings:
            return Played(files.recordings)
        if files.prompts:
            return Given(files.prompts, asked.output_tokens)
        if files.trace is not None:
            return Recorded(wordings, files.trace)
        return Drawn(wordings, asked.input_tokens, asked.output_tokens, asked.shared_prefix_tokens)

    def _times(self, load: Load, limits: Limits, number: int) -> Sequence[float]:
        if isinstance(load, OpenLoop):
            return [float(t) for t in intended_times(load, limits, generator(self._asked.seed, "loadtest", number))]
        if isinstance(load, Replay) and self._files.trace is not None:
            return [float(t) for t in self._files.trace.arrival_s]
        return ()

    def _limits(self, load: Load) -> Limits:
        asked = self._asked
        if isinstance(load, Replay) and self._files.trace is not None:
            return Limits(len(self._files.trace))
        if asked.requests is not None or asked.duration_s is not None:
            return Limits(asked.requests, asked.duration_s)
        if isinstance(load, ClosedLoop):
            return Limits(max(ROUNDS * load.concurrency, LEAST_REQUESTS))
        return Limits(None, OPEN_LOOP_S)

    def _notes(self, server: Probed) -> Sequence[str]:
        done = sum(p.completed for p in self._points)
        counted = sum(p.counted for p in self._points)
        notes = []
        if done and self._asked.api in GENERATES and counted < done:
            notes.append(f"{done - counted:,} answers came without usage: their tokens are chunks with content")
        if counted and server.counted and not self._files.prompts:
            asked_in, asked_out = self._lengths()
            mean = sum(p.input_tokens for p in self._points) / counted
            if abs(mean / asked_in - 1.0) > 0.01:
                notes.append(f"prompts had {mean:,.0f} tokens by the server's count, {asked_in:,.0f} were asked for")
            out = sum(p.output_tokens for p in self._points) / counted
            if self._asked.api in GENERATES and abs(out / asked_out - 1.0) > 0.01:
                notes.append(f"answers had {out:,.0f} tokens, {asked_out:,.0f} were asked for")
        if self._asked.metrics_url and not self._metrics_url:
            notes.append(f"{self._asked.metrics_url} shows no metric of a known engine")
        if self._asked.api == "transcriptions" and self._asked.audio is None:
            notes.append("the sound is synthetic and has no words: answers are shorter than those to speech")
        return notes

    def _lengths(self) -> tuple[float, float]:
        """Tokens of prompts and answers that were asked for, on average."""
        trace = self._files.trace
        if trace is None:
            return self._asked.input_tokens, self._asked.output_tokens
        return float(trace.input_tokens.mean()), float(trace.output_tokens.mean())


def exported(asked: Asked, what: PeerName | Literal["job"]) -> str:
    """The loads as another tool's commands, or as a Kubernetes Job; nothing is sent.

    Raises BadInputError RS0502 where a model is missing, or the loads are not known beforehand.
    """
    loads: list[Load] = [*map(ClosedLoop, asked.concurrency), *(OpenLoop(rate, asked.gap_cv) for rate in asked.rates)]
    if not asked.model or not loads or asked.api not in GENERATES:
        message = "--export needs --model, and --sweep or --rate of chat or completions"
        raise BadInputError(Diagnostic("RS0502", message))
    root = Target(checked_url(asked.url)).root
    shapes = [shape_of(asked, root, asked.model, load) for load in loads]
    if what == "job":
        return dump_all([job(shape, LOADTEST_IMAGE) for shape in shapes])
    return "".join(f"{shlex.join(command(what, shape, f'result-{i + 1}'))}\n" for i, shape in enumerate(shapes))


def shape_of(asked: Asked, root: str, model: str, load: Load) -> Shape:
    """One load as other tools are told it."""
    rounds = max(ROUNDS * load.concurrency, LEAST_REQUESTS) if isinstance(load, ClosedLoop) else 0
    seconds = asked.duration_s or OPEN_LOOP_S
    requests = asked.requests or rounds or max(round(load.requests_per_s * seconds), 1)  # type: ignore[union-attr]
    return Shape(
        url=root,
        model=model,
        api=asked.api,
        load=load,
        requests=requests,
        input_tokens=asked.input_tokens,
        output_tokens=asked.output_tokens,
        shared_prefix_tokens=asked.shared_prefix_tokens,
        tokenizer=asked.tokenizer,
        key_env=asked.token_env,
    )


def objectives(text: str) -> tuple[Slo, ...]:
    """`ttft_p95=800ms,tpot_p95=50ms`. Raises BadInputError RS0501."""
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        found: tuple[Slo, ...] = TypeAdapter(Slos).validate_python({k.strip(): v.strip() for k, _, v in pairs})
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise BadInputError(
            Diagnostic("RS0501", f"--slo: {said}", hint="for example ttft_p95=800ms,tpot_p95=50ms")
        ) from None
    return found


def result_files(report: LoadTest, exchanges: Sequence[Sequence[Exchange]]) -> dict[str, str]:
    """File name -> content: the report as JSON and as a page, and one row per request in milliseconds since its
    intended sending."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(
        (
            "load",
            "number",
            "intended_s",
            *_COLUMNS,
            "input_tokens",
            "cached_tokens",
            "output_tokens",
            "audio_s",
            "error",
        )
    )
    for point, sent in zip(report.points, exchanges, strict=True):
        for e in sent:
            times = (e.sent_s, e.first_byte_s, e.first_chunk_s, e.first_token_s, e.last_token_s, e.end_s)
            shown = ("" if math.isnan(t) else f"{(t - e.intended_s) * 1e3:.3f}" for t in times)
            row = (point.name, e.number, f"{e.intended_s:.6f}", *shown)
            table.writerow((*row, e.input_tokens, e.cached_tokens, e.output_tokens, f"{e.audio_s:g}", e.error))
    return {
        "loadtest.json": to_json(report),
        "report.html": loadtest_html(report),
        "requests.csv": buffer.getvalue(),
    }


def _token(name: str) -> str:
    if not name:
        return ""
    token = os.environ.get(name)
    if not token:
        message = f"the environment has no variable {name[:60]}"
        raise BadInputError(Diagnostic("RS0501", message, hint="--api-key-env names a variable that holds the key"))
    if not token.isprintable() or not token.isascii():
        raise BadInputError(Diagnostic("RS0501", f"the value of {name[:60]} is not a key", hint="one line of ASCII"))
    return token
