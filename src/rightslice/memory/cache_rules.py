"""How each engine version divides its cache: the rows of `engine_cache.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.versions import version_key

_ASSUMED: Final = "sglang"
"""Engines without rows: the architecture's bytes in whole blocks, as there."""


@dataclass(frozen=True, slots=True)
class CacheRules:
    """See the head of the data file for each field."""

    windows: bool
    level_below: float
    steps_in_flight: Literal["none", "one", "all"]
    asynchronous: bool
    held_back_blocks: int
    pads_pages: bool
    check: Literal["layers", "groups"]
    log: Literal["", "blocks", "concurrency"]
    state_blocks: int
    checkpoint_blocks: int
    block_per_sequence: bool
    packs_blocks: bool
    packed_latents: Mapping[str, Sequence[str]]


@cache
def cache_rules(engine: str, version: str) -> CacheRules:
    """Rules of `engine` at `version` (newest when empty)."""
    table = read_json("engine_cache.json")["engines"]
    rows = table.get(engine) or table[_ASSUMED]
    wanted = version_key(version) if version else version_key(rows[-1]["until"])
    row = rows[0]
    for candidate in rows:
        if wanted >= version_key(candidate["from"]):
            row = candidate
    return CacheRules(**{k: v for k, v in row.items() if k not in ("from", "until", "source")})
