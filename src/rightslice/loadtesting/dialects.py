"""The request bodies of OpenAI-compatible interfaces, and what their answers say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rightslice.loadtesting.exchange import Exchange

ApiName = Literal["chat", "completions", "embeddings", "rerank"]
APIS: Final[Mapping[ApiName, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
}
"""Interface -> path below the root."""
GENERATES: Final = frozenset({"chat", "completions"})
_CONTENT: Final = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every request asks for. `exact`: fields of vLLM and SGLang that make the answer exactly as long as asked."""

    api: ApiName
    model: str
    output_tokens: int
    stream: bool = True
    exact: bool = True


def body(wanted: Wanted, text: str) -> dict[str, Any]:
    """The JSON body of one request."""
    if wanted.api == "embeddings":
        return {"model": wanted.model, "input": text}
    if wanted.api == "rerank":
        query, _, document = text.partition(" ")
        return {"model": wanted.model, "query": query, "documents": [document]}
    asked: dict[str, Any] = {"model": wanted.model, "max_tokens": wanted.output_tokens}
    if wanted.api == "chat":
        asked["messages"] = [{"role": "user", "content": text}]
    else:
        asked["prompt"] = text
    if wanted.stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    if wanted.exact:
        asked |= {"ignore_eos": True, "min_tokens": wanted.output_tokens}
    return asked


def note_event(event: Mapping[str, Any], exchange: Exchange, now_s: float) -> None:
    """Enter one streamed event, or a whole answer, into `exchange`. `error` becomes `api_error` where it says so."""
    if "error" in event:
        _refused(event["error"], exchange)
        return
    usage = event.get("usage")
    if usage:
        note_usage(usage, exchange)
    choices = event.get("choices")
    if not choices:
        return
    if exchange.first_chunk_s != exchange.first_chunk_s:  # NaN
        exchange.first_chunk_s = now_s
    if not _has_content(choices[0]):
        return
    if exchange.chunks:
        exchange.gaps.append(now_s - exchange.last_token_s)
    else:
        exchange.first_token_s = now_s
    exchange.last_token_s = now_s
    exchange.chunks += 1


def note_usage(usage: Mapping[str, Any], exchange: Exchange) -> None:
    """The server's own counts."""
    exchange.input_tokens = _count(usage.get("prompt_tokens"))
    exchange.output_tokens = _count(usage.get("completion_tokens"))
    details = usage.get("prompt_tokens_details")
    if isinstance(details, Mapping):
        exchange.cached_tokens = _count(details.get("cached_tokens"))
    exchange.counted = True


def _has_content(choice: Mapping[str, Any]) -> bool:
    part = choice.get("delta")
    if part is None:
        part = choice.get("message")
    if part is None:
        return bool(choice.get("text"))
    return any(part.get(key) for key in _CONTENT) or bool(part.get("tool_calls"))


def _refused(error: object, exchange: Exchange) -> None:
    said = error.get("message", "") if isinstance(error, Mapping) else error
    exchange.error, exchange.detail = "api_error", str(said)[:200]


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
