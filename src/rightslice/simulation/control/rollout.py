"""A rolling update as the Deployment controller does it (kubernetes, pkg/controller/deployment/rolling.go).

New pods come as far as the size and `surge` allow; old ones go as far as `unavailable` allows, those that are not ready
first. A pod that ends no longer counts, though it still holds its GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Rollout:
    """A new version at `at_s`. After `deadline_s` without progress Kubernetes calls it failed and tries on.

    Raises ValueError where nothing could move.
    """

    at_s: float
    surge: int = 1
    unavailable: int = 0
    deadline_s: float = 600.0

    def __post_init__(self) -> None:
        if min(self.surge, self.unavailable) < 0 or self.surge + self.unavailable == 0:
            raise ValueError(f"surge {self.surge} and unavailable {self.unavailable}: nothing may move")


class Pods(NamedTuple):
    """Pods of a Deployment that do not end, by version and readiness."""

    old: int
    old_ready: int
    new: int
    new_ready: int


class Step(NamedTuple):
    """Pods to make, and old ones to take away: those that are not ready, and ready ones."""

    made: int
    unready: int
    ready: int


def step(wanted: int, rollout: Rollout, pods: Pods) -> Step:
    """What the controller does next towards `wanted` pods of the new version."""
    room = wanted + rollout.surge - pods.old - pods.new
    made = max(0, min(room, wanted - pods.new))
    least = wanted - rollout.unavailable
    spare = pods.old + pods.new - least - (pods.new - pods.new_ready)
    unready = max(0, min(pods.old - pods.old_ready, spare))
    ready = max(0, min(pods.old_ready, pods.old_ready + pods.new_ready - least))
    return Step(made, unready, ready)
