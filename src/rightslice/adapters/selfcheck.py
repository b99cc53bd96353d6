"""Is it the server or the client? The client against a stub with known times, before every load test."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import aiohttp
import numpy as np
import orjson

from rightslice.adapters.endpoint import Sending, play
from rightslice.adapters.exchanging import Target, session_of
from rightslice.loadtesting.dialects import Prompt, Wanted
from rightslice.loadtesting.results import SelfCheck
from rightslice.loadtesting.schedule import ClosedLoop, Limits
from rightslice.loadtesting.statistics import Percentiles

TTFT_MS: Final = 100.0
ITL_MS: Final = 20.0
TOKENS: Final = 20
ROUNDS: Final = 2
ALLOWED_MS: Final = 10.0
"""Median difference of first and last tokens between client and stub above which the check fails."""
_START_S: Final = 20.0


async def self_check(streams: int) -> SelfCheck | None:
    """Two rounds of short answers from a stub in a process of its own; None where none can be started."""
    arguments = ("-m", "rightslice.adapters.stub", "--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS))
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
    except OSError:
        return None
    try:
        return await _checked(process, streams)
    except (TimeoutError, aiohttp.ClientError, OSError):
        return None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _checked(process: asyncio.subprocess.Process, streams: int) -> SelfCheck | None:
    if process.stdout is None:
        return None
    line = await asyncio.wait_for(process.stdout.readline(), _START_S)
    target = Target(line.decode().strip())
    if not target.url:
        return None
    load, limits = ClosedLoop(streams), Limits(ROUNDS * streams)
    run = await play(Sending(target, Wanted("chat", "stub"), load, limits, lambda _: Prompt("a b c", TOKENS)))
    async with session_of(target) as session, session.get(f"{target.root}/log") as response:
        log = {entry["request_id"]: entry for entry in orjson.loads(await response.read())}
    pairs = [(e, log[e.request_id]) for e in run.exchanges if e.completed and e.request_id in log]
    if not pairs:
        return None
    # Both clocks start elsewhere: times since sending against times since receiving, so that only delay is left.
    first = _percentiles([(e.first_token_s - e.sent_s) - (s["first_token_s"] - s["received_s"]) for e, s in pairs])
    last = _percentiles([(e.last_token_s - e.sent_s) - (s["last_token_s"] - s["received_s"]) for e, s in pairs])
    return SelfCheck(streams, first, last, max(first.p50, last.p50) <= ALLOWED_MS)


def _percentiles(seconds: list[float]) -> Percentiles:
    p50, p99 = (float(v) for v in np.percentile(np.asarray(seconds) * 1e3, (50, 99)))
    return Percentiles(p50, p99)
