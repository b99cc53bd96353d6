"""What `simulate` answers: the results of a plan played again, with what its machines did and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rightslice.core.documents import to_jsonable
from rightslice.core.results import ClassResult, ReplicaResult, SimulationResult
from rightslice.core.timeline import Timeline

REPLAY_SCHEMA = "rightslice.replay/v1"


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """An autoscaler asks for another size. `reason` in its own words."""

    time_s: float
    deployment: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """Replicas end before they have finished what they have.

    `cause`: their `node` is lost, one `gpu` of it, the engine of a `pod`, or the `grace` of a replica that was told to
    end is over. `gpu` is that of the node, `replicas` the ones that stopped.
    """

    time_s: float
    pool: str
    node: str
    requests_requeued: int
    requests_lost: int
    cause: str = "node"
    gpu: int | None = None
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """A rolling update of one deployment. `done_s` None: not by the end. `stuck_s`: Kubernetes calls it failed, and
    `message` says why. `during`: its model's classes, by the requests that came while it lasted."""

    deployment: str
    at_s: float
    surge: int
    unavailable: int
    done_s: float | None
    stuck_s: float | None
    message: str = ""
    during: tuple[ClassResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """One deployment at one tick of its autoscaler: size asked for, ready replicas, requests in flight, those that wait
    (for a replica or in one), mean share of the KV cache in use, requests/s that came since the last tick."""

    time_s: float
    deployment: str
    replicas: int
    ready: int
    in_flight: float
    waiting: float
    kv_use: float
    offered_per_s: float


@dataclass(frozen=True, slots=True)
class GpuHourBounds:
    """GPU-hours of one deployment by its expected traffic (recorded traffic as recorded): of fractions of replicas
    (`fluid`), of whole ones that are there the instant they are needed (`perfect`), which no autoscaler beats, and of
    as many as the peak needs, all the time (`peak`)."""

    deployment: str
    fluid: float
    perfect: float
    peak: float
    peak_replicas: int


@dataclass(frozen=True, slots=True)
class Confidence:
    """95 % confidence interval of one figure of a class (`chat/chat`) or of users (`voice/heavy`): `ttft_ms` and its
    `p95`, or the mean of `slo_attainment`."""

    subject: str
    metric: str
    statistic: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Stated:
    """A figure that somebody stated, in `unit`, and the same as simulated; None for what went into the simulation."""

    part: Literal["published", "derived", "fitted"]
    what: str
    stated: float
    unit: str
    simulated: float | None

    @property
    def unexplained(self) -> float | None:
        """What the simulation does not account for: stated less simulated."""
        return None if self.simulated is None else self.stated - self.simulated


@dataclass(frozen=True, slots=True)
class Replay:
    """`results`: one for each group of models and population; populations are alternatives. `cpu_s` is of the event
    loops alone.

    `gpu_hours` and `usd` are those of all nodes over the longest run; of the dearest population, where a control plane
    moves nodes. `usd` is None where the machines of a changed accelerator have no price here. The rest is empty without
    a control plane; `unknown_phases` of a cold start count 0 because nobody published them. `dark_s`: model -> seconds
    in which its requests waited and none of its replicas was ready, asked for or not. Pools `apart` keep all their
    nodes and replicas, for it cannot move them: no autoscaler and no fault reaches them. `faults` that were asked for.
    `timelines`: one for each result; `asked`: the options; `notes`: what else a reader has to know. `price_date`,
    `price_quality`: of the plan's machines. `stated`: figures of a reference beside its own.
    """

    plan: str
    seed: int
    results: tuple[SimulationResult, ...]
    cpu_s: float
    gpu_hours: float
    usd: float | None
    scale_events: tuple[ScaleEvent, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    timeline: tuple[Moment, ...] = ()
    bounds: tuple[GpuHourBounds, ...] = ()
    unknown_phases: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    rollouts: tuple[RolloutResult, ...] = ()
    dark_s: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    confidence: tuple[Confidence, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    price_date: str = ""
    price_quality: str = ""
    stated: tuple[Stated, ...] = ()
    stated_source: str = ""

    @property
    def requests(self) -> int:
        """Requests that started within the measured window."""
        return sum(result.requests for result in self.results)

    @property
    def holds(self) -> bool:
        """Whether anything was measured, every objective holds, no request fails, and users of pipelines are never left
        without a replica.

        Users who wait send nothing: a share of requests hardly shows that nobody served them for minutes.
        """
        closed = any(result.pipelines for result in self.results)
        sound = all(result.sound for result in self.results)
        return self.measured and sound and not (closed and self.dark_s)

    @property
    def measured(self) -> bool:
        """Whether any class or population had requests that can be judged."""
        return any(self._judged.values())

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Classes (`chat/main`) and populations (`voice/light`), and single objectives of theirs (`chat/main
        tpot_p95`), of which no request can be judged, in any run."""
        return tuple(subject for subject, judged in self._judged.items() if not judged)

    @property
    def _judged(self) -> dict[str, int]:
        """Class or population without objectives, or objective -> requests that can be judged."""
        found: dict[str, int] = {}
        for result in self.results:
            subjects = [(f"{c.model}/{c.traffic_class}", c.requests, c.outcomes) for c in result.per_class]
            subjects += [(f"{p.name}/{p.users}", p.requests, p.outcomes) for p in result.pipelines]
            for subject, requests, outcomes in subjects:
                counts = {f"{subject} {o.slo.name}": o.judged for o in outcomes if requests} or {subject: requests}
                for name, count in counts.items():
                    found[name] = found.get(name, 0) + count
        return found

    @property
    def horizon_s(self) -> float:
        """The longest of the runs."""
        return max((result.horizon_s for result in self.results), default=0.0)

    @property
    def windows_s(self) -> tuple[tuple[float, float], ...]:
        """(Begin, end) of what is measured in each run, equal ones once: from the end of the warm-up to the horizon."""
        return tuple(dict.fromkeys((result.begin_s, result.horizon_s) for result in self.results))

    @property
    def requests_per_s_per_gpu(self) -> float | None:
        """Answered requests per second over the physical GPUs; None without GPUs. Of several populations that the same
        replicas serve, one after the other, the busiest."""
        if not self.gpu_hours or not self.horizon_s:
            return None
        rates: dict[frozenset[str], float] = {}
        for result in self.results:
            group = frozenset(replica.deployment for replica in result.replicas)
            rates[group] = max(rates.get(group, 0.0), result.requests_per_s)
        return sum(rates.values()) / (self.gpu_hours * 3600.0 / self.horizon_s)

    @property
    def totals(self) -> dict[str, int]:
        """Requests of all runs: requests = completed + failed + shed + unfinished; `lost` is part of `failed`.

        `answered` within the windows, whenever they came.
        """
        total = {
            name: sum(getattr(result, name) for result in self.results)
            for name in ("requests", "completed", "failed", "requeued", "lost", "shed", "answered")
        }
        total["unfinished"] = total["requests"] - total["completed"] - total["failed"] - total["shed"]
        return total

    @property
    def failed_why(self) -> dict[str, int]:
        """`refused` (too long, or nobody serves the model), `timed_out`, `lost` with a replica: failed requests."""
        tracks = [track.requests.totals for t in self.timelines for track in t.tracks if track.requests]
        return {why: sum(track[why] for track in tracks) for why in ("refused", "timed_out", "lost")}

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        classes = [_renamed(to_jsonable(found)) for result in self.results for found in result.per_class]
        return {
            "plan": self.plan,
            **self.totals,
            "seed": self.seed,
            "horizon_s": self.horizon_s,
            "windows": [{"begin_s": begin_s, "end_s": end_s} for begin_s, end_s in self.windows_s],
            "cpu_s": self.cpu_s,
            "holds": self.holds,
            "measured": self.measured,
            "unmeasured": list(self.unmeasured),
            "per_model": classes,
            "pipelines": [to_jsonable(found) for result in self.results for found in result.pipelines],
            "replicas": [to_jsonable(found) for result in self.results for found in result.replicas],
            "gpu_hours": self.gpu_hours,
            "usd": self.usd,
            "price_date": self.price_date,
            "price_quality": self.price_quality,
            "requests_per_s_per_gpu": self.requests_per_s_per_gpu,
            "scale_events": [_scaling(event) for event in self.scale_events],
            "preemptions": to_jsonable(self.preemptions),
            "dark_s": dict(self.dark_s),
            "bounds": to_jsonable(self.bounds),
            "timeline": to_jsonable(self.timeline),
            "stated": [{**to_jsonable(found), "unexplained": found.unexplained} for found in self.stated],
            "unknown_phases": list(self.unknown_phases),
            "apart": list(self.apart),
            "rollouts": [_rollout(found) for found in self.rollouts],
            "notes": list(self.notes),
            "confidence": to_jsonable(self.confidence),
            "asked": to_jsonable(self.asked),
        }

    def record(self) -> dict[str, Any]:
        """The document to keep: the same bytes for the same question. The course over time is in `timeline.csv`."""
        document = {"schema": REPLAY_SCHEMA, **self.document()}
        del document["cpu_s"], document["timeline"]
        document["deployments"] = [_deployment(name, mine) for name, mine in self.by_deployment.items()]
        document["failed_why"] = self.failed_why
        document["timeline"] = {"file": "timeline.csv", "runs": [timeline.summary for timeline in self.timelines]}
        return document

    @property
    def by_deployment(self) -> dict[str, tuple[ReplicaResult, ...]]:
        """Deployment -> its replicas in all runs."""
        found: dict[str, tuple[ReplicaResult, ...]] = {}
        for result in self.results:
            for replica in result.replicas:
                found[replica.deployment] = (*found.get(replica.deployment, ()), replica)
        return found


@dataclass(frozen=True, slots=True)
class Setting:
    """Of autoscalers: `share` of a replica's rated load that is aimed at, least replicas as a share of those planned
    (`least`), stabilisation windows. None: as the autoscaler has it."""

    share: float | None = None
    least: float | None = None
    down_window_s: float | None = None
    up_window_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of an autoscaler over a day. `share`: of a replica's rated load that is aimed at; None where a target
    is given. `min_replicas`: of all that scale. `achieved`: of the objective that is nearest to failing, or fails most.
    `changes`: how often the size changed."""

    share: float | None
    min_replicas: int
    gpu_hours: float
    usd: float | None
    holds: bool
    objective: str
    achieved: float
    changes: int
    down_window_s: float = 300.0
    up_window_s: float = 0.0

    @property
    def windows(self) -> str:
        """Stabilisation up and down."""
        return f"{self.up_window_s:.0f} / {self.down_window_s:.0f} s"

    @property
    def cost(self) -> float:
        """USD, or GPU-hours where there is no price."""
        return self.gpu_hours if self.usd is None else self.usd


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of the autoscalers of a plan over the same traffic; the cheapest that holds first."""

    plan: str
    seed: int
    trials: tuple[Trial, ...]
    price_date: str = ""
    price_quality: str = ""

    @property
    def holds(self) -> bool:
        """Whether any setting does."""
        return self.trials[0].holds

    @property
    def frontier(self) -> tuple[Trial, ...]:
        """Settings that no other beats in both cost and share of requests, the cheapest first."""
        found: list[Trial] = []
        for one in sorted(self.trials, key=lambda t: (t.cost, -t.achieved)):
            if not found or one.achieved > found[-1].achieved:
                found.append(one)
        return tuple(found)


def worst_objective(replay: Replay) -> tuple[str, float]:
    """The objective that is nearest to failing, or fails most, and the share of requests that met it."""
    outcomes = [outcome for result in replay.results for outcome in result.outcomes]
    worst = min(outcomes, key=lambda o: o.achieved_share - o.slo.share, default=None)
    return (worst.slo.name, worst.achieved_share) if worst else ("", 1.0)


def _deployment(name: str, replicas: Sequence[ReplicaResult]) -> dict[str, Any]:
    """Means over its replicas (those that may be there at one time) and runs."""
    n = len(replicas)
    return {
        "deployment": name,
        "busy_share": sum(r.busy_share for r in replicas) / n,
        "kv_use_mean": sum(r.kv_use_mean for r in replicas) / n,
        "kv_use_peak": max(r.kv_use_peak for r in replicas),
        "preemptions": sum(r.preemptions for r in replicas),
    }


def _scaling(event: ScaleEvent) -> dict[str, Any]:
    return {
        "time_s": event.time_s,
        "model": event.deployment,
        "from": event.before,
        "to": event.after,
        "reason": event.reason,
    }


def _rollout(found: RolloutResult) -> dict[str, Any]:
    return {**to_jsonable(found), "during": [_renamed(to_jsonable(c)) for c in found.during]}


def _renamed(found: dict[str, Any]) -> dict[str, Any]:
    return {"class" if key == "traffic_class" else key: value for key, value in found.items()}
