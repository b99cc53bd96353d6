"""Play a scenario from its start to its horizon, at once or with stops at which a control plane acts."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

from rightslice.simulation.inputs import (
    PS_PER_S,
    OpenRequests,
    initial_state,
    open_requests,
    ordered_servers,
    picoseconds,
)
from rightslice.simulation.kernel import advance
from rightslice.simulation.layout import (
    ARRIVALS,
    BATCH_PS,
    CONDITION,
    ENTERED_PS,
    FINISH_PS,
    FINISHED,
    FIRST_PS,
    HIT_TOKENS,
    KV_BLOCK_PS,
    KV_USED,
    LOST,
    NEW_CONDITION,
    NEW_SLOWDOWN,
    NOW,
    OUTSTANDING,
    PASS_FINISH,
    QUEUED,
    REQUEUED,
    ROUGH_BATCH,
    ROUGH_KV,
    ROWS,
    RUNNING,
    SERVED,
    Ints,
    State,
)
from rightslice.simulation.scenario import Scenario


class Played(NamedTuple):
    """What happened: by open-loop request, by replica, and one row per request of a pipeline (layout.py).

    `totals` is an array of objects: whole numbers of any size. `hit_tokens`: prompt tokens found in the prefix cache
    when the open-loop request was first admitted, NOT_YET before. `served`: the replica it came to last, or NOBODY, and
    `entered_ps`, when.
    """

    first_ps: Ints
    finish_ps: Ints
    totals: Ints
    passes: Ints
    requeued: int
    hit_tokens: Ints
    served: Ints
    entered_ps: Ints


Condition = Literal["absent", "starting", "ready", "draining", "gone"]
CONDITIONS: Final[tuple[Condition, ...]] = ("absent", "starting", "ready", "draining", "gone")
"""Only ready replicas take requests; draining ones finish what they have; gone ones have lost it (orders.py)."""


class Observation(NamedTuple):
    """By replica: index into CONDITIONS, running and waiting requests, requests finished so far, KV blocks in use.
    By model: requests that have come so far, requests that wait for a replica."""

    condition: Ints
    running: Ints
    waiting: Ints
    finished: Ints
    kv_blocks: Ints
    arrived: Ints
    queued: Ints


def play(scenario: Scenario, requests: OpenRequests | None = None) -> Played:
    """The whole run. `requests`: those of the scenario, where they are known already."""
    return SteppedRun(scenario, requests).finish()


class SteppedRun:
    """A run that stops at boundaries. Results do not depend on where it stops, unless something is ordered there.

    Replicas are numbered by model, in the order of `replicas`. All are ready at the start; an order given before the
    first `advance` holds from time 0.
    """

    def __init__(self, scenario: Scenario, requests: OpenRequests | None = None) -> None:
        self.scenario = scenario
        self.requests = open_requests(scenario) if requests is None else requests
        self.models, self.servers = ordered_servers(scenario)
        self.replicas = tuple((s.deployment, number) for s in self.servers for number in range(s.replicas))
        self._horizon_ps = picoseconds(scenario.horizon_s)
        self._state = initial_state(scenario, self.requests)
        self._ordered = False

    @property
    def now_s(self) -> float:
        """The last boundary."""
        return int(self._state.clock[NOW]) / PS_PER_S

    def order(self, replica: int, condition: Condition) -> None:
        """Give a replica another condition. ValueError for `absent` or `starting` while it has requests."""
        if condition in {"absent", "starting"} and self._state.live[replica, OUTSTANDING] > 0:
            raise ValueError(f"replica {replica} has requests: let it drain, or let it be gone")
        self._state.live[replica, NEW_CONDITION] = CONDITIONS.index(condition)
        self._ordered = True

    def slow_down(self, replica: int, factor: float) -> None:
        """Multiply a replica's times (as the scenario gives them) by `factor`, at least 1: GPU sharing."""
        if not factor >= 1.0:
            raise ValueError(f"slowdown {factor}")
        self._state.pace[replica, NEW_SLOWDOWN] = factor
        self._ordered = True

    def advance(self, until_s: float) -> None:
        """Carry out what was ordered, and play up to and at `until_s`; not back in time, and at most to the horizon."""
        until_ps = max(picoseconds(until_s), int(self._state.clock[NOW]))
        self._play(min(until_ps, self._horizon_ps), closing=False)

    def finish(self) -> Played:
        """Play up to the horizon. The run cannot go on after it."""
        self._play(self._horizon_ps, closing=True)
        state, n = self._state, len(self.requests.arrival_ps)
        first_ps, finish_ps = state.jobs[:n, FIRST_PS].copy(), state.jobs[:n, FINISH_PS].copy()
        passes = state.passes[: state.clock[ROWS]]
        hits = state.jobs[:n, HIT_TOKENS].copy()
        served, entered_ps = state.jobs[:n, SERVED].copy(), state.jobs[:n, ENTERED_PS].copy()
        requeued = int(state.clock[REQUEUED])
        return Played(first_ps, finish_ps, whole_totals(state), passes, requeued, hits, served, entered_ps)

    def look(self) -> Observation:
        """What a control plane sees at the last boundary."""
        live, models = self._state.live, self._state.models
        return Observation(
            condition=live[:, CONDITION].copy(),
            running=live[:, RUNNING].copy(),
            waiting=live[:, OUTSTANDING] - live[:, RUNNING],
            finished=live[:, FINISHED].copy(),
            kv_blocks=live[:, KV_USED].copy(),
            arrived=models[:, ARRIVALS].copy(),
            queued=models[:, QUEUED].copy(),
        )

    def counted(self) -> tuple[int, int]:
        """Requests computed again so far because their replica vanished, and those lost for want of retries."""
        state, n = self._state, len(self.requests.arrival_ps)
        passes = state.passes[: state.clock[ROWS], PASS_FINISH]
        lost = np.count_nonzero(state.jobs[:n, FINISH_PS] == LOST) + np.count_nonzero(passes == LOST)
        return int(state.clock[REQUEUED]), int(lost)

    def _play(self, until_ps: int, *, closing: bool) -> None:
        while not advance(self._state, until_ps, self._ordered, closing):
            self._ordered = False
            passes = self._state.passes
            longer = np.empty((2 * len(passes), passes.shape[1]), dtype=np.int64)
            longer[: len(passes)] = passes
            self._state = self._state._replace(passes=longer)
        self._ordered = False


def whole_totals(state: State) -> Ints:
    """The totals in full: the multiple of 2^64 nearest to the rough value, added to what is known modulo 2^64."""
    whole = state.totals.astype(object)
    for column, beside in ((KV_BLOCK_PS, ROUGH_KV), (BATCH_PS, ROUGH_BATCH)):
        for replica, rough in enumerate(state.pace[:, beside].tolist()):
            low = whole[replica, column]
            whole[replica, column] = low + round((round(rough) - low) / 2**64) * 2**64
    return whole
