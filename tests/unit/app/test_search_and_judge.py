"""Ceilings bound what is simulated; the search keeps the objectives; draws and their early stop agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import workloads
from rightslice.app.clock import Clock
from rightslice.app.judge import DRAWS, at_quantile, drawn, holds, judge, sigma
from rightslice.app.planning import plan_workload
from rightslice.app.rating import ceiling, simulated_rate, unreachable
from rightslice.app.scenarios import draw_loads
from rightslice.app.search import Found, search
from rightslice.app.state import Question, State, moved
from rightslice.catalogue.models import resolve_model
from rightslice.core.plan import Plan
from rightslice.optimization.candidates import candidates
from rightslice.optimization.needs import needs
from rightslice.optimization.propose import Market
from rightslice.optimization.sites import sites
from rightslice.procurement.offers import offers
from workloads import CHAT


def quiet(_message: str) -> None:
    return


@pytest.fixture(scope="module")
def question() -> Question:
    workload = workloads.chat()
    wanted = needs(workload, {"llm": resolve_model("meta-llama/Llama-3.1-8B-Instruct")}, {})
    offered, _ = offers(workload.fleet, interruptible=False)
    market = Market(offered, {"gcp": "gke"}, {})
    options = candidates(wanted, sites(offered, market.platform_of), ("vllm",)).options
    loads = draw_loads(workload, wanted, {}, 0)
    return Question(wanted, {o.key: o for o in options}, market, loads, {}, Clock(), {})


@pytest.fixture(scope="module")
def found(question: Question) -> Found:
    return search(question, at_quantile(1.0), quiet)


def plan(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "w.yaml"
    path.write_text(text.replace("EXTRA", "isolation: none").replace("ENVIRONMENT", "development"))
    return plan_workload(path).plan


def test_no_option_carries_more_in_simulation_than_its_ceiling(question: Question) -> None:
    """Within 8 %: a run of a minute or two ends before a small overload has piled up."""
    need = question.needs[0]
    checked = 0
    for option in question.options.values():
        most = ceiling(need, option, 1.0, None).requests_per_s
        if most > 0 and option.partition in ("whole", "3g.40gb"):
            real = simulated_rate(need, option, 1, 1.0, {}, at_most_per_s=2.0 * most).requests_per_s
            assert real <= most * 1.08, option.key
            checked += 1
    assert checked >= 3


def test_the_search_keeps_every_objective_and_never_beats_its_bound(found: Found) -> None:
    assert found.verified
    assert all(result.slos_met for result in found.results)
    assert found.proposal.packing.usd_per_hour >= found.first.proposal.packing.bound_usd_per_hour - 1e-9


def test_nothing_cheaper_next_to_it_works(question: Question, found: Found) -> None:
    counts = found.proposal.counts
    for key in counts:
        less = moved(counts, key, None)
        if less:
            assert not found.state.holds(less)


def test_larger_errors_never_raise_a_rate(question: Question) -> None:
    low, high = (State.optimistic(question, at_quantile(z)).rates for z in (0.0, 1.5))
    assert all(high[key].requests_per_s <= low[key].requests_per_s for key in question.options)


def test_draws_depend_on_model_and_accelerator_only_and_have_the_band_asked_for(question: Question) -> None:
    option = next(o for o in question.options.values() if o.partition == "whole" and o.gpus == 1)
    twin = next(o for o in question.options.values() if o.accelerator == option.accelerator and o.gpus == 2)
    factors = [drawn(0, number)(option) for number in range(400)]
    assert factors[:5] == [drawn(0, number)(option) for number in range(5)]
    if sigma(twin) == sigma(option):
        assert drawn(0, 7)(twin) == drawn(0, 7)(option)
    inside = sum(1 / (1 + option.relative_error) <= f <= 1 + option.relative_error for f in factors)
    assert inside / len(factors) == pytest.approx(0.8, abs=0.06)


def test_the_early_stop_agrees_with_all_draws(question: Question, found: Found) -> None:
    evidence = judge(question, found.proposal, found.rounds, 0)
    assert evidence.verification.draws == DRAWS
    for risk in (0.02, 0.1, 0.3):
        assert holds(question, found.proposal, 0, risk) == (evidence.probability >= 1.0 - risk - 1e-9)
    model = evidence.models["llm"]
    assert model.ttft_ms is not None
    assert model.ttft_ms.low <= model.ttft_ms.value <= model.ttft_ms.high
    assert {slo.slo.name for slo in model.slos} == {"ttft_p95", "tpot_p95"}


def test_an_option_that_is_too_slow_when_idle_says_by_how_much(question: Question) -> None:
    need = question.needs[0]
    slowest = max(question.options.values(), key=lambda o: unreachable(need, o, 50.0).reached_s)
    verdict = unreachable(need, slowest, 50.0)
    assert verdict.missed is not None
    assert verdict.reached_s > verdict.missed.at_most_s
    assert ceiling(need, slowest, 50.0, None).requests_per_s == 0


def test_more_traffic_never_costs_less_and_looser_objectives_never_cost_more(tmp_path: Path) -> None:
    text = CHAT.replace("FLEET", "")
    base = plan(tmp_path, text)
    more = plan(tmp_path, text.replace("peak: 4/s", "peak: 12/s"))
    looser = plan(tmp_path, text.replace("ttft_p95: 2s, tpot_p95: 80ms", "ttft_p95: 8s, tpot_p95: 200ms"))
    assert base.monthly_usd
    assert more.monthly_usd
    assert looser.monthly_usd
    assert looser.monthly_usd.value <= base.monthly_usd.value <= more.monthly_usd.value


def test_token_prices_share_the_cost_of_the_model(tmp_path: Path) -> None:
    made = plan(tmp_path, CHAT.replace("FLEET", ""))
    assert made.monthly_usd
    assert made.usd_per_million_input_tokens
    assert made.usd_per_million_output_tokens
    seconds = 730 * 3600
    spent = 2.0 * seconds * (800 * made.usd_per_million_input_tokens + 150 * made.usd_per_million_output_tokens) / 1e6
    assert spent == pytest.approx(made.monthly_usd.value, rel=0.02)


def test_a_budget_that_is_too_small_is_a_no_with_the_closest_plan(tmp_path: Path) -> None:
    made = plan(tmp_path, CHAT.replace("FLEET", "") + "budget: {monthly: $10}\n")
    assert not made.feasible
    assert made.pools
    assert made.binding
    assert made.binding.what.startswith("budget.monthly $10")


def test_a_replica_that_can_carry_next_to_nothing_has_a_rate_all_the_same(question: Question) -> None:
    option = next(iter(question.options.values()))
    for most in (0.0, 1e-9, 1e-4, 2e-3):
        rate = simulated_rate(question.needs[0], option, 2, 1.0, {}, at_most_per_s=most)
        assert 0.0 <= rate.requests_per_s <= most
