"""The metrics of an inference server, asked for while a load runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from rightslice.adapters.exchanging import Target, bounded, session_of
from rightslice.loadtesting.server_metrics import Scrape, metric_names, metrics_paths, parsed

EVERY_S: Final = 0.5
_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)
_MAX_BYTES: Final = 8 * 2**20


@dataclass(slots=True)
class Scraper:
    """What was read until now. `url`: where, empty when the server shows no metric that is known."""

    url: str = ""
    scrapes: list[Scrape] = field(default_factory=list)


async def metrics_url(target: Target, given: str = "") -> str:
    """The address that shows a known metric: `given`, or a usual path of the target; empty where there is none."""
    names = metric_names()
    async with session_of(_without_key(target, given)) as session:
        for url in (given,) if given else tuple(target.root + path for path in metrics_paths()):
            found = await _read(session, url)
            if found is not None and parsed(found, 0.0, names).values:
                return url
    return ""


@asynccontextmanager
async def scraping(target: Target, url: str) -> AsyncIterator[Scraper]:
    """Scrape twice a second while inside, once at the start and at the end."""
    scraper = Scraper(url)
    if not url:
        yield scraper
        return
    names, start = metric_names(), time.perf_counter()
    async with session_of(_without_key(target, url)) as session:

        async def once() -> None:
            found = await _read(session, url)
            if found is not None:
                scraper.scrapes.append(parsed(found, time.perf_counter() - start, names))

        async def forever() -> None:
            while True:
                await asyncio.sleep(EVERY_S)
                await once()

        await once()
        task = asyncio.create_task(forever())
        try:
            yield scraper
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await once()


def _without_key(target: Target, url: str) -> Target:
    """The key is for the target alone."""
    return target if not url or url.startswith(f"{target.root}/") else Target(url, verify_tls=target.verify_tls)


async def _read(session: aiohttp.ClientSession, url: str) -> bytes | None:
    with suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
        async with session.get(url, timeout=_TIMEOUT) as response:
            if response.status == 200:
                return await bounded(response, _MAX_BYTES)
    return None
