"""A run that is looked at on its way, and what happened to its requests -> its course over time, bin by bin.

Times of requests are exact. What waits, runs and is cached is the mean of LOOKS_PER_BIN looks in each bin; sizes and
nodes are means over time. Looking changes nothing: results do not depend on where a run stops (play.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rightslice.core.slo import Slo
from rightslice.core.timeline import Fleet, ReplicaCount, Requests, Servers, Timeline, Track, edges_s
from rightslice.simulation import layout
from rightslice.simulation.inputs import picoseconds
from rightslice.simulation.layout import DRAINING, READY, Floats, Ints
from rightslice.simulation.play import Played, SteppedRun
from rightslice.simulation.scenario import LlmServer, Scenario
from rightslice.simulation.statistics import Bools, Times, of_class, of_pipeline, verdicts

LOOKS_PER_BIN = 10


class _Look(NamedTuple):
    """By model: requests that wait, that run, KV blocks in use and KV blocks, of ready replicas."""

    waiting: Floats
    running: Floats
    used: Floats
    blocks: Floats


class WatchedRun(SteppedRun):
    """A run that is looked at in every bin between the end of its warm-up and its horizon."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.edges_s = edges_s(scenario.warmup_s, scenario.horizon_s)
        self.looks: list[_Look] = []
        parts = (np.arange(LOOKS_PER_BIN) + 0.5) / LOOKS_PER_BIN
        self._due = deque(float(a + part * (b - a)) for a, b in pairwise(self.edges_s) for part in parts)
        self._model_of = np.array(
            [self.models.index(server.model) for server in self.servers for _ in range(server.replicas)], dtype=np.int64
        )
        sizes = [s.kv_blocks if isinstance(s, LlmServer) else 0 for s in self.servers for _ in range(s.replicas)]
        self._blocks = np.array(sizes, dtype=np.float64)

    def advance(self, until_s: float) -> None:
        """As SteppedRun, with looks on the way."""
        while self._due and self._due[0] <= until_s:
            super().advance(self._due.popleft())
            self.looks.append(self._look())
        super().advance(until_s)

    def finish(self) -> Played:
        """As SteppedRun, with the looks that are left."""
        self.advance(self.scenario.horizon_s)
        return super().finish()

    def _look(self) -> _Look:
        seen = self.look()
        at_work = (seen.condition == READY) | (seen.condition == DRAINING)
        ready = seen.condition == READY
        return _Look(
            waiting=seen.queued + self._by_model(np.where(at_work, seen.waiting, 0)),
            running=self._by_model(np.where(at_work, seen.running, 0)),
            used=self._by_model(np.where(ready, seen.kv_blocks, 0) * (self._blocks > 0)),
            blocks=self._by_model(np.where(ready, self._blocks, 0.0)),
        )

    def _by_model(self, values: Floats | Ints) -> Floats:
        return np.bincount(self._model_of, weights=values, minlength=len(self.models)).astype(np.float64)


def timeline_of(run: WatchedRun, played: Played, fleet: Fleet) -> Timeline:
    """The course of a finished run."""
    scenario, edges = run.scenario, run.edges_s
    model_of = {server.deployment: server.model for server in run.servers}
    tracks = [
        Track("users", f"{population.name}/{population.users_name}", _of_users(run, played, index), None)
        for index, population in enumerate(scenario.pipelines)
    ]
    for number, model in enumerate(run.models):
        mine = [found for found in fleet.replicas if model_of.get(found.deployment) == model]
        tracks.append(Track("model", model, _of_model(run, played, model), _servers(run, number, mine)))
    means, ready, usd = _nodes(fleet, edges)
    users = [track.name for track in tracks if track.kind == "users"]
    name = ", ".join(users or run.models)
    return Timeline(name, edges, tuple(tracks), means, usd, fleet.lost_nodes_s, nodes_ready=ready)


# --- requests --------------------------------------------------------------------------------------------------------


def _of_model(run: WatchedRun, played: Played, model: str) -> Requests | None:
    """Its own classes together, each judged by its own objectives."""
    classes = [(i, found) for i, found in enumerate(run.scenario.classes) if found.model == model]
    if not classes:
        return None
    return _requests(run.edges_s, [(of_class(run, played, i, 0.0)[1], found.slos) for i, found in classes])


def _of_users(run: WatchedRun, played: Played, index: int) -> Requests:
    return _requests(run.edges_s, [(of_pipeline(run, played, index, 0.0)[1], run.scenario.pipelines[index].slos)])


