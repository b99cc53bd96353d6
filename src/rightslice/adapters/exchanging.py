"""One request to an OpenAI-compatible endpoint, with times taken as bytes arrive."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.loadtesting.audio import seconds_of
from rightslice.loadtesting.dialects import GENERATES, Prompt, Wanted, content, note_event, note_usage
from rightslice.loadtesting.exchange import UNFINISHED, Exchange
from rightslice.loadtesting.sse import EventTooLargeError, SseReader

CONNECT_S: Final = 10.0
READ_BUFFER: Final = 2**20
MAX_BODY: Final = 16 * 2**20
MAX_SOUND: Final = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. `token` is never shown. `headers`: further ones; `timeout_s`: of one whole request."""

    url: str
    token: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = 600.0
    verify_tls: bool = True

    @property
    def root(self) -> str:
        """Without a trailing slash and without `/v1`."""
        return self.url.rstrip("/").removesuffix("/v1").rstrip("/")


def checked_url(url: str) -> str:
    """The URL if it is one. Raises BadInputError RS0501."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username:
        hint = "the server's root, for example http://localhost:8000"
        raise BadInputError(Diagnostic("RS0501", f'"{url[:80]}" is not the address of a server', hint=hint))
    return url


@asynccontextmanager
async def session_of(target: Target, connections: int = 0) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with as many connections as are wanted (0: no limit), kept open between requests."""
    headers = dict(target.headers)
    if target.token:
        headers["Authorization"] = f"Bearer {target.token}"
    connector = aiohttp.TCPConnector(limit=connections, ssl=target.verify_tls, ttl_dns_cache=300)
    timeout = aiohttp.ClientTimeout(total=target.timeout_s, connect=None, sock_connect=CONNECT_S)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, read_bufsize=READ_BUFFER, auto_decompress=True
    ) as session:
        yield session


async def bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body. Raises aiohttp.ClientPayloadError for more than `limit` bytes."""
    parts, size = [], 0
    async for piece in response.content.iter_any():
        parts.append(piece)
        size += len(piece)
        if size > limit:
            raise aiohttp.ClientPayloadError(f"more than {limit:,} bytes")
    return b"".join(parts)


async def exchanged(
    session: aiohttp.ClientSession,
    url: str,
    prompt: Prompt,
    wanted: Wanted,
    exchange: Exchange,
    now: Callable[[], float],
) -> None:
    """Send one request and enter its answer, or what went wrong, into `exchange`."""
    data, kind = content(wanted, prompt)
    if prompt.recording is not None:
        exchange.audio_s = prompt.recording.seconds
    headers = {"X-Request-Id": exchange.request_id, "Content-Type": kind}
    exchange.sent_s = now()
    try:
        async with session.post(url, data=data, headers=headers) as response:
            await _answered(response, wanted, exchange, now)
    except asyncio.CancelledError:
        exchange.error = UNFINISHED
        raise
    except (TimeoutError, aiohttp.ServerTimeoutError):
        exchange.error = "timeout"
    except aiohttp.ClientConnectorCertificateError as error:
        exchange.error, exchange.detail = "tls", str(error)[:200]
    except aiohttp.ClientConnectorError as error:
        exchange.error, exchange.detail = "connect", str(error.os_error.strerror or error.os_error)[:200]
    except aiohttp.ClientPayloadError:
        exchange.error = "closed_early"
    except (aiohttp.ServerDisconnectedError, ConnectionError):
        exchange.error = "disconnected"
    except aiohttp.ClientError as error:
        exchange.error, exchange.detail = "http", f"{type(error).__name__}: {error}"[:200]
    exchange.end_s = now()


async def _answered(
    response: aiohttp.ClientResponse, wanted: Wanted, exchange: Exchange, now: Callable[[], float]
) -> None:
    if response.status >= 400:
        exchange.error = f"http_{response.status}"
        exchange.detail = (await response.content.read(500)).decode("utf-8", "replace").strip()
    elif wanted.stream and wanted.api in GENERATES:
        await _streamed(response, exchange, now)
    elif wanted.api == "speech":
        await _spoken(response, exchange, now)
    else:
        await _whole(response, wanted, exchange, now)


async def _streamed(response: aiohttp.ClientResponse, exchange: Exchange, now: Callable[[], float]) -> None:
    reader = SseReader()
    ended = False
    exchange.error = ""
    try:
        async for piece in response.content.iter_any():
            at = now()
            if exchange.first_byte_s != exchange.first_byte_s:  # NaN
                exchange.first_byte_s = at
            for event in reader.feed(piece):
                if event == b"[DONE]":
                    ended = True
                else:
                    note_event(orjson.loads(event), exchange, at)
        for event in reader.finish():
            if event == b"[DONE]":
                ended = True
            else:
                note_event(orjson.loads(event), exchange, now())
    except (orjson.JSONDecodeError, EventTooLargeError, AttributeError, TypeError, KeyError) as error:
        exchange.error, exchange.detail = "bad_answer", f"{type(error).__name__}: {error}"[:200]
        return
    if not exchange.error and not ended:
        exchange.error = "closed_early"
    if not exchange.counted:
        exchange.output_tokens = exchange.chunks


async def _spoken(response: aiohttp.ClientResponse, exchange: Exchange, now: Callable[[], float]) -> None:
    """Sound as it comes: its first piece beyond the header of the file is the first token."""
    sound = bytearray()
    async for piece in response.content.iter_any():
        at = now()
        if exchange.first_byte_s != exchange.first_byte_s:  # NaN
            exchange.first_byte_s = exchange.first_chunk_s = at
        sound += piece
        if len(sound) > MAX_SOUND:
            exchange.error = "bad_answer"
            return
        if seconds_of(sound) == 0.0:
            continue
        if exchange.chunks:
            exchange.gaps.append(at - exchange.last_token_s)
        else:
            exchange.first_token_s = at
        exchange.last_token_s = at
        exchange.chunks += 1
    exchange.error = "" if exchange.chunks else "bad_answer"
    seconds = seconds_of(sound)
    exchange.audio_s = 0.0 if math.isnan(seconds) else seconds


async def _whole(
    response: aiohttp.ClientResponse, wanted: Wanted, exchange: Exchange, now: Callable[[], float]
) -> None:
    parts = []
    async for piece in response.content.iter_any():
        if exchange.first_byte_s != exchange.first_byte_s:  # NaN
            exchange.first_byte_s = now()
        parts.append(piece)
        if sum(map(len, parts)) > MAX_BODY:
            exchange.error = "bad_answer"
            return
    try:
        answer = orjson.loads(b"".join(parts))
        exchange.error = ""
        if "error" in answer:
            note_event(answer, exchange, now())
        elif answer.get("usage") and wanted.api != "transcriptions":
            note_usage(answer["usage"], exchange)
        elif wanted.api in GENERATES:
            note_event(answer, exchange, now())
    except (orjson.JSONDecodeError, AttributeError, TypeError, KeyError) as error:
        exchange.error, exchange.detail = "bad_answer", f"{type(error).__name__}: {error}"[:200]
