"""A run over time, bin by bin: what came, what became of it, what waited, what stood ready, what it cost so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

MOST_BINS = 300
"""Bins of a run at most: as many steps as a chart shows apart."""
_WIDTHS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


def edges_s(begin_s: float, end_s: float) -> tuple[float, ...]:
    """Bounds of bins from `begin_s` to `end_s`: the smallest round width that keeps within MOST_BINS.

    At least 5 s, or a few requests would look like a course; 1 s in a run of less than a minute. The last bin may be
    shorter. Raises ValueError for an empty span.
    """
    span_s = end_s - begin_s
    if not span_s > 0.0:
        raise ValueError(f"bins from {begin_s} s to {end_s} s")
    widths_s = _WIDTHS_S if span_s >= 60.0 else (1,)
    width_s = next((w for w in widths_s if span_s / w <= MOST_BINS), span_s / MOST_BINS)
    whole = int(span_s / width_s - 1e-9)
    return (*(begin_s + number * width_s for number in range(whole + 1)), end_s)


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """The size of a deployment from `time_s` on: replicas asked for, ready, and on their way."""

    time_s: float
    deployment: str
    wanted: int
    ready: int
    starting: int


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Paid nodes of a pool from `time_s` on, and how many of them are there and take pods."""

    time_s: float
    pool: str
    nodes: int
    ready: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """Who stood when, in order of time. `usd_per_hour` of a node, by pool; None where there are no prices."""

    replicas: tuple[ReplicaCount, ...]
    nodes: tuple[NodeCount, ...]
    usd_per_hour: Mapping[str, float] | None
    lost_nodes_s: tuple[float, ...] = ()

    def with_log(
        self, replicas: Sequence[ReplicaCount], nodes: Sequence[NodeCount], lost_nodes_s: Sequence[float]
    ) -> Fleet:
        """With what a control plane did to the deployments and pools that it moves."""
        deployments, pools = {found.deployment for found in replicas}, {found.pool for found in nodes}
        return Fleet(
            (*(found for found in self.replicas if found.deployment not in deployments), *replicas),
            (*(found for found in self.nodes if found.pool not in pools), *nodes),
            self.usd_per_hour,
            tuple(lost_nodes_s),
        )

    def node_hours(self, until_s: float) -> dict[str, float]:
        """Pool -> hours of its paid nodes from the start of the run to `until_s`."""
        found = {count.pool: 0.0 for count in self.nodes}
        for name in found:
            steps = [(min(count.time_s, until_s), count.nodes) for count in self.nodes if count.pool == name]
            spans = pairwise([*steps, (until_s, 0)])
            found[name] = sum(nodes * (end_s - at_s) for (at_s, nodes), (end_s, _) in spans) / 3600.0
        return found


def standing(replicas: Mapping[str, int], nodes: Mapping[str, int], usd_per_hour: Mapping[str, float] | None) -> Fleet:
    """Deployments and pools that stand as they are all the time."""
    return Fleet(
        tuple(ReplicaCount(0.0, name, count, count, 0) for name, count in replicas.items()),
        tuple(NodeCount(0.0, name, count, count) for name, count in nodes.items()),
        usd_per_hour,
    )


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by bin. `completed` in the bin, whenever they came; the others are of those that came in the bin.

    What fails: `refused` (too long, or nobody serves the model), `timed_out`, `lost` with a replica; `shed` by a
    gateway is not among it. `met` and `missed` all objectives or one of them, `asked_share` the highest share that an
    objective asks for (None: there is no objective). `before`: those that came earlier, are in flight when the first
    bin begins and do not fail later. Over all bins, before + offered = completed + failed + shed + in flight at the
    end.
    """

    offered: tuple[int, ...]
    completed: tuple[int, ...]
    refused: tuple[int, ...]
    timed_out: tuple[int, ...]
    lost: tuple[int, ...]
    shed: tuple[int, ...]
    met: tuple[int, ...]
    missed: tuple[int, ...]
    asked_share: float | None
    before: int = 0

    @property
    def failed(self) -> tuple[int, ...]:
        """Of those that came in the bin."""
        return tuple(map(sum, zip(self.refused, self.timed_out, self.lost, strict=True)))

    @property
    def attainment(self) -> tuple[float | None, ...]:
        """Share that meets all objectives of those that came and can be judged; None without any."""
        pairs = zip(self.met, self.missed, strict=True)
        return tuple(met / (met + missed) if met + missed else None for met, missed in pairs)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """At the end of each bin: those that came, have not been answered yet and do not fail later."""
        found, left = [], self.before
        ended = zip(self.offered, self.completed, self.failed, self.shed, strict=True)
        for came, done, failed, shed in ended:
            left += came - done - failed - shed
            found.append(left)
        return tuple(found)

    @property
    def totals(self) -> dict[str, int]:
        """Name -> number over all bins."""
        return {
            "offered": sum(self.offered),
            "completed": sum(self.completed),
            "failed": sum(self.failed),
            "refused": sum(self.refused),
            "timed_out": sum(self.timed_out),
            "lost": sum(self.lost),
            "shed": sum(self.shed),
            "in_flight_at_begin": self.before,
            "in_flight_at_end": self.in_flight[-1] if self.offered else 0,
        }


@dataclass(frozen=True, slots=True)
class Servers:
    """The replicas of one model, means over each bin: requests that wait (for a replica or in one) and that run, share
    of the KV cache of ready replicas in use (empty without a cache), replicas asked for, ready, and on their way."""

    waiting: tuple[float, ...]
    running: tuple[float, ...]
    kv_use: tuple[float, ...]
    wanted: tuple[float, ...]
    ready: tuple[float, ...]
    starting: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Track:
    """One model, or one population of pipeline users. A model without traffic of its own has no `requests`; users have
    no `servers`."""

    kind: Literal["model", "users"]
    name: str
    requests: Requests | None
    servers: Servers | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run from the end of its warm-up to its horizon. `edges_s`: bounds of the bins, one more than there are bins.

    `nodes`: those that are paid, `nodes_ready`: those that are there, means over each bin; `usd`: cost since the start
    of the run, at the end of each bin (None without prices); `lost_nodes_s`: when nodes were lost. `share`: of the
    traffic and of the replicas that was simulated.
    """

    run: str
    edges_s: tuple[float, ...]
    tracks: tuple[Track, ...]
    nodes: tuple[float, ...]
    usd: tuple[float, ...] | None
    lost_nodes_s: tuple[float, ...] = ()
    share: float = 1.0
    nodes_ready: tuple[float, ...] = ()

    @property
    def widths_s(self) -> tuple[float, ...]:
        """Of each bin."""
        return tuple(after - before for before, after in pairwise(self.edges_s))

    @property
    def summary(self) -> dict[str, object]:
        """What it spans and what its bins add up to, by track."""
        return {
            "run": self.run,
            "begin_s": self.edges_s[0],
            "end_s": self.edges_s[-1],
            "bin_s": self.widths_s[0],
            "bins": len(self.widths_s),
            "totals": {track.name: track.requests.totals for track in self.tracks if track.requests},
        }
