"""Recorded traffic: CSV with `t_s,input_tokens,output_tokens`, or Azure's `TIMESTAMP,ContextTokens,GeneratedTokens`.

Plain or gzip. Columns may come in any order and others may stand beside them. Rows may be unsorted.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from rightslice.core.errors import BadInputError, Diagnostic, Location

MAX_FILE_BYTES: Final = 1_000_000_000
"""Largest file, compressed or not."""
MAX_ROWS: Final = 5_000_000
"""Most rows of one trace: about 10 CPU seconds to read."""
MAX_LINE_CHARACTERS: Final = 100_000
MAX_TOKENS: Final = 100_000_000
"""Most tokens of one side of one request."""
MAX_TIME_S: Final = 1e7
"""Longest trace: 115 days."""

_PLAIN: Final = ("t_s", "input_tokens", "output_tokens")
_AZURE: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_FRACTION: Final = re.compile(r"(\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_FORMATS: Final = f"{','.join(_PLAIN)} or {','.join(_AZURE)}"


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests sorted by time; `arrival_s` counts from the file's zero (Azure: from the first request)."""

    arrival_s: NDArray[np.float64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def requests_per_s(self) -> float:
        """Mean rate: gaps / span; one request, or all at once, counts as one second."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        return (len(self) - 1) / span_s if span_s > 0.0 else float(len(self))


def read_trace(path: Path | str) -> Trace:
    """The rows of a trace file.

    Raises BadInputError with one diagnostic, for the first thing that is wrong, with its line: RS0401 missing,
    RS0402 not a file, RS0403 not text, RS0404 too large, RS0405 empty, RS0406 unreadable, RS0202 header,
    RS0105 or RS0106 a bad row.
    """
    path = Path(path)
    _check_file(path)
    rows: list[tuple[float, int, int]] = []
    line = 1
    try:
        with _opened(path) as handle:
            reader = csv.reader(_bounded_lines(handle, path))
            columns, azure = _columns(next(reader, None), path)
            for row in reader:
                line = reader.line_num
                if row:
                    rows.append(_row(row, columns, azure, Location(str(path), line)))
    except UnicodeDecodeError:
        raise _bad("RS0403", "not a text file", path, 0, f"a CSV file with {_FORMATS}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = (getattr(error, "strerror", None) or str(error)) or "damaged"
        raise _bad("RS0406", f"cannot read: {reason}", path) from None
    except csv.Error as error:
        raise _bad("RS0105", f"not CSV: {error}", path, line + 1) from None
    if not rows:
        raise _bad("RS0405", "the trace has no rows", path, 0, f"a header {_FORMATS}, then one row per request")
    return _sorted(rows, azure)


def _bad(rule: str, message: str, path: Path, line: int = 0, hint: str = "") -> BadInputError:
    return BadInputError(Diagnostic(rule, message, Location(str(path), line, 1 if line else 0), hint))


def _check_file(path: Path) -> None:
    try:
        if not path.exists():
            raise _bad("RS0401", "no such file", path)
        if not path.is_file():
            raise _bad("RS0402", "not a file", path, 0, "give a CSV file")
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise _bad("RS0406", f"cannot read: {error}", path) from None
    if size > MAX_FILE_BYTES:
        raise _bad("RS0404", f"{size / 1e9:.1f} GB is too large (at most {MAX_FILE_BYTES / 1e9:.0f} GB)", path)
    if size == 0:
        raise _bad("RS0405", "the file is empty", path, 0, f"a header {_FORMATS}, then one row per request")


def _opened(path: Path) -> IO[str]:
    """The file as text, unpacked when it starts like gzip."""
    with path.open("rb") as handle:
        packed = handle.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("rt", encoding="utf-8-sig", newline="")


def _bounded_lines(handle: IO[str], path: Path) -> Iterator[str]:
    """Lines, as long as their length, number and sum stay bounded: a gzip bomb must not fill memory or time."""
    number, characters = 0, 0
    while line := handle.readline(MAX_LINE_CHARACTERS):
        number += 1
        characters += len(line)
        if len(line) == MAX_LINE_CHARACTERS:
            raise _bad("RS0403", "line too long: not a CSV of requests", path, number)
        if number > MAX_ROWS + 1 or characters > MAX_FILE_BYTES:
            hint = "cut the trace to its busiest hours"
            raise _bad("RS0404", f"more than {MAX_ROWS:,} rows or {MAX_FILE_BYTES / 1e9:.0f} GB", path, number, hint)
        yield line


def _columns(header: list[str] | None, path: Path) -> tuple[tuple[int, int, int], bool]:
    """Positions of time, input and output, and whether the file is in Azure's form."""
    names = [name.strip() for name in header or ()]
    for wanted in (_PLAIN, _AZURE):
        if all(name in names for name in wanted):
            time, inputs, outputs = (names.index(name) for name in wanted)
            return (time, inputs, outputs), wanted is _AZURE
    shown = ",".join(islice(names, 6))[:80]
    raise _bad("RS0202", f'unknown trace header "{shown}"', path, 1, f"expected {_FORMATS}")


def _row(row: list[str], columns: tuple[int, int, int], azure: bool, where: Location) -> tuple[float, int, int]:
    if max(columns) >= len(row):
        raise BadInputError(Diagnostic("RS0105", f"row of {len(row)} columns, {max(columns) + 1} needed", where))
    time, inputs, outputs = (row[column].strip() for column in columns)
    return (
        _timestamp_s(time, where) if azure else _seconds(time, where),
        _tokens(inputs, "input tokens", where),
        _tokens(outputs, "output tokens", where),
    )


def _seconds(text: str, where: Location) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadInputError(Diagnostic("RS0105", f'time "{text[:40]}" is not a number of seconds', where)) from None
    if not (math.isfinite(value) and 0.0 <= value <= MAX_TIME_S):
        hint = f"seconds from the start of the trace, 0 to {MAX_TIME_S:.0f}"
        raise BadInputError(Diagnostic("RS0106", f'time "{text[:40]}" is out of range', where, hint))
    return value


def _timestamp_s(text: str, where: Location) -> float:
    """Seconds since 2000-01-01, to a tenth of a microsecond; the time zone, if any, is taken to be the same for all."""
    rest = _FRACTION.fullmatch(text[19:])
    try:
        whole_s = (datetime.fromisoformat(text[:19]) - datetime(2000, 1, 1)).total_seconds()  # noqa: DTZ001
    except (ValueError, TypeError):
        rest = None
    if rest is None:
        hint = "for example 2023-11-16 18:15:46.6805900"
        raise BadInputError(Diagnostic("RS0105", f'"{text[:40]}" is not a timestamp', where, hint)) from None
    return whole_s + float(rest[1] or 0.0)


def _tokens(text: str, what: str, where: Location) -> int:
    try:
        value = int(text)
    except ValueError:
        raise BadInputError(Diagnostic("RS0105", f'{what} "{text[:40]}" is not a whole number', where)) from None
    if not 1 <= value <= MAX_TOKENS:
        hint = f"1 to {MAX_TOKENS:,}"
        raise BadInputError(Diagnostic("RS0106", f"{what} {text[:40]} is out of range", where, hint))
    return value


def _sorted(rows: list[tuple[float, int, int]], azure: bool) -> Trace:
    times = np.array([row[0] for row in rows], dtype=np.float64)
    tokens = np.array([row[1:] for row in rows], dtype=np.int64)
    order = np.argsort(times, kind="stable")
    times = times[order]
    if azure:
        times = np.round(times - times[0], 7)
    return Trace(times, np.ascontiguousarray(tokens[order, 0]), np.ascontiguousarray(tokens[order, 1]))
