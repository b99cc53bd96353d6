"""Metrics of GPUs and engines: what exists, of which type and in which unit."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

from rightslice.catalogue.versions import version_key

_PARTS: Final = re.compile(r"_(?:bucket|sum|count)$")
_ALIKE: Final = 0.9
_SIMILAR: Final = 0.7
_LONGEST: Final = 120
_OPEN: Final = re.compile(r"kv_|nixl_|lmcache|spec_decode|mm_|external_")
"""Beginnings under which connectors and models add metrics of their own."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`type`: gauge, counter, histogram, or empty where exporters differ. `keeps`: a counter of faults whose level is
    worth an alert. `until`: last version that has it; `instead`: what took its place.
    """

    name: str
    type: str
    unit: str
    exporter: str
    keeps: bool = False
    since: str = ""
    until: str = ""
    instead: str = ""

    def exists(self, version: str) -> bool:
        """Whether an engine of that version exports it; the newest where none is stated."""
        key = version_key(version or "latest")
        return not (self.until and key > version_key(self.until)) and not (self.since and key < version_key(self.since))


@cache
def _exporters() -> Mapping[str, Mapping[str, object]]:
    text = (files("rightslice.kube") / "data" / "metrics.json").read_text(encoding="utf-8")
    table: Mapping[str, Mapping[str, object]] = json.loads(text)["exporters"]
    return table


@cache
def metrics() -> Mapping[str, Metric]:
    """Every metric by name."""
    found: dict[str, Metric] = {}
    for exporter, table in _exporters().items():
        for row in cast("list[dict[str, Any]]", table["metrics"]):
            found[row["name"]] = Metric(exporter=exporter, **row)
    return found


def metric(name: str) -> Metric | None:
    """The metric behind the name of a series: `_bucket`, `_sum`, `_count` and `_total` belong to it; colons may have
    become underscores; `prometheus.googleapis.com|…|gauge` is opened."""
    plain = plain_name(name)
    table = metrics()
    for key in (plain, plain.removesuffix("_total"), _PARTS.sub("", plain)):
        if key in table:
            return table[key]
    return next((table[key] for key in _renamed() if _renamed()[key] in (plain, plain.removesuffix("_total"))), None)


def plain_name(name: str) -> str:
    """The name as Prometheus has it."""
    parts = name.split("|")
    return parts[1] if len(parts) == 3 and parts[0] == "prometheus.googleapis.com" else name


@cache
def _renamed() -> Mapping[str, str]:
    """Name -> with underscores for colons, as metrics APIs want it."""
    return {name: name.replace(":", "_") for name in metrics() if ":" in name}


def unknown(name: str) -> str | None:
    """What to say instead of a name that an exporter would have but has not; None where the name may exist.

    Empty: it does not exist, and nothing like it does.
    """
    plain = plain_name(name)
    if len(plain) > _LONGEST or metric(plain) is not None:
        return None
    for exporter, table in _exporters().items():
        prefix = str(table["prefix"])
        if not plain.startswith((prefix, prefix.replace(":", "_"))):
            continue
        if _OPEN.match(plain[len(prefix) :]):
            return None
        known = [found for found in metrics() if metrics()[found].exporter == exporter]
        spelled = prefix + plain[len(prefix) :]
        closed = bool(table["closed"])
        near = difflib.get_close_matches(spelled, known, n=1, cutoff=_SIMILAR if closed else _ALIKE)
        if "queue" in plain or "waiting" in plain or "pending" in plain:
            near = [found for found in known if "waiting" in found or "queue_req" in found or "pending" in found][
                :1
            ] or near
        if closed or (near and difflib.SequenceMatcher(None, spelled, near[0]).ratio() >= _ALIKE):
            return near[0] if near else ""
    return None
