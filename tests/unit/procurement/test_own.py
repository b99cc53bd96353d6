"""The worked example of an owned 8 x H100 node, and how the price of an owned hour moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.catalogue.machines import machines
from rightslice.catalogue.ownership import ownership, reference_node
from rightslice.procurement.own import Node, owning, pay_back_months, usd_per_gpu_hour, yearly_usd

ACCELERATOR, GPUS = reference_node()
NODE = Node(GPUS, **{name: assumption.value for name, assumption in ownership().items()})


@pytest.mark.parametrize(
    ("changes", "usd"),
    [
        ({}, 1.95),
        ({"years": 3}, 2.34),
        ({"years": 5}, 1.71),
        ({"engineers": 0.25}, 2.54),
        ({"load_share": 1.0, "pue": 1.3}, 1.98),
    ],
)
def test_the_worked_example(changes: dict[str, float], usd: float) -> None:
    assert usd_per_gpu_hour(replace(NODE, **changes)) == pytest.approx(usd, abs=0.005)  # type: ignore[arg-type]


def test_break_even_against_the_large_providers() -> None:
    found = owning(ACCELERATOR, GPUS, ownership(), machines()).break_even_utilisation
    assert {name: round(found[name], 2) for name in ("azure", "gcp", "aws")} == {
        "azure": 0.16,
        "gcp": 0.18,
        "aws": 0.28,
    }


def test_capital_without_interest_is_linear() -> None:
    node = replace(NODE, capital_cost=0.0, residual_share=0.0, network_share=0.0)
    assert yearly_usd(node).capital == pytest.approx(node.server_usd / node.years)
    near = replace(node, capital_cost=1e-9)
    assert yearly_usd(near).capital == pytest.approx(yearly_usd(node).capital, rel=1e-6)


@given(st.sampled_from(sorted(set(ownership()) - {"availability", "years", "residual_share"})), st.floats(1.0, 3.0))
def test_whatever_costs_more_makes_an_hour_dearer(name: str, factor: float) -> None:
    dearer = replace(NODE, **{name: getattr(NODE, name) * factor})
    assert usd_per_gpu_hour(dearer) >= usd_per_gpu_hour(NODE) - 1e-12


def test_it_is_paid_back_sooner_the_dearer_the_rent_and_never_below_its_running_costs() -> None:
    months = [pay_back_months(NODE, usd) for usd in (12.0, 7.0, 4.0)]
    assert all(m is not None for m in months)
    assert months == sorted(months, key=lambda m: m or 0.0)
    assert pay_back_months(NODE, 0.2) is None


def test_a_machine_without_a_gpu_network_is_not_comparable_where_there_is_one_with() -> None:
    rents = {rent.provider: rent for rent in owning(ACCELERATOR, GPUS, ownership(), machines()).rents}
    assert rents["azure"].machine_type == "Standard_ND96isr_H100_v5"


def test_every_figure_lies_in_its_range_and_says_where_it_is_from() -> None:
    for assumption in ownership().values():
        assert assumption.low <= assumption.value <= assumption.high
        assert assumption.source
        assert assumption.quality in {"published", "assumed"}
