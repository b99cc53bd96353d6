"""What an endpoint is like, found by asking it a little before a load test."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import aiohttp
import orjson

from rightslice.adapters.exchanging import Target, bounded, exchanged, session_of
from rightslice.core.errors import OutsideError
from rightslice.core.rng import generator
from rightslice.loadtesting.audio import Recording
from rightslice.loadtesting.dialects import APIS, GENERATES, JSON, SOUND, Prompt, Wanted
from rightslice.loadtesting.exchange import Exchange
from rightslice.loadtesting.prompts import PROBES, WORDS, TokenLaw, equally_long, text_of

UNREACHABLE: Final = "RS0602"
REFUSED: Final = "RS0603"
_REFUSES_FIELDS: Final = frozenset({"http_400", "http_422"})


@dataclass(frozen=True, slots=True)
class Probed:
    """`wanted` as this server takes it; the words of prompts and how they become tokens; whether it counts tokens."""

    wanted: Wanted
    vocabulary: tuple[str, ...]
    law: TokenLaw
    counted: bool
    notes: tuple[str, ...]


async def probed(target: Target, wanted: Wanted, input_tokens: int, recording: Recording | None = None) -> Probed:
    """Ask for the model where none is named, then twice for an answer; once where sound is sent or comes.

    Raises OutsideError RS0602 when nobody answers, RS0603 when the request is refused.
    """
    notes: list[str] = []
    async with session_of(target) as session:
        if not wanted.model:
            wanted = replace(wanted, model=await _model(session, target))
            notes.append(f"model {wanted.model}, the first that the server names")
        if wanted.api in SOUND:
            prompt = Prompt(text_of(PROBES[0], generator(0, "probe")), 0, recording)
            _check(await _answer(session, target, wanted, prompt), target)
            return Probed(wanted, WORDS, TokenLaw(), False, tuple(notes))
        vocabulary = await _vocabulary(session, target, wanted.model)
        first = await _asked(session, target, wanted, PROBES[0], vocabulary)
        if first.error in _REFUSES_FIELDS and wanted.exact and wanted.api in GENERATES:
            plain = replace(wanted, exact=False)
            again = await _asked(session, target, plain, PROBES[0], vocabulary)
            if again.completed:
                wanted, first = plain, again
                notes.append(
                    "the server refuses ignore_eos and min_tokens: answers may end before the length asked for"
                )
        _check(first, target)
        counted = first.counted and first.input_tokens > 0
        law = TokenLaw()
        if counted:
            words = max(min(PROBES[1], input_tokens), PROBES[0] + 1)
            second = await _asked(session, target, wanted, words, vocabulary)
            _check(second, target)
            try:
                law = TokenLaw.through((PROBES[0], first.input_tokens), (words, second.input_tokens))
            except ValueError:
                counted = False
        if not counted:
            notes.append("the server reports no token counts of prompts: one word is taken for one token")
        elif input_tokens < law.overhead + law.per_word:
            notes.append(f"the shortest prompt of this server has {law.overhead + law.per_word:.0f} tokens")
    return Probed(wanted, vocabulary, law, counted, tuple(notes))


async def _vocabulary(session: aiohttp.ClientSession, target: Target, model: str) -> tuple[str, ...]:
    """Words that are equally long for the server's tokenizer; all where it has no interface for it."""
    try:
        empty = await _tokens(session, target, model, "")
        return equally_long({word: await _tokens(session, target, model, f"a {word} {word}") - empty for word in WORDS})
    except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return WORDS


async def _tokens(session: aiohttp.ClientSession, target: Target, model: str, text: str) -> int:
    data = orjson.dumps({"model": model, "prompt": text})
    async with session.post(f"{target.root}/tokenize", data=data, headers={"Content-Type": JSON}) as response:
        response.raise_for_status()
        return int(orjson.loads(await bounded(response, 2**16))["count"])


async def _asked(
    session: aiohttp.ClientSession, target: Target, wanted: Wanted, words: int, vocabulary: tuple[str, ...]
) -> Exchange:
    return await _answer(
        session, target, wanted, Prompt(text_of(words, generator(0, "probe", words), 0, vocabulary), 2)
    )


async def _answer(session: aiohttp.ClientSession, target: Target, wanted: Wanted, prompt: Prompt) -> Exchange:
    exchange = Exchange(0, 0.0, request_id="probe")
    start = time.perf_counter()
    await exchanged(
        session, target.root + APIS[wanted.api], prompt, wanted, exchange, lambda: time.perf_counter() - start
    )
    return exchange


def _check(exchange: Exchange, target: Target) -> None:
    if exchange.completed:
        return
    said = f": {exchange.detail}" if exchange.detail else ""
    if exchange.error in ("connect", "timeout", "disconnected", "tls"):
        hint = "is it running, and is this its root address?"
        raise OutsideError(UNREACHABLE, f"{target.root} does not answer ({exchange.error}{said})"[:300], None, hint)
    hints = {
        "http_401": "--api-key-env NAME names the variable that holds the key",
        "http_403": "--api-key-env NAME names the variable that holds the key",
        "http_404": "check --model and --api; the address is the server's root",
    }
    hint = hints.get(exchange.error, "")
    raise OutsideError(REFUSED, f"{target.root} refuses a request ({exchange.error}{said})"[:400], None, hint)


async def _model(session: aiohttp.ClientSession, target: Target) -> str:
    try:
        async with session.get(f"{target.root}/v1/models") as response:
            found = orjson.loads(await bounded(response, 2**20)) if response.status == 200 else {}
        name = found["data"][0]["id"]
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        message = f"{target.root} does not answer ({type(error).__name__})"
        raise OutsideError(UNREACHABLE, message, None, "is it running, and is this its root address?") from None
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        raise OutsideError(REFUSED, f"{target.root} names no model", None, "give --model") from None
    return str(name)[:200]
