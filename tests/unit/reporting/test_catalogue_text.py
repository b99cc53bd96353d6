"""Catalogue tables on a terminal: what does not fit is named, never squeezed."""

from __future__ import annotations

import pytest

from rightslice.catalogue.tables import CatalogueTable
from rightslice.core.text import cells
from rightslice.reporting.catalogue_text import table_text

TABLE = CatalogueTable(
    ("machine_type", "accelerator", "accelerator_count", "on_demand_usd_per_hour", "mig", "source"),
    (
        {
            "machine_type": "a2-ultragpu-1g",
            "accelerator": "A100-SXM-80GB",
            "accelerator_count": 1.0,
            "on_demand_usd_per_hour": 5.06880,
            "mig": True,
            "source": "https://example.org/a-page-with-a-very-long-name",
        },
        {
            "machine_type": "odd\x1b[2J",
            "accelerator": "L4",
            "accelerator_count": 8.0,
            "on_demand_usd_per_hour": None,
            "mig": False,
            "source": "",
        },
    ),
    ("prices of 2026-08",),
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_fits_and_says_what_it_leaves_out(width: int) -> None:
    text = table_text(TABLE, width=width)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    flat = " ".join(text.split())
    assert "prices of 2026-08" in flat
    assert "2 rows" in flat
    assert ("lack of room" in flat) == (width < 200)
    if width == 200:
        assert "5.0688" in text
        assert "yes" in text


def test_numbers_stand_right_under_their_title_and_gaps_are_shown() -> None:
    lines = table_text(TABLE, width=200).splitlines()
    end = lines[0].index("on demand usd per hour") + len("on demand usd per hour")
    assert lines[1][:end].endswith("5.0688")
    assert lines[2][:end].endswith("–")


def test_what_is_the_same_in_every_row_is_said_once() -> None:
    text = table_text(CatalogueTable(TABLE.columns, (TABLE.rows[0], {**TABLE.rows[0], "mig": None}) * 2, ()), width=200)
    assert "In every row: machine type a2-ultragpu-1g, accelerator A100-SXM-80GB" in text
    assert text.splitlines()[0] == "mig"


def test_an_empty_table_is_no_failure() -> None:
    assert "0 rows" in table_text(CatalogueTable((), (), ("nothing matches",)))
