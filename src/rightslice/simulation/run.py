"""The one entry of the package: a Scenario in, a SimulationResult out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rightslice.core.replay import Confidence
from rightslice.core.results import SimulationResult
from rightslice.core.timeline import Fleet, Timeline
from rightslice.simulation.scenario import Scenario

if TYPE_CHECKING:
    from rightslice.simulation.cluster_spec import Cluster, ClusterLog
    from rightslice.simulation.timeline import WatchedRun


def simulate(scenario: Scenario) -> SimulationResult:
    """Play the scenario up to its horizon and count what happened.

    Deterministic: the same scenario gives the same result to the last bit. The first call of a process loads the
    compiled kernel (numba); the first call on a machine compiles it. What is counted: statistics.py.
    Raises ValueError when an LLM stage of a pipeline has no token lengths.
    """
    from rightslice.simulation.play import SteppedRun  # noqa: PLC0415 - loads numba
    from rightslice.simulation.statistics import result_of  # noqa: PLC0415 - beside the constants of the loop

    return result_of(SteppedRun(scenario))


@dataclass(frozen=True, slots=True)
class Watched:
    """A result with its course over time, how sure its figures are, and who stood when."""

    result: SimulationResult
    timeline: Timeline
    confidence: tuple[Confidence, ...]
    fleet: Fleet


def watch(scenario: Scenario, fleet: Fleet) -> Watched:
    """`simulate`, looked at on its way: the result is the same."""
    from rightslice.simulation.timeline import WatchedRun  # noqa: PLC0415 - loads numba

    return _watched(WatchedRun(scenario), fleet)


def watch_cluster(scenario: Scenario, cluster: Cluster, fleet: Fleet) -> tuple[Watched, ClusterLog]:
    """The same with a control plane, and what it did. `fleet`: prices, and those that it leaves alone."""
    from rightslice.simulation.cluster import control  # noqa: PLC0415 - loads numba
    from rightslice.simulation.statistics import classes_between  # noqa: PLC0415 - beside the constants of the loop
    from rightslice.simulation.timeline import WatchedRun  # noqa: PLC0415 - loads numba

    run = WatchedRun(scenario)
    _, log = control(scenario, cluster, run)
    lost_s = [event.time_s for event in log.preemptions if event.cause == "node"]
    found = _watched(run, fleet.with_log(log.replicas, log.nodes, lost_s))
    models = {scaled.deployment: scaled.model for scaled in cluster.deployments}
    rollouts = []
    for rollout in log.rollouts:
        end_s = scenario.horizon_s if rollout.done_s is None else rollout.done_s
        during = classes_between(run, run.finish(), rollout.at_s, end_s)
        mine = tuple(c for c in during if c.model == models[rollout.deployment])
        rollouts.append(replace(rollout, during=mine))
    return found, replace(log, rollouts=tuple(rollouts))


def _watched(run: WatchedRun, fleet: Fleet) -> Watched:
    from rightslice.simulation.confidence import confidence_of  # noqa: PLC0415 - beside the constants of the loop
    from rightslice.simulation.statistics import count  # noqa: PLC0415 - beside the constants of the loop
    from rightslice.simulation.timeline import timeline_of  # noqa: PLC0415 - loads numba

    played = run.finish()
    return Watched(count(run, played), timeline_of(run, played, fleet), confidence_of(run, played), fleet)


def load_kernel() -> None:
    """Load (or on a machine's first run compile) the event loop, so that what follows is its own time."""
    from rightslice.simulation.play import play  # noqa: PLC0415 - loads numba

    play(Scenario((), horizon_s=1.0))
