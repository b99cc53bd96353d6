"""A large fleet under heavy traffic -> some of its replicas under their share of the traffic, so that time is bounded.

Splitting a stream of requests at random over groups of equal replicas leaves each group a stream of the same kind, so
a part shows what the whole does. Fewer replicas even out less: what the part keeps, the whole keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rightslice.app.scenarios import Load
from rightslice.core.results import SimulationResult
from rightslice.core.rng import generator
from rightslice.optimization.options import Option
from rightslice.simulation.scenario import ClosedPipeline, OpenClass
from rightslice.traffic.recorded import NONE

ENOUGH_REQUESTS = 10_000
"""More requests than this in one run are worth taking a part."""
LEAST_REPLICAS = 8
"""Replicas of every model that a part keeps at least."""
MOST_PARTS = 24
"""Sizes tried, to find one that divides all models evenly."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`share` of the traffic on `counts` replicas by option."""

    load: Load
    counts: Mapping[str, int]
    share: float


def sampled(load: Load, counts: Mapping[str, int], options: Mapping[str, Option]) -> Sample:
    """The part to simulate; the whole where it is small.

    The traffic is scaled by the largest share of any option's replicas: rounding loads the others more, never less.
    Recorded prompts that share blocks without telling their sessions are not divided.
    """
    totals: dict[str, int] = {}
    for key, count in counts.items():
        totals[options[key].model] = totals.get(options[key].model, 0) + count
    if any(found.arrivals.sharing and found.arrivals.sharing.session is None for found in load.classes):
        return Sample(load, counts, 1.0)
    fewest = min((total for total in totals.values() if total > 0), default=0)
    smallest = max(LEAST_REPLICAS, math.ceil(fewest * ENOUGH_REQUESTS / max(load.requests, 1.0)))
    sizes = range(smallest, min(fewest // 2, smallest + MOST_PARTS) + 1)
    parts = [{key: round(count * size / fewest) for key, count in counts.items()} for size in sizes]
    if not parts:
        return Sample(load, counts, 1.0)
    part = min(parts, key=lambda part: round(_overload(part, counts, options, totals), 3))
    share = _share(part, counts)
    return Sample(_thinned(load, share), part, share)


def _share(part: Mapping[str, int], counts: Mapping[str, int]) -> float:
    return max(part[key] / count for key, count in counts.items() if count > 0)


def _overload(
    part: Mapping[str, int], counts: Mapping[str, int], options: Mapping[str, Option], totals: Mapping[str, int]
) -> float:
    """How much more than its share the worst model of the part gets."""
    kept = dict.fromkeys(totals, 0)
    for key, count in part.items():
        kept[options[key].model] += count
    share = _share(part, counts)
    return max(share * totals[model] / kept[model] if kept[model] else math.inf for model in totals if totals[model])


def _thinned(load: Load, share: float) -> Load:
    classes = tuple(_thinned_class(found, share, load.seed) for found in load.classes)
    return replace(load, classes=classes, populations=tuple(_fewer(p, share) for p in load.populations))


def _thinned_class(found: OpenClass, share: float, seed: int) -> OpenClass:
    """Each request stays with probability `share`, a session as a whole; those of a smaller share are among those of a
    larger one."""
    rng = generator(seed, "part", found.model, found.name)
    lots = rng.random(len(found.arrivals.arrival_ps), dtype="float32")
    if found.arrivals.sharing and found.arrivals.sharing.session is not None:
        session = found.arrivals.sharing.session
        of_sessions = rng.random(int(session.max(initial=NONE)) + 2, dtype="float32")  # the last is not used
        lots = np.where(session == NONE, lots, of_sessions[session])
    return found.where(lots < share)


def _fewer(population: ClosedPipeline, share: float) -> ClosedPipeline:
    return replace(population, concurrent=math.ceil(population.concurrent * share))


def of_the_whole(result: SimulationResult, share: float) -> SimulationResult:
    """The result with rates of the whole fleet; counts of requests stay those simulated."""
    if share == 1.0:
        return result
    return replace(
        result,
        per_class=tuple(
            replace(r, requests_per_s=r.requests_per_s / share, output_tokens_per_s=r.output_tokens_per_s / share)
            for r in result.per_class
        ),
        pipelines=tuple(replace(r, requests_per_s=r.requests_per_s / share) for r in result.pipelines),
    )
