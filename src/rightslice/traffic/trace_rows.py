"""Rows of one trace format -> columns, a block of lines at a time; the first bad row ends in a diagnostic."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.traffic.recorded import NONE, Labels, PrefixBlocks, Trace, coded, dense, offsets_of
from rightslice.traffic.trace_formats import PARENT, Role, TraceFormat

MAX_TOKENS: Final = 100_000_000
"""Most tokens of one side of one request."""
MAX_TIME_S: Final = 1e7
"""Longest trace whose clock starts at 0: 115 days."""
MAX_CLOCK_S: Final = 1e11
"""Latest time of a clock that starts anywhere."""
MAX_BLOCKS: Final = 50_000_000
"""Most prefix blocks of all requests together; reading 12 million takes 0.6 GB of memory."""

_BLOCK_SIZES: Final = (16, 32, 64, 128, 256, 512, 1024)
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
_FAILURES: Final = (ValueError, TypeError, LookupError, OverflowError, AttributeError, RecursionError, csv.Error)

Numbers = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]
"""Time, input tokens, output tokens."""
Row = Sequence[Any]
"""Time, input tokens, output tokens, then the optional cells in the order of `Reading.roles`."""


@dataclass(slots=True)
class Reading:
    """What was read so far of one file; `is_text`: every cell is text."""

    format: TraceFormat
    file: str
    roles: tuple[Role, ...] = ()
    is_text: bool = False
    skipped: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    _numbers: list[Numbers] = field(default_factory=list)
    _codes: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)
    _words: dict[str, dict[str, int]] = field(default_factory=dict)
    _blocks: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)
    _blocks_read: int = 0

    def add(self, rows: Sequence[Row], lines: Sequence[int]) -> None:
        """Take rows in, `lines` being their numbers in the file. Raises BadInputError for the first bad one."""
        try:
            columns = list(zip(*rows, strict=True))
            numbers = self._parsed(columns)
            extra = {role: self._cells(role, columns[3 + at]) for at, role in enumerate(self.roles) if role != "blocks"}
            blocks = self._block_ids(columns[3 + self.roles.index("blocks")]) if "blocks" in self.roles else None
        except _FAILURES:
            self._explain(rows, lines)
        kept = self._kept(numbers)
        times, inputs, outputs = numbers
        self._numbers.append((times[kept], inputs[kept], outputs[kept]))
        for role, codes in extra.items():
            self._codes.setdefault(role, []).append(codes[kept])
        if blocks is not None:
            self._add_blocks(blocks, kept, lines[-1])
        self.rows += len(rows)

    def _parsed(
        self, columns: Sequence[Sequence[Any]]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        times = np.array(list(map(self._seconds(), columns[0])), dtype=np.float64)
        whole = int if self.is_text else _whole
        inputs, outputs = (np.array(list(map(whole, column)), dtype=np.int64) for column in columns[1:3])
        least = 0 if self.format.skips_empty else 1
        sound = (times >= 0.0) & (times <= self._latest_s)
        for side in (inputs, outputs):
            sound &= (side >= least) & (side <= MAX_TOKENS)
        if not sound.all():
            raise ValueError
        return times, inputs, outputs

    @property
    def _latest_s(self) -> float:
        return MAX_CLOCK_S if self.format.from_first else MAX_TIME_S

    def _seconds(self) -> Callable[[Any], float]:
        if self.format.time_unit == "seconds":
            return float if self.is_text else _number
        return timestamp_s if self.format.time_unit == "timestamp" else _milliseconds_s

    def _cells(self, role: Role, cells: Sequence[Any]) -> NDArray[np.int64]:
        if role == "priority":
            return np.array([_whole(cell) if cell not in ("", None) else 0 for cell in cells], dtype=np.int64)
        words = (
            [cell.strip() for cell in cells] if self.is_text else ["" if cell is None else str(cell) for cell in cells]
        )
        return np.array(coded(words, self._words.setdefault(role, {})), dtype=np.int64)

    @staticmethod
    def _block_ids(cells: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(counts, ids) of cells that hold ids between spaces or are lists of ids."""
        lists = [cell.split() if isinstance(cell, str) else cell or () for cell in cells]
        counts = np.array(list(map(len, lists)), dtype=np.int64)
        flat = list(chain.from_iterable(lists))
        if not set(map(type, flat)) <= {int, str}:
            raise ValueError(flat)
        return counts, np.array(list(map(int, flat)), dtype=np.int64)

    def _kept(self, numbers: Numbers) -> NDArray[np.bool_]:
        _, inputs, outputs = numbers
        kept = np.asarray((inputs > 0) & (outputs > 0))
        no_answer = int(((outputs == 0) & (inputs > 0)).sum())
        for reason, count in (("no input tokens", int((inputs == 0).sum())), ("no output tokens", no_answer)):
            if count:
                self.skipped[reason] += count
        return kept

    def _add_blocks(
        self, blocks: tuple[NDArray[np.int64], NDArray[np.int64]], kept: NDArray[np.bool_], line: int
    ) -> None:
        counts, ids = blocks
        self._blocks_read += len(ids)
        if self._blocks_read > MAX_BLOCKS:
            message = f"more than {MAX_BLOCKS:,} prefix blocks"
            raise BadInputError(
                Diagnostic("RS0404", message, Location(self.file, line, 1), "cut the trace to its busiest hours")
            )
        self._blocks.append((counts[kept], ids[np.repeat(kept, counts)]))

    def _explain(self, rows: Sequence[Row], lines: Sequence[int]) -> None:
        """Find the row that is wrong, cell by cell, and say what was expected."""
        for row, line in zip(rows, lines, strict=True):
            where = Location(self.file, line, 1)
            if len(row) != 3 + len(self.roles):
                raise BadInputError(Diagnostic("RS0105", "a row with too few columns", where))
            self._explain_time(row[0], where)
            for cell, what in zip(row[1:3], (self.format.input_tokens, self.format.output_tokens), strict=True):
                self._explain_tokens(cell, what, where)
            for cell, role in zip(row[3:], self.roles, strict=True):
                self._explain_optional(cell, role, where)
        raise BadInputError(Diagnostic("RS0105", "rows that cannot be read", Location(self.file, lines[0], 1)))

    def _explain_time(self, cell: Any, where: Location) -> None:
        unit, name = self.format.time_unit, self.format.time
        try:
            value = self._seconds()(cell)
        except _FAILURES:
            what = "a timestamp" if unit == "timestamp" else f"a number of {unit}"
            hint = "for example 2023-11-16 18:15:46.6805900" if unit == "timestamp" else ""
            raise BadInputError(Diagnostic("RS0105", f'{name} "{_short(cell)}" is not {what}', where, hint)) from None
        if not (math.isfinite(value) and 0.0 <= value <= self._latest_s):
            hint = f"seconds from the start of the trace, 0 to {self._latest_s:.0f}"
            raise BadInputError(Diagnostic("RS0106", f'{name} "{_short(cell)}" is out of range', where, hint))

    def _explain_tokens(self, cell: Any, what: str, where: Location) -> None:
        try:
            value = _whole(cell)
        except _FAILURES:
            raise BadInputError(Diagnostic("RS0105", f'{what} "{_short(cell)}" is not a whole number', where)) from None
        least = 0 if self.format.skips_empty else 1
        if not least <= value <= MAX_TOKENS:
            hint = f"{least} to {MAX_TOKENS:,}"
            raise BadInputError(Diagnostic("RS0106", f"{what} {_short(cell)} is out of range", where, hint))

    def _explain_optional(self, cell: Any, role: Role, where: Location) -> None:
        try:
            if role == "blocks":
                self._block_ids([cell])
            else:
                self._cells(role, [cell])
        except _FAILURES:
            what = "whole numbers of 64 bits" if role == "blocks" else "a whole number"
            message = f'{self.format.optional[role]} "{_short(cell)}" is not {what}'
            raise BadInputError(Diagnostic("RS0105", message, where)) from None

    def finished(self) -> Trace:
        """All rows by time. Only to be called when there are some."""
        times, inputs, outputs = (np.concatenate(column) for column in zip(*self._numbers, strict=True))
        codes = {role: np.concatenate(parts) for role, parts in self._codes.items()}
        trace = Trace(
            times, inputs, outputs,
            model=self._labels("model", codes),
            traffic_class=self._labels("class", codes),
            session=codes.get("session"),
            priority=codes.get("priority"),
            prefix=self._prefix(inputs),
        ).sorted_by_time()  # fmt: skip
        return _settled(trace, from_first=self.format.from_first and len(trace) > 0)

    def _labels(self, role: str, codes: dict[str, NDArray[np.int64]]) -> Labels | None:
        if role not in codes:
            return None
        return Labels(codes[role].astype(np.int32), tuple(self._words[role]))

    def _prefix(self, inputs: NDArray[np.int64]) -> PrefixBlocks | None:
        if not self._blocks:
            return None
        counts, ids = (np.concatenate(part) for part in zip(*self._blocks, strict=True))
        size = _block_tokens(counts, inputs, self.format.block_tokens)
        return PrefixBlocks(offsets_of(counts), ids, size)


