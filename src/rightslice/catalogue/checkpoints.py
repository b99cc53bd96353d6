"""Quantised checkpoints of the catalogue by the model that they were made from."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.models import hub_id, resolve_model


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One quantised checkpoint. `source`: where it says what it was made from; `date`: when that was read."""

    model: str
    dtype: str
    method: str
    weights_bytes: int
    source: str
    date: str


def quantised_checkpoints(source: str, architecture: Architecture, dtype: str) -> tuple[Checkpoint, ...]:
    """Checkpoints of the model `source` whose weights are mostly in `dtype`; `fp4` takes any 4-bit float.

    Both conditions must hold: the data names `source` as what the checkpoint was made from, and both configurations
    describe the same network.
    """
    document = read_json("checkpoints.json")
    base = hub_id(source).casefold()
    wanted = {"fp4", "nvfp4", "mxfp4"} if dtype == "fp4" else {dtype}
    found = []
    for row in document["checkpoints"]:
        if not base or base not in {name.casefold() for name in row["base"]}:
            continue
        made = resolve_model(row["model"])
        if made.published_dtype in wanted and _shape(made) == _shape(architecture):
            bytes_ = made.published_weights_bytes
            named = row["model"], made.published_dtype, made.quantisation
            found.append(Checkpoint(*named, bytes_, row["source"], document["as_of"]))
    return tuple(found)


def _shape(seen: Architecture) -> tuple[object, ...]:
    return (
        seen.kind, seen.layers, seen.hidden_size, seen.vocab_size, seen.query_heads, seen.kv_heads, seen.attention,
        seen.moe, seen.parameters,
    )  # fmt: skip
