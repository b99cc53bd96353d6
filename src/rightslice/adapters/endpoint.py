"""A client of OpenAI-compatible endpoints for load tests: aiohttp, one event loop, times taken as bytes arrive."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from rightslice.adapters.exchanging import Target, exchanged, session_of
from rightslice.loadtesting.dialects import APIS, Prompt, Wanted
from rightslice.loadtesting.exchange import Exchange
from rightslice.loadtesting.schedule import ClosedLoop, Limits, Load
from rightslice.loadtesting.statistics import ClientCost

BACK_OFF_S: Final = 0.2
"""A stream waits so long after a failure, so that a dead server is not hammered."""
GIVE_UP_AFTER: Final = 10
"""Failures in a row, at least this many and as many as there are streams, after which the server counts as gone."""
TICK_S: Final = 0.02
LONG_SLEEP_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """What was sent and answered. `stopped`: empty, or why the run ended before its limits."""

    exchanges: tuple[Exchange, ...]
    client: ClientCost
    stopped: str


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@dataclass(frozen=True, slots=True)
class Sending:
    """One load on one server. `asking(number)` is what each request asks; `intended_s` are an open loop's times."""

    target: Target
    wanted: Wanted
    load: Load
    limits: Limits
    asking: Callable[[int], Prompt]
    intended_s: Sequence[float] = ()


async def play(
    sending: Sending,
    progress: Callable[[int, float], None] | None = None,
    begin_s: float | None = None,
    stop_on: signal.Signals = signal.SIGINT,
) -> Run:
    """Run one load. `begin_s`: the moment of `time.perf_counter` that counts as zero, by default now.

    Interrupted by the signal `stop_on`, or without a server, it returns what was measured until then and says so in
    `stopped`.
    """
    return await _Player(sending, progress).run(begin_s, stop_on)


class _Player:
    def __init__(self, sending: Sending, progress: Callable[[int, float], None] | None) -> None:
        self._sending, self._limits, self._progress = sending, sending.limits, progress
        self._url = sending.target.root + APIS[sending.wanted.api]
        self._exchanges: list[Exchange] = []
        self._failures = 0
        self._done = 0
        self._start = 0.0
        self._stopped = ""
        self._over = asyncio.Event()
        self._run_id = f"{os.getpid():x}-{time.monotonic_ns():x}"

    async def run(self, begin_s: float | None, stop_on: signal.Signals) -> Run:
        cpu, self._start = time.process_time(), time.perf_counter() if begin_s is None else begin_s
        delays: list[float] = []
        async with session_of(self._sending.target) as session:
            ticker = asyncio.create_task(self._tick(delays))
            with interrupts(self._interrupted, stop_on):
                await asyncio.sleep(max(-self._now(), 0.0))
                await self._send(session)
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
        wall = time.perf_counter() - self._start
        late = sorted(delays)[int(0.99 * (len(delays) - 1))] if delays else 0.0
        cost = ClientCost(time.process_time() - cpu, wall, late)
        return Run(tuple(sorted(self._exchanges, key=lambda e: (e.sent_s, e.number))), cost, self._stopped)

    async def _send(self, session: aiohttp.ClientSession) -> None:
        load = self._sending.load
        if isinstance(load, ClosedLoop):
            numbers = iter(range(self._limits.requests or 2**62))
            streams = load.concurrency
            tasks = [asyncio.create_task(self._stream(session, numbers, streams)) for _ in range(streams)]
        else:
            tasks = []
            for number, due in enumerate(self._sending.intended_s):
                await self._sleep_until(due)
                if self._over.is_set():
                    break
                tasks.append(asyncio.create_task(self._one(session, number, due, max(len(tasks) // 2, GIVE_UP_AFTER))))
        await self._finish(tasks)

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for the answers, no longer than the drain after the end of sending; an interrupt ends it at once."""
        waiting = {*tasks}
        over = asyncio.create_task(self._over.wait())
        end = None if self._limits.duration_s is None else self._limits.duration_s + self._limits.drain_s
        while waiting and not self._over.is_set():
            left = None if end is None else end - self._now()
            if left is not None and left <= 0.0:
                break
            await asyncio.wait({*waiting, over}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            waiting = {task for task in waiting if not task.done()}
        over.cancel()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()):
                raise error

    async def _stream(self, session: aiohttp.ClientSession, numbers: Any, streams: int) -> None:
        for number in numbers:
            now = self._now()
            if self._over.is_set() or (self._limits.duration_s is not None and now >= self._limits.duration_s):
                return
            before = self._failures
            await self._one(session, number, now, max(streams, GIVE_UP_AFTER))
            if self._failures > before:
                await asyncio.sleep(BACK_OFF_S)

    async def _one(self, session: aiohttp.ClientSession, number: int, intended_s: float, give_up: int) -> None:
        exchange = Exchange(number, intended_s, request_id=f"{self._run_id}-{number}")
        self._exchanges.append(exchange)
        prompt, wanted = self._sending.asking(number), self._sending.wanted
        await exchanged(session, self._url, prompt, wanted, exchange, self._now)
        self._failures = 0 if exchange.completed else self._failures + 1
        self._done += 1
        if self._failures >= give_up and not self._stopped:
            self._stopped = f"the server stopped answering ({exchange.error}) {self._now():.1f} s into the run"
            self._over.set()

    async def _sleep_until(self, due_s: float) -> None:
        """Long sleeps end with the run."""
        if due_s - self._now() > LONG_SLEEP_S:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), due_s - self._now() - LONG_SLEEP_S / 2)
        if not self._over.is_set() and (left := due_s - self._now()) > 0.0:
            await asyncio.sleep(left)

    async def _tick(self, delays: list[float]) -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(TICK_S)
            delays.append(time.perf_counter() - asked - TICK_S)
            if self._progress is not None:
                self._progress(self._done, self._now())

    def _interrupted(self) -> None:
        self._stopped = f"interrupted {self._now():.1f} s into the run"
        self._over.set()

    def _now(self) -> float:
        return time.perf_counter() - self._start


@contextmanager
def interrupts(stop: Callable[[], None], on: signal.Signals = signal.SIGINT) -> Iterator[None]:
    """The signal calls `stop` while inside; elsewhere than in the main thread it does nothing."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(on, stop)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(on)
