"""One load from several processes, where one core does not suffice: parts of a run that begin at one moment."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from rightslice.adapters.endpoint import Run, Sending, interrupts, new_event_loop, play
from rightslice.core.errors import OutsideError
from rightslice.loadtesting.asking import EveryNth
from rightslice.loadtesting.schedule import ClosedLoop
from rightslice.loadtesting.statistics import ClientCost

DIED: Final = "RS0608"
READY_S: Final = 60.0
_LEAD_S: Final = 0.1
_STOP: Final = getattr(signal, "SIGUSR1", signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Part:
    """What one process sends; its requests are first, first + step, … of the run."""

    sending: Sending
    first: int
    step: int


def parts_of(whole: Sending, processes: int) -> tuple[Part, ...]:
    """Streams, requests and times dealt out in turn; no more parts than there are streams."""
    load, limits = whole.load, whole.limits
    count = min(processes, load.concurrency) if isinstance(load, ClosedLoop) else processes
    found = []
    for first in range(count):
        own = ClosedLoop(_dealt(load.concurrency, first, count)) if isinstance(load, ClosedLoop) else load
        requests = None if limits.requests is None else _dealt(limits.requests, first, count)
        sending = replace(
            whole,
            load=own,
            limits=replace(limits, requests=requests),
            asking=EveryNth(whole.asking, first, count),
            intended_s=tuple(whole.intended_s[first::count]),
        )
        found.append(Part(sending, first, count))
    return tuple(found)


async def play_on(parts: Sequence[Part], progress: Callable[[int, float], None] | None = None) -> Run:
    """Run the parts, each in a process of its own, and put together what they saw.

    Raises OutsideError RS0608 when a process dies.
    """
    context = get_context("spawn")
    started: list[tuple[SpawnProcess, Connection]] = []
    try:
        for part in parts:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, part), daemon=True)
            process.start()
            theirs.close()
            started.append((process, ours))
        return await _together(parts, started, progress)
    finally:
        for process, ours in started:
            if process.is_alive():
                process.kill()
            process.join()
            ours.close()


async def _together(
    parts: Sequence[Part],
    started: Sequence[tuple[SpawnProcess, Connection]],
    progress: Callable[[int, float], None] | None,
) -> Run:
    await asyncio.gather(*(_received(ours, READY_S) for _, ours in started))
    start_s = time.perf_counter() + _LEAD_S
    for _, ours in started:
        ours.send(start_s)
    done = [0] * len(parts)

    def stop() -> None:
        for process, _ in started:
            if process.pid is not None and process.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(process.pid, _STOP)

    async def follow(number: int, ours: Connection) -> Run:
        while True:
            message = await _received(ours)
            if isinstance(message, Run):
                return message
            done[number] = message
            if progress is not None:
                progress(sum(done), max(time.perf_counter() - start_s, 0.0))

    with interrupts(stop):
        runs = await asyncio.gather(*(follow(i, ours) for i, (_, ours) in enumerate(started)))
    return _merged(parts, runs)


def _merged(parts: Sequence[Part], runs: Sequence[Run]) -> Run:
    exchanges = []
    for part, run in zip(parts, runs, strict=True):
        for exchange in run.exchanges:
            exchange.number = part.first + exchange.number * part.step
            exchanges.append(exchange)
    client = ClientCost(
        cpu_s=sum(run.client.cpu_s for run in runs),
        wall_s=max(run.client.wall_s for run in runs),
        loop_delay_s=max(run.client.loop_delay_s for run in runs),
        processes=len(runs),
    )
    stopped = next((run.stopped for run in runs if run.stopped), "")
    return Run(tuple(sorted(exchanges, key=lambda e: (e.sent_s, e.number))), client, stopped)


def _work(theirs: Connection, part: Part) -> None:
    """The process of one part: tells that it is ready, is told when to begin, sends counts and at last its run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(_STOP, signal.SIG_IGN)
    loop = new_event_loop()
    theirs.send("ready")
    start_s: float = theirs.recv()
    told = 0

    def progress(done: int, _: float) -> None:
        nonlocal told
        if done != told:
            told = done
            theirs.send(done)

    run = loop.run_until_complete(play(part.sending, progress, start_s, _STOP))
    theirs.send(run)
    loop.close()


async def _received(ours: Connection, timeout_s: float | None = None) -> Any:
    def wait() -> Any:
        if timeout_s is not None and not ours.poll(timeout_s):
            raise EOFError
        return ours.recv()

    try:
        return await asyncio.to_thread(wait)
    except (EOFError, OSError):
        hint = "is there memory enough? try fewer --processes"
        raise OutsideError(DIED, "a process of the client died or did not start", None, hint) from None


def _dealt(total: int, first: int, count: int) -> int:
    """How many of `total` come to one of `count` if they are dealt out in turn."""
    return total // count + (first < total % count)
