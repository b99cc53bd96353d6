"""How much accuracy a format has cost where it was measured, and the class of risk that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from rightslice.catalogue.datafiles import read_json

RiskClass = Literal["none", "low", "medium", "high"]
MOST_LOST_PERCENT: Final[Mapping[RiskClass, float]] = {"none": 0.0, "low": 1.0, "medium": 3.0, "high": 100.0}
"""What a class may lose of the unquantised score: 1 % is the 99 % bar of MLPerf Inference, 3 % the most that tuned
8-bit integers lost (arXiv 2411.02355)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One published result. `loss_percent`: least and most that was lost, None where the source has words only."""

    text: str
    source: str
    date: str
    loss_percent: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Risk:
    """The accuracy risk of one format. `method`: how the figures' models were quantised."""

    dtype: str
    risk: RiskClass
    method: str
    figures: tuple[Figure, ...]
    note: str


def weight_risk(dtype: str, published_dtype: str) -> Risk:
    """The risk of holding weights in `dtype` that were published in `published_dtype`; `none` for the same one."""
    if dtype == published_dtype:
        return Risk(dtype, "none", "as published", (), "")
    return _table()["weights", dtype]


def kv_risk(dtype: str) -> Risk:
    """The risk of a KV cache in `dtype`. KeyError for an unknown format."""
    return _table()["kv", dtype]


@lru_cache(maxsize=1)
def _table() -> Mapping[tuple[str, str], Risk]:
    document = read_json("accuracy.json")
    return {
        (part, dtype): Risk(
            dtype,
            row["class"],
            row["method"],
            tuple(_figure(figure, document["sources"]) for figure in row["figures"]),
            row.get("note", ""),
        )
        for part in ("weights", "kv")
        for dtype, row in document[part].items()
    }


def _figure(row: Mapping[str, Any], sources: Mapping[str, Mapping[str, str]]) -> Figure:
    source, loss = sources[row["source"]], row["loss_percent"]
    cited = f"{source['title']}, {source['where']}"
    return Figure(row["text"], cited, source["date"], None if loss is None else (loss[0], loss[1]))
