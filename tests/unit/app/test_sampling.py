"""A part of a large fleet shows what the whole does."""

from __future__ import annotations

import pytest

import workloads
from rightslice.app.sampling import ENOUGH_REQUESTS, LEAST_REPLICAS, of_the_whole, sampled
from rightslice.app.scenarios import Load, draw_loads, scenarios, servers
from rightslice.catalogue.models import resolve_model
from rightslice.core.results import SimulationResult
from rightslice.optimization.candidates import candidates
from rightslice.optimization.needs import needs
from rightslice.optimization.options import Option
from rightslice.optimization.sites import sites
from rightslice.procurement.offers import offers
from rightslice.simulation.run import simulate
from rightslice.spec.workload import Workload


@pytest.fixture(scope="module")
def busy() -> Workload:
    return workloads.chat(rate="400/s")


@pytest.fixture(scope="module")
def options(busy: Workload) -> dict[str, Option]:
    wanted = needs(busy, {"llm": resolve_model("meta-llama/Llama-3.1-8B-Instruct")}, {})
    offered, _ = offers(busy.fleet, interruptible=False)
    return {o.key: o for o in candidates(wanted, sites(offered, {"gcp": "gke"}), ("vllm",)).options}


@pytest.fixture(scope="module")
def load(busy: Workload) -> Load:
    return draw_loads(busy, needs(busy, {"llm": resolve_model("meta-llama/Llama-3.1-8B-Instruct")}, {}), {}, 0)[0]


def run(load: Load, counts: dict[str, int], options: dict[str, Option]) -> SimulationResult:
    return simulate(scenarios(load, servers(counts, options, lambda _: 1.0))[0])


def whole(options: dict[str, Option]) -> str:
    return next(k for k, o in options.items() if o.partition == "whole" and o.gpus == 1 and "A100" in k)


def test_a_small_fleet_is_simulated_whole(load: Load, options: dict[str, Option]) -> None:
    counts = {whole(options): 2 * LEAST_REPLICAS - 1}
    part = sampled(load, counts, options)
    assert (part.load, part.counts, part.share) == (load, counts, 1.0)


def test_a_part_has_its_share_of_requests_and_of_replicas(load: Load, options: dict[str, Option]) -> None:
    key = whole(options)
    for replicas in (40, 57, 400):
        part = sampled(load, {key: replicas}, options)
        assert part.share == part.counts[key] / replicas
        assert part.counts[key] >= LEAST_REPLICAS
        assert part.load.requests == pytest.approx(load.requests * part.share, rel=0.05)
        assert part.load.requests >= ENOUGH_REQUESTS * 0.9


def test_rounding_loads_every_option_at_least_as_much(load: Load, options: dict[str, Option]) -> None:
    key, other = whole(options), next(k for k in options if "L4" in k)
    part = sampled(load, {key: 300, other: 1}, options)
    assert part.share >= max(part.counts[key] / 300, part.counts[other] / 1)


def test_a_part_predicts_the_latency_of_the_whole(load: Load, options: dict[str, Option]) -> None:
    key = whole(options)
    counts = {key: 40}
    part = sampled(load, counts, options)
    assert part.share < 0.5
    small, large = run(part.load, dict(part.counts), options), run(load, counts, options)
    scaled = of_the_whole(small, part.share)
    assert scaled.per_class[0].requests_per_s == pytest.approx(large.per_class[0].requests_per_s, rel=0.05)
    assert small.per_class[0].tpot_ms
    assert large.per_class[0].tpot_ms
    assert small.per_class[0].tpot_ms.p95 == pytest.approx(large.per_class[0].tpot_ms.p95, rel=0.15)
