"""Discrete-event simulation of a deployment: engine replicas, measured stages, open-loop and closed-loop traffic.

`simulate(scenario)` plays a whole scenario; `play.SteppedRun` stops at boundaries, so that a control plane can look and
give orders, and `statistics.result_of` counts what happened. numba is loaded by the first call, or by the import of
`play`, not by the import of the package.
"""

from rightslice.simulation.run import simulate
from rightslice.simulation.scenario import (
    ClosedPipeline,
    Gateway,
    LlmServer,
    Network,
    OpenClass,
    Prefixes,
    Routing,
    Scenario,
    ShareGroup,
    StageLengths,
    StageServer,
)

__all__ = [
    "ClosedPipeline",
    "Gateway",
    "LlmServer",
    "Network",
    "OpenClass",
    "Prefixes",
    "Routing",
    "Scenario",
    "ShareGroup",
    "StageLengths",
    "StageServer",
    "simulate",
]
