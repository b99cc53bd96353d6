"""Discrete-event simulation of a deployment: engine replicas, measured stages, open-loop and closed-loop traffic.

`simulate(scenario)` is the one entry; numba is loaded by the first call, not by the import.
"""

from rightslice.simulation.run import simulate
from rightslice.simulation.scenario import (
    ClosedPipeline,
    LlmServer,
    OpenClass,
    Prefixes,
    Routing,
    Scenario,
    StageLengths,
    StageServer,
)

__all__ = [
    "ClosedPipeline",
    "LlmServer",
    "OpenClass",
    "Prefixes",
    "Routing",
    "Scenario",
    "StageLengths",
    "StageServer",
    "simulate",
]
