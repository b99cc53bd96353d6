"""Standard output and standard error: one place that knows whether they are terminals and what they can show."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

from rightslice.core.errors import BadInputError, Diagnostic

_WIDEST = 140
_NARROWEST = 40
_BLOCKS = "█░▐▌×–≤→…"


@dataclass(frozen=True, slots=True)
class Terminal:
    """What standard output can show."""

    width: int
    color: bool
    ascii_only: bool


def terminal() -> Terminal:
    """Look at standard output now. Colour only on a terminal and without NO_COLOR; 80 columns where unknown, never
    fewer than 40 nor more than 140."""
    columns = shutil.get_terminal_size((80, 24)).columns
    return Terminal(min(max(columns, _NARROWEST), _WIDEST), _colorful(sys.stdout), not _can_show(sys.stdout, _BLOCKS))


def open_closed_streams() -> None:
    """A program started with `>&-` has no stream at all: what is written goes nowhere."""
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")


def _colorful(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _can_show(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def write_text(text: str) -> None:
    """To standard output; characters that it cannot show become `?`."""
    _write(sys.stdout, text)


def write_line(text: str) -> None:
    """Lines of ours around names that a stranger wrote, to standard output."""
    from rightslice.core.text import visible  # noqa: PLC0415 - `--help` does not need it

    write_text("\n".join(visible(line) for line in text.split("\n")) + "\n")


def write_note(text: str) -> None:
    """One or more whole lines to standard error."""
    _write(sys.stderr, text + "\n")


def write_json(value: object) -> None:
    """The one JSON document of a `--json` run: UTF-8 whatever the locale says."""
    from rightslice.core.documents import to_json  # noqa: PLC0415 - `--help` does not need it

    _put(sys.stdout, to_json(value).encode("utf-8", "replace"))


def _write(stream: TextIO, text: str) -> None:
    _put(stream, text.encode(stream.encoding or "ascii", "replace"))


def _put(stream: TextIO, data: bytes) -> None:
    try:
        stream.flush()
        stream.buffer.write(data)
        stream.flush()
    except BrokenPipeError:
        discard(stream)
        raise
    except OSError as error:
        discard(stream)
        reason = error.strerror or str(error)
        raise BadInputError(Diagnostic("RS0407", f"cannot write to {stream.name}: {reason}")) from None


def discard(stream: TextIO) -> None:
    """Nobody can read it any more: let the interpreter flush what is left into nothing."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


class Progress:
    """One line on standard error that is overwritten; silent unless that is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __call__(self, message: str) -> None:
        """Show what happens now."""
        if self._shown:
            room = shutil.get_terminal_size((80, 24)).columns - 1
            _write(sys.stderr, f"\r\x1b[K{message[:room]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            _write(sys.stderr, "\r\x1b[K")
