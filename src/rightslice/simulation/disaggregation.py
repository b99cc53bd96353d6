"""Prefill and decode apart: prompts are computed on some replicas, answers on others.

A prefill replica gives the first token and is done with the job. Its KV cache goes over the replica's own link, which
moves one prompt after the other, by priority and in order, each at the full rate; the blocks of the prefill replica are
free as soon as the prompt is computed. Then a decode replica is chosen, as for a new request, and the job waits there
for room for all its tokens, of which the last is computed. A job that is evicted there computes its prompt again there.
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled, compiled_apart
from rightslice.simulation.layout import ASKED_MODEL, FAILED, NOBODY, SENDS_TO, THEN_MODEL, State
from rightslice.simulation.orders import give_up
from rightslice.simulation.waiting import dispatch, wait_at


@compiled
def hands_on(replica: int, state: State) -> bool:
    """Whether jobs go on elsewhere when they are done here."""
    return bool(state.facts[replica, SENDS_TO] != NOBODY or state.facts[replica, THEN_MODEL] != NOBODY)


@compiled_apart
def hand_on(replica: int, job: int, now: int, state: State) -> None:
    """From a prefill replica to its link, or from a link to a decode replica."""
    link = state.facts[replica, SENDS_TO]
    if link != NOBODY:
        wait_at(link, job, now, state)
        return
    state.jobs[job, ASKED_MODEL] = state.facts[replica, THEN_MODEL]
    if not dispatch(job, now, state):
        give_up(job, FAILED, now, state)
