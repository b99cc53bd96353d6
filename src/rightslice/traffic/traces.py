"""Recorded traffic from files: CSV or JSON lines, plain or gzip; the format is told by the first line.

Columns may come in any order and others may stand beside them. Rows may be unsorted.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.traffic.recorded import Trace
from rightslice.traffic.trace_formats import BAILIAN, KNOWN, Role, TraceFormat, json_format, table_format
from rightslice.traffic.trace_rows import MAX_TIME_S, MAX_TOKENS, Reading, Row, needed, parsed_json, roots

__all__ = ["MAX_TIME_S", "MAX_TOKENS", "Recording", "Trace", "first_line", "read_recording", "read_trace", "text_lines"]

MAX_FILE_BYTES: Final = 1_000_000_000
"""Largest file, compressed or not."""
MAX_ROWS: Final = 10_000_000
"""Most rows of one trace; a million take 3 (Azure) to 8 (Mooncake, 12 blocks each) CPU seconds."""
MAX_LINE_CHARACTERS: Final = 2_000_000
"""Longest line: 128 k tokens of prompt in blocks of 16 take some 70,000 characters."""

_LINES_AT_ONCE: Final = 20_000

_FAILURES: Final = (ValueError, TypeError, LookupError, RecursionError, csv.Error)

Lines = Iterator[tuple[int, str]]
Parse = Callable[[Sequence[str]], Sequence[Row]]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Recording:
    """A trace with what is known of its file: the format, how many rows it has, how many were skipped and why."""

    trace: Trace
    format: TraceFormat
    rows: int
    skipped: Mapping[str, int]


def read_trace(path: Path | str) -> Trace:
    """The requests of a trace file; raises what `read_recording` raises."""
    return read_recording(path).trace


def read_recording(path: Path | str) -> Recording:
    """The requests of a trace file, and what was skipped in it.

    Raises BadInputError with one diagnostic, for the first thing that is wrong, with its line: RS0401 missing,
    RS0402 not a file, RS0403 not text, RS0404 too large, RS0405 empty, RS0406 unreadable, RS0202 an unknown format,
    RS0105 or RS0106 a bad row.
    """
    path = Path(path)
    recording = _guarded(path, _read)
    if not len(recording.trace):
        reasons = ", ".join(f"{count:,} have {reason}" for reason, count in recording.skipped.items())
        raise _bad("RS0405", f"no row can be used: {reasons}", path, 0, "give a trace with requests that were served")
    return recording


def first_line(path: Path | str) -> str:
    """The first line that is not blank, without its end; empty when there is none. Raises as `read_recording`."""

    def first(lines: Lines, _: Path) -> str:
        return next((line for _, line in lines), "").rstrip("\r\n")

    return _guarded(Path(path), first)


def text_lines(path: Path | str, skip: int = 0) -> list[tuple[int, str]]:
    """(number, line) of all lines that are not blank after the first `skip`, ends cut. Raises as `read_recording`."""

    def all_of(lines: Lines, _: Path) -> list[tuple[int, str]]:
        return [(number, line.rstrip("\r\n")) for number, line in lines]

    return _guarded(Path(path), all_of)[skip:]


def _guarded(path: Path, use: Callable[[Lines, Path], _Result]) -> _Result:
    """`use` on the numbered lines that are not blank; whatever the file does wrong becomes a diagnostic."""
    _check_file(path)
    try:
        with _opened(path) as handle:
            return use(_bounded_lines(handle, path), path)
    except UnicodeDecodeError:
        raise _bad("RS0403", "not a text file", path, 0, f"expected {KNOWN}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = (getattr(error, "strerror", None) or str(error)) or "damaged"
        raise _bad("RS0406", f"cannot read: {reason}", path) from None


def _bad(rule: str, message: str, path: Path, line: int = 0, hint: str = "") -> BadInputError:
    return BadInputError(Diagnostic(rule, message, Location(str(path), line, 1 if line else 0), hint))


def _check_file(path: Path) -> None:
    try:
        if not path.exists():
            raise _bad("RS0401", "no such file", path)
        if not path.is_file():
            raise _bad("RS0402", "not a file", path, 0, "give a trace file")
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise _bad("RS0406", f"cannot read: {error}", path) from None
    if size > MAX_FILE_BYTES:
        raise _bad("RS0404", f"{size / 1e9:.1f} GB is too large (at most {MAX_FILE_BYTES / 1e9:.0f} GB)", path)
    if size == 0:
        raise _bad("RS0405", "the file is empty", path, 0, f"expected {KNOWN}")


def _opened(path: Path) -> IO[str]:
    """The file as text, unpacked when it starts like gzip."""
    with path.open("rb") as handle:
        packed = handle.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("rt", encoding="utf-8-sig", newline="")


def _bounded_lines(handle: IO[str], path: Path) -> Lines:
    """Lines that are not blank, as long as their length, number and sum stay bounded: a gzip bomb must not fill memory
    or time."""
    number, characters = 0, 0
    while line := handle.readline(MAX_LINE_CHARACTERS):
        number += 1
        characters += len(line)
        if len(line) == MAX_LINE_CHARACTERS:
            raise _bad("RS0403", "line too long: not a list of requests", path, number)
        if number > MAX_ROWS + 1 or characters > MAX_FILE_BYTES:
            hint = "cut the trace to its busiest hours"
            raise _bad("RS0404", f"more than {MAX_ROWS:,} rows or {MAX_FILE_BYTES / 1e9:.0f} GB", path, number, hint)
        if not line.isspace():
            yield number, line


def _read(lines: Lines, path: Path) -> Recording:
    number, head = next(lines, (0, ""))
    if not number:
        raise _bad("RS0405", "the file is blank", path, 0, f"expected {KNOWN}")
    if head.lstrip().startswith("{"):
        reading, parse = _json_reading(head, path, number)
        lines = chain([(number, head)], lines)
    else:
        reading, parse = _table_reading(head, path, number)
    while batch := list(islice(lines, _LINES_AT_ONCE)):
        numbers, texts = zip(*batch, strict=True)
        reading.add(_rows(texts, numbers, parse, path), numbers)
    if not reading.rows:
        raise _bad("RS0405", "the trace has no rows", path, 0, f"expected {KNOWN}; then one row per request")
    return Recording(reading.finished(), reading.format, reading.rows, dict(reading.skipped))


def _rows(texts: Sequence[str], numbers: Sequence[int], parse: Parse, path: Path) -> Sequence[Row]:
    """All lines at once; if that fails, one by one to find the line to name."""
    try:
        return parse(texts)
    except _FAILURES:
        for text, number in zip(texts, numbers, strict=True):
            try:
                parse([text])
            except _FAILURES as error:
                raise _bad("RS0105", str(error) or "not a row of this format", path, number) from None
        raise


def _table_reading(head: str, path: Path, number: int) -> tuple[Reading, Parse]:
    try:
        names = [name.strip() for name in _cells([head])[0]]
    except csv.Error:
        names = [head.strip()]
    found = table_format(names)
    if found is None:
        shown = ",".join(names[:6])[:80]
        raise _bad("RS0202", f'unknown trace header "{shown}"', path, number, f"expected {KNOWN}")
    roles = _roles(found, names)
    columns = [names.index(name) for name in (*found.required, *(found.optional[role] for role in roles))]
    picked, needed = itemgetter(*columns), max(columns) + 1

    def parse(texts: Sequence[str]) -> Sequence[Row]:
        rows = _cells(texts)
        try:
            return list(map(picked, rows))
        except IndexError:
            raise ValueError(f"row of {len(rows[0])} columns, {needed} needed") from None

    return Reading(found, str(path), roles, is_text=True), parse


def _roles(found: TraceFormat, names: Container[str]) -> tuple[Role, ...]:
    return tuple(role for role, name in found.optional.items() if name in names)


def _cells(texts: Sequence[str]) -> list[list[str]]:
    """The cells of each line; a quoted cell must end on its line."""
    if any('"' in text for text in texts):
        return [next(csv.reader([text.rstrip("\r\n")], strict=True)) for text in texts]
    return [text.rstrip("\r\n").split(",") for text in texts]


def _json_reading(head: str, path: Path, number: int) -> tuple[Reading, Parse]:
    found = json_format(head)
    if found is None:
        shown = head.strip()[:80]
        raise _bad("RS0202", f'unknown trace format "{shown}"', path, number, f"expected {KNOWN}")
    roles = _roles(found, parsed_json(head))
    required, optional = found.required, [found.optional[role] for role in roles]
    chats: dict[Any, Any] = {}

    def parse(texts: Sequence[str]) -> Sequence[Row]:
        rows = list(map(parsed_json, texts))
        if found is BAILIAN:
            for row, root in zip(rows, roots(rows, chats), strict=True):
                row["chat_id"] = root
        return [(*(needed(row, key) for key in required), *(row.get(key) for key in optional)) for row in rows]

    return Reading(found, str(path), roles), parse
