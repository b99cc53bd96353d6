"""The one entry of the package: a Scenario in, a SimulationResult out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rightslice.core.results import SimulationResult
from rightslice.simulation.scenario import Scenario

if TYPE_CHECKING:
    from rightslice.simulation.cluster import Cluster, ClusterLog


def simulate(scenario: Scenario) -> SimulationResult:
    """Play the scenario up to its horizon and count what happened.

    Deterministic: the same scenario gives the same result to the last bit. The first call of a process loads the
    compiled kernel (numba); the first call on a machine compiles it. What is counted: statistics.py.
    Raises ValueError when an LLM stage of a pipeline has no token lengths.
    """
    from rightslice.simulation.inputs import open_requests, ordered_servers  # noqa: PLC0415 - loads numba
    from rightslice.simulation.play import play  # noqa: PLC0415 - loads numba
    from rightslice.simulation.statistics import summarised  # noqa: PLC0415 - beside the kernel's constants

    requests = open_requests(scenario)
    _, servers = ordered_servers(scenario)
    return summarised(scenario, servers, requests, play(scenario, requests))


def simulate_cluster(scenario: Scenario, cluster: Cluster) -> tuple[SimulationResult, ClusterLog]:
    """The same with a control plane, and what it did."""
    from rightslice.simulation.cluster import play_cluster  # noqa: PLC0415 - loads numba
    from rightslice.simulation.inputs import open_requests, ordered_servers  # noqa: PLC0415 - loads numba
    from rightslice.simulation.statistics import summarised  # noqa: PLC0415 - beside the kernel's constants

    requests = open_requests(scenario)
    _, servers = ordered_servers(scenario)
    played, log = play_cluster(scenario, cluster)
    return summarised(scenario, servers, requests, played), log


def load_kernel() -> None:
    """Load (or on a machine's first run compile) the event loop, so that what follows is its own time."""
    from rightslice.simulation.play import play  # noqa: PLC0415 - loads numba

    play(Scenario((), horizon_s=1.0))
