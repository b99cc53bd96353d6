"""Quantised siblings in our own catalogue are found by what they were made from."""

from __future__ import annotations

from importlib.resources import files

import pytest

from rightslice.catalogue.checkpoints import quantised_checkpoints
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.models import model_exists, resolve_model

DOCUMENT = read_json("checkpoints.json")
ROWS = {row["model"]: row for row in DOCUMENT["checkpoints"]}
SHIPPED = sorted(
    item.name.removesuffix(".json").replace("--", "/", 1)
    for item in (files("rightslice.catalogue") / "data" / "architectures").iterdir()
)
QUANTISED = [model for model in SHIPPED if resolve_model(model).quantisation]


@pytest.mark.parametrize("model", QUANTISED)
def test_every_quantised_model_names_its_origin(model: str) -> None:
    assert (model in ROWS) != (model in DOCUMENT["not_proposed"])


@pytest.mark.parametrize("model", ROWS)
def test_a_checkpoint_is_found_from_each_base_that_the_catalogue_holds(model: str) -> None:
    made = resolve_model(model)
    for base in ROWS[model]["base"]:
        if not model_exists(base) or resolve_model(base).quantisation:
            continue  # not shipped, or the original itself is quantised
        found = quantised_checkpoints(base, resolve_model(base), made.published_dtype)
        assert model in [checkpoint.model for checkpoint in found]
        assert all(checkpoint.date and checkpoint.source for checkpoint in found)


def test_the_eight_bit_sibling_of_a_dense_model() -> None:
    found = quantised_checkpoints("Qwen3-32B", resolve_model("Qwen3-32B"), "fp8")
    assert [checkpoint.model for checkpoint in found] == ["Qwen/Qwen3-32B-FP8-Static-PerTensor"]
