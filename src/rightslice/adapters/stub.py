"""A server that answers as an OpenAI-compatible engine would, at known times: what load tests are checked against.

`python -m rightslice.adapters.stub --ttft-ms 100 --itl-ms 20` prints its address and serves until it is ended; `/log`
gives the times of every answer.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson
from aiohttp import web

from rightslice.adapters.endpoint import new_event_loop
from rightslice.loadtesting.audio import SAMPLES_PER_S, seconds_of, synthetic

WORD: Final = "wörd "
MAX_TOKENS: Final = 100_000
KEPT: Final = 100
"""Prompts and keys that are remembered."""
WORD_SOUND_S: Final = 0.1
WAV_HEADER: Final = 44
CHUNK: Final = "chat.completion.chunk"
TEMPLATE_TOKENS: Final = 4
"""Of a chat message besides its content."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the stub answers. Times in seconds.

    `itl_s` between tokens, plus `per_stream_s` for every answer under way; `slots`: no more answers than this at once,
    the others wait. `role_first`: a chunk with the role only at once, before the first token. `usage`: counts at the
    end. `coalesce`: tokens per write. `split`: each write in two halves, in the middle of a character. `comments`:
    keep-alive comments before the first token. `close_after`: the connection ends after so many tokens. `statuses`:
    HTTP status of the first requests, in order. `header_delay_s`: before the header. `strict`: refuse unknown fields.
    `tokens_of`: the tokens of a text, by default its words; with it, the tokenizer's interface is there.
    """

    ttft_s: float = 0.1
    itl_s: float = 0.02
    per_stream_s: float = 0.0
    slots: int = 0
    role_first: bool = True
    usage: bool = True
    coalesce: int = 1
    split: bool = False
    comments: bool = False
    close_after: int = 0
    statuses: tuple[int, ...] = ()
    header_delay_s: float = 0.0
    strict: bool = False
    tokens_of: Callable[[str], int] | None = None


@dataclass(slots=True)
class Answered:
    """One answer by the stub's own clock (time.perf_counter)."""

    request_id: str
    received_s: float
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    tokens: int = 0


