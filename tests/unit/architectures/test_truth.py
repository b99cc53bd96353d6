"""Every row of the truth table, reproduced from the shipped configuration alone."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.models import resolve_model
from rightslice.memory import cache

TABLE = Path(__file__).parents[2] / "data" / "model_truth" / "truth.csv"
ROWS = {row["model"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}
STATE_TOLERANCE = 0.01
QUANTISED_TOLERANCE = 0.001
PLAIN = "total x"


def whole(row: dict[str, str], column: str) -> int:
    return int(row[column] or 0)


def cached_bytes(row: dict[str, str], tokens: int) -> int:
    """The table's formula for the cache of one sequence, without the constant state."""
    growing = whole(row, "kv_bytes_per_token_bf16") + whole(row, "indexer_bytes_per_token_bf16")
    window = min(tokens, whole(row, "kv_window_tokens") or tokens)
    return tokens * growing + window * whole(row, "kv_bytes_per_token_windowed_layers")


@pytest.mark.parametrize("model", ROWS)
def test_row(model: str) -> None:
    row = ROWS[model]
    found = resolve_model(model.replace("--", "/", 1))

    assert found.parameters == whole(row, "total_params")
    assert found.active_parameters == whole(row, "active_params")
    assert found.approximations == ()
    assert found.tied_embeddings == (row["tied_embeddings"] == "true")
    assert str(found.context_max or "") == row["context_max"]
    if row["embedding_params"]:
        assert found.embedding_parameters == whole(row, "embedding_params")
    if row["vision_params"]:
        assert found.vision_parameters == whole(row, "vision_params")
    if row["experts_total"]:
        assert {(g.experts, g.experts_per_token) for g in found.moe} == {
            (whole(row, "experts_total"), whole(row, "experts_per_token"))
        }
    for tokens in (1_024, 32_768, 131_072):
        state = cache.state_bytes(found)
        assert cache.sequence_bytes(found, tokens, "bf16") - state == cached_bytes(row, tokens)
    assert cache.state_bytes(found) == pytest.approx(whole(row, "state_bytes_per_sequence"), rel=STATE_TOLERANCE)
    assert_weights(found, row)


def assert_weights(found: Architecture, row: dict[str, str]) -> None:
    published = row["weights_bytes_as_published_dtype"]
    if not published:
        return
    if row["weights_method"].startswith(PLAIN):
        assert found.published_weights_bytes == int(published)
    else:
        assert found.published_weights_bytes == pytest.approx(int(published), rel=QUANTISED_TOLERANCE)


def test_groups_hold_every_parameter_and_byte_once() -> None:
    for model in ROWS:
        found = resolve_model(model.replace("--", "/", 1))
        assert sum(group.parameters for group in found.weights) == found.parameters
        assert sum(group.published_bytes for group in found.weights) == found.published_weights_bytes
        assert found.matmul_parameters + found.routed_parameters <= found.parameters + found.embedding_parameters


def test_print_the_table() -> None:
    """Shown with `pytest -s`: relative error of each figure."""
    worst = 0.0
    sys.stdout.write(f"\n{'model':60} {'parameters':>16} {'weights':>9} {'KV B/token':>11} {'state':>8}\n")
    for model, row in ROWS.items():
        found = resolve_model(model.replace("--", "/", 1))
        published = row["weights_bytes_as_published_dtype"]
        weights = found.published_weights_bytes / int(published) - 1 if published else 0.0
        state = whole(row, "state_bytes_per_sequence")
        error = cache.state_bytes(found) / state - 1 if state else 0.0
        worst = max(worst, abs(weights), abs(error))
        per_token = cache.growing_bytes_per_token(found, "bf16")
        sys.stdout.write(f"{model:60} {found.parameters:>16,} {weights:>+9.3%} {per_token:>11,.0f} {error:>+8.3%}\n")
    assert worst < STATE_TOLERANCE
