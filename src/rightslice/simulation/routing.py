"""Which replica a request goes to: one function per policy, each over the replicas that take requests.

least requests  fewest outstanding (running and waiting), the first among equals
round robin     one after the other
two choices     the one with fewer outstanding of two drawn at random, the first drawn among equals
score           lowest weighted sum of waiting requests, KV use and the share of the prompt that is not in the prefix
                cache, the first among equals. The first two are read from all replicas when a request comes and the
                last reading is older than the age of the signals: until then all requests are sent by the same
                figures, as behind a gateway that polls
nearest         of the replicas with at most SPILL_QUEUE waiting requests the nearest to the client, of equally near
                ones the one with the fewest outstanding; where all have more waiting, the fewest outstanding
"""

from __future__ import annotations

from rightslice.simulation.compiling import compiled
from rightslice.simulation.engine import known_now, used_blocks
from rightslice.simulation.layout import (
    ABLE,
    ABLE_REPLICA,
    AGE_PS,
    CLIENT,
    FIRST_REPLICA,
    KV_BLOCKS,
    NEAREST,
    NEEDED,
    NEVER,
    NOBODY,
    NOT_YET,
    OUTSTANDING,
    POLICY,
    RANDOM,
    READ_PS,
    REGION,
    ROUND_ROBIN,
    RUNNING,
    SCORE,
    SEEN_KV,
    SEEN_WAITING,
    SPILL_QUEUE,
    TURN,
    TWO_CHOICES,
    State,
)


@compiled
def able_replica(model: int, at: int, state: State) -> int:
    """The replica at a position among those that take requests."""
    return int(state.live[state.models[model, FIRST_REPLICA] + at, ABLE_REPLICA])


@compiled
def least_requests(model: int, state: State) -> int:
    """Position, among the able replicas, of the one with the fewest outstanding requests."""
    best, fewest = 0, state.live[able_replica(model, 0, state), OUTSTANDING]
    for at in range(1, state.models[model, ABLE]):
        outstanding = state.live[able_replica(model, at, state), OUTSTANDING]
        if outstanding < fewest:
            best, fewest = at, outstanding
    return best


@compiled
def round_robin(model: int, state: State) -> int:
    """Position of the next one."""
    at = state.models[model, TURN] % state.models[model, ABLE]
    state.models[model, TURN] = at + 1
    return int(at)


@compiled
def drawn(model: int, state: State) -> int:
    """A random position: the upper 31 bits of a linear congruential generator (Knuth, MMIX) modulo the number."""
    number = state.models[model, RANDOM] * 6364136223846793005 + 1442695040888963407
    state.models[model, RANDOM] = number
    return int(((number >> 33) & 0x7FFFFFFF) % state.models[model, ABLE])


@compiled
def two_choices(model: int, state: State) -> int:
    """Position of the better of two."""
    one, other = drawn(model, state), drawn(model, state)
    mine = state.live[able_replica(model, one, state), OUTSTANDING]
    return other if state.live[able_replica(model, other, state), OUTSTANDING] < mine else one


@compiled
def read_signals(model: int, now: int, state: State) -> None:
    """What a gateway polls: requests waiting and share of the KV cache in use (0 for a stage)."""
    state.models[model, READ_PS] = now
    for at in range(state.models[model, ABLE]):
        replica = able_replica(model, at, state)
        state.pace[replica, SEEN_WAITING] = state.live[replica, OUTSTANDING] - state.live[replica, RUNNING]
        blocks = state.facts[replica, KV_BLOCKS]
        state.pace[replica, SEEN_KV] = used_blocks(replica, now, state) / blocks if blocks > 0 else 0.0


@compiled
def lowest_score(job: int, model: int, now: int, state: State) -> int:
    """Position of the lowest score."""
    read_ps, weights, pace = state.models[model, READ_PS], state.weights, state.pace
    if read_ps == NOT_YET or now - read_ps >= state.models[model, AGE_PS]:
        read_signals(model, now, state)
    best, lowest = 0, 0.0
    for at in range(state.models[model, ABLE]):
        replica = able_replica(model, at, state)
        score = weights[model, 0] * pace[replica, SEEN_WAITING] + weights[model, 1] * pace[replica, SEEN_KV]
        if weights[model, 2] > 0.0:
            known = known_now(replica, job, now, state)
            score += weights[model, 2] * (1.0 - known / state.jobs[job, NEEDED])
        if at == 0 or score < lowest:
            best, lowest = at, score
    return best


@compiled
def nearest(job: int, model: int, state: State) -> int:
    """Position of the nearest replica with room."""
    best, best_far, fewest = 0, NEVER, NEVER
    for at in range(state.models[model, ABLE]):
        replica = able_replica(model, at, state)
        outstanding, far = state.live[replica, OUTSTANDING], NEVER
        if outstanding - state.live[replica, RUNNING] <= state.models[model, SPILL_QUEUE]:
            far = state.distances[state.jobs[job, CLIENT], state.facts[replica, REGION]]
        if far < best_far or (far == best_far and outstanding < fewest):
            best, best_far, fewest = at, far, outstanding
    return best


@compiled
def route(job: int, model: int, now: int, state: State) -> int:
    """The replica for a request of a model; NOBODY when none takes requests."""
    policy = state.models[model, POLICY]
    if state.models[model, ABLE] == 0:
        return NOBODY
    if policy == ROUND_ROBIN:
        at = round_robin(model, state)
    elif policy == TWO_CHOICES:
        at = two_choices(model, state)
    elif policy == SCORE:
        at = lowest_score(job, model, now, state)
    elif policy == NEAREST:
        at = nearest(job, model, state)
    else:
        at = least_requests(model, state)
    return able_replica(model, at, state)
