"""Traces as text: CSV of this package, and Mooncake's JSON lines."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, Literal, get_args

import numpy as np

from rightslice.core.text import visible
from rightslice.traffic.recorded import NONE, Labels, PrefixBlocks, Trace, regrouped

Written = Literal["csv", "mooncake"]
FORMATS: Final[tuple[Written, ...]] = get_args(Written)

MOONCAKE_BLOCK_TOKENS: Final = 512
"""Tokens behind one of Mooncake's `hash_ids` (README of the FAST'25 release)."""


def written(trace: Trace, to: Written, *, packed: bool = False) -> bytes:
    """The whole file, gzip-compressed if `packed`. Raises ValueError as `mooncake_lines` does."""
    writer: Callable[[Trace], str] = {"csv": csv_text, "mooncake": mooncake_text}[to]
    data = writer(trace).encode()
    return gzip.compress(data, 6, mtime=0) if packed else data


def left_out(trace: Trace, to: Written) -> tuple[str, ...]:
    """Columns of the trace for which the format has no place."""
    if to == "csv":
        return ()
    present = {
        "model": trace.model, "class": trace.traffic_class, "session": trace.session, "priority": trace.priority,
    }  # fmt: skip
    return tuple(name for name, column in present.items() if column is not None)


def csv_text(trace: Trace) -> str:
    """`t_s,input_tokens,output_tokens` and the columns that the trace has beside; times to 0.1 microseconds."""
    columns: dict[str, Iterable[object]] = {
        "t_s": (_plain(time) for time in trace.arrival_s.tolist()),
        "input_tokens": trace.input_tokens.tolist(),
        "output_tokens": trace.output_tokens.tolist(),
    }
    if trace.model is not None:
        columns["model"] = _names(trace.model)
    if trace.traffic_class is not None:
        columns["class"] = _names(trace.traffic_class)
    if trace.session is not None:
        columns["session"] = ("" if code == NONE else code for code in trace.session.tolist())
    if trace.priority is not None:
        columns["priority"] = trace.priority.tolist()
    if trace.prefix is not None:
        columns["hash_ids"] = (" ".join(map(str, ids)) for ids in _id_lists(trace.prefix))
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def mooncake_text(trace: Trace) -> str:
    """One object per request: timestamp in whole ms, input_length, output_length, and hash_ids where they are known.

    Raises ValueError when the trace's blocks cannot be joined to blocks of 512 tokens.
    """
    times = np.rint(trace.arrival_s * 1e3).astype(np.int64).tolist()
    sides = trace.input_tokens.tolist(), trace.output_tokens.tolist()
    if trace.prefix is None:
        ends: Iterable[str] = ("}" for _ in times)
    else:
        blocks = regrouped(trace.prefix, MOONCAKE_BLOCK_TOKENS)
        ends = (f', "hash_ids": [{", ".join(map(str, ids))}]}}' for ids in _id_lists(blocks))
    rows = zip(times, *sides, ends, strict=True)
    return "".join(
        f'{{"timestamp": {time}, "input_length": {prompt}, "output_length": {answer}{end}\n'
        for time, prompt, answer, end in rows
    )


def _plain(time_s: float) -> str:
    text = f"{time_s:.7f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _names(labels: Labels) -> Iterator[str]:
    shown = [visible(name) for name in labels.names]
    return ("" if code == NONE else shown[code] for code in labels.codes.tolist())


def _id_lists(prefix: PrefixBlocks) -> Iterator[list[int]]:
    ids, ends = prefix.ids.tolist(), prefix.offsets.tolist()
    return (ids[start:end] for start, end in pairwise(ends))
