"""Play a scenario from its start to its horizon."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rightslice.simulation.inputs import OpenRequests, initial_state, open_requests, picoseconds
from rightslice.simulation.kernel import advance
from rightslice.simulation.layout import BATCH_PS, KV_BLOCK_PS, ROWS, Ints, State
from rightslice.simulation.scenario import Scenario


class Played(NamedTuple):
    """What happened: by open-loop request, by replica, and one row per request of a pipeline (layout.py).

    `totals` is an array of objects: whole numbers of any size.
    """

    first_ps: Ints
    finish_ps: Ints
    totals: Ints
    passes: Ints


def play(scenario: Scenario, requests: OpenRequests | None = None) -> Played:
    """The whole run. `requests`: those of the scenario, where they are known already."""
    requests = open_requests(scenario) if requests is None else requests
    state = advanced(initial_state(scenario, requests), picoseconds(scenario.horizon_s), closing=True)
    n = len(requests.arrival_ps)
    return Played(state.first_ps[:n], state.finish_ps[:n], whole_totals(state), state.passes[: state.clock[ROWS]])


def advanced(state: State, until_ps: int, *, closing: bool = False) -> State:
    """The state after everything up to and at `until_ps`; the arrays of `state` are used on."""
    while not advance(state, until_ps, closing):
        longer = np.empty((2 * len(state.passes), state.passes.shape[1]), dtype=np.int64)
        longer[: len(state.passes)] = state.passes
        state = state._replace(passes=longer)
    return state


def whole_totals(state: State) -> Ints:
    """The totals in full: the multiple of 2^64 nearest to the rough value, added to what is known modulo 2^64."""
    whole = state.totals.astype(object)
    for column in (KV_BLOCK_PS, BATCH_PS):
        for replica, rough in enumerate(state.rough[:, column].tolist()):
            low = whole[replica, column]
            whole[replica, column] = low + round((round(rough) - low) / 2**64) * 2**64
    return whole