@dataclass(slots=True)
class Stub:
    """The server's state: how it behaves, what it was asked with which keys, and what it has answered."""

    behaviour: Behaviour
    log: list[Answered] = field(default_factory=list)
    prompts: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    keys: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    _active: int = 0
    _seen: int = 0
    _slots: asyncio.Semaphore | None = None

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._generate)
        app.router.add_post("/v1/completions", self._generate)
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        app.router.add_post("/v1/audio/speech", self._speak)
        app.router.add_get("/log", self._show_log)
        app.router.add_get("/metrics", self._metrics)
        if self.behaviour.tokens_of:
            app.router.add_post("/tokenize", self._tokenize)
        if self.behaviour.slots:
            self._slots = asyncio.Semaphore(self.behaviour.slots)
        return app

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        entry = Answered(request.headers.get("X-Request-Id", ""), time.perf_counter())
        asked = orjson.loads(await request.read())
        self._seen += 1
        self._note(request, asked)
        if refused := self._refused(asked):
            return refused
        await asyncio.sleep(self.behaviour.header_delay_s)
        if self._slots is None:
            return await self._answer(request, asked, entry, entry.received_s)
        async with self._slots:
            return await self._answer(request, asked, entry, time.perf_counter())

    def _refused(self, asked: dict[str, Any]) -> web.Response | None:
        statuses = self.behaviour.statuses
        if self._seen <= len(statuses) and statuses[self._seen - 1] != 200:
            return web.json_response({"error": {"message": "as told"}}, status=statuses[self._seen - 1])
        if self.behaviour.strict and "ignore_eos" in asked:
            return web.json_response({"error": {"message": "unknown field ignore_eos"}}, status=400)
        return None

    async def _answer(
        self, request: web.Request, asked: dict[str, Any], entry: Answered, start_s: float
    ) -> web.StreamResponse:
        tokens = min(int(asked.get("max_tokens", asked.get("max_completion_tokens", 16))), MAX_TOKENS)
        usage = {"prompt_tokens": self._prompt_tokens(asked), "completion_tokens": tokens}
        self._active += 1
        try:
            if not asked.get("stream"):
                return await self._at_once(asked, tokens, usage, entry, start_s)
            return await self._streamed(request, asked, tokens, usage, entry, start_s)
        finally:
            self._active -= 1
            self.log.append(entry)

    async def _at_once(
        self, asked: dict[str, Any], tokens: int, usage: dict[str, int], entry: Answered, start_s: float
    ) -> web.Response:
        await _until(start_s + self.behaviour.ttft_s + (tokens - 1) * self._itl_s())
        entry.tokens, entry.first_token_s, entry.last_token_s = tokens, time.perf_counter(), time.perf_counter()
        text = WORD * tokens
        choice = {"message": {"role": "assistant", "content": text}} if "messages" in asked else {"text": text}
        answer = {"choices": [{"index": 0, **choice}]}
        return web.json_response(answer | ({"usage": usage} if self.behaviour.usage else {}))

    async def _streamed(
        self,
        request: web.Request,
        asked: dict[str, Any],
        tokens: int,
        usage: dict[str, int],
        entry: Answered,
        start_s: float,
    ) -> web.StreamResponse:
        behaviour = self.behaviour
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        chat = "messages" in asked
        if chat and behaviour.role_first:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}}
            await response.write(_event({"object": CHUNK, "choices": [role]}))
        if behaviour.comments:
            await response.write(b": keep-alive\n\n")
        kind, part = (CHUNK, {"delta": {"content": WORD}}) if chat else ("text_completion", {"text": WORD})
        token = _event({"object": kind, "choices": [{"index": 0, **part}]})
        due_s = start_s + behaviour.ttft_s
        sent = 0
        while sent < tokens:
            if behaviour.close_after and sent >= behaviour.close_after:
                if request.transport is not None:
                    request.transport.abort()
                return response
            await _until(due_s)
            count = min(behaviour.coalesce, tokens - sent)
            for piece in _pieces(token * count, split=behaviour.split):
                await response.write(piece)
                if behaviour.split:
                    await asyncio.sleep(0.001)
            entry.last_token_s = time.perf_counter()
            entry.first_token_s = entry.first_token_s or entry.last_token_s
            sent += count
            entry.tokens = sent
            due_s += count * self._itl_s()
        if behaviour.usage:
            await response.write(_event({"object": kind, "choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _itl_s(self) -> float:
        return self.behaviour.itl_s + self.behaviour.per_stream_s * self._active

    async def _embed(self, request: web.Request) -> web.Response:
        entry = Answered(request.headers.get("X-Request-Id", ""), time.perf_counter())
        asked = orjson.loads(await request.read())
        await _until(entry.received_s + self.behaviour.ttft_s)
        self.log.append(entry)
        usage = {"prompt_tokens": self._count(str(asked.get("input", "")))}
        return web.json_response({"data": [{"index": 0, "embedding": [0.0] * 8}], "usage": usage})

    async def _transcribe(self, request: web.Request) -> web.Response:
        entry = Answered(request.headers.get("X-Request-Id", ""), time.perf_counter())
        form = await request.post()
        sound = form["file"]
        data = sound.file.read() if isinstance(sound, web.FileField) else b""
        seconds = seconds_of(data)
        if not seconds > 0.0 or "model" not in form:
            return web.json_response({"error": {"message": "no sound"}}, status=400)
        await _until(entry.received_s + self.behaviour.ttft_s)
        self.log.append(entry)
        return web.json_response({"text": WORD, "usage": {"type": "duration", "seconds": round(seconds)}})

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        """A tenth of a second of sound for each word, one piece after the other."""
        entry = Answered(request.headers.get("X-Request-Id", ""), time.perf_counter())
        asked = orjson.loads(await request.read())
        response = web.StreamResponse(headers={"Content-Type": "audio/wav"})
        await response.prepare(request)
        words = len(str(asked["input"]).split())
        header = synthetic(WORD_SOUND_S, np.random.default_rng(0)).data[:WAV_HEADER]
        await response.write(header[:4] + b"\xff\xff\xff\xff" + header[8:-4] + b"\xff\xff\xff\xff")
        due_s = entry.received_s + self.behaviour.ttft_s
        for _ in range(words):
            await _until(due_s)
            await response.write(bytes(round(WORD_SOUND_S * SAMPLES_PER_S) * 2))
            entry.last_token_s = time.perf_counter()
            entry.first_token_s = entry.first_token_s or entry.last_token_s
            due_s += self.behaviour.itl_s
        await response.write_eof()
        self.log.append(entry)
        return response

    def _note(self, request: web.Request, asked: dict[str, Any]) -> None:
        text = asked["messages"][-1]["content"] if "messages" in asked else asked.get("prompt", "")
        self.prompts.append(str(text))
        self.keys.append(request.headers.get("Authorization", ""))

    async def _metrics(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization", ""))
        lines = {
            "vllm:num_requests_running": self._active,
            "vllm:num_requests_waiting": max(self._seen - len(self.log) - self._active, 0),
            "vllm:kv_cache_usage_perc": min(self._active / 100.0, 1.0),
            "vllm:num_preemptions_total": 0,
        }
        text = "".join(f'{name}{{model_name="stub"}} {value}\n' for name, value in lines.items())
        return web.Response(text=text)

    async def _tokenize(self, request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        return web.json_response({"count": self._count(str(asked["prompt"]))})

    def _prompt_tokens(self, asked: dict[str, Any]) -> int:
        if "messages" in asked:
            return sum(self._count(str(m.get("content", ""))) + TEMPLATE_TOKENS for m in asked["messages"])
        return self._count(str(asked.get("prompt", "")))

    def _count(self, text: str) -> int:
        return self.behaviour.tokens_of(text) if self.behaviour.tokens_of else len(text.split())

    async def _show_log(self, _: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps([_fields(entry) for entry in self.log]))


async def serve(stub: Stub, tls: ssl.SSLContext | None = None) -> tuple[web.AppRunner, str]:
    """Serve on a free port of this machine; (runner to clean up, address)."""
    runner = web.AppRunner(stub.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls, backlog=4096).start()
    host, port = runner.addresses[0][:2]
    return runner, f"{'https' if tls else 'http'}://{host}:{port}"


def main(arguments: list[str] | None = None) -> None:
    """Serve until the standard input ends or the process does."""
    parser = argparse.ArgumentParser(description="A server with known times for load tests.")
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--itl-ms", type=float, default=20.0)
    parser.add_argument("--per-stream-ms", type=float, default=0.0)
    parser.add_argument("--slots", type=int, default=0)
    given = parser.parse_args(arguments)
    behaviour = Behaviour(given.ttft_ms / 1e3, given.itl_ms / 1e3, given.per_stream_ms / 1e3, given.slots)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        _, address = loop.run_until_complete(serve(Stub(behaviour)))
        sys.stdout.write(address + "\n")
        sys.stdout.flush()
        loop.run_until_complete(loop.run_in_executor(None, sys.stdin.read))
    except KeyboardInterrupt:
        pass
    finally:
        loop.close()


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _pieces(data: bytes, *, split: bool) -> Iterator[bytes]:
    middle = data.find("ö".encode()) + 1
    if not split or middle <= 0:
        yield data
        return
    yield data[:middle]
    yield data[middle:]


def _fields(entry: Answered) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in Answered.__slots__}


async def _until(due_s: float) -> None:
    left = due_s - time.perf_counter()
    if left > 0.0:
        await asyncio.sleep(left)


if __name__ == "__main__":
    main()
