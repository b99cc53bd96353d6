"""Which pods a ReplicaSet deletes when its size falls (Kubernetes, pkg/controller/controller_utils.go)."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class PodState:
    """One pod of a deployment. `node` empty: not placed. `ready_s`: ready since then, None while it is not.

    `running`: its containers run (phase Running), ready or not. `deletion_cost`: the annotation's.
    """

    name: str
    created_s: float
    node: str = ""
    running: bool = False
    ready_s: float | None = None
    deletion_cost: int = 0


def victims(now_s: float, pods: Sequence[PodState], count: int) -> tuple[str, ...]:
    """The `count` pods that go first.

    Unplaced, Pending, not ready, of low deletion cost, on the node with most of them, ready for less time, younger;
    ages are compared by their power of two, and within one by the pods' random ids.
    """
    on_node = Counter(pod.node for pod in pods)
    return tuple(pod.name for pod in sorted(pods, key=lambda pod: _rank(now_s, pod, on_node[pod.node])))[:count]


def _rank(now_s: float, pod: PodState, together: int) -> tuple[bool, bool, bool, int, int, int, int, str]:
    ready = pod.ready_s is not None
    return (
        bool(pod.node),
        pod.running,
        ready,
        pod.deletion_cost,
        -together,
        _magnitude(now_s - pod.ready_s) if pod.ready_s is not None else 0,
        _magnitude(now_s - pod.created_s),
        hashlib.sha256(pod.name.encode()).hexdigest(),
    )


def _magnitude(age_s: float) -> int:
    """Whole power of two of the age in nanoseconds; -1 for none."""
    return int(math.log2(age_s * NS_PER_S)) if age_s > 0.0 else -1
