"""Prefix caches, routers, priorities and admission: from the workload to the scenario that is simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightslice.app.knowledge import known_names
from rightslice.app.rating import ceiling, simulated_rate, unreachable
from rightslice.app.sampling import sampled
from rightslice.app.scaling import knee
from rightslice.app.scenarios import Load, draw_loads, scenarios, server
from rightslice.catalogue.engines import engine
from rightslice.catalogue.models import resolve_model
from rightslice.optimization.candidates import candidates
from rightslice.optimization.needs import Need, needs
from rightslice.optimization.options import Option
from rightslice.optimization.sites import sites
from rightslice.procurement.offers import offers
from rightslice.simulation.scenario import LlmServer
from rightslice.spec.loader import parse_workload
from rightslice.spec.workload import Workload

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LENGTHS = "input_tokens: 400, output_tokens: 100"


def workload(*classes: str, model: str = "isolation: none") -> Workload:
    """One language model with these classes and a line of its own."""
    document = f"""
apiVersion: rightslice/v1
kind: Workload
metadata: {{name: chat}}
models:
  - name: llm
    source: {LLAMA}
    max_context: 8192
    {model}
    traffic: [{", ".join("{" + one + "}" for one in classes)}]
fleet: {{providers: [gcp], regions: [us-central1], accelerators: {{allow: [A100-SXM-80GB, L4]}}}}
environment: development
"""
    return parse_workload(document, file="w.yaml", known=known_names()).workload


def need_of(asked: Workload) -> Need:
    return needs(asked, {"llm": resolve_model(LLAMA)}, {})[0]


def option_of(asked: Workload) -> Option:
    """One whole A100."""
    offered, _ = offers(asked.fleet, interruptible=False)
    found = candidates([need_of(asked)], sites(offered, {"gcp": "gke"}), ("vllm",)).options
    return next(o for o in found if o.partition == "whole" and o.gpus == 1 and "A100" in o.key)


def load_of(asked: Workload) -> Load:
    return draw_loads(asked, needs(asked, {"llm": resolve_model(LLAMA)}, {}), {}, 0)[0]


def test_a_class_brings_its_priority_and_its_timeout() -> None:
    load = load_of(workload(f"class: a, rate: 2/s, {LENGTHS}, priority: 7, timeout: 30s", f"rate: 1/s, {LENGTHS}"))
    assert [(c.name, c.priority, c.timeout_s) for c in load.classes] == [("a", 7, 30.0), ("default", 1, None)]


@pytest.mark.parametrize(
    ("router", "policy", "weights", "age_s"),
    [
        ("round_robin", "round-robin", (1.0, 1.0, 0.0), 0.0),
        ("least_requests", "least-requests", (1.0, 1.0, 0.0), 0.0),
        ("power_of_two", "two-choices", (1.0, 1.0, 0.0), 0.0),
        ("kv_aware", "score", (1.0, 1.0, 0.0), 0.0),
        ("prefix_aware", "score", (1.0, 1.0, 1.0), 0.0),
        ("{policy: prefix_aware, queue_weight: 2, kv_weight: 0, prefix_weight: 3, signal_age: 50ms}", "score",
         (2.0, 0.0, 3.0), 0.05),
    ],
)  # fmt: skip
def test_a_router_is_simulated_as_stated(router: str, policy: str, weights: tuple[float, ...], age_s: float) -> None:
    asked = workload(f"rate: 2/s, {LENGTHS}", model=f"router: {router}")
    (scenario,) = scenarios(load_of(asked), (server(option_of(asked), "llm", 2, 1.0),))
    found = scenario.routing["llm"]
    assert (found.policy, found.queue_weight, found.kv_weight, found.prefix_weight) == (policy, *weights)
    assert found.signal_age_s == age_s


def test_a_knee_is_that_of_as_few_replicas_as_are_left() -> None:
    """Eight replicas keep an eighth of the prefixes each; one alone meets its objectives at a lower rate only."""
    shared = "prefix: {tokens: 4000, distinct: 150}, slo: {ttft_p95: 1s, tpot_p95: 60ms}"
    asked = workload(f"rate: 2/s, {LENGTHS}, {shared}", model="router: prefix_aware")
    need, option = need_of(asked), option_of(asked)
    most = ceiling(need, option, 1.0, None).requests_per_s
    eight = simulated_rate(need, option, 8, 1.0, {}, at_most_per_s=most).requests_per_s
    together, alone = (knee(need, option, count, eight, {}) for count in (8, 1))
    assert together.requests_per_s == eight
    assert alone.requests_per_s < eight


def test_without_a_router_nothing_is_routed_by_name() -> None:
    assert load_of(workload(f"rate: 2/s, {LENGTHS}")).routing == {}


@pytest.mark.parametrize(
    ("name", "admission"), [("vllm", "prompt"), ("sglang", "estimate"), ("tensorrt-llm", "answer")]
)
def test_an_engine_is_verified_with_its_own_rule_of_admission(name: str, admission: str) -> None:
    option = option_of(workload(f"rate: 2/s, {LENGTHS}"))
    assert option.settings
    built = server(replace(option, settings=replace(option.settings, engine=name)), "llm", 1, 1.0)
    assert isinstance(built, LlmServer)
    assert built.admission == engine(name).admission == admission
    assert built.prefill_first == (name == "sglang")


def test_blocks_fit_the_engines_of_the_model() -> None:
    """16 tokens as drawn; an engine with blocks of 32 compares 32 at a time, one with single tokens 16."""
    asked = workload(f"rate: 2/s, {LENGTHS}, prefix: {{tokens: 640}}")
    option = option_of(asked)
    assert option.settings
    for block, expected in ((16, 16), (32, 32), (1, 16)):
        built = server(replace(option, settings=replace(option.settings, block_size_tokens=block)), "llm", 1, 1.0)
        (scenario,) = scenarios(load_of(asked), (built,))
        prefixes = scenario.classes[0].prefixes
        assert prefixes
        assert prefixes.block_tokens == expected


@pytest.mark.parametrize(("told", "caches"), [("", True), ("engine: {prefix_caching: false}", False)])
def test_the_engine_caches_unless_it_is_told_not_to(told: str, caches: bool) -> None:
    option = option_of(workload(f"rate: 2/s, {LENGTHS}", model=told or "isolation: none"))
    built = server(option, "llm", 1, 1.0)
    assert isinstance(built, LlmServer)
    assert built.prefix_caching == option.caches_prefixes == caches
    assert option.settings
    args = engine("vllm").arguments(option.settings, LLAMA)
    assert ("--no-enable-prefix-caching" in args, "--enable-prefix-caching" in args) == (not caches, caches)


@pytest.mark.parametrize(("priorities", "flag"), [((1, 1), None), ((3, 3), None), ((5, 1), "priority")])
def test_priorities_bring_their_flag_only_where_they_differ(priorities: tuple[int, int], flag: str | None) -> None:
    asked = workload(*(f"class: c{i}, rate: 1/s, {LENGTHS}, priority: {p}" for i, p in enumerate(priorities)))
    settings = option_of(asked).settings
    assert settings
    assert engine("vllm").arguments(settings, LLAMA).get("--scheduling-policy") == flag


def test_a_part_of_the_load_keeps_whole_sessions() -> None:
    asked = workload(f"rate: 400/s, {LENGTHS}, sessions: {{turns: 4, gap: 5s}}")
    load, option = load_of(asked), option_of(asked)
    part = sampled(load, {option.key: 64}, {option.key: option})
    assert part.share < 0.5
    whole, kept = load.classes[0].arrivals.sharing, part.load.classes[0].arrivals.sharing
    assert whole
    assert kept
    assert whole.session is not None
    assert kept.session is not None
    sessions = int(whole.session.max()) + 1
    before, after = (np.bincount(found[found >= 0], minlength=sessions) for found in (whole.session, kept.session))
    assert set(after[before > 0].tolist()) <= set(before.tolist()) | {0}
    assert ((after == 0) | (after == before)).all()
    assert (after > 0).mean() == pytest.approx(part.share, abs=0.05)


def test_recorded_prompts_of_unknown_sessions_are_not_divided() -> None:
    asked = workload(f"rate: 400/s, {LENGTHS}, prefix: {{tokens: 320}}")
    load, option = load_of(asked), option_of(asked)
    found = load.classes[0]
    assert found.arrivals.sharing
    loose = replace(found.arrivals, sharing=replace(found.arrivals.sharing, session=None))
    whole = replace(load, classes=(replace(found, arrivals=loose),))
    assert sampled(load, {option.key: 64}, {option.key: option}).share < 0.5
    assert sampled(whole, {option.key: 64}, {option.key: option}).share == 1.0


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        ("prefix: {tokens: 1200, distinct: 3000}", 1200 / 1600),
        ("sessions: {turns: 4, gap: 300s}", 2700 / 4600),
        ("prefix_hit_rate: 0.4", 0.4),
        ("sessions: {turns: 4, gap: 300s, carries_history: false}", 0.0),
    ],
)
def test_the_bound_before_the_simulation_takes_what_is_shared_at_best(sharing: str, expected: float) -> None:
    """However long a session lasts and however many prefixes there are."""
    assert need_of(workload(f"rate: 20/s, {LENGTHS}, {sharing}")).prefix_hit_ceiling == pytest.approx(
        expected, abs=0.015
    )


def test_no_option_carries_more_than_its_bound_though_prompts_are_found_again() -> None:
    asked = workload(f"rate: 4/s, {LENGTHS}, prefix: {{tokens: 3000}}, slo: {{ttft_p95: 1s, tpot_p95: 80ms}}")
    need, option = need_of(asked), option_of(asked)
    most = ceiling(need, option, 1.0, None).requests_per_s
    real = simulated_rate(need, option, 1, 1.0, {}, at_most_per_s=2.0 * most).requests_per_s
    assert 0.2 * most < real <= most * 1.08
    assert option.settings
    cold = replace(option, settings=replace(option.settings, prefix_caching=False))
    assert ceiling(need, cold, 1.0, None).requests_per_s < 0.7 * most


def test_an_objective_that_only_a_warm_cache_keeps_does_not_rule_an_option_out() -> None:
    asked = workload(f"rate: 1/s, {LENGTHS}, prefix: {{tokens: 6000}}, slo: {{ttft_p95: 250ms}}")
    need, option = need_of(asked), option_of(asked)
    assert option.settings
    cold = replace(option, settings=replace(option.settings, prefix_caching=False))
    assert unreachable(need, option, 1.0).missed is None
    assert unreachable(need, cold, 1.0).missed is not None


def test_how_a_stated_hit_rate_is_taken_is_said() -> None:
    alone = need_of(workload(f"rate: 1/s, {LENGTHS}, prefix_hit_rate: 0.3, prefix: {{distinct: 50}}"))
    assert any("those of one of 50 texts" in text for text in alone.assumptions)
    within = need_of(workload(f"rate: 1/s, {LENGTHS}, prefix_hit_rate: 0.3, sessions: {{turns: 3, gap: 9s}}"))
    assert any("limits what its sessions share" in text for text in within.assumptions)
