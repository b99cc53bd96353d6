"""Further configuration classes at their default sizes: exact, or said to be approximate, or refused; never silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.core.errors import BadInputError

ROWS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "model_truth" / "later_families.json").read_text()
)
SILENT: Final = 0.01


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model_type"])
def test_default_sizes(row: dict[str, Any]) -> None:
    raw = {**row["config"], "model_type": row["model_type"], "architectures": [row["class"]]}
    try:
        found = read_architecture(raw, row["model_type"])
    except BadInputError as error:
        assert not row["exact"]
        assert error.code in ("RS0311", "RS2007")
        return
    if row["exact"]:
        assert found.parameters == row["parameters"]
    elif not found.approximations:
        assert found.parameters == pytest.approx(row["parameters"], rel=SILENT)


def test_how_many_are_exact() -> None:
    assert len(ROWS) >= 200
    assert sum(row["exact"] for row in ROWS) >= 80