def _requests(edges: Sequence[float], found: Sequence[tuple[Times, tuple[Slo, ...]]]) -> Requests:
    """`found`: everything that came, the warm-up included."""
    bounds = np.array([picoseconds(edge_s) for edge_s in edges], dtype=np.int64)
    counts: dict[str, Ints] = dict.fromkeys(
        ("offered", "completed", "refused", "timed_out", "lost", "shed", "met", "missed"),
        np.zeros(len(edges) - 1, np.int64),
    )
    before = 0
    for times, slos in found:
        met, missed = verdicts(times, slos)
        cohorts: dict[str, Bools] = {
            "offered": np.ones_like(met),
            "refused": times.finish_ps == layout.FAILED,
            "timed_out": times.finish_ps == layout.TIMED_OUT,
            "lost": times.finish_ps == layout.LOST,
            "shed": times.shed,
            "met": met,
            "missed": missed,
        }
        for name, chosen in cohorts.items():
            counts[name] = counts[name] + _binned(times.start_ps[chosen], bounds)
        counts["completed"] = counts["completed"] + _binned(times.finish_ps[times.completed], bounds)
        in_flight = ~times.failed & ~times.shed & ~times.answered_between(0, int(bounds[0]) - 1)
        before += int(np.count_nonzero(in_flight & (times.start_ps < bounds[0])))
    shares = [slo.share for _, slos in found for slo in slos]
    bins = {name: tuple(n.tolist()) for name, n in counts.items()}
    return Requests(**bins, asked_share=max(shares, default=None), before=before)


def _binned(at_ps: Ints, bounds_ps: Ints) -> Ints:
    """How many in each bin; what happens before the first is left out, what happens at the horizon is in the last."""
    bins = len(bounds_ps) - 1
    index = np.minimum(np.searchsorted(bounds_ps, at_ps[at_ps >= bounds_ps[0]], side="right") - 1, bins - 1)
    return np.bincount(index, minlength=bins).astype(np.int64)


# --- servers ---------------------------------------------------------------------------------------------------------


def _servers(run: WatchedRun, model: int, sizes: Sequence[ReplicaCount]) -> Servers:
    looks = run.looks
    used = _mean_of_looks([look.used[model] for look in looks])
    blocks = _mean_of_looks([look.blocks[model] for look in looks])
    cached = any(isinstance(s, LlmServer) and s.model == run.models[model] for s in run.servers)
    names = dict.fromkeys(found.deployment for found in sizes)
    steps = {
        what: [
            _mean_of_steps([(f.time_s, float(getattr(f, what))) for f in sizes if f.deployment == name], run.edges_s)
            for name in names
        ]
        for what in ("wanted", "ready", "starting")
    }
    none = np.zeros(len(run.edges_s) - 1)
    return Servers(
        waiting=_plain(_mean_of_looks([look.waiting[model] for look in looks])),
        running=_plain(_mean_of_looks([look.running[model] for look in looks])),
        kv_use=_plain(np.divide(used, blocks, out=none.copy(), where=blocks > 0)) if cached else (),
        **{what: _plain(np.sum([none, *found], axis=0)) for what, found in steps.items()},
    )


def _mean_of_looks(values: Sequence[float]) -> Floats:
    means: Floats = np.array(values, dtype=np.float64).reshape(-1, LOOKS_PER_BIN).mean(axis=1)
    return means


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(values.tolist())


# --- nodes -----------------------------------------------------------------------------------------------------------


def _nodes(
    fleet: Fleet, edges: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...] | None]:
    """Mean of paid nodes and of those that are there in each bin; cost at its end."""
    pools = tuple(dict.fromkeys(found.pool for found in fleet.nodes))
    paid = {pool: [(f.time_s, float(f.nodes)) for f in fleet.nodes if f.pool == pool] for pool in pools}
    there = {pool: [(f.time_s, float(f.ready)) for f in fleet.nodes if f.pool == pool] for pool in pools}
    none = np.zeros(len(edges) - 1)
    means, ready = (
        _plain(np.sum([none, *(_mean_of_steps(found, edges) for found in steps.values())], axis=0))
        for steps in (paid, there)
    )
    if fleet.usd_per_hour is None:
        return means, ready, None
    prices = fleet.usd_per_hour
    usd = [_area_until(found, edges)[1:] / 3600.0 * prices[pool] for pool, found in paid.items()]
    return means, ready, _plain(np.sum([none, *usd], axis=0))


def _mean_of_steps(steps: Sequence[tuple[float, float]], edges: Sequence[float]) -> Floats:
    """Mean of a value that changes in steps, over each bin."""
    means: Floats = np.diff(_area_until(steps, edges)) / np.diff(np.array(edges))
    return means


def _area_until(steps: Sequence[tuple[float, float]], edges: Sequence[float]) -> Floats:
    """Value x seconds from the first step up to each edge. `steps`: (time, value from then on), in order."""
    times = np.array([time_s for time_s, _ in steps])
    values = np.array([value for _, value in steps])
    areas = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    index = np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)
    found: Floats = areas[index] + values[index] * (np.maximum(np.array(edges), times[0]) - times[index])
    return found
