"""Tables of the catalogue: columns, filters, mistakes."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.tables import Filters, kinds, table
from rightslice.core.errors import BadInputError

GIB = 2**30


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind != "models"])
def test_every_table_is_plain_json_with_source_and_date(kind: str) -> None:
    found = table(kind)
    assert found.rows
    assert all(tuple(row) == found.columns for row in found.rows)
    assert json.loads(json.dumps(found.rows)) == [dict(row) for row in found.rows]
    assert all(row["source"] and row["date"] for row in found.rows)


def test_machines_are_filtered_by_every_filter_at_once() -> None:
    filters = Filters("gcp", "us-central1", "nvidia-a100-80gb", 60 * GIB, "reservation ultragpu-1g")
    (row,) = table("machines", filters=filters).rows
    assert (row["machine_type"], row["on_demand_usd_per_hour"]) == ("a2-ultragpu-1g", 5.0688)


def test_memory_is_compared_as_an_engine_sees_it() -> None:
    names = {row["accelerator"] for row in table("accelerators", filters=Filters(min_memory_bytes=80 * GIB)).rows}
    assert "H100-NVL-94GB" in names
    assert not {"A100-SXM-80GB", "H100-SXM-80GB"} & names


def test_slices_of_one_accelerator() -> None:
    rows = table("mig", filters=Filters(accelerator="H100-PCIe-80GB", min_memory_bytes=30 * GIB)).rows
    assert [row["profile"] for row in rows] == ["3g.40gb", "4g.40gb", "7g.80gb"]


def test_platforms_of_one_provider() -> None:
    assert [row["platform"] for row in table("platforms", filters=Filters(provider="aws")).rows] == ["eks", "eks-auto"]


def test_mistakes_in_filters_are_reported_together_with_a_hint() -> None:
    with pytest.raises(BadInputError) as caught:
        table("machines", filters=Filters(provider="gcpp", region="us-central", accelerator="H100"))
    found = {d.rule: d.hint for d in caught.value.diagnostics}
    assert set(found) == {"RS0312", "RS0314", "RS0318"}
    assert "H100-SXM-80GB" in found["RS0312"]
    assert "gcp" in found["RS0318"]
    assert "us-central1" in found["RS0314"]


def test_a_filter_that_does_not_apply_is_refused() -> None:
    with pytest.raises(BadInputError) as caught:
        table("engines", filters=Filters(region="us-east-1"))
    assert [d.rule for d in caught.value.diagnostics] == ["RS0502"]


def test_an_unknown_table_raises_key_error() -> None:
    with pytest.raises(KeyError):
        table("gpus")


def test_models_are_listed_by_name_and_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(name: str) -> Architecture:
        return Architecture(
            name=name, family="llama", kind="decoder", hidden_size=1, intermediate_size=1, layers=32, vocab_size=1,
            query_heads=1, kv_heads=1, tied_embeddings=False, parameters=8_030_261_248, active_parameters=1,
            embedding_parameters=1, vision_parameters=0, matmul_parameters=1, attention=(), moe=(), context_max=131072,
            published_dtype="bf16", published_weights_bytes=16, source="config.json",
        )  # fmt: skip

    stand_in = ModuleType("rightslice.catalogue.models")
    stand_in.__dict__.update(model_names=lambda: frozenset({"b/two", "a/one"}), resolve_model=resolve)
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    assert [row["model"] for row in table("models").rows] == ["a/one", "b/two"]
    (row,) = table("models", filters=Filters(text="LLAMA two")).rows
    assert (row["parameters"], row["context_max_tokens"]) == (8_030_261_248, 131072)
