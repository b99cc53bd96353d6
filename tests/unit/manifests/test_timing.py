"""Start-up budgets and orderly stops."""

from __future__ import annotations

import pytest

from rightslice.core.estimate import Estimate
from rightslice.manifests.timing import Shutdown, shutdown, startup_budget_s


@pytest.mark.parametrize(
    ("weights_bytes", "budget_s"),
    [(0, 600), (40_000_000_000, 600), (60_000_000_000, 790), (140_000_000_000, 1600), (1_342_000_000_000, 13_780)],
)
def test_budget_is_twice_a_simulated_start_and_ten_minutes_at_least(weights_bytes: int, budget_s: int) -> None:
    assert startup_budget_s(weights_bytes) == budget_s


@pytest.mark.parametrize(
    ("high_ms", "notice_s", "expected"),
    [
        (None, None, Shutdown(15, 45, 15)),
        (8_000.0, None, Shutdown(15, 45, 15)),
        (60_000.0, None, Shutdown(15, 120, 15)),
        (9e6, None, Shutdown(15, 600, 15)),
        (60_000.0, 120.0, Shutdown(5, 110, 5)),
        (8_000.0, 120.0, Shutdown(15, 45, 15)),
        (8_000.0, 15.0, Shutdown(5, 5, 5)),
    ],
)
def test_drain_follows_the_longest_requests_within_the_notice(
    high_ms: float | None, notice_s: float | None, expected: Shutdown
) -> None:
    e2e = Estimate(high_ms / 2, high_ms / 4, high_ms, "measured") if high_ms else None
    found = shutdown(e2e, notice_s)
    assert found == expected
    assert notice_s is None or found.grace_s <= notice_s
