"""The one entry of the package: a Scenario in, a SimulationResult out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rightslice.core.results import SimulationResult
from rightslice.simulation.scenario import Scenario

if TYPE_CHECKING:
    from rightslice.simulation.cluster_spec import Cluster, ClusterLog


def simulate(scenario: Scenario) -> SimulationResult:
    """Play the scenario up to its horizon and count what happened.

    Deterministic: the same scenario gives the same result to the last bit. The first call of a process loads the
    compiled kernel (numba); the first call on a machine compiles it. What is counted: statistics.py.
    Raises ValueError when an LLM stage of a pipeline has no token lengths.
    """
    from rightslice.simulation.play import SteppedRun  # noqa: PLC0415 - loads numba
    from rightslice.simulation.statistics import result_of  # noqa: PLC0415 - beside the constants of the loop

    return result_of(SteppedRun(scenario))


def simulate_cluster(scenario: Scenario, cluster: Cluster) -> tuple[SimulationResult, ClusterLog]:
    """The same with a control plane, and what it did."""
    from rightslice.simulation.cluster import control  # noqa: PLC0415 - loads numba
    from rightslice.simulation.statistics import classes_between, result_of  # noqa: PLC0415 - as above

    run, log = control(scenario, cluster)
    result = result_of(run)
    models = {scaled.deployment: scaled.model for scaled in cluster.deployments}
    rollouts = []
    for found in log.rollouts:
        end_s = scenario.horizon_s if found.done_s is None else found.done_s
        during = classes_between(run, found.at_s, end_s)
        mine = tuple(c for c in during if c.model == models[found.deployment])
        rollouts.append(replace(found, during=mine))
    return result, replace(log, rollouts=tuple(rollouts))


def load_kernel() -> None:
    """Load (or on a machine's first run compile) the event loop, so that what follows is its own time."""
    from rightslice.simulation.play import play  # noqa: PLC0415 - loads numba

    play(Scenario((), horizon_s=1.0))
