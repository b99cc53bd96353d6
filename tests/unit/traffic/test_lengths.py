"""Token lengths: mean and p95 of what is drawn, the closed form behind it, and its limits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.core.rng import generator
from rightslice.traffic.lengths import DEFAULT_P95_OVER_MEAN, MAX_P95_OVER_MEAN, Z95, fitted, lengths

N = 4000


@given(st.floats(20.0, 50_000.0), st.floats(1.02, 3.6), st.integers(0, 1000))
def test_mean_and_p95_are_met(mean: float, ratio: float, seed: int) -> None:
    drawn = lengths(mean, mean * ratio, generator(seed, "lengths"), N)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert np.percentile(drawn, 95) == pytest.approx(mean * ratio, rel=0.02, abs=1.0)


@given(st.floats(20.0, 50_000.0), st.floats(1.02, 3.6), st.floats(1.05, 12.0), st.integers(0, 1000))
def test_clipping_keeps_the_mean(mean: float, ratio: float, room: float, seed: int) -> None:
    maximum = math.ceil(mean * room)
    drawn = lengths(mean, mean * ratio, generator(seed, "lengths"), N, maximum)
    assert 1 <= drawn.min() <= drawn.max() <= maximum
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert np.percentile(drawn, 95) == pytest.approx(min(mean * ratio, maximum), rel=0.02, abs=1.0)


@pytest.mark.parametrize("p95", [4.5, 10.0, 100.0])
def test_beyond_a_lognormal_the_mean_is_kept(p95: float) -> None:
    drawn = lengths(1000.0, 1000.0 * p95, generator(1, "lengths"), 50_000)
    assert drawn.mean() == pytest.approx(1000.0, rel=0.02)
    assert np.percentile(drawn, 95) == pytest.approx(1000.0 * MAX_P95_OVER_MEAN, rel=0.02)


def test_closed_form() -> None:
    """sigma = z - sqrt(z^2 - 2 ln(p95 / mean)), mu = ln(mean) - sigma^2 / 2."""
    mu, sigma = fitted(1e6, 2.5e6)
    assert sigma == pytest.approx(Z95 - math.sqrt(Z95**2 - 2 * math.log(2.5)), rel=1e-6)
    assert mu == pytest.approx(math.log(1e6) - sigma**2 / 2, rel=1e-6)
    assert pytest.approx(3.868, abs=5e-4) == MAX_P95_OVER_MEAN


@pytest.mark.parametrize(
    ("mean", "p95", "maximum", "expected"),
    [(500, 500, None, 500), (1, None, None, 1), (9000, 12_000, 8192, 8192), (8192, None, 8192, 8192)],
)
def test_degenerate_cases_are_constant(mean: int, p95: int | None, maximum: int | None, expected: int) -> None:
    assert set(lengths(mean, p95, generator(1, "lengths"), 500, maximum).tolist()) == {expected}


@pytest.mark.parametrize(("side", "column"), [("input", 1), ("output", 2)])
def test_default_spread_is_close_to_the_recorded_one(side: str, column: int) -> None:
    """The constants come from all 19,366 requests; the first 2,000 of them are near."""
    path = Path(__file__).parents[2] / "data" / "traces" / "azure_llm_2023_conv_head.csv"
    recorded = np.loadtxt(path, delimiter=",", skiprows=1)[:, column]
    default = DEFAULT_P95_OVER_MEAN["input" if side == "input" else "output"]
    assert np.percentile(recorded, 95) / recorded.mean() == pytest.approx(default, rel=0.15)
    drawn = lengths(1000, None, generator(1, "x"), N, side="input" if side == "input" else "output")
    assert np.percentile(drawn, 95) / drawn.mean() == pytest.approx(default, rel=0.02)


def test_short_runs_carry_the_load_asked_for() -> None:
    """Stratified: the mean of 100 draws is within 10 %; independent draws would miss by 19 % (one sigma)."""
    means = [lengths(1000, 3540, generator(seed, "x"), 100).mean() for seed in range(50)]
    assert max(abs(mean - 1000) for mean in means) < 200
    assert np.std(means) < 60


def test_same_seed_same_bytes() -> None:
    one, two, other = (lengths(700, 2000, generator(seed, "x"), 1000).tobytes() for seed in (1, 1, 2))
    assert one == two != other


@pytest.mark.parametrize(("mean", "n", "maximum"), [(0.5, 1, None), (math.nan, 1, None), (5, -1, None), (5, 1, 0)])
def test_nonsense_is_refused(mean: float, n: int, maximum: int | None) -> None:
    with pytest.raises(ValueError, match="lengths"):
        lengths(mean, None, generator(1, "x"), n, maximum)
    assert len(lengths(5, None, generator(1, "x"), 0)) == 0


@pytest.mark.parametrize(("mean", "p95", "maximum"), [(40, 80, 4095), (200, 500, 16_383), (1500, 4000, 131_071)])
def test_a_distant_maximum_changes_neither_mean_nor_p95(mean: int, p95: int, maximum: int) -> None:
    drawn = lengths(mean, p95, generator(0, "test"), 100_000, maximum)
    assert float(drawn.mean()) == pytest.approx(mean, rel=0.01)
    assert float(np.percentile(drawn, 95)) == pytest.approx(p95, rel=0.01)
