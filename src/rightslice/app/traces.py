"""`rightslice trace`: read a trace or draw one from client laws, change it, describe it, write it in another format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean
from rightslice.core.quantities import format_seconds
from rightslice.core.rng import generator
from rightslice.core.text import plural
from rightslice.traffic.describe import TraceSummary, describe
from rightslice.traffic.operations import at_rate, sampled, window
from rightslice.traffic.recorded import Trace
from rightslice.traffic.servegen import ClientLaws, drawn, is_client_laws, read_client_laws
from rightslice.traffic.trace_files import MOONCAKE_BLOCK_TOKENS, Written, left_out, written
from rightslice.traffic.traces import read_recording

DRAWN_S = 3600.0
"""How long is drawn from client laws when no window is asked for."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is done to a trace, in this order: cut, sampled, scaled. `only`, `lengths`: for client laws."""

    start_s: float | None = None
    window_s: float | None = None
    sample: float = 1.0
    scale: float = 1.0
    seed: int = 0
    lengths: Path | None = None
    only: str = ""


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A trace as it is after the changes, what its file was like, and what to know about it."""

    file: str
    format: str
    rows: int
    skipped: Mapping[str, int]
    summary: TraceSummary
    notes: tuple[str, ...]


def open_trace(path: Path, changes: Changes) -> tuple[Trace, TraceReport]:
    """The trace of a file after the changes, and its report.

    Raises BadInputError for whatever is wrong with the file, options that do not go with it, and when nothing is left.
    """
    if is_client_laws(path):
        trace, title, rows, skipped, notes = _drawn(path, changes)
    else:
        trace, title, rows, skipped, notes = _read(path, changes)
    if changes.sample < 1.0:
        trace = sampled(trace, changes.sample, generator(changes.seed, "trace", "sample"))
    if changes.scale != 1.0:
        trace = at_rate(trace, changes.scale)
    if not len(trace):
        hint = "take another window or a larger sample"
        raise BadInputError(Diagnostic("RS0405", "no request is left", Location(str(path)), hint))
    return trace, TraceReport(str(path), title, rows, skipped, describe(trace), notes)


_Opened = tuple[Trace, str, int, Mapping[str, int], tuple[str, ...]]


def _read(path: Path, changes: Changes) -> _Opened:
    if changes.lengths is not None or changes.only:
        raise BadInputError(Diagnostic("RS0502", "--lengths and --only go with client laws only", Location(str(path))))
    found = read_recording(path)
    trace = found.trace
    if changes.start_s is not None or changes.window_s is not None:
        trace = window(trace, changes.start_s or 0.0, changes.window_s or float("inf"))
    return trace, found.format.title, found.rows, found.skipped, ()


def _drawn(path: Path, changes: Changes) -> _Opened:
    laws = _chosen(read_client_laws(path, changes.lengths), path, changes.only)
    first_s = min(window.start_s for window in laws.windows)
    start_s = first_s + (changes.start_s or 0.0)
    length_s = changes.window_s or DRAWN_S
    trace = drawn(laws, start_s, length_s, generator(changes.seed, "trace", "clients"))
    clients = plural(len({(one.model_class, one.client) for one in laws.windows}), "client")
    span = f"{format_seconds(length_s)} from {start_s:,.0f} s of their clock"
    note = f"Drawn from the laws of {clients} (seed {changes.seed}): {span}"
    return trace, "ServeGen client laws", len(laws.windows), {}, (note,)


def _chosen(laws: ClientLaws, path: Path, only: str) -> ClientLaws:
    known = sorted({window.model_class for window in laws.windows})
    if only and only not in known:
        hint = did_you_mean(only, known) or f"one of {', '.join(known)}"
        raise BadInputError(
            Diagnostic("RS0501", f'no model class "{only[:60]}" in this file', Location(str(path)), hint)
        )
    return ClientLaws(tuple(one for one in laws.windows if only in ("", one.model_class)), laws.lengths)


def converted(trace: Trace, to: Written, *, packed: bool) -> tuple[bytes, tuple[str, ...]]:
    """The trace as a file, and notes on what that format cannot hold. BadInputError when it cannot be written."""
    try:
        data = written(trace, to, packed=packed)
    except ValueError:
        size = trace.prefix.block_tokens if trace.prefix else 0
        message = f"prefix blocks of {size} tokens do not make blocks of {MOONCAKE_BLOCK_TOKENS}"
        raise BadInputError(Diagnostic("RS0502", message, hint="write it with --to csv")) from None
    notes = [f"Not written, the format has no place for it: {', '.join(lost)}"] if (lost := left_out(trace, to)) else []
    if to == "mooncake" and trace.prefix is None:
        notes.append("Written without hash_ids: which prompts begin alike is not known")
    return data, tuple(notes)
