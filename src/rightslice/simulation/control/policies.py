"""Autoscaling policies of one model: each looks at what it can see at a tick and says how many replicas."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from rightslice.simulation.control.bounds import Demand, replicas_needed
from rightslice.simulation.control.hpa import SYNC_PERIOD_S, decide
from rightslice.simulation.control.hpa_limits import HpaState
from rightslice.simulation.control.hpa_metrics import Observation
from rightslice.simulation.control.hpa_spec import HpaSpec, Metric
from rightslice.simulation.control.keda import KedaState, ScaledObject, poll, sync

Signal = Literal["offered_per_s", "held", "waiting", "running", "in_flight", "kv_use"]
"""What a metric reads. `held`: before any engine, in the gateway; `waiting`, `running`: in engines; `in_flight`: all
three; `kv_use`: mean share of the KV cache of the ready replicas."""

FROM_ENGINES: Final[frozenset[Signal]] = frozenset({"waiting", "running", "kv_use"})


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model's workload at a tick.

    `replicas` asked for; of these `pending` pods (no node, or image pull), `loading` (container runs, no metrics yet),
    `ready`. `offered_per_s`: requests that came since the last tick, answered or not, per second.
    """

    replicas: int
    ready: int
    loading: int = 0
    pending: int = 0
    offered_per_s: float = 0.0
    held: float = 0.0
    waiting: float = 0.0
    running: float = 0.0
    kv_use: float = 0.0

    def value(self, signal: Signal) -> float:
        """The signal in all."""
        if signal == "in_flight":
            return self.held + self.waiting + self.running
        value: float = getattr(self, signal)
        return value


@dataclass(frozen=True, slots=True)
class Decision:
    """Replicas to ask for, and why in the policy's words."""

    replicas: int
    reason: str


class Policy(Protocol):
    """Asked at every multiple of `period_s`; remembers what it needs to."""

    period_s: float

    def decide(self, now_s: float, seen: ModelView) -> Decision:
        """Replicas from now on."""
        ...


@dataclass
class Fixed:
    """Always the same."""

    replicas: int
    period_s: float = SYNC_PERIOD_S

    def decide(self, now_s: float, seen: ModelView) -> Decision:
        """The fixed count."""
        return Decision(self.replicas, "Fixed")


@dataclass
class Perfect:
    """The bound: at every instant what the offered load of the next period needs, known in advance, ready at once."""

    demand: Demand
    requests_per_s: float
    min_replicas: int = 0
    max_replicas: int | None = None
    period_s: float = SYNC_PERIOD_S

    def __post_init__(self) -> None:
        self._needed = replicas_needed(self.demand, self.requests_per_s)

    def decide(self, now_s: float, seen: ModelView) -> Decision:
        """The most that a slice of the demand within the period needs."""
        width_s = self.demand.width_s
        first = int(now_s / width_s + 1e-9)
        last = max(first + 1, math.ceil((now_s + self.period_s) / width_s - 1e-9))
        slices = self._needed[first:last]
        wanted = max(self.min_replicas, int(slices.max()) if len(slices) else 0)
        return Decision(wanted if self.max_replicas is None else min(wanted, self.max_replicas), "Perfect")


@dataclass
class Hpa:
    """A HorizontalPodAutoscaler. `signals`: what each metric of the specification reads."""

    spec: HpaSpec
    signals: Mapping[str, Signal]
    period_s: float = SYNC_PERIOD_S
    state: HpaState = field(default_factory=HpaState)

    def decide(self, now_s: float, seen: ModelView) -> Decision:
        """One sync."""
        decision = decide(now_s, self.spec, self.state, observed(self.spec.metrics, self.signals, seen))
        self.state = decision.state
        return Decision(decision.replicas, decision.reason)


class Keda:
    """A ScaledObject: KEDA's polls and its HPA's syncs, each at its own interval, the poll first.

    An empty answer of the metrics store reads as 0 (Prometheus scaler, ignoreNullValues true by default).
    """

    def __init__(self, spec: ScaledObject, signals: Mapping[str, Signal], created_s: float = 0.0) -> None:
        self.spec = spec
        self.signals = signals
        self.state = KedaState(created_s=created_s)
        self.period_s = float(math.gcd(round(SYNC_PERIOD_S), max(1, round(spec.polling_interval_s))))

    def decide(self, now_s: float, seen: ModelView) -> Decision:
        """What is due at this instant; nothing changes where nothing is."""
        view = observed(self.spec.hpa.metrics, self.signals, seen, empty=0.0)
        decision = Decision(seen.replicas, "NotDue")
        if _due(now_s, self.spec.polling_interval_s):
            polled = poll(now_s, self.spec, self.state, view)
            self.state, decision = polled.state, Decision(polled.replicas, polled.reason)
        if _due(now_s, SYNC_PERIOD_S):
            synced, self.state = sync(now_s, self.spec, self.state, replace(view, replicas=decision.replicas))
            moved = synced.replicas != decision.replicas or decision.reason == "NotDue"
            decision = Decision(synced.replicas, synced.reason) if moved else decision
        return decision


class Lagged:
    """Another policy that reads signals `lag_s` late (scrape interval, query window) and counts pods as they are."""

    def __init__(self, policy: Policy, lag_s: float) -> None:
        self.policy = policy
        self.lag_s = lag_s
        self.period_s = policy.period_s
        self._views: deque[tuple[float, ModelView]] = deque()

    def decide(self, now_s: float, seen: ModelView) -> Decision:
        """The policy's decision on the newest view that is at least `lag_s` old; on the first one until then."""
        self._views.append((now_s, seen))
        while len(self._views) > 1 and self._views[1][0] <= now_s - self.lag_s:
            self._views.popleft()
        old = self._views[0][1]
        pods = {"replicas": seen.replicas, "ready": seen.ready, "loading": seen.loading, "pending": seen.pending}
        return self.policy.decide(now_s, replace(old, **pods))


def observed(
    metrics: tuple[Metric, ...], signals: Mapping[str, Signal], seen: ModelView, empty: float | None = None
) -> Observation:
    """What the controller sees of a workload. Raises KeyError for a metric without signal.

    Pods metrics: the mean per ready replica, which proposes the same as the single values. Loading replicas run
    without a sample. Engines' signals are `empty` (None: the metrics API fails) where no engine is ready.
    """
    values: dict[str, float | tuple[float, ...] | None] = {}
    for metric in metrics:
        signal = signals[metric.name]
        value = seen.value(signal)
        if metric.per_pod:
            each = value if signal == "kv_use" else value / max(1, seen.ready)
            values[metric.name] = (each,) * seen.ready
        else:
            values[metric.name] = empty if signal in FROM_ENGINES and seen.ready == 0 else value
    existing = seen.pending + seen.loading + seen.ready
    return Observation(
        seen.replicas, values, seen.ready, existing=existing, pending=seen.pending, no_sample=seen.loading
    )


def _due(now_s: float, interval_s: float) -> bool:
    return abs(now_s / interval_s - round(now_s / interval_s)) < 1e-9
