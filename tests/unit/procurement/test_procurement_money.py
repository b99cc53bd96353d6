"""Hours, bands, dates."""

from __future__ import annotations

import pytest

from rightslice.catalogue.machines import machines
from rightslice.procurement.money import (
    QUALITY_BANDS,
    hours_per_month,
    monthly_usd,
    oldest_date,
    price_band,
    spot_band,
    worst_quality,
)


def test_hours_and_months() -> None:
    assert hours_per_month("always") == 730.0
    assert hours_per_month("office") == pytest.approx(216.67, abs=0.01)
    assert monthly_usd(5.0688) == pytest.approx(3700.2, abs=0.05)
    assert monthly_usd(6.0, "office") == pytest.approx(1300.0)


def test_every_quality_of_the_catalogue_has_a_band_around_one() -> None:
    qualities = {machine.quality.partition("+")[0] for machine in machines()}
    assert qualities == set(QUALITY_BANDS)
    for quality in qualities:
        low, high = price_band(quality)
        assert low <= 1.0 <= high
    assert price_band("exact") == price_band("exact+spot_derived") == (1.0, 1.0)
    assert price_band("derived_family_ratio+spot_derived") == price_band("derived_family_ratio") != (1.0, 1.0)
    assert price_band("never seen") == price_band("list_may_be_stale")


def test_spot_may_rise_to_the_list_price_and_not_fall_below_it() -> None:
    assert spot_band(2.0, 5.0) == (0.45, 2.5)
    assert spot_band(5.0, 4.0)[1] == 1.0
    assert spot_band(2.0, None)[1] == pytest.approx(1 / 0.45)


def test_combining_sources() -> None:
    assert oldest_date(["2026-08-03", "2026-07", "2026-H2", ""]) == "2026-07"
    assert oldest_date(["2026-02-01", "2026-H1"]) == "2026-H1"
    assert oldest_date([]) == ""
    assert worst_quality(["exact", "exact_no_local_ssd", "derived_family_ratio"]) == "derived_family_ratio"
    assert worst_quality([]) == "owned"
