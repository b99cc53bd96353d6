"""Server-sent events from a stream of bytes, whatever the pieces in which it comes.

https://html.spec.whatwg.org/multipage/server-sent-events.html: lines end in LF, CRLF or CR; a blank line ends an event;
lines that begin with a colon are comments; the `data` lines of an event are joined by LF.
"""

from __future__ import annotations

import re
from typing import Final

MAX_EVENT_BYTES: Final = 16 * 2**20
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class EventTooLargeError(ValueError):
    """More than MAX_EVENT_BYTES without the end of an event."""


class SseReader:
    """Feed it bytes; it gives the data of every event that is complete by then."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in `piece`. Raises EventTooLargeError."""
        text = self._rest + piece if self._rest else piece
        if b"\r" in text:
            text = self._without_returns(text)
        *whole, self._rest = text.split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EventTooLargeError
        return [data for event in whole if (data := _data(event)) is not None]

    def finish(self) -> list[bytes]:
        """What an end without a blank line left: the standard drops it, servers in use send it."""
        event, self._rest = _LINE_END.sub(b"\n", self._rest), b""
        data = _data(event)
        return [] if data is None else [data]

    def _without_returns(self, text: bytes) -> bytes:
        """Every line end as LF; a CR at the very end may be half of one and stays for the next piece."""
        if text.endswith(b"\r"):
            return _LINE_END.sub(b"\n", text[:-1]) + b"\r"
        return _LINE_END.sub(b"\n", text)


def _data(event: bytes) -> bytes | None:
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
