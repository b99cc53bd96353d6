"""Quantities: what people write, what is refused, and what the refusal suggests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.core.quantities import (
    QuantityError,
    format_bytes,
    format_seconds,
    format_usd,
    parse_bytes,
    parse_count,
    parse_rate,
    parse_seconds,
    parse_usd,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_bytes, "80GB", 80_000_000_000),
        (parse_bytes, "80GiB", 85_899_345_920),
        (parse_bytes, "13.4 GiB", 14_388_140_442),
        (parse_seconds, "800ms", 0.8),
        (parse_seconds, "6h", 21_600.0),
        (parse_rate, "12/s", 12.0),
        (parse_rate, "90/min", 1.5),
        (parse_usd, "$20,000", 20_000.0),
        (parse_usd, "$0.10", 0.1),
        (parse_count, "2e9", 2_000_000_000),
        (parse_count, "128k", 128_000),
    ],
)
def test_units_are_understood(parse: object, text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("parse", "value", "unit_missing", "suggestion"),
    [
        (parse_bytes, "80 GBs", False, "try 80GB or 80GiB"),
        (parse_bytes, 80, True, "try 80GB or 80GiB"),
        (parse_bytes, "12 tb", False, "try 12TB or 12TiB"),
        (parse_seconds, "800", True, "try 800ms or 800s"),
        (parse_rate, 12, True, "try 12/s or 12/min"),
        (parse_usd, 20_000, True, "try $20000"),
        (parse_count, "many", False, "try 1500 or 2e9"),
    ],
)
def test_refusals_suggest_the_right_form(parse: object, value: object, unit_missing: bool, suggestion: str) -> None:
    with pytest.raises(QuantityError, match="try") as caught:
        parse(value)  # type: ignore[operator]
    assert suggestion in str(caught.value)
    assert caught.value.unit_missing is unit_missing


@given(st.one_of(st.text(max_size=80), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers())))
def test_nothing_but_a_quantity_error_escapes(value: object) -> None:
    for parse in (parse_bytes, parse_seconds, parse_rate, parse_usd, parse_count):
        try:
            parse(value)
        except QuantityError as error:
            assert str(error)


def test_formats() -> None:
    assert format_bytes(54_865_000_000) == "54.9 GB"
    assert format_bytes(54_865_000_000, binary=True) == "51.1 GiB"
    assert [format_usd(x) for x in (7401.2, 5.07, 0.1)] == ["$7,401", "$5.07", "$0.10"]
    assert [format_seconds(x) for x in (0.612, 2.31, 280.0)] == ["612 ms", "2.31 s", "4 min 40 s"]
