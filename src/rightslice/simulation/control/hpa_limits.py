"""How a HorizontalPodAutoscaler holds a proposal back: stabilisation windows, policies, bounds (horizontal.go)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from rightslice.simulation.control.hpa_spec import Direction, HpaSpec

Held = Literal[
    "BelowMinReplicas",
    "ScaleUpStabilized",
    "ScaleDownStabilized",
    "ScaleUpLimit",
    "ScaleDownLimit",
    "TooManyReplicas",
    "TooFewReplicas",
    "DesiredWithinRange",
]
Timed = tuple[tuple[float, int], ...]

UP_FACTOR: Final = 2
UP_MINIMUM: Final = 4
"""Without a behavior block one sync goes at most to twice the current size, or to 4."""


@dataclass(frozen=True, slots=True)
class HpaState:
    """What the controller remembers: recommendations and changes as (seconds, replicas). Empty when it starts.

    Recommendations that no window can reach any more are dropped.
    """

    recommendations: Timed = ()
    ups: Timed = ()
    downs: Timed = ()
    scaled_to_zero: bool = False

    def with_event(self, now_s: float, spec: HpaSpec, change: int) -> HpaState:
        """The state after a change of size."""
        if change > 0:
            return replace(self, ups=_stored(self.ups, now_s, _longest_s(spec, "up"), change))
        return replace(self, downs=_stored(self.downs, now_s, _longest_s(spec, "down"), -change))


@dataclass(frozen=True, slots=True)
class Limited:
    """A proposal after the limits."""

    replicas: int
    reason: Held
    state: HpaState


def unlimited_by_policies(now_s: float, spec: HpaSpec, state: HpaState, current: int, proposed: int) -> Limited:
    """Without a behavior block: the highest recommendation of the window, at most max(2 x current, 4), the bounds.

    A recommendation exactly as old as the window still counts.
    """
    window_s, _ = spec.windows_s
    recent = tuple(r for r in state.recommendations if r[0] >= now_s - window_s)
    steady = max([proposed, *(count for _, count in recent)])
    after = replace(state, recommendations=(*recent, (now_s, proposed)))
    up_limit = max(UP_FACTOR * current, UP_MINIMUM)
    highest = min(spec.max_replicas, up_limit)
    if steady < spec.min_replicas:
        return Limited(spec.min_replicas, "TooFewReplicas", after)
    if steady > highest:
        return Limited(highest, "ScaleUpLimit" if spec.max_replicas > up_limit else "TooManyReplicas", after)
    return Limited(steady, "ScaleDownStabilized" if steady != proposed else "DesiredWithinRange", after)


def limited(now_s: float, spec: HpaSpec, state: HpaState, current: int, proposed: int) -> Limited:
    """With a behavior block: current size brought between both windows, then policies, then the bounds.

    A recommendation or change exactly as old as its window or period no longer counts.
    """
    down_s, up_s = spec.windows_s
    lower = min([proposed, *(count for _, count in _after(state.recommendations, now_s - up_s))])
    upper = max([proposed, *(count for _, count in _after(state.recommendations, now_s - down_s))])
    steady = min(max(current, lower), upper)
    kept = _after(state.recommendations, now_s - max(down_s, up_s))
    after = replace(state, recommendations=(*kept, (now_s, proposed)))
    held = _rated(now_s, spec, state, current, steady)
    if held is not None:
        return Limited(*held, after)
    if steady == proposed:
        return Limited(steady, "DesiredWithinRange", after)
    return Limited(steady, "ScaleUpStabilized" if proposed >= current else "ScaleDownStabilized", after)


def _rated(now_s: float, spec: HpaSpec, state: HpaState, current: int, wanted: int) -> tuple[int, Held] | None:
    """What policies and bounds leave of a change; None where they leave all."""
    if wanted > current:
        limit = max(current, _limit(now_s, spec, state, current, "up"))
        highest = min(spec.max_replicas, limit)
        if wanted > highest:
            return highest, "ScaleUpLimit" if spec.max_replicas > limit else "TooManyReplicas"
    elif wanted < current:
        limit = min(current, _limit(now_s, spec, state, current, "down"))
        lowest = max(spec.min_replicas, limit)
        if wanted < lowest:
            return lowest, "ScaleDownLimit" if spec.min_replicas < limit else "TooFewReplicas"
    return None


def _limit(now_s: float, spec: HpaSpec, state: HpaState, current: int, direction: Direction) -> int:
    """How far the policies let the size go: from the size at the start of each period, rounded away from 0 change."""
    behavior = spec.behavior
    select = "Disabled" if behavior is None else (behavior.up if direction == "up" else behavior.down).select
    if select == "Disabled":
        return current
    ends = []
    for policy in spec.policies(direction):
        since_s = now_s - policy.period_s
        start = current - _sum(_after(state.ups, since_s)) + _sum(_after(state.downs, since_s))
        change = policy.value if direction == "up" else -policy.value
        if policy.kind == "Pods":
            ends.append(start + change)
        elif direction == "up":
            ends.append(math.ceil(start * (1.0 + policy.value / 100.0)))
        else:
            ends.append(int(start * (1.0 - policy.value / 100.0)))
    farthest = max if (direction == "up") == (select == "Max") else min
    return farthest(ends)


def _stored(entries: Timed, now_s: float, period_s: float, change: int) -> Timed:
    """A new change takes the place of the last one older than every period of its direction, as in the controller."""
    old = [index for index, (at_s, _) in enumerate(entries) if at_s < now_s - period_s]
    if not old:
        return (*entries, (now_s, change))
    return (*entries[: old[-1]], (now_s, change), *entries[old[-1] + 1 :])


def _longest_s(spec: HpaSpec, direction: Direction) -> int:
    return max(policy.period_s for policy in spec.policies(direction))


def _after(entries: Timed, since_s: float) -> Timed:
    return tuple(entry for entry in entries if entry[0] > since_s)


def _sum(entries: Timed) -> int:
    return sum(count for _, count in entries)
