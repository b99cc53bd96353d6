"""The server's own metrics during a run: requests running and waiting, use of the KV cache, preemptions, prefix hits.

Names are those of the engine catalogue, of every engine and version; which of them a server has tells what it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rightslice.catalogue.engines import engines

RUNNING, WAITING, KV_USE = "running", "waiting", "kv_use"
COUNTERS: Final = frozenset({"preemptions", "prefix_queries", "prefix_hits"})
_SAMPLE: Final = re.compile(rb"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^\n]*\})? +([^ \n]+)", re.MULTILINE)
_PERCENT: Final = 1.5
"""A use of the cache above this is meant in percent."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one answer of the metrics' interface says, by role; a role without a metric is absent."""

    at_s: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ServerView:
    """The server during one load; None where it does not say.

    `running`, `kv_use` (0 to 1): means over the scrapes while requests ran. `preemptions`, `prefix_hit_rate`: from
    the counters' growth.
    """

    scrapes: int
    running: float | None
    running_max: float | None
    waiting_max: float | None
    kv_use: float | None
    kv_use_max: float | None
    preemptions: int | None
    prefix_hit_rate: float | None


def metrics_paths() -> tuple[str, ...]:
    """Where engines show their metrics."""
    return tuple(sorted({facts.metrics_path for facts in engines().values()}))


def metric_names() -> Mapping[str, frozenset[str]]:
    """Role -> names of every engine and version, counters with and without `_total`."""
    found: dict[str, set[str]] = {}
    for facts in engines().values():
        for role, metric in facts.metrics_of_all_versions():
            found.setdefault(role, set()).update((metric, f"{metric}_total") if role in COUNTERS else (metric,))
    return {role: frozenset(names) for role, names in found.items()}


def parsed(text: bytes, at_s: float, names: Mapping[str, frozenset[str]]) -> Scrape:
    """A text exposition: requests and counters are added over their labels, the use of the cache is the highest."""
    roles = {name.encode(): role for role, known in names.items() for name in known}
    values: dict[str, float] = {}
    taken: dict[str, bytes] = {}
    for name, number in _SAMPLE.findall(text):
        role = roles.get(name)
        if role is None or taken.setdefault(role, name) != name:
            continue
        try:
            value = float(number)
        except ValueError:
            continue
        if math.isfinite(value):
            values[role] = max(values.get(role, 0.0), value) if role == KV_USE else values.get(role, 0.0) + value
    return Scrape(at_s, values)


def seen(scrapes: Sequence[Scrape]) -> ServerView | None:
    """The run as the server saw it; None where no scrape knew a metric."""
    known = [scrape for scrape in scrapes if scrape.values]
    if not known:
        return None
    busy = [s for s in known if s.values.get(RUNNING, 1.0) > 0.0] or known
    scale = 100.0 if max((s.values.get(KV_USE, 0.0) for s in known), default=0.0) > _PERCENT else 1.0
    use = [s.values[KV_USE] / scale for s in busy if KV_USE in s.values]
    running = [s.values[RUNNING] for s in busy if RUNNING in s.values]
    queries, hits = _grown(known, "prefix_queries"), _grown(known, "prefix_hits")
    preempted = _grown(known, "preemptions")
    return ServerView(
        scrapes=len(known),
        running=_mean(running),
        running_max=max(running, default=None),
        waiting_max=max((s.values[WAITING] for s in known if WAITING in s.values), default=None),
        kv_use=_mean(use),
        kv_use_max=max(use, default=None),
        preemptions=None if preempted is None else round(preempted),
        prefix_hit_rate=hits / queries if queries and hits is not None else None,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _grown(scrapes: Sequence[Scrape], role: str) -> float | None:
    """Growth of a counter; after a restart it begins at zero again."""
    values = [s.values[role] for s in scrapes if role in s.values]
    if len(values) < 2:
        return None
    return sum(after - before if after >= before else after for before, after in pairwise(values))