def _settled(trace: Trace, *, from_first: bool) -> Trace:
    """Times from the first request where asked for; ids and sessions numbered in the order of time."""
    times = np.round(trace.arrival_s - trace.arrival_s[0], 7) if from_first else trace.arrival_s
    session, prefix = trace.session, trace.prefix
    if session is not None and len(session):
        known = session != NONE
        session = np.full(len(session), NONE, dtype=np.int64)
        session[known] = dense(np.asarray(trace.session)[known])
    if prefix is not None:
        prefix = PrefixBlocks(prefix.offsets, dense(prefix.ids), prefix.block_tokens)
    return replace(trace, arrival_s=times, session=session, prefix=prefix)


def _block_tokens(counts: NDArray[np.int64], inputs: NDArray[np.int64], published: int) -> int:
    """Tokens of a block: the size with which the most prompts have as many blocks as they have; ties: the published."""

    def agreeing(size: int) -> int:
        return int(((counts == inputs // size) | (counts == -(-inputs // size))).sum())

    return max((published, *_BLOCK_SIZES), key=agreeing)


def roots(rows: Sequence[dict[str, Any]], known: dict[Any, Any]) -> list[Any]:
    """The first chat of each row's conversation; `known` remembers it per chat. A parent not in the file is a root."""
    found = []
    for row in rows:
        chat, parent = needed(row, "chat_id"), needed(row, PARENT)
        root = chat if parent in (NONE, str(NONE), None) else known.get(parent, parent)
        known[chat] = root
        found.append(root)
    return found


def parsed_json(line: str) -> dict[str, Any]:
    """The object of one line; ValueError for anything else."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise TypeError(f'"{_short(line.strip())}" is not a JSON object')
    return document


def needed(row: dict[str, Any], key: str) -> Any:
    """The value under `key`; ValueError that names it when it is absent."""
    if key not in row:
        raise ValueError(f'no "{key}" in this row')
    return row[key]


def _short(cell: Any) -> str:
    return str(cell)[:40]


def _whole(cell: Any) -> int:
    """A whole number, written or given; ValueError for fractions and truth values."""
    if isinstance(cell, str):
        return int(cell)
    if type(cell) is int:
        return cell
    raise ValueError(cell)


def _number(cell: Any) -> float:
    if isinstance(cell, bool):
        raise TypeError(cell)
    return float(cell)


def _milliseconds_s(cell: Any) -> float:
    return _number(cell) / 1e3


def timestamp_s(text: str) -> float:
    """Seconds since 2000-01-01 UTC, to a tenth of a microsecond; without a zone it is taken as UTC."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return _whole_s(match[1], match[3] or "") + float(match[2] or 0.0)


@lru_cache(maxsize=4096)
def _whole_s(moment: str, zone: str) -> float:
    zone = "+00:00" if zone in ("", "Z") else zone
    return (datetime.fromisoformat(moment + zone) - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds()
