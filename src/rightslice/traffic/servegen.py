"""ServeGen: laws of the arrivals and lengths of each client of a service, read from its files and drawn from.

Two forms are read. As published: a folder with `chunk-N-trace.csv` (start of a window, requests/s, CV of the gaps, law,
two parameters; no header; no law where a client was silent) and `chunk-N-dataset.json` (start -> `input_tokens` and
`output_tokens` -> "{tokens: share, …}"). As one table: columns
`model_class,client,t_s,requests_per_s,pattern,param1`; lengths of whole classes in `model_class,field,lo,hi,weight`.

Of an arrival law the family and the shape (`param1`) are used, with the published rate as its mean: the published scale
is a fit whose mean often differs from the rate counted in the same window.
"""

from __future__ import annotations

import csv
import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.traffic.recorded import Labels, Trace
from rightslice.traffic.renewal import GapLaw, renewals
from rightslice.traffic.traces import first_line, text_lines

WINDOW_S: Final = 600.0
"""Length of the last window of a client; others end where the next begins, at most this long."""
MAX_REQUESTS: Final = 20_000_000
"""Most requests of one draw."""

MAX_LENGTHS_BYTES: Final = 200_000_000
"""Largest file of length laws of one client."""

_LAWS: Final[Mapping[str, GapLaw]] = {"Gamma": "gamma", "Weibull": "weibull", "Exponential": "gamma"}
_TABLE: Final = ("model_class", "client", "t_s", "requests_per_s", "pattern", "param1")
_HISTOGRAM: Final = ("model_class", "field", "lo", "hi", "weight")
_CHUNK: Final = re.compile(r"chunk-(\d+)-trace\.csv(?:\.gz)?")
_SHARE: Final = re.compile(r"(\d{1,9})\s*:\s*([0-9.eE+-]{1,30})")
_FIELDS: Final = ("input_tokens", "output_tokens")
_FAILURES: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, csv.Error)


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """Token counts: bin i holds lo[i] .. hi[i], equally likely, and ends at cumulated share `cumulated[i]`."""

    lo: NDArray[np.int64]
    hi: NDArray[np.int64]
    cumulated: NDArray[np.float64]

    def drawn(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` independent token counts of at least 1."""
        bins = np.minimum(np.searchsorted(self.cumulated, rng.random(n), side="right"), len(self.lo) - 1)
        width = self.hi[bins] - self.lo[bins] + 1
        return np.maximum(self.lo[bins] + (rng.random(n) * width).astype(np.int64), 1)

    @property
    def mean(self) -> float:
        """Mean of the law, bins at their middle."""
        return float(np.diff(self.cumulated, prepend=0.0) @ ((self.lo + self.hi) / 2.0))


@dataclass(frozen=True, slots=True)
class Window:
    """One client between two moments: its rate, and the family and shape of its gaps."""

    client: str
    model_class: str
    start_s: float
    end_s: float
    per_s: float
    law: GapLaw
    shape: float


@dataclass(frozen=True, slots=True)
class ClientLaws:
    """What a service's clients do. Lengths are found by (model_class, client, field), later starts last."""

    windows: tuple[Window, ...]
    lengths: Mapping[tuple[str, str, str], Sequence[tuple[float, LengthLaw]]]

    def length_law(self, window: Window, field: str) -> LengthLaw | None:
        """The law of the client, else of its class: the last that begins by the window's start."""
        for client in (window.client, ""):
            known = self.lengths.get((window.model_class, client, field), ())
            if known:
                return known[max(bisect_right(known, window.start_s, key=itemgetter(0)) - 1, 0)][1]
        return None


def is_client_laws(path: Path) -> bool:
    """Whether the path is a folder or a file of ServeGen, by its content."""
    if path.is_dir():
        return bool(_chunks(path))
    head = first_line(path)
    names = [name.strip() for name in head.split(",")]
    return set(_TABLE) <= set(names) or (len(names) == 6 and names[3] in _LAWS)


def read_client_laws(path: Path, lengths: Path | None = None) -> ClientLaws:
    """The laws of a folder, of one `chunk-N-trace.csv` or of a table; `lengths`: histograms that go with a table.

    Raises BadInputError with the file and line of the first thing that is wrong.
    """
    files = _chunks(path) if path.is_dir() else [path]
    windows: list[Window] = []
    laws: dict[tuple[str, str, str], Sequence[tuple[float, LengthLaw]]] = {}
    for file in files:
        windows += _windows(file)
        laws |= _dataset(file)
    if lengths is not None:
        laws |= _histograms(lengths)
    if not windows:
        raise _bad("RS0405", "no client is active", path)
    return ClientLaws(tuple(windows), laws)


def _chunks(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if _CHUNK.fullmatch(entry.name))
    except OSError:
        return []


def drawn(laws: ClientLaws, start_s: float, length_s: float, rng: np.random.Generator) -> Trace:
    """Requests of all clients in [start, start + length), times from the start; labelled by class and client.

    Each window of each client is a stationary renewal process of its own. Raises BadInputError when a window has no
    law of lengths, when no client is active in that time, or for more than MAX_REQUESTS expected requests.
    """
    active = [w for w in laws.windows if w.start_s < start_s + length_s and w.end_s > start_s]
    begins = np.array([max(w.start_s, start_s) - start_s for w in active])
    ends = np.array([min(w.end_s, start_s + length_s) - start_s for w in active])
    rates = np.array([w.per_s for w in active])
    expected = float(rates @ (ends - begins)) if active else 0.0
    if not expected or expected > MAX_REQUESTS:
        rule, message = (
            ("RS0106", f"{expected:.3g} requests in one draw") if expected else ("RS0405", "nobody is active")
        )
        hint = f"at most {MAX_REQUESTS:,}: take a shorter window" if expected else "take a window with traffic"
        raise BadInputError(Diagnostic(rule, message, hint=hint))
    which, times = [], []
    for law, stream in zip(("gamma", "weibull"), rng.spawn(2), strict=True):
        chosen = np.array([i for i, w in enumerate(active) if w.law == law], dtype=np.int64)
        if len(chosen):
            shapes = np.array([active[i].shape for i in chosen])
            process, found = renewals(law, shapes, rates[chosen], (ends - begins)[chosen], stream)  # type: ignore[arg-type]
            which.append(chosen[process])
            times.append(begins[chosen[process]] + found)
    owner, moments = np.concatenate(which), np.concatenate(times)
    counts = np.bincount(owner, minlength=len(active))
    order = np.argsort(owner, kind="stable")
    inputs, outputs = (_lengths(laws, active, counts, field, rng.spawn(1)[0]) for field in _FIELDS)
    owner = owner[order]
    return Trace(
        moments[order], inputs, outputs,
        model=_labels([w.model_class for w in active], owner),
        traffic_class=_labels([f"client {w.client}" for w in active], owner),
    ).sorted_by_time()  # fmt: skip


def _lengths(
    laws: ClientLaws, active: Sequence[Window], counts: NDArray[np.int64], field: str, rng: np.random.Generator
) -> NDArray[np.int64]:
    parts = []
    for window, count in zip(active, counts.tolist(), strict=True):
        law = laws.length_law(window, field)
        if law is None:
            message = f'no law of {field} for "{window.model_class}", client {window.client}'
            raise BadInputError(Diagnostic("RS0202", message, hint="name a file of lengths: --lengths FILE"))
        parts.append(law.drawn(count, rng))
    return np.concatenate(parts)


def _labels(words: Sequence[str], owner: NDArray[np.int64]) -> Labels:
    known = {word: code for code, word in enumerate(dict.fromkeys(words))}
    return Labels(np.array([known[word] for word in words], dtype=np.int32)[owner], tuple(known))


def _bad(rule: str, message: str, path: Path, line: int = 0, hint: str = "") -> BadInputError:
    return BadInputError(Diagnostic(rule, message, Location(str(path), line, 1 if line else 0), hint))


def _windows(path: Path) -> list[Window]:
    """Windows of one file, either form; rows without a law or rate are silent and left out."""
    head = first_line(path)
    header = [name.strip() for name in head.split(",")]
    table = set(_TABLE) <= set(header)
    match = _CHUNK.fullmatch(path.name)
    names = header if table else ["t_s", "requests_per_s", "cv", "pattern", "param1", "param2"]
    given = {"model_class": path.absolute().parent.name, "client": match[1] if match else "0"}
    rows: dict[tuple[str, str], list[tuple[float, float, str, float]]] = defaultdict(list)
    for number, line in text_lines(path, skip=1 if table else 0):
        try:
            row = given | dict(zip(names, next(csv.reader([line])), strict=True))
            numbers = tuple(float(row[name] or 0.0) for name in ("t_s", "requests_per_s", "param1"))
            _check(numbers, row["pattern"])
        except _FAILURES:
            expected = "expected start, requests/s, CV, Gamma, Weibull or Exponential, shape, scale"
            raise _bad("RS0105", f'not a window of a client: "{line[:60]}"', path, number, expected) from None
        rows[row["model_class"], row["client"]].append((numbers[0], numbers[1], row["pattern"], numbers[2]))
    return [window for (name, client), found in rows.items() for window in _of_client(name, client, sorted(found))]


def _check(numbers: tuple[float, ...], pattern: str) -> None:
    start_s, per_s, shape = numbers
    known = pattern in _LAWS and (shape > 0.0 or pattern == "Exponential")
    if not (np.isfinite(numbers).all() and start_s >= 0.0 and per_s >= 0.0 and (known or not pattern)):
        raise ValueError(pattern)


def _of_client(name: str, client: str, rows: Sequence[tuple[float, float, str, float]]) -> Iterable[Window]:
    following = [*(row[0] for row in rows[1:]), float("inf")]
    for (start_s, per_s, pattern, shape), next_s in zip(rows, following, strict=True):
        if pattern and per_s > 0.0:
            end_s = min(next_s, start_s + WINDOW_S)
            flat = 1.0 if pattern == "Exponential" else shape
            yield Window(client, name, start_s, end_s, per_s, _LAWS[pattern], flat)


def _dataset(path: Path) -> dict[tuple[str, str, str], Sequence[tuple[float, LengthLaw]]]:
    """Laws of the lengths of the client whose arrivals are in `path`, from the file beside it; none without one."""
    match = _CHUNK.fullmatch(path.name)
    beside = path.with_name(f"chunk-{match[1]}-dataset.json") if match else None
    if beside is None or match is None or not beside.is_file():
        return {}
    text = _text(beside)
    found: dict[str, list[tuple[float, LengthLaw]]] = defaultdict(list)
    try:
        document: dict[str, dict[str, Any]] = json.loads(text)
        for start in sorted(document, key=float):
            for field in _FIELDS:
                law = _shares(document[start].get(field, ""))
                if law is not None:
                    found[field].append((float(start), law))
    except (*_FAILURES, RecursionError):
        expected = 'expected {"0": {"input_tokens": "{12: 0.25, 13: 0.75}", "output_tokens": …}}'
        raise _bad("RS0105", "not a set of length laws", beside, 1, expected) from None
    name = path.absolute().parent.name
    return {(name, match[1], field): laws for field, laws in found.items()}


def _text(path: Path) -> str:
    """The whole file, however long its lines are."""
    try:
        if path.stat().st_size > MAX_LENGTHS_BYTES:
            raise _bad("RS0404", f"more than {MAX_LENGTHS_BYTES / 1e6:.0f} MB of length laws", path)
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad("RS0406", f"cannot read: {error}", path) from None


def _shares(text: str) -> LengthLaw | None:
    """`{12: 0.25, 13: 0.75}` -> its law; None when empty."""
    if _SHARE.sub("", text).strip("{}, \n"):
        raise ValueError(text)
    pairs = sorted((int(tokens), float(share)) for tokens, share in _SHARE.findall(text))
    return _law([(tokens, tokens, share) for tokens, share in pairs]) if pairs else None


def _law(bins: Sequence[tuple[int, int, float]]) -> LengthLaw:
    lo, hi, shares = (np.array(column) for column in zip(*bins, strict=True))
    total = float(shares.sum())
    if not (total > 0.0 and np.isfinite(total) and (shares >= 0.0).all() and (lo <= hi).all() and (lo >= 0).all()):
        raise ValueError(bins)
    return LengthLaw(lo.astype(np.int64), hi.astype(np.int64), np.cumsum(shares) / total)


def _histograms(path: Path) -> dict[tuple[str, str, str], Sequence[tuple[float, LengthLaw]]]:
    names = [name.strip() for name in first_line(path).split(",")]
    if not set(_HISTOGRAM) <= set(names):
        raise _bad("RS0202", "not a table of lengths", path, 1, f"expected {','.join(_HISTOGRAM)}")
    bins: dict[tuple[str, str], list[tuple[int, int, float]]] = defaultdict(list)
    for number, line in text_lines(path, skip=1):
        try:
            row = dict(zip(names, next(csv.reader([line])), strict=True))
            bins[row["model_class"], row["field"]].append((int(row["lo"]), int(row["hi"]), float(row["weight"])))
        except _FAILURES:
            raise _bad("RS0105", f'not a bin of lengths: "{line[:60]}"', path, number) from None
    try:
        return {(name, "", field): [(0.0, _law(sorted(found)))] for (name, field), found in bins.items()}
    except _FAILURES:
        raise _bad("RS0106", "shares of lengths must not be negative, and some must be positive", path) from None
