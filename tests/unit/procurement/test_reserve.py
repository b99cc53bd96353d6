"""The reservation that costs least, against every other size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.procurement.reserve import Prices, Series, best_gpus, reservation, total_usd


def year(seed: int = 0) -> Series:
    """8 + 5 sin(daily) + N(0, 1.5) for 8,760 hours, never negative."""
    hours = np.arange(8760)
    noise = np.random.default_rng(seed).normal(0.0, 1.5, hours.size)
    demand: Series = np.maximum(8.0 + 5.0 * np.sin(2.0 * np.pi * hours / 24.0) + noise, 0.0)
    return demand


@pytest.mark.parametrize(
    ("discount", "gpus", "share"),
    [(0.25, 5, 0.901), (0.31, 5, 0.864), (0.37, 6, 0.820), (0.45, 7, 0.753), (0.55, 9, 0.653), (0.65, 10, 0.535)],
)
def test_the_synthetic_year(discount: float, gpus: int, share: float) -> None:
    demand, prices = year(), Prices(1.0 - discount, 1.0)
    assert best_gpus(demand, prices) == gpus
    assert total_usd(demand, gpus, prices) / demand.sum() == pytest.approx(share, abs=0.005)


@given(
    demand=st.lists(st.one_of(st.integers(0, 30), st.floats(0.0, 30.0)), min_size=1, max_size=200),
    reserved=st.floats(0.01, 2.0),
    quantum=st.integers(1, 9),
)
def test_no_other_size_costs_less(demand: list[float], reserved: float, quantum: int) -> None:
    series, prices = np.array(demand, dtype=float), Prices(reserved, 1.0)
    best = total_usd(series, best_gpus(series, prices, quantum), prices)
    assert best_gpus(series, prices, quantum) % quantum == 0
    assert best <= min(total_usd(series, gpus, prices) for gpus in range(0, 60, quantum)) + 1e-5


def test_totals_bound_each_other_and_the_peak_leaves_no_hour_short() -> None:
    found = reservation(year(), Prices(4.75, 6.88))
    assert found.total_usd <= min(found.all_on_demand_usd, found.all_reserved_usd)
    levels = {level.name: level for level in found.levels}
    assert levels["peak"].short_hours == 0
    assert levels["p95"].premium_usd >= levels["p90"].premium_usd > 0.0 == levels["cheapest"].premium_usd


def test_a_size_pays_from_its_break_even_discount_on() -> None:
    demand = year()
    for level in reservation(demand, Prices(0.6, 1.0)).levels[1:]:
        assert level.break_even_discount is not None
        at = Prices(1.0 - level.break_even_discount, 1.0)
        assert total_usd(demand, level.gpus, at) == pytest.approx(total_usd(demand, 0, at))


def test_nothing_is_reserved_at_the_same_price() -> None:
    found = reservation(year(), Prices(1.0, 1.0))
    assert (found.reserve_gpus, found.percentile) == (0, 0.0)


def test_whole_days_above_the_reservation_are_dated_peaks() -> None:
    demand = np.full(240, 4.0)
    demand[48:120] = 11.0
    (peak,) = reservation(demand, Prices(0.9, 1.0)).peaks
    assert (peak.start_hour, peak.hours, peak.gpus) == (48, 72, 7)
    assert not reservation(demand[:40], Prices(0.9, 1.0)).peaks


@pytest.mark.parametrize("demand", [[], [1.0, -1.0], [float("nan")], [float("inf")]])
def test_a_demand_that_is_none_is_refused(demand: list[float]) -> None:
    with pytest.raises(ValueError, match="demand must be"):
        reservation(np.array(demand), Prices(0.5, 1.0))
