"""`rightslice loadtest`: drive a real endpoint at one load, at several, or in search of its knee or of an objective."""

from __future__ import annotations

import asyncio
import csv
import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from rightslice.adapters.endpoint import Run, Target, checked_url, new_event_loop, play
from rightslice.adapters.probe import Probed, probed
from rightslice.adapters.selfcheck import self_check
from rightslice.core.documents import to_json
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.rng import generator
from rightslice.core.slo import Slo
from rightslice.loadtesting.dialects import GENERATES, ApiName, Wanted
from rightslice.loadtesting.exchange import Exchange
from rightslice.loadtesting.knee import knee_of, next_concurrency
from rightslice.loadtesting.prompts import text_of
from rightslice.loadtesting.results import Client, LoadTest, SelfCheck
from rightslice.loadtesting.schedule import ClosedLoop, Limits, Load, OpenLoop, intended_times
from rightslice.loadtesting.search import Best, best_rate, keeps, next_rate
from rightslice.loadtesting.statistics import Point, point_of
from rightslice.spec.fields import Slos

ROUNDS: Final = 6
LEAST_REQUESTS: Final = 20
OPEN_LOOP_S: Final = 30.0
SELF_CHECK_STREAMS: Final = 256
FIRST_STREAMS: Final = 4

_COLUMNS: Final = ("sent_ms", "first_byte_ms", "first_chunk_ms", "first_token_ms", "last_token_ms", "end_ms")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to send where. Exactly one of `concurrency`, `rates`, `find_knee`, `find_slo` is used.

    `requests`, `duration_s`: of each point; by default six rounds of a closed loop, 30 s of an open one.
    """

    url: str
    model: str = ""
    api: ApiName = "chat"
    concurrency: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    find_knee: bool = False
    find_slo: bool = False
    largest: int = 1024
    requests: int | None = None
    duration_s: float | None = None
    input_tokens: int = 256
    output_tokens: int = 64
    shared_prefix_tokens: int = 0
    gap_cv: float = 1.0
    slos: tuple[Slo, ...] = ()
    stream: bool = True
    timeout_s: float = 600.0
    token_env: str = ""
    verify_tls: bool = True
    check_client: bool = True
    seed: int = 0


def run_loadtest(asked: Asked, progress: Progress) -> tuple[LoadTest, tuple[tuple[Exchange, ...], ...]]:
    """Measure, and the exchanges of every point.

    Raises BadInputError for options that make no sense, OutsideError RS0602 where the server does not answer at all.
    """
    target = Target(checked_url(asked.url), _token(asked.token_env), (), asked.timeout_s, asked.verify_tls)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_Test(asked, target, progress).run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class _Test:
    def __init__(self, asked: Asked, target: Target, progress: Progress) -> None:
        self._asked, self._target, self._progress = asked, target, progress
        self._points: list[Point] = []
        self._exchanges: list[tuple[Exchange, ...]] = []
        self._stopped = ""

    async def run(self) -> tuple[LoadTest, tuple[tuple[Exchange, ...], ...]]:
        asked = self._asked
        self._progress(f"asking {self._target.root}")
        wanted = Wanted(asked.api, asked.model, asked.output_tokens, asked.stream)
        server = await probed(self._target, wanted, asked.input_tokens)
        check = await self._self_check()
        best = await self._measure(server)
        knee = knee_of(self._points)
        goods = [p.goodput for p in self._points if p.goodput]
        client = Client(
            sum(p.client.cpu_s for p in self._points),
            min((p.client.headroom for p in self._points), default=1.0),
            check,
        )
        found = LoadTest(
            url=self._target.root,
            model=server.wanted.model,
            api=asked.api,
            input_tokens=asked.input_tokens,
            output_tokens=asked.output_tokens,
            points=tuple(self._points),
            knee=knee,
            goodput=max(goods, key=lambda good: good.requests_per_s, default=None),
            largest_rate=best,
            client=client,
            stopped=self._stopped,
            notes=(*server.notes, *self._notes(server)),
        )
        return found, tuple(self._exchanges)

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
        asked, number = self._asked, len(self._points)
        limits = self._limits(load)
        rng = generator(asked.seed, "loadtest", number)
        words = server.law.words(asked.input_tokens)
        shared = min(server.law.words(asked.shared_prefix_tokens), words) if asked.shared_prefix_tokens else 0
        times = intended_times(load, limits, rng) if isinstance(load, OpenLoop) else ()
        run: Run = await play(
            self._target,
            server.wanted,
            load,
            limits,
            prompt=lambda i: text_of(words, generator(asked.seed, "prompt", number, i), shared, server.vocabulary),
            intended_s=[float(t) for t in times],
            progress=lambda done, at_s: self._progress(f"{load.name}: {done:,} answered, {at_s:.0f} s"),
        )
        point = point_of(load, run.exchanges, asked.slos, run.client)
        self._stopped = run.stopped
        self._points.append(point)
        self._exchanges.append(run.exchanges)
        return point

    def _limits(self, load: Load) -> Limits:
        asked = self._asked
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
        if counted and server.counted:
            mean = sum(p.input_tokens for p in self._points) / counted
            if abs(mean / self._asked.input_tokens - 1.0) > 0.01:
                notes.append(
                    f"prompts had {mean:,.0f} tokens by the server's count, {self._asked.input_tokens:,} were asked for"
                )
            out = sum(p.output_tokens for p in self._points) / counted
            if self._asked.api in GENERATES and abs(out / self._asked.output_tokens - 1.0) > 0.01:
                notes.append(f"answers had {out:,.0f} tokens, {self._asked.output_tokens:,} were asked for")
        return notes


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
    """File name -> content: the report as JSON, and one row per request in milliseconds since its intended sending."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(
        ("load", "number", "intended_s", *_COLUMNS, "input_tokens", "cached_tokens", "output_tokens", "error")
    )
    for point, sent in zip(report.points, exchanges, strict=True):
        for e in sent:
            times = (e.sent_s, e.first_byte_s, e.first_chunk_s, e.first_token_s, e.last_token_s, e.end_s)
            shown = ("" if math.isnan(t) else f"{(t - e.intended_s) * 1e3:.3f}" for t in times)
            row = (point.name, e.number, f"{e.intended_s:.6f}", *shown)
            table.writerow((*row, e.input_tokens, e.cached_tokens, e.output_tokens, e.error))
    return {"loadtest.json": to_json(report), "requests.csv": buffer.getvalue()}


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
