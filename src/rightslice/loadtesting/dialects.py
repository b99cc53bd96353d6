"""The request bodies of OpenAI-compatible interfaces, and what their answers say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from rightslice.loadtesting.audio import Recording
from rightslice.loadtesting.exchange import Exchange

ApiName = Literal["chat", "completions", "embeddings", "rerank", "transcriptions", "speech"]
APIS: Final[Mapping[ApiName, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "transcriptions": "/v1/audio/transcriptions",
    "speech": "/v1/audio/speech",
}
"""Interface -> path below the root."""
GENERATES: Final = frozenset({"chat", "completions"})
SOUND: Final = frozenset({"transcriptions", "speech"})
JSON: Final = "application/json"
_CONTENT: Final = ("content", "reasoning_content", "reasoning")
_BOUNDARY: Final = "rightslice-0c1f6f1d8b3e4a57"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What all requests have in common. `exact`: fields of vLLM and SGLang that make the answer exactly as long as
    asked; `voice`: of speech."""

    api: ApiName
    model: str
    stream: bool = True
    exact: bool = True
    voice: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks: its text or conversation, how many tokens the answer shall have, what to transcribe."""

    text: str
    output_tokens: int = 0
    recording: Recording | None = None
    messages: tuple[Mapping[str, Any], ...] = ()


def content(wanted: Wanted, prompt: Prompt) -> tuple[bytes, str]:
    """The body of one request, and its media type."""
    if wanted.api == "transcriptions" and prompt.recording is not None:
        fields = {"model": wanted.model, "response_format": "json"}
        return _form(fields, prompt.recording), f"multipart/form-data; boundary={_BOUNDARY}"
    return orjson.dumps(_document(wanted, prompt)), JSON


def _document(wanted: Wanted, prompt: Prompt) -> dict[str, Any]:
    if wanted.api == "speech":
        voice = {"voice": wanted.voice} if wanted.voice else {}
        return {"model": wanted.model, "input": prompt.text, "response_format": "wav", **voice}
    if wanted.api == "embeddings":
        return {"model": wanted.model, "input": prompt.text}
    if wanted.api == "rerank":
        query, _, document = prompt.text.partition(" ")
        return {"model": wanted.model, "query": query, "documents": [document]}
    asked: dict[str, Any] = {"model": wanted.model, "max_tokens": prompt.output_tokens}
    if wanted.api == "chat":
        asked["messages"] = prompt.messages or [{"role": "user", "content": prompt.text}]
    else:
        asked["prompt"] = prompt.text
    if wanted.stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    if wanted.exact:
        asked |= {"ignore_eos": True, "min_tokens": prompt.output_tokens}
    return asked


def _form(fields: Mapping[str, str], recording: Recording) -> bytes:
    """RFC 7578, with the recording as the field `file`."""
    parts = [
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="speech.wav"\r\n'
    kind = "Content-Type: audio/wav\r\n\r\n"
    return b"".join((*parts, head.encode(), kind.encode(), recording.data, f"\r\n--{_BOUNDARY}--\r\n".encode()))


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
