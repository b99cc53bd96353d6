"""Replicas on one GPU: how fast each is while some of the others are busy.

A member is busy while it has a request, running or waiting. When the set of busy members changes, after the events of
an instant and before anything starts, every member gets the speed that the law of its group gives beside the busy
others. Services of a stage go on at the new speed with what is left of them; a step or batch under way keeps the time
it had when it started. That is one step of an engine at most, a few hundredths of a second.
"""

from __future__ import annotations

import numpy as np

from rightslice.simulation.compiling import compiled_apart
from rightslice.simulation.engine import cut_short
from rightslice.simulation.layout import (
    BUSY,
    BUSY_MEMBERS,
    FIRST_MEMBER,
    GROUP,
    KIND,
    KV_TOKEN_PS,
    LLM,
    NOBODY,
    ORDERED,
    OUTSTANDING,
    PLACE_IN_GROUP,
    PREFILL_STEP_PS,
    SHARED,
    SLOWDOWN,
    STAGE,
    UNDISTURBED,
    State,
)
from rightslice.simulation.queues import drop_expired
from rightslice.simulation.stage import settle
from rightslice.simulation.waiting import touch


@compiled_apart
def change_speed(replica: int, now: int, state: State) -> None:
    """From now on every step that starts, and the rest of every service, takes ORDERED x SHARED times as long."""
    if state.facts[replica, KIND] == LLM:
        if state.live[replica, BUSY] == 1:
            cut_short(replica, now, state)
    else:
        if state.facts[replica, KIND] == STAGE:
            settle(replica, now, state)
        touch(replica, state)
    factor = state.pace[replica, ORDERED] * state.pace[replica, SHARED]
    state.pace[replica, SLOWDOWN] = factor
    for k in range(PREFILL_STEP_PS - KV_TOKEN_PS + 1):
        state.facts[replica, KV_TOKEN_PS + k] = int(np.rint(state.facts[replica, UNDISTURBED + k] * factor))


@compiled_apart
def note_busy(replica: int, now: int, state: State) -> None:
    """Write into the group of a replica whether it is busy; requests that have waited too long do not count."""
    if state.facts[replica, KIND] == STAGE or state.live[replica, BUSY] == 0:
        state.live[replica, OUTSTANDING] -= drop_expired(replica, now, state)
    bit = 1 << state.tenancy[replica, PLACE_IN_GROUP]
    group = state.tenancy[replica, GROUP]
    if state.live[replica, OUTSTANDING] > 0:
        state.groups[group, BUSY_MEMBERS] |= bit
    else:
        state.groups[group, BUSY_MEMBERS] &= ~bit


@compiled_apart
def note_idle(replica: int, state: State) -> None:
    """Who has started nothing, because all its requests had waited too long, does not count as busy next time."""
    group = state.tenancy[replica, GROUP]
    if group != NOBODY and state.live[replica, OUTSTANDING] == 0:
        state.groups[group, BUSY_MEMBERS] &= ~(1 << state.tenancy[replica, PLACE_IN_GROUP])


@compiled_apart
def share_out(now: int, state: State) -> None:
    """Look at the replicas that something happened to, and give all on their GPUs the speeds that they have now."""
    count = state.touched[0]
    for k in range(1, count + 1):
        if state.tenancy[state.touched[k], GROUP] != NOBODY:
            note_busy(state.touched[k], now, state)
    for k in range(1, count + 1):
        group = state.tenancy[state.touched[k], GROUP]
        if group == NOBODY:
            continue
        for place in range(FIRST_MEMBER, state.groups.shape[1]):
            member = state.groups[group, place]
            if member == NOBODY:
                break
            factor = state.shares[member, state.groups[group, BUSY_MEMBERS]]
            if factor != state.pace[member, SHARED]:
                state.pace[member, SHARED] = factor
                change_speed(member, now, state)
